//! A journal that lost something: who may be concerned is refused and stays refused, everybody else goes on.

use std::convert::Infallible;

use lockgate_engine::{FollowError, JournalSettings, NodeConfig, RecoveryError, follow_shard_count, recover, shard_of};
use lockgate_storage::disk::Disk;
use lockgate_storage::journal;
use lockgate_wire::{ConnectionId, ErrorKind, PartitionId, ShardId, proto};

use crate::support::{FaultyDisk, Node, batch, config};

pub(crate) const PARTITIONS: u32 = 8;

/// A node with two shards and a topic with partitions on both.
pub(crate) struct Rig {
    pub(crate) node: Node,
    pub(crate) c: ConnectionId,
    pub(crate) topic: u64,
    /// Partitions of shard 1.
    pub(crate) here: Vec<u32>,
}

pub(crate) fn bounded() -> NodeConfig {
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
pub(crate) fn damage(node: &Node, before: &FaultyDisk, after: &FaultyDisk, path: &str) {
    for path in after.files(path).into_iter().filter(|path| !path.contains("free-")) {
        let (old, new) = (before.memory.file(&path).unwrap_or_default(), after.memory.file(&path).unwrap());
        // In a file that had an earlier life the padding of a write changes too, and means nothing.
        if let Some(at) = (0..new.len()).rfind(|at| new[*at] != 0 && old.get(*at) != Some(&new[*at])) {
            node.disk.memory.write(&path, at as u64, &[vec![new[at] ^ 0x10].into()]).unwrap();
        }
    }
}

impl Rig {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
        Self::with(bounded(), settings)
    }

    pub(crate) fn with(config: NodeConfig, settings: &[(&str, &str)]) -> Self {
        let mut node = Node::start(FaultyDisk::default(), config);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", PARTITIONS, settings);
        let is_here = |partition: &u32| shard_of(PartitionId { topic: topic.into(), partition: *partition }, 2).0 == 1;
        Self { node, c, topic, here: (0..PARTITIONS).filter(is_here).collect() }
    }

    pub(crate) fn publish(&mut self, partition: u32, value: &str) {
        self.node.publish(self.c, self.topic, partition, batch(&[value])).unwrap();
    }

    /// Crashes with a bit turned in everything that `act` writes to shard 1's journals.
    pub(crate) fn crash_with_damage_to(mut self, act: impl FnOnce(&mut Self)) -> Self {
        let before = self.node.disk.copy();
        act(&mut self);
        let after = self.node.disk.copy();
        // Something that says that it was synced.
        self.node.advance(1_000);
        damage(&self.node, &before, &after, "shards/1/");
        self.crash()
    }

    pub(crate) fn crash(self) -> Self {
        let mut node = self.node.crash();
        let c = node.connect(0);
        Self { node, c, ..self }
    }

    /// The partitions that do not serve.
    pub(crate) fn refused(&mut self) -> Vec<u32> {
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

    pub(crate) fn first_value(&mut self, partition: u32) -> Option<String> {
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
        assert!(refusal.to_string().contains("restore the data directory from a copy"), "{refusal}");
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
