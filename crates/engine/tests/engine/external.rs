//! Large batches that go once: straight into their segment, ahead of the journal, which refers to them.

use std::convert::Infallible;

use lockgate_engine::{RecoveryError, follow_shard_count, recover, shard_of};
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_wire::{ErrorKind, PartitionId, ShardId, proto};

use crate::support::{FaultyDisk, Node, batch, config, publish};

const EIO: i32 = 5;
/// Above the least that goes ahead, and with two of them in a segment.
const LARGE: usize = 400_000;
const SETTINGS: &[(&str, &str)] = &[("segment_bytes", "1MiB")];

/// Something that happened to a file.
type Damage = fn(&mut Vec<u8>);

fn large(text: &str) -> String {
    text.repeat(LARGE / text.len())
}

fn node_with_topic(settings: &[(&str, &str)]) -> (Node, u64) {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "large", 1, settings);
    (node, topic)
}

fn say(node: &mut Node, topic: u64, value: &str) -> Result<u64, ErrorKind> {
    let c = node.connect(0);
    let answer = node.publish(c, topic, 0, batch(&[value]));
    node.disconnect(c);
    answer.map(|answer| answer.base_offset).map_err(|error| error.kind)
}

/// All values from an offset on, each by its first character and its length.
fn values(node: &mut Node, topic: u64, from: u64) -> Vec<(u64, char, usize)> {
    let c = node.connect(0);
    let read = node.read_all(c, topic, 0, from);
    node.disconnect(c);
    read.into_iter().map(|(offset, value)| (offset, value.chars().next().unwrap(), value.len())).collect()
}

fn segment_files(node: &Node) -> Vec<String> {
    node.disk.files("partitions/").into_iter().filter(|file| file.ends_with(".log")).collect()
}

/// What a start says of the only partition; nothing is refused but that.
fn refusal(disk: &FaultyDisk) -> Option<RecoveryError> {
    let recovered = recover(disk, &config(1), ShardId(0)).unwrap();
    recovered.refused().next().map(|(_, error)| error.clone())
}

#[test]
fn a_large_batch_is_written_once_and_read_before_and_after_a_crash() {
    let (mut node, topic) = node_with_topic(SETTINGS);
    assert_eq!(say(&mut node, topic, "small"), Ok(0));
    let before = node.metrics(0).journal;
    for (offset, text) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(say(&mut node, topic, &large(text)), Ok(offset));
    }
    assert_eq!(say(&mut node, topic, "tiny"), Ok(4));
    let after = node.metrics(0).journal;
    assert!(after.bytes - before.bytes < 100_000, "{after:?}");
    assert_eq!(after.external_records, 3);
    let expected = vec![(0, 's', 5), (1, 'a', LARGE), (2, 'b', LARGE), (3, 'c', LARGE), (4, 't', 4)];
    assert_eq!(values(&mut node, topic, 0), expected);
    assert!(segment_files(&node).len() == 2, "{:?}", segment_files(&node));
    let mut node = node.crash();
    assert_eq!(values(&mut node, topic, 0), expected);
    assert_eq!(say(&mut node, topic, &large("d")), Ok(5));
    let mut node = node.restart();
    assert_eq!(values(&mut node, topic, 3)[2..], [(5, 'd', LARGE)]);
    assert!(!node.logs.iter().any(|line| line.contains("cut")), "{:?}", node.logs);
}

#[test]
fn many_small_batches_of_one_round_go_once_too_and_keep_their_producers() {
    let (mut node, topic) = node_with_topic(SETTINGS);
    let c = node.connect(0);
    node.hold_journal = true;
    let first = node.send_and_run(c, &publish(topic, 0), batch(&["first"]));
    let sent: Vec<u64> = (0..40)
        .map(|n| node.send_and_run(c, &publish(topic, 0), batch(&[&n.to_string(), &"v".repeat(10_000)])))
        .collect();
    node.release();
    for id in [first].into_iter().chain(sent) {
        node.answer(c, id).unwrap().unwrap();
    }
    assert!(node.metrics(0).journal.external_records > 0);
    let before = values(&mut node, topic, 0);
    assert_eq!(before.len(), 81);
    let mut node = node.crash();
    assert_eq!(values(&mut node, topic, 0), before);
}

