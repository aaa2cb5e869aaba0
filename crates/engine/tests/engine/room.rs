//! A journal that is bounded: its files go, what was in them stays, and who cannot let go is named.

use lockgate_engine::{JournalSettings, NodeConfig, RecoveryError, recover};
use lockgate_wire::{ConnectionId, Error, ErrorKind, ShardId, proto};

use crate::support::{FaultyDisk, Node, batch, config};

const EIO: i32 = 5;
const FILE_BYTES: u64 = 256 << 10;
const FILES: u64 = 6;

fn bounded() -> NodeConfig {
    let mut config = config(1);
    config.journal = JournalSettings {
        file_bytes: FILE_BYTES,
        max_write_bytes: 128 << 10,
        max_bytes: FILES * FILE_BYTES,
        ..Default::default()
    };
    config
}

/// A record of 20 kB that begins with its number.
fn large(number: usize) -> bytes::Bytes {
    batch(&[&format!("{number:.<20000}")])
}

/// A bounded node with a topic.
fn started(partitions: u32) -> (Node, ConnectionId, u64) {
    let mut node = Node::start(FaultyDisk::default(), bounded());
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", partitions, &[("max_batch_bytes", "64KiB")]);
    (node, c, topic)
}

fn files(node: &Node) -> u64 {
    node.disk.files("shards/0/journal/").len() as u64
}

/// Publishes so much that the journal is filled several times over, to partitions in turn.
fn fill(node: &mut Node, c: ConnectionId, topic: u64, partitions: u32, records: usize) {
    for number in 0..records {
        node.publish(c, topic, number as u32 % partitions, large(number)).unwrap();
        assert!(files(node) <= FILES + 1, "{:?}", node.disk.files("shards/0/journal/"));
        node.advance(25);
    }
}

fn count(node: &mut Node, c: ConnectionId, topic: u64, partitions: u32) -> usize {
    (0..partitions).map(|partition| node.read_all(c, topic, partition, 0).len()).sum()
}

/// Publishes until a publish is refused.
fn until_refused(node: &mut Node, c: ConnectionId, topic: u64) -> (usize, Error) {
    for number in 0..1000 {
        if let Err(error) = node.publish(c, topic, 0, large(number)) {
            return (number, error);
        }
        node.advance(25);
    }
    panic!("nothing was refused");
}

#[test]
fn a_journal_lets_its_files_go_and_every_start_finds_what_was_in_them() {
    let (mut node, c, topic) = started(3);
    fill(&mut node, c, topic, 3, 300);
    assert!(node.metrics(0).journal.files_freed > 10, "{:?}", node.metrics(0).journal);
    for crash in [true, false, true] {
        node = if crash { node.crash() } else { node.restart() };
        let c = node.connect(0);
        assert_eq!(count(&mut node, c, topic, 3) % 300, 0, "{:?}", node.logs);
        fill(&mut node, c, topic, 3, 300);
    }
}

/// Turns a bit in every checkpoint of a directory.
fn turn_checkpoints(node: &Node, directory: &str) {
    let files = node.disk.files(&format!("{directory}/state."));
    assert!(!files.is_empty());
    for path in files {
        let mut bytes = node.disk.memory.file(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        node.disk.memory.set_file(&path, bytes);
    }
}

#[test]
fn a_partition_whose_checkpoints_are_damaged_is_refused_if_the_journal_does_not_reach_back() {
    let (mut node, c, topic) = started(2);
    fill(&mut node, c, topic, 2, 100);
    assert!(node.metrics(0).journal.files_freed > 2);
    turn_checkpoints(&node, "partitions/1-0");
    for _ in 0..2 {
        node = node.crash();
        let c = node.connect(0);
        let refused = node.publish(c, topic, 0, large(0)).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::StorageFailed);
        assert!(refused.message.contains("its files do not go with its journal"), "{refused}");
        assert_eq!(node.read_all(c, topic, 1, 0).len(), 50, "the other one serves");
    }
}

#[test]
fn a_catalog_whose_checkpoints_are_damaged_refuses_the_start_if_the_journal_does_not_reach_back() {
    let (mut node, c, topic) = started(1);
    // More than is carried forward.
    for number in 0..150 {
        node.create_topic(c, &format!("topic-{number}"), 1, &[("max_batch_bytes", "64KiB")]);
        node.advance(25);
    }
    fill(&mut node, c, topic, 1, 100);
    assert!(node.metrics(0).journal.files_freed > 2);
    turn_checkpoints(&node, "metadata");
    for _ in 0..2 {
        let refused = recover(&node.disk, &node.config, ShardId(0)).err().unwrap();
        assert!(matches!(refused, RecoveryError::CatalogBehind(_)), "{refused}");
        assert!(refused.to_string().contains("have less than the journal needs"), "{refused}");
    }
}

#[test]
fn partitions_with_little_are_carried_and_hold_nobody_up() {
    let mut node = Node::start(FaultyDisk::default(), bounded());
    let c = node.connect(0);
    let idle = node.create_topic(c, "idle", 100, &[("max_batch_bytes", "64KiB")]);
    let hot = node.create_topic(c, "hot", 1, &[("max_batch_bytes", "64KiB")]);
    for partition in 0..100 {
        node.publish(c, idle, partition, batch(&["little"])).unwrap();
    }
    let checkpoints = node.metrics(0).checkpoints;
    fill(&mut node, c, hot, 1, 200);
    let metrics = node.metrics(0);
    assert!(metrics.journal.files_freed > 10 && metrics.journal_carried > 100, "{metrics:?}");
    assert!(metrics.checkpoints - checkpoints < 100, "nobody with little is written down");
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!((count(&mut node, c, idle, 100), count(&mut node, c, hot, 1)), (100, 200));
}

