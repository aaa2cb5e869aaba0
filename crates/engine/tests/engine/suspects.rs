//! A journal that lost something: who may be concerned is refused and stays refused, everybody else goes on.

use std::convert::Infallible;

use lockgate_engine::{
    FollowError, JournalSettings, NodeConfig, RecoveryError, Repair, Subject, follow_shard_count, recover, repair,
    shard_of,
};
use lockgate_storage::disk::Disk;
use lockgate_storage::disk::dry_run::DryRun;
use lockgate_storage::journal;
use lockgate_wire::{ConnectionId, ErrorKind, PartitionId, ShardId, proto};

use crate::support::{FaultyDisk, Node, batch, config};

const PARTITIONS: u32 = 8;

/// A node with two shards and a topic with partitions on both.
struct Rig {
    node: Node,
    c: ConnectionId,
    topic: u64,
    /// Partitions of shard 1.
    here: Vec<u32>,
}

fn bounded() -> NodeConfig {
    let mut config = config(2);
    config.journal = JournalSettings {
        file_bytes: 4 << 20,
        max_write_bytes: 2 << 20,
        max_bytes: 6 * (4 << 20),
        external_min_bytes: 4 << 20,
    };
    config
}

/// Turns a bit in the last byte that changed between the two, in each journal file below a path.
fn damage(node: &Node, before: &FaultyDisk, after: &FaultyDisk, path: &str) {
    for path in after.files(path).into_iter().filter(|path| !path.contains("free-")) {
        let (old, new) = (before.memory.file(&path).unwrap_or_default(), after.memory.file(&path).unwrap());
        if let Some(at) = (0..new.len()).rfind(|at| old.get(*at) != Some(&new[*at])) {
            node.disk.memory.write(&path, at as u64, &[vec![new[at] ^ 0x10].into()]).unwrap();
        }
    }
}

impl Rig {
    fn new(settings: &[(&str, &str)]) -> Self {
        let mut node = Node::start(FaultyDisk::default(), bounded());
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", PARTITIONS, settings);
        let is_here = |partition: &u32| shard_of(PartitionId { topic: topic.into(), partition: *partition }, 2).0 == 1;
        Self { node, c, topic, here: (0..PARTITIONS).filter(is_here).collect() }
    }

    fn publish(&mut self, partition: u32, value: &str) {
        self.node.publish(self.c, self.topic, partition, batch(&[value])).unwrap();
    }

    /// Crashes with a bit turned in everything that `act` writes to shard 1's journals.
    fn crash_with_damage_to(mut self, act: impl FnOnce(&mut Self)) -> Self {
        let before = self.node.disk.copy();
        act(&mut self);
        let after = self.node.disk.copy();
        // Something that says that it was synced.
        self.node.advance(1_000);
        damage(&self.node, &before, &after, "shards/1/");
        self.crash()
    }

    fn crash(self) -> Self {
        let mut node = self.node.crash();
        let c = node.connect(0);
        Self { node, c, ..self }
    }

    /// The partitions that do not serve.
    fn refused(&mut self) -> Vec<u32> {
        let mut refused = Vec::new();
        for partition in 0..PARTITIONS {
            match self.node.publish(self.c, self.topic, partition, batch(&["more"])) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::LogDamaged, "{error}");
                    assert!(error.message.contains("delete the topic"), "{error}");
                    refused.push(partition);
                }
            }
        }
        refused
    }

    fn first_value(&mut self, partition: u32) -> Option<String> {
        self.node.read_all(self.c, self.topic, partition, 0).into_iter().next().map(|(_, value)| value)
    }
}

#[test]
fn who_may_have_lost_something_is_refused_at_every_start_and_everybody_else_goes_on() {
    let mut rig = Rig::new(&[]);
    for partition in 0..PARTITIONS {
        rig.publish(partition, "first");
    }
    let (hurt, proven) = (rig.here[0], rig.here[1]);
    rig.publish(proven, "second");
    rig = rig.crash_with_damage_to(|rig| rig.publish(hurt, "lost"));
    // No record followed of anybody on shard 1: all of them are suspect. Shard 0 knows nothing of it.
    for _ in 0..3 {
        assert_eq!(rig.refused(), rig.here);
        assert!(rig.node.logs.iter().any(|line| line.contains("is damaged at offset")), "{:?}", rig.node.logs);
        let other = (0..PARTITIONS).find(|partition| !rig.here.contains(partition)).unwrap();
        assert_eq!(rig.first_value(other).as_deref(), Some("first"));
        rig = rig.crash();
    }
}