#[test]
fn what_is_ahead_of_a_record_that_was_never_written_makes_no_entry_needless() {
    let mut torn = 0;
    for calls in 0.. {
        // Entries without batches, which a checkpoint has and no segment: a leader's first of each start.
        let (mut node, topic) = node_with_topic(SETTINGS);
        for _ in 0..5 {
            node = node.restart();
        }
        node.disk.cut_after(calls);
        let answered = say(&mut node, topic, &large("a")).is_ok();
        node.disk.heal();
        let mut node = node.crash();
        torn += u32::from(node.logs.iter().any(|line| line.contains("record that was never written")));
        say(&mut node, topic, "b").expect("the partition serves");
        if answered {
            break;
        }
    }
    assert!(torn > 0, "no crash between the data and its record");
}

#[test]
fn wherever_the_process_dies_what_was_answered_is_there_and_the_rest_leaves_no_trace() {
    let mut torn = 0;
    for calls in 0.. {
        let (mut node, topic) = node_with_topic(SETTINGS);
        say(&mut node, topic, "small").unwrap();
        say(&mut node, topic, &large("a")).unwrap();
        say(&mut node, topic, "waits").unwrap();
        node.disk.cut_after(calls);
        let answered = say(&mut node, topic, &large("b")).is_ok();
        node.disk.heal();
        let mut node = node.crash();
        let read = values(&mut node, topic, 0);
        assert_eq!(read[..3], [(0, 's', 5), (1, 'a', LARGE), (2, 'w', 5)], "after {calls} calls");
        assert!(read.len() == 4 || !answered, "after {calls} calls");
        let cut = node.logs.iter().any(|line| line.contains("record that was never written"));
        assert!(!cut || read.len() == 3);
        torn += u32::from(cut);
        // What was cut is not in the way of what comes next.
        assert_eq!(say(&mut node, topic, &large("c")), Ok(read.len() as u64));
        let mut node = node.crash();
        assert_eq!(values(&mut node, topic, 0).last(), Some(&(read.len() as u64, 'c', LARGE)));
        if answered {
            break;
        }
    }
    assert!(torn > 0, "no crash between the data and its record");
}

#[test]
fn a_record_without_its_data_is_damage_and_nothing_is_cut() {
    let (mut node, topic) = node_with_topic(&[("segment_bytes", "64MiB")]);
    for text in ["a", "b", "c"] {
        say(&mut node, topic, &large(text)).unwrap();
    }
    let file = segment_files(&node).pop().unwrap();
    let whole = node.disk.memory.file(&file).unwrap();
    assert_eq!(refusal(&node.disk.copy()), None);
    let damages: [(&str, Damage); 3] = [
        ("a flipped bit", |bytes| bytes[LARGE + LARGE / 2] ^= 1),
        ("zeros", |bytes| bytes[2 * LARGE..].fill(0)),
        ("a short file", |bytes| bytes.truncate(LARGE + 8192)),
    ];
    for (what, damage) in damages {
        let disk = node.disk.copy();
        let mut bytes = whole.clone();
        damage(&mut bytes);
        disk.memory.set_file(&file, bytes.clone());
        let error = refusal(&disk).unwrap_or_else(|| panic!("{what} goes unseen"));
        assert!(matches!(error, RecoveryError::Segments(..)), "{what}: {error}");
        assert_eq!(disk.memory.file(&file), Some(bytes), "{what}: the file is as it was");
    }
    let disk = node.disk.copy();
    disk.memory.remove(&file).unwrap();
    assert!(refusal(&disk).is_some(), "no file");
}

