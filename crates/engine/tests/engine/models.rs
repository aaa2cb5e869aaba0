//! Cursors and credit against models of a few lines, through a whole node.

use std::collections::BTreeMap;

use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self};
use lockgate_wire::{ConnectionId, ErrorKind};
use proptest::prelude::*;

use crate::support::{FaultyDisk, Node, batch, config, publish};

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Publish,
    Commit(&'static str, u64, bool),
    Delete(&'static str),
    /// Time for checkpoints.
    Advance,
    StartAgain {
        in_order: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || prop::sample::select(&NAMES[..]);
    let step = prop_oneof![
        3 => Just(Step::Publish),
        6 => (name(), 0..12_u64, any::<bool>()).prop_map(|(name, offset, force)| Step::Commit(name, offset, force)),
        2 => name().prop_map(Step::Delete),
        1 => Just(Step::Advance),
        2 => any::<bool>().prop_map(|in_order| Step::StartAgain { in_order }),
    ];
    prop::collection::vec(step, 1..40)
}

fn cursors(node: &mut Node, c: ConnectionId, topic_id: u64) -> BTreeMap<String, u64> {
    let list = proto::ListCursors { topic_id, partition: 0, after: String::new(), limit: 10 };
    let listed: proto::ListCursorsOk = node.ask(c, &list);
    listed.cursors.into_iter().map(|cursor| (cursor.name, cursor.offset)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// The model is a map: it goes forward, back only with force, nowhere beyond the end, and outlives every start.
    #[test]
    fn cursors_are_a_map_that_outlives_every_start(steps in steps()) {
        // Small journal files: a start makes new ones.
        let mut config = config(2);
        (config.journal.file_bytes, config.journal.max_write_bytes) = (1 << 18, 1 << 17);
        let mut node = Node::start(FaultyDisk::default(), config);
        let mut c = node.connect(0);
        let topic_id = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "64KiB")]);
        let (mut end, mut model) = (0, BTreeMap::new());
        for step in steps {
            match step {
                Step::Publish => {
                    node.publish(c, topic_id, 0, batch(&["x"])).unwrap();
                    end += 1;
                }
                Step::Commit(name, offset, force) => {
                    let body = proto::CommitCursor { topic_id, partition: 0, name: name.into(), offset, force };
                    let answer = node.try_ask::<_, proto::CommitCursorOk>(c, &body).map_err(|error| error.kind);
                    let is_back = model.get(name).is_some_and(|at| offset < *at) && !force;
                    match answer {
                        Ok(_) => {
                            prop_assert!(offset <= end && !is_back);
                            model.insert(name.to_owned(), offset);
                        }
                        Err(ErrorKind::OffsetOutOfRange) => prop_assert!(offset > end),
                        Err(ErrorKind::CursorBackwards) => prop_assert!(is_back),
                        Err(kind) => prop_assert!(false, "{:?}", kind),
                    }
                }
                Step::Delete(name) => {
                    let body = proto::DeleteCursor { topic_id, partition: 0, name: name.into() };
                    let existed = node.ask::<_, proto::DeleteCursorOk>(c, &body).existed;
                    prop_assert_eq!(existed, model.remove(name).is_some());
                }
                Step::Advance => node.advance(60_000),
                Step::StartAgain { in_order } => {
                    node = if in_order { node.restart() } else { node.crash() };
                    c = node.connect(1);
                }
            }
            prop_assert_eq!(cursors(&mut node, c, topic_id), model.clone());
        }
    }
}

/// What a reader knows: the sizes of the batches that it has not got, and what it granted and was not sent.
struct Reader {
    waiting: Vec<i64>,
    taken: usize,
    left: i64,
    most: i64,
}

impl Reader {
    /// Whether the next batch may come: it fits, or it can never fit and nothing is outstanding.
    fn may_get_next(&self) -> bool {
        let Some(bytes) = self.waiting.get(self.taken) else { return false };
        self.left > 0 && (*bytes <= self.left || self.left == self.most)
    }

    fn take(&mut self, node: &mut Node, c: ConnectionId) -> Result<(), TestCaseError> {
        for (_, offset, _) in node.delivered(c) {
            prop_assert_eq!(offset, self.taken as u64, "in order, each once");
            prop_assert!(self.may_get_next(), "offset {} came with {} of {} left", offset, self.left, self.most);
            self.left -= self.waiting[self.taken];
            self.taken += 1;
        }
        Ok(())
    }

    fn grant(&mut self, bytes: i64) {
        self.left += bytes;
        self.most = self.most.max(self.left);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// A batch comes if and only if the credit lets it, from memory and from segments.
    #[test]
    fn what_is_delivered_is_what_the_credit_lets_through(
        steps in prop::collection::vec((0..8_u8, 1..4_000_u32), 1..80),
        credit in 0..5_000_u32,
        tail in prop_oneof![Just(0_u64), Just(1 << 20)],
        delivery in prop_oneof![Just(500_u32), Just(1 << 20)],
    ) {
        let mut config = config(2);
        (config.limits.tail_bytes_per_shard, config.limits.delivery_bytes) = (tail, delivery);
        let mut node = Node::start(FaultyDisk::default(), config);
        let (writer, c) = (node.connect(0), node.connect(1));
        let topic = node.create_topic(writer, "orders", 1, &[]);
        node.subscribe(c, 1, (topic, 0), At::Earliest(true), credit.into()).unwrap();
        let mut reader = Reader { waiting: vec![], taken: 0, left: credit.into(), most: credit.into() };
        for (step, size) in steps {
            match step {
                0..4 => {
                    let payload = batch(&[&"x".repeat(size as usize)]);
                    reader.waiting.push(payload.len() as i64);
                    node.send_and_run(writer, &publish(topic, 0), payload);
                }
                4 | 5 => {
                    reader.grant(size.into());
                    node.credit(c, 1, size.into());
                }
                6 => node.set_hold_written(!node.hold_written),
                _ => node.advance(3_000),
            }
            reader.take(&mut node, c)?;
            prop_assert!(node.hold_written || !reader.may_get_next(), "{} of {} left", reader.left, reader.most);
        }
        node.set_hold_written(false);
        reader.take(&mut node, c)?;
        while reader.taken < reader.waiting.len() {
            reader.grant(4_000);
            node.credit(c, 1, 4_000);
            reader.take(&mut node, c)?;
        }
    }
}