#[test]
fn the_next_record_of_a_partition_proves_that_it_lost_nothing() {
    let mut rig = Rig::new(&[]);
    let (hurt, proven) = (rig.here[0], rig.here[1]);
    for partition in rig.here.clone() {
        rig.publish(partition, "first");
    }
    // Every start writes something for every partition: behind it, only the one with a hole in its numbers is suspect.
    let before = rig.node.disk.copy();
    rig.publish(hurt, "lost");
    let after = rig.node.disk.copy();
    rig = rig.crash();
    damage(&rig.node, &before, &after, "shards/1/journal/");
    for _ in 0..3 {
        rig = rig.crash();
        assert_eq!(rig.refused(), [hurt]);
        assert_eq!(rig.first_value(proven).as_deref(), Some("first"));
    }
}

#[test]
fn a_partition_of_which_nothing_is_left_is_refused_and_not_made_anew() {
    let mut node = Node::start(FaultyDisk::default(), bounded());
    let c = node.connect(0);
    node.create_topic(c, "warm", PARTITIONS, &[]);
    let mut rig = Rig { node, c, topic: 0, here: Vec::new() };
    rig = rig.crash_with_damage_to(|rig| {
        rig.topic = rig.node.create_topic(rig.c, "orders", PARTITIONS, &[]);
        rig.publish(0, "lost");
    });
    let topic = rig.topic;
    let is_here = |partition: &u32| shard_of(PartitionId { topic: topic.into(), partition: *partition }, 2).0 == 1;
    rig.here = (0..PARTITIONS).filter(is_here).collect();
    for _ in 0..3 {
        assert_eq!(rig.refused(), rig.here);
        rig = rig.crash();
    }
}

#[test]
fn a_topic_that_is_made_behind_the_damage_is_whole() {
    let mut rig = Rig::new(&[]);
    let hurt = rig.here[0];
    rig = rig.crash_with_damage_to(|rig| rig.publish(hurt, "lost"));
    let later = rig.node.create_topic(rig.c, "later", PARTITIONS, &[]);
    for _ in 0..3 {
        for partition in 0..PARTITIONS {
            rig.node.publish(rig.c, later, partition, batch(&["taken"])).unwrap();
        }
        rig = rig.crash();
    }
    assert_eq!(rig.refused(), rig.here);
}

#[test]
fn the_journals_keep_everything_until_the_suspect_topic_is_deleted() {
    let mut rig = Rig::new(&[]);
    let hurt = rig.here[0];
    rig = rig.crash_with_damage_to(|rig| rig.publish(hurt, "lost"));
    let c = rig.c;
    let hot = rig.node.create_topic(c, "hot", PARTITIONS, &[]);
    let publish = |rig: &mut Rig, partition: u32| {
        let answer = rig.node.publish(rig.c, hot, partition, batch(&[&"x".repeat(500_000)]));
        rig.node.advance(25);
        answer
    };
    let is_here = |partition: u32| shard_of(PartitionId { topic: hot.into(), partition }, 2).0 == 1;
    let (on_it, elsewhere) = ((0..).find(|p| is_here(*p)).unwrap(), (0..).find(|p| !is_here(*p)).unwrap());
    let refused = (0..200).find_map(|_| publish(&mut rig, on_it).err()).expect("the journal is at its bound");
    assert_eq!(refused.kind, ErrorKind::StorageFull, "{refused}");
    assert_eq!(rig.node.metrics(1).journal.files_freed, 0);
    publish(&mut rig, elsewhere).unwrap();

    rig = rig.crash();
    assert_eq!(rig.refused(), rig.here);
    rig.node.ask::<_, proto::DeleteTopicOk>(rig.c, &proto::DeleteTopic { name: "orders".into() });
    rig.node.advance(40_000);
    for _ in 0..100 {
        publish(&mut rig, on_it).unwrap();
    }
    assert!(rig.node.metrics(1).journal.files_freed > 0);
    // The damage went with the files.
    let rig = rig.crash();
    assert!(!rig.node.logs.iter().any(|line| line.contains("damaged")), "{:?}", rig.node.logs);
}

