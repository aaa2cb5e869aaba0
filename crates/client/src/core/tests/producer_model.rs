//! Producers against a model broker over a network that loses, delays and refuses, at random from a seed.
//!
//! The broker keeps the protocol's promises and no others: requests of a connection are taken in order, it appends a
//! number once, refuses one that is ahead, and what was in a lost connection's pipe may still arrive later.

use std::collections::BTreeSet;

use lockgate_wire::batch::{BatchHeader, decode};
use proptest::prelude::*;

use super::*;
use crate::core::retry::Rng;

/// One batch as the log has it.
struct Appended {
    base_offset: u64,
    values: Vec<String>,
}

/// What a broker knows of a producer's id in a partition.
#[derive(Default)]
struct Known {
    next_sequence: i32,
    /// Number and offset of what was appended.
    appended: BTreeMap<i32, u64>,
}

#[derive(Default)]
struct Broker {
    next_id: i64,
    logs: BTreeMap<u32, Vec<Appended>>,
    known: BTreeMap<(u32, i64), Known>,
    /// Requests under way, by connection.
    pipes: BTreeMap<u64, VecDeque<Frame>>,
    answers: Vec<(LinkId, OutFrame)>,
}

/// What was seen of the numbers that a client gave.
#[derive(Default)]
struct Numbers {
    bytes: BTreeMap<(u32, i64, i32), Bytes>,
    next: BTreeMap<(u32, i64), i32>,
}

impl Numbers {
    /// A number belongs to one content for ever, and a new one follows the last.
    fn check(&mut self, frame: &Frame) {
        let publish: proto::Publish = frame.message().unwrap();
        let header = BatchHeader::parse(&frame.payload).unwrap();
        let id = (publish.partition, header.producer_id);
        let number = (publish.partition, header.producer_id, header.base_sequence);
        if let Some(known) = self.bytes.get(&number) {
            assert_eq!(known, &frame.payload, "the same number for another content");
            return;
        }
        let next = self.next.entry(id).or_insert(0);
        assert_eq!(header.base_sequence, *next, "a hole in the numbering");
        *next += header.count;
        self.bytes.insert(number, frame.payload.clone());
    }
}

impl Broker {
    /// Takes one request from a pipe, with the faults that the dice say.
    fn take(&mut self, link: u64, dice: &mut Rng, faults: bool) {
        let Some(frame) = self.pipes.get_mut(&link).and_then(VecDeque::pop_front) else { return };
        let (op, request) = (frame.op, frame.request_id);
        let fault = if faults { dice.up_to(19) } else { 19 };
        let answer = match frame.op() {
            Some(Op::InitProducer) if fault > 2 => {
                self.next_id += 1;
                OutFrame::response(request, &proto::InitProducerOk { producer_id: self.next_id, producer_epoch: 0 })
            }
            Some(Op::InitProducer) => OutFrame::error(op, request, &error(ErrorKind::LeaderUnknown)),
            Some(Op::Publish) => match fault {
                0 => OutFrame::error(op, request, &error(ErrorKind::LeaderUnknown)),
                1 => OutFrame::error(op, request, &error(ErrorKind::OutcomeUnknown)),
                2 => {
                    let _ = self.append(&frame);
                    OutFrame::error(op, request, &error(ErrorKind::OutcomeUnknown))
                }
                3 if dice.up_to(3) == 0 => OutFrame::error(op, request, &error(ErrorKind::BadBatch)),
                _ => match self.append(&frame) {
                    Ok(ok) => OutFrame::response(request, &ok),
                    Err(kind) => OutFrame::error(op, request, &error(kind)),
                },
            },
            _ => return,
        };
        self.answers.push((LinkId(link), answer));
    }

    fn append(&mut self, frame: &Frame) -> Result<proto::PublishOk, ErrorKind> {
        let publish: proto::Publish = frame.message().unwrap();
        let header = BatchHeader::parse(&frame.payload).unwrap();
        let known = self.known.entry((publish.partition, header.producer_id)).or_default();
        let log = self.logs.entry(publish.partition).or_default();
        let (base_offset, duplicate) = match known.appended.get(&header.base_sequence) {
            Some(offset) => (*offset, true),
            // An id whose first batch never came is not known at all.
            None if header.base_sequence > 0 && known.next_sequence == 0 => return Err(ErrorKind::ProducerUnknown),
            None if header.base_sequence > known.next_sequence => return Err(ErrorKind::SequenceAhead),
            None => {
                assert_eq!(header.base_sequence, known.next_sequence, "a number that overlaps");
                let base_offset = log.last().map_or(0, |last| last.base_offset + last.values.len() as u64);
                let decoded = decode(frame.payload.clone(), 1 << 20).unwrap();
                let values = decoded.records.into_iter().map(|(_, record)| text(&record)).collect();
                log.push(Appended { base_offset, values });
                known.appended.insert(header.base_sequence, base_offset);
                known.next_sequence += header.count;
                (base_offset, false)
            }
        };
        Ok(proto::PublishOk { partition: publish.partition, base_offset, duplicate, ..Default::default() })
    }
}

fn text(record: &batch::Record) -> String {
    String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap()
}