#[test]
fn a_topic_that_is_synced_by_interval_lets_files_go_too() {
    let mut node = Node::start(FaultyDisk::default(), bounded());
    let c = node.connect(0);
    let settings = [("max_batch_bytes", "64KiB"), ("fsync", "interval(1m)")];
    let topic = node.create_topic(c, "orders", 2, &settings);
    fill(&mut node, c, topic, 2, 200);
    assert!(node.metrics(0).buffered_journal.files_freed > 10, "{:?}", node.metrics(0));
    assert!(node.disk.files("shards/0/buffered/").len() as u64 <= FILES + 1);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(count(&mut node, c, topic, 2), 200);
}

#[test]
fn at_the_bound_publishes_get_507_with_its_name_and_go_on_by_themselves() {
    let (mut node, c, topic) = started(1);
    node.disk.fail("write", "partitions/", EIO);
    let (published, error) = until_refused(&mut node, c, topic);
    assert!((40..60).contains(&published), "{published} before the reserve");
    assert_eq!((error.kind, error.kind.code()), (ErrorKind::StorageFull, 507));
    assert_eq!(error.details.limit, Some(FILES * FILE_BYTES));
    assert!(error.message.contains("journal.max_bytes = 1572864"), "{error}");
    assert_eq!(node.metrics(0).journal_at_bound, 1);
    assert!(node.shards[0].impairments().iter().any(|words| words.contains("journal.max_bytes")));
    assert_eq!(count(&mut node, c, topic, 1), published, "what was taken is read");
    let commit = proto::CommitCursor { topic_id: topic, partition: 0, name: "mine".into(), offset: 3, force: false };
    let _: proto::CommitCursorOk = node.ask(c, &commit);
    let told = |node: &Node| node.logs.iter().filter(|line| line.contains("refuses publishes")).count();
    assert_eq!(told(&node), 1, "{:?}", node.logs);
    // Standing at the bound costs nothing: neither files nor records.
    let (before, records) = (files(&node), node.metrics(0).journal.records);
    node.advance(60_000);
    assert_eq!((files(&node), node.metrics(0).journal.records), (before, records));
    assert_eq!(told(&node), 2, "once a minute");

    node.disk.heal();
    node.advance(2_000);
    assert_eq!((node.metrics(0).journal_at_bound, node.shards[0].impairments()), (0, Vec::new()));
    fill(&mut node, c, topic, 1, 100);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(count(&mut node, c, topic, 1), published + 100);
}

#[test]
fn at_the_bound_a_node_starts_and_makes_room() {
    let (mut node, c, topic) = started(1);
    node.disk.fail("write", "partitions/", EIO);
    let (published, _) = until_refused(&mut node, c, topic);
    for _ in 0..10 {
        node = node.crash();
        assert!(files(&node) <= FILES + 1, "{:?}", node.disk.files("shards/0/journal/"));
    }
    node.disk.heal();
    node.advance(2_000);
    let c = node.connect(0);
    fill(&mut node, c, topic, 1, 50);
    assert_eq!(count(&mut node, c, topic, 1), published + 50);
}

#[test]
fn a_failed_sync_of_segments_keeps_the_journals_files_until_a_restart_and_is_told() {
    let (mut node, c, topic) = started(1);
    node.disk.fail("sync", ".log", EIO);
    let mut number = 0;
    while node.metrics(0).partitions_unsynced == 0 {
        node.publish(c, topic, 0, large(number)).unwrap();
        node.advance(25);
        number += 1;
    }
    // A sync that succeeds now proves nothing.
    node.disk.heal();
    let (more, error) = until_refused(&mut node, c, topic);
    assert_eq!((error.kind, node.metrics(0).journal.files_freed), (ErrorKind::StorageFull, 0));
    assert!(node.shards[0].impairments().iter().any(|words| words.contains("restart the broker")));
    assert!(node.logs.iter().any(|line| line.contains("a sync of the segments of partition")), "{:?}", node.logs);
    let mut node = node.crash();
    node.advance(2_000);
    let c = node.connect(0);
    fill(&mut node, c, topic, 1, 100);
    assert_eq!(count(&mut node, c, topic, 1), number + more + 100);
}

#[test]
fn a_seal_that_failed_once_is_made_again() {
    let mut node = Node::start(FaultyDisk::default(), config(1));
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("segment_bytes", "1MiB")]);
    for number in 0..80 {
        node.publish(c, topic, 0, large(number)).unwrap();
    }
    node.disk.fail("write", ".index.new", EIO);
    node.advance(40_000);
    assert!(node.metrics(0).file_failures > 0);
    node.disk.heal();
    node.advance(40_000);
    assert_eq!(node.disk.files(".index").len(), 1, "{:?}", node.logs);
}

#[test]
fn a_partition_that_a_start_refused_keeps_its_records_in_the_journal() {
    let (mut node, c, topic) = started(2);
    for number in 0..3 {
        node.publish(c, topic, 1, large(number)).unwrap();
    }
    let start = node.disk.files("-1/start").remove(0);
    let good = node.disk.memory.file(&start).unwrap();
    node.disk.memory.set_file(&start, vec![0; 32]);
    let mut node = node.crash();
    let c = node.connect(0);
    let (published, error) = until_refused(&mut node, c, topic);
    assert!(published > 30 && error.kind == ErrorKind::StorageFull, "{published}: {error}");
    node.disk.memory.set_file(&start, good);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(count(&mut node, c, topic, 2), 3 + published);
    node.advance(2_000);
    fill(&mut node, c, topic, 2, 100);
}