#[test]
fn damage_in_the_buffered_journal_concerns_those_that_use_it() {
    let mut rig = Rig::new(&[("fsync", "interval(10ms)")]);
    let always = rig.node.create_topic(rig.c, "always", PARTITIONS, &[]);
    for partition in 0..PARTITIONS {
        rig.publish(partition, "first");
        rig.node.publish(rig.c, always, partition, batch(&["first"])).unwrap();
    }
    let hurt = rig.here[0];
    rig.node.advance(1_000);
    rig = rig.crash_with_damage_to(|rig| rig.publish(hurt, "lost"));
    assert_eq!(rig.refused(), rig.here);
    for partition in 0..PARTITIONS {
        rig.node.publish(rig.c, always, partition, batch(&["second"])).unwrap();
    }
}

#[test]
fn a_catalog_that_may_have_lost_something_refuses_the_start() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let before = node.disk.copy();
    node.create_topic(c, "orders", 1, &[]);
    let after = node.disk.copy();
    node.advance(100);
    damage(&node, &before, &after, "shards/0/journal/");
    for _ in 0..2 {
        let refusal = recover(&node.disk, &node.config, ShardId(0)).err().unwrap();
        assert!(matches!(refusal, RecoveryError::Journal(journal::RecoveryError::Damage(_))), "{refusal}");
        assert!(refusal.to_string().contains("restore the directory from a copy"), "{refusal}");
    }
}

#[test]
fn a_damaged_journal_is_not_moved_to_another_number_of_shards() {
    let mut rig = Rig::new(&[]);
    let hurt = rig.here[0];
    rig = rig.crash_with_damage_to(|rig| rig.publish(hurt, "lost"));
    let from = (*rig.node.config).clone();
    let to = NodeConfig { shards: 3, journals: 1, ..from.clone() };
    let copy = rig.node.disk.copy();
    let result = follow_shard_count::<Infallible>(&copy, &from, &to, |_| unreachable!("nothing is moved"));
    let Err(FollowError::Move(error)) = result else { panic!("{result:?}") };
    let error = error.to_string();
    assert!(error.contains("partitions cannot be moved") && error.contains("may be lost"), "{error}");
}

/// Repairs shard 1 on a copy that keeps its changes to itself, then for good: with the same outcome.
fn repair_shard_1(rig: &Rig) -> Vec<Repair> {
    let before = rig.node.disk.memory.paths();
    let proposed = repair(&DryRun::new(&rig.node.disk).unwrap(), &rig.node.config, ShardId(1)).unwrap();
    assert_eq!(rig.node.disk.memory.paths(), before);
    let done = repair(&rig.node.disk, &rig.node.config, ShardId(1)).unwrap();
    assert_eq!(done, proposed);
    done
}

#[test]
fn what_is_left_of_suspects_serves_again_once_an_operator_has_given_up_the_rest() {
    for settings in [&[][..], &[("fsync", "interval(10ms)")]] {
        let mut rig = Rig::new(settings);
        for partition in 0..PARTITIONS {
            rig.publish(partition, "first");
        }
        rig.node.advance(3_000);
        for partition in 0..PARTITIONS {
            rig.publish(partition, "second");
        }
        let hurt = rig.here[0];
        rig.node.advance(1_000);
        rig = rig.crash_with_damage_to(|rig| rig.publish(hurt, "lost"));
        let repairs = repair_shard_1(&rig);
        assert_eq!(repairs.len(), rig.here.len());
        assert!(repairs.iter().all(|repair| repair.outcome.is_ok()), "{repairs:?}");
        for round in 0..3 {
            rig = rig.crash();
            for partition in 0..PARTITIONS {
                let values: Vec<_> = rig.node.read_all(rig.c, rig.topic, partition, 0);
                let words = values.iter().map(|(_, value)| value.as_str());
                let expected = ["first", "second", "third", "third", "third"];
                assert_eq!(words.collect::<Vec<_>>(), expected[..2 + round], "partition {partition} {settings:?}");
                rig.publish(partition, "third");
            }
            rig.node.advance(1_000);
        }
        assert!(repair_shard_1(&rig).is_empty(), "nobody is suspect any more");
    }
}