#[test]
fn without_room_for_the_segment_the_journal_takes_the_batch() {
    let (mut node, topic) = node_with_topic(SETTINGS);
    say(&mut node, topic, &large("a")).unwrap();
    let before = node.metrics(0).journal;
    node.disk.fail("grow", "partitions/", DiskError::ENOSPC);
    assert_eq!(say(&mut node, topic, &large("b")), Ok(1));
    assert_eq!(say(&mut node, topic, &large("c")), Ok(2));
    let after = node.metrics(0).journal;
    assert_eq!((after.external_records, node.metrics(0).journal_poisoned), (before.external_records, 0));
    assert!(after.bytes - before.bytes > 2 * LARGE as u64);
    let expected = [(0, 'a', LARGE), (1, 'b', LARGE), (2, 'c', LARGE)];
    assert_eq!(values(&mut node, topic, 0), expected);
    let mut crashed = Node::start(node.disk.copy(), config(1));
    assert_eq!(values(&mut crashed, topic, 0), expected);
    node.disk.heal();
    node.advance(3_000);
    assert_eq!(say(&mut node, topic, &large("d")), Ok(3));
    assert_eq!(node.metrics(0).journal.external_records, before.external_records + 1);
    let mut node = node.crash();
    assert_eq!(values(&mut node, topic, 0)[..3], expected);
}

#[test]
fn a_failed_write_or_sync_of_the_segment_stops_the_journal_and_nothing_is_answered() {
    for stage in ["write", "sync"] {
        let (mut node, topic) = node_with_topic(SETTINGS);
        say(&mut node, topic, &large("a")).unwrap();
        node.disk.fail(stage, ".log", EIO);
        assert!(say(&mut node, topic, &large("b")).is_err(), "{stage}");
        node.disk.heal();
        assert_eq!(say(&mut node, topic, &large("c")), Err(ErrorKind::StorageFailed), "{stage}");
        assert_eq!(node.metrics(0).journal_poisoned, 1);
        assert_eq!(values(&mut node, topic, 0), [(0, 'a', LARGE)], "{stage}: what is not committed is not read");
        let mut node = node.crash();
        assert_eq!(values(&mut node, topic, 0), [(0, 'a', LARGE)], "{stage}");
        assert_eq!(say(&mut node, topic, &large("c")), Ok(1), "{stage}");
    }
}

#[test]
fn the_journal_may_refer_to_segments_that_retention_has_removed() {
    let (mut node, topic) = node_with_topic(&[("segment_bytes", "1MiB"), ("retention_bytes", "1MiB")]);
    for n in 0..12 {
        assert_eq!(say(&mut node, topic, &large(["a", "b"][n % 2])), Ok(n as u64));
        node.advance(1_100);
    }
    assert!(segment_files(&node).len() < 5, "{:?}", segment_files(&node));
    let mut node = node.crash();
    assert_eq!(say(&mut node, topic, &large("c")), Ok(12));
    let c = node.connect(0);
    let fetch = proto::Fetch { topic_id: topic, partition: 0, offset: 12, max_bytes: 0, max_wait_ms: 0 };
    let answer: proto::FetchOk = node.ask(c, &fetch);
    assert!(answer.earliest_offset > 0);
}

#[test]
fn another_number_of_shards_keeps_what_the_journals_refer_to() {
    let (mut node, topic) = node_with_topic(SETTINGS);
    let expected = [(0, 'a', LARGE), (1, 'b', LARGE), (2, 's', 5)];
    say(&mut node, topic, &large("a")).unwrap();
    say(&mut node, topic, &large("b")).unwrap();
    say(&mut node, topic, "small").unwrap();
    let disk = node.disk.copy();
    let from = config(1);
    for shards in [3, 1] {
        let mut to = config(shards);
        to.journals = from.journals + 1;
        let disk = disk.copy();
        let moved = follow_shard_count::<Infallible>(&disk, &from, &to, |_| Ok(())).unwrap().unwrap();
        assert!(moved.records > 3 && disk.size("shards-1/0/journal").is_err());
        let mut node = Node::start(disk, to);
        assert_eq!(values(&mut node, topic, 0), expected);
        assert_eq!(say(&mut node, topic, &large("c")), Ok(3));
    }
}