/// A run: the world, the broker, and what was sent with which ticket.
struct Run {
    world: World,
    broker: Broker,
    numbers: Numbers,
    dice: Rng,
    key: ProducerKey,
    sent: Vec<(String, Ticket)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut world = World::connected();
        let mut dice = Rng::new(seed);
        let config = ProducerConfig {
            linger: Duration::from_millis([0, 5][dice.up_to(1) as usize]),
            in_flight: 1 + dice.up_to(4) as usize,
            batch_records: 1 + dice.up_to(3) as usize,
            timeout: Duration::from_millis([3_000, 30_000][dice.up_to(1) as usize]),
            ..Default::default()
        };
        let key = world.with(|core, now| core.open_producer(now, topic(2), config)).unwrap();
        Self { world, broker: Broker::default(), numbers: Numbers::default(), dice, key, sent: Vec::new() }
    }

    /// What the client sent enters its connection's pipe.
    fn transmit(&mut self) {
        while let Some((link, frame)) = self.world.sent.pop_front() {
            if frame.op() == Some(Op::Publish) {
                self.numbers.check(&frame);
            }
            self.broker.pipes.entry(link.0).or_default().push_back(frame);
        }
    }

    fn step(&mut self, faults: bool) {
        match self.dice.up_to(19) {
            0..=4 if self.sent.len() < 300 => {
                let value = self.sent.len().to_string();
                let partition = Some(self.dice.up_to(1) as u32);
                let key = self.key;
                let ticket = self.world.with(|core, now| core.send(now, key, partition, &record(&value))).unwrap();
                self.sent.push((value, ticket));
            }
            5..=10 => {
                // Any connection, an old one as well: what was in its pipe may still arrive.
                let links: Vec<u64> = self.broker.pipes.keys().copied().collect();
                if let Some(link) = links.get(self.dice.up_to(links.len().max(1) as u64 - 1) as usize) {
                    self.broker.take(*link, &mut self.dice, faults);
                }
            }
            11..=15 if !self.broker.answers.is_empty() => {
                // Answers come in any order.
                let at = self.dice.up_to(self.broker.answers.len() as u64 - 1) as usize;
                let (link, frame) = self.broker.answers.remove(at);
                self.world.input(Input::Received { link, frame: as_received(&frame) });
            }
            16 if faults && self.world.core.is_connected() && self.dice.up_to(3) == 0 => {
                // Some of what was sent is lost for good, the rest stays under way.
                let link = self.world.link();
                let pipe = self.broker.pipes.entry(link.0).or_default();
                let keep = self.dice.up_to(pipe.len() as u64) as usize;
                pipe.truncate(keep);
                self.world.disconnect();
            }
            17 if !self.world.core.is_connected() => drop(self.world.connect()),
            _ => self.world.advance(self.dice.up_to(40)),
        }
        if self.world.core.is_connected() {
            let link = self.world.link();
            self.world.push(link, &proto::GoingAway::default(), vec![]);
        }
        self.transmit();
    }

    /// No more faults, until everything has its answer.
    fn heal(&mut self) {
        for _ in 0..100_000 {
            if self.sent.iter().all(|(_, ticket)| self.world.batches.contains_key(&ticket.batch)) {
                return;
            }
            if !self.world.core.is_connected() {
                self.world.connect();
            }
            self.step(false);
        }
        panic!("not every record was answered after the faults ended");
    }

    fn check(&self) {
        for (partition, log) in &self.broker.logs {
            let flat: Vec<(u64, &String)> =
                log.iter().flat_map(|batch| (batch.base_offset..).zip(&batch.values)).collect();
            let distinct: BTreeSet<&String> = flat.iter().map(|(_, value)| *value).collect();
            assert_eq!(distinct.len(), flat.len(), "something was appended twice in partition {partition}");
        }
        let in_log = |partition: u32, value: &str| {
            let log = self.broker.logs.get(&partition)?;
            log.iter().find_map(|batch| {
                let at = batch.values.iter().position(|known| known == value)?;
                Some(batch.base_offset + at as u64)
            })
        };
        let mut last_acknowledged: BTreeMap<u32, u64> = BTreeMap::new();
        for (value, ticket) in &self.sent {
            let found = in_log(ticket.partition, value);
            match &self.world.batches[&ticket.batch] {
                Ok(receipt) => {
                    let offset = receipt.offset.unwrap().0 + u64::from(ticket.index);
                    assert_eq!(found, Some(offset), "acknowledged record {value} is where its receipt says");
                    let last = last_acknowledged.insert(ticket.partition, offset);
                    assert!(last.is_none_or(|last| last < offset), "record {value} overtook an earlier one");
                }
                Err(error) if error.outcome_unknown() => {}
                Err(error) => assert_eq!(found, None, "record {value} was refused with {error} and is there"),
            }
        }
        assert_eq!(self.world.core.stats().bytes_buffered, 0);
    }
}

fn run(seed: u64) -> Run {
    let mut run = Run::new(seed);
    for _ in 0..1_500 {
        run.step(true);
    }
    run.heal();
    run.check();
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any interleaving of answers, refusals, disconnects and late arrivals: every record is resolved once; what was
    /// acknowledged is in the log once, at its offset and in order; what was refused is not there; a number belongs to
    /// one content, and no number is left out.
    #[test]
    fn every_record_is_resolved_once_and_the_numbers_have_no_hole(seed: u64) {
        run(seed);
    }
}

#[test]
fn the_model_runs_meet_what_they_are_for() {
    let (mut acknowledged, mut unknown, mut refused, mut retries) = (0, 0, 0, 0);
    for seed in 0..16 {
        let stats = run(seed).world.core.stats();
        acknowledged += stats.records_acknowledged;
        unknown += stats.records_unknown;
        refused += stats.records_refused;
        retries += stats.retries;
    }
    assert!(
        acknowledged > 1_000 && unknown > 20 && refused > 20 && retries > 500,
        "{acknowledged} {unknown} {refused} {retries}"
    );
}