#[test]
fn entries_behind_a_hole_are_given_up_and_counted() {
    let mut rig = Rig::new(&[]);
    let hurt = rig.here[0];
    rig.publish(hurt, "first");
    let before = rig.node.disk.copy();
    rig.publish(hurt, "lost");
    let after = rig.node.disk.copy();
    rig.publish(hurt, "behind");
    damage(&rig.node, &before, &after, "shards/1/journal/");
    rig = rig.crash();
    let of = Subject::Partition(PartitionId { topic: rig.topic.into(), partition: hurt });
    let repairs = repair_shard_1(&rig);
    let outcome = &repairs.iter().find(|repair| repair.of == of).unwrap().outcome;
    assert_eq!(outcome.as_ref().unwrap().given_up, 1, "{outcome:?}");
    rig = rig.crash();
    assert_eq!(rig.first_value(hurt).as_deref(), Some("first"));
    assert_eq!(rig.node.publish(rig.c, rig.topic, hurt, batch(&["again"])).unwrap().base_offset, 1);
    rig = rig.crash();
    assert_eq!(rig.node.read_all(rig.c, rig.topic, hurt, 0).len(), 2);
}

#[test]
fn a_catalog_is_repaired_too_and_the_node_starts() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "kept", 1, &[]);
    node.publish(c, topic, 0, batch(&["a"])).unwrap();
    let before = node.disk.copy();
    node.create_topic(c, "lost", 1, &[]);
    let after = node.disk.copy();
    node.advance(100);
    damage(&node, &before, &after, "shards/0/journal/");
    assert!(recover(&node.disk, &node.config, ShardId(0)).is_err());
    let repairs = repair(&node.disk, &node.config, ShardId(0)).unwrap();
    assert!(repairs.iter().any(|repair| repair.of == Subject::Catalog && repair.outcome.is_ok()), "{repairs:?}");
    for _ in 0..2 {
        node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), [(0, "a".to_owned())], "{:?}", node.logs);
    }
}

#[test]
fn a_repair_that_ends_anywhere_refuses_or_keeps_what_is_left_and_is_done_again() {
    let mut rig = Rig::new(&[("fsync", "interval(10ms)")]);
    for partition in rig.here.clone() {
        rig.publish(partition, "first");
    }
    rig.node.advance(1_000);
    let lost = rig.here[0];
    let before = rig.node.disk.copy();
    rig.publish(lost, "lost");
    let after = rig.node.disk.copy();
    // Behind the hole, so that half a repair would leave a log that does not hold together.
    rig.publish(lost, "behind");
    rig.node.advance(100);
    damage(&rig.node, &before, &after, "shards/1/buffered/");
    let (disk, config) = (rig.node.disk.copy(), rig.node.config.clone());
    for calls in (0..).step_by(3) {
        let disk = disk.copy();
        disk.cut_after(calls);
        let is_done = repair(&disk, &config, ShardId(1)).is_ok();
        disk.heal();
        // Whatever there is of it, a start gets through.
        let started = recover(&disk.copy(), &config, ShardId(1));
        assert!(started.is_ok(), "cut after {calls} calls: {:?}", started.err());
        repair(&disk, &config, ShardId(1)).unwrap();
        let mut node = Node::start(disk, (*config).clone());
        let c = node.connect(0);
        for partition in &rig.here {
            assert_eq!(
                node.read_all(c, rig.topic, *partition, 0),
                [(0, "first".to_owned())],
                "cut after {calls} calls"
            );
        }
        if is_done {
            return;
        }
    }
}