#[test]
fn a_topic_that_is_deleted_while_its_batch_is_being_written_stops_nothing_and_leaves_nothing() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "large", 4, &[]);
    let other = node.create_topic(c, "other", 4, &[]);
    let on_shard_1 = |topic: u64| {
        let is_there = |partition: &u32| shard_of(PartitionId { topic: topic.into(), partition: *partition }, 2).0 == 1;
        (0..4).find(is_there).unwrap()
    };
    let (partition, others) = (on_shard_1(topic), on_shard_1(other));
    node.publish(c, topic, partition, batch(&["small"])).unwrap();
    node.hold_journal_of = Some(1);
    let sent = node.send_and_run(c, &publish(topic, partition), batch(&[&large("a")]));
    let delete = proto::DeleteTopic { name: "large".into() };
    let deleted = node.send_and_run(c, &delete, bytes::Bytes::new());
    node.release();
    node.answer(c, deleted).unwrap().unwrap();
    assert!(node.answer(c, sent).is_some());
    node.advance(6_000);
    assert_eq!(node.metrics(1).journal_poisoned, 0);
    assert_eq!(node.disk.files(&format!("partitions/{topic}-")), Vec::<String>::new());
    node.publish(c, other, others, batch(&["goes on"])).unwrap();
}

#[test]
fn nothing_is_written_ahead_before_the_partitions_directory_says_where_its_log_begins() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    node.hold_background = true;
    let topic = node.create_topic(c, "large", 1, SETTINGS);
    assert_eq!(say(&mut node, topic, &large("a")), Ok(0));
    assert_eq!(node.metrics(0).journal.external_records, 0);
    let mut crashed = Node::start(node.disk.copy(), config(1));
    assert_eq!(values(&mut crashed, topic, 0), [(0, 'a', LARGE)]);
    node.release();
    node.advance(1_100);
    assert_eq!(say(&mut node, topic, &large("b")), Ok(1));
    assert_eq!(node.metrics(0).journal.external_records, 1);
}

#[test]
fn a_flush_that_is_late_keeps_no_large_batch_out_of_the_segments() {
    let (mut node, topic) = node_with_topic(SETTINGS);
    say(&mut node, topic, "small").unwrap();
    node.hold_background = true;
    node.advance(1_100);
    assert!(node.held() > 0, "the flush is under way");
    for (n, text) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(say(&mut node, topic, &large(text)), Ok(1 + n as u64));
        assert_eq!(node.metrics(0).journal.external_records, 1 + n as u64);
    }
    let expected = [(0, 's', 5), (1, 'a', LARGE), (2, 'b', LARGE), (3, 'c', LARGE)];
    let mut crashed = Node::start(node.disk.copy(), config(1));
    assert_eq!(values(&mut crashed, topic, 0), expected);
    node.release();
    assert_eq!(say(&mut node, topic, &large("d")), Ok(4));
    let mut node = node.crash();
    assert_eq!(values(&mut node, topic, 0)[..4], expected);
}

#[test]
fn topics_that_are_synced_now_and_then_write_nothing_ahead() {
    let (mut node, topic) = node_with_topic(&[("fsync", "interval(100ms)")]);
    for n in 0..3 {
        assert_eq!(say(&mut node, topic, &large("a")), Ok(n));
    }
    assert_eq!(node.metrics(0).journal.external_records, 0);
    // Nor does one that was: its files may have had more than its journal.
    let c = node.connect(0);
    let set = [("fsync".to_owned(), "always".to_owned())].into();
    let _: proto::AlterTopicOk = node.ask(c, &proto::AlterTopic { name: "large".into(), set, if_version: None });
    node.advance(1_000);
    assert_eq!(say(&mut node, topic, &large("b")), Ok(3));
    assert_eq!(node.metrics(0).journal.external_records, 0);
    let mut node = node.crash();
    assert_eq!(values(&mut node, topic, 0).len(), 4);
}
