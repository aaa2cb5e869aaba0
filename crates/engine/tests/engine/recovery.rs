//! Starting on what a disk has: after a crash, after a loss of power, after damage.

use lockgate_engine::recover;
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_wire::batch::Producer;
use lockgate_wire::{ConnectionId, ErrorKind, ProducerId, ShardId, proto};
use proptest::prelude::*;

use crate::support::{FaultyDisk, Node, batch, config, numbered_batch};

const INTERVAL: &[(&str, &str)] = &[("fsync", "interval(60s)")];

fn fill(node: &mut Node, c: ConnectionId, topic: u64, range: std::ops::Range<u64>) {
    for i in range {
        assert_eq!(node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap().base_offset, i);
    }
}

fn values(range: std::ops::Range<u64>) -> Vec<(u64, String)> {
    range.map(|i| (i, i.to_string())).collect()
}

#[test]
fn nothing_is_found_after_an_orderly_stop_and_what_was_cut_is_said_after_a_crash() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    fill(&mut node, c, topic, 0..10);
    let node = node.restart();
    let findings: Vec<&String> = node.logs.iter().filter(|line| line.contains("cut")).collect();
    assert_eq!(findings, Vec::<&String>::new());

    let mut node = node.restart();
    let c = node.connect(0);
    fill(&mut node, c, topic, 10..12);
    // The last write of the journal is torn.
    let shard = lockgate_engine::shard_of(lockgate_wire::PartitionId { topic: topic.into(), partition: 0 }, 2);
    let before = node.disk.copy();
    node.send(c, &crate::support::publish(topic, 0), batch(&["torn"]));
    node.run();
    let journal = format!("shards/{}/journal", shard.0);
    let torn =
        node.disk.files(&journal).into_iter().find(|file| node.disk.memory.file(file) != before.memory.file(file));
    let torn = torn.unwrap();
    let (old, mut new) = (before.memory.file(&torn).unwrap(), node.disk.memory.file(&torn).unwrap());
    let at = (0..new.len()).find(|at| old[*at] != new[*at]).unwrap();
    new[at + 600..].copy_from_slice(&old[at + 600..]);
    new[at + 100] ^= 0x55;
    node.disk.memory.set_file(&torn, new);
    let mut node = node.crash();
    assert!(node.logs.iter().any(|line| line.contains(&torn) && line.contains("cut")), "{:?}", node.logs);
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 0), values(0..12));
    assert_eq!(node.publish(c, topic, 0, batch(&["12"])).unwrap().base_offset, 12);
}

#[test]
fn a_crash_at_any_moment_between_journal_segments_and_checkpoint_loses_nothing() {
    for (flush_fails, stop_first) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut node = Node::new(1);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, &[]);
        fill(&mut node, c, topic, 0..10);
        node.advance(3_000);
        fill(&mut node, c, topic, 10..20);
        if flush_fails {
            node.disk.fail("write", ".log", DiskError::ENOSPC);
        }
        node.advance(3_000);
        if stop_first {
            node.stop();
        }
        node.disk.heal();
        let mut node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), values(0..20));
        fill(&mut node, c, topic, 20..25);
        let mut node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), values(0..25));
    }
}

#[test]
fn after_a_loss_of_power_an_interval_topic_begins_where_its_journal_ends() {
    for checkpointed in [false, true] {
        let mut node = Node::new(1);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, INTERVAL);
        fill(&mut node, c, topic, 0..10);
        node.advance(61_000);
        let earlier = node.disk.copy();
        fill(&mut node, c, topic, 10..20);
        if checkpointed {
            let numbered = Producer { id: ProducerId(9), epoch: 0, base_sequence: 0 };
            node.publish(c, topic, 0, numbered_batch(&["20"], Some(numbered))).unwrap();
        }
        node.advance(5_000); // Segments have it, the buffered journal is not synced.
        node.disk.lose_since(&earlier, "buffered/");
        let mut node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), values(0..10));
        // The offsets are given again, and stay.
        fill(&mut node, c, topic, 10..15);
        node.advance(61_000);
        let mut node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), values(0..15));
    }
}

#[test]
fn a_buffered_journal_that_is_gone_is_missed_by_who_has_more_than_the_synced_one() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, INTERVAL);
    fill(&mut node, c, topic, 0..10);
    node.advance(61_000); // Synced, and in the segments.
    for file in node.disk.files("buffered/") {
        node.disk.remove(&file).unwrap();
    }
    for _ in 0..2 {
        node = node.crash();
        let c = node.connect(0);
        let refused = node.publish(c, topic, 0, batch(&["x"])).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::LogDamaged);
        assert!(refused.message.contains("its files go up to entry 12, its journal only to"), "{refused}");
    }
}

#[test]
fn what_the_journal_lost_of_an_interval_topic_makes_no_entry_missing() {
    // A topic that became one by interval says so only behind entries that a start passes over.
    for altered in [false, true] {
        let mut node = Node::new(1);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, if altered { &[] } else { INTERVAL });
        fill(&mut node, c, topic, 0..10);
        if altered {
            let set = [("fsync".to_string(), INTERVAL[0].1.to_string())].into_iter().collect();
            let _: proto::AlterTopicOk =
                node.ask(c, &proto::AlterTopic { name: "orders".into(), set, if_version: None });
        }
        fill(&mut node, c, topic, 10..11);
        // Entries without batches, which a checkpoint has and no segment: a leader's first of each start.
        for _ in 0..5 {
            node = node.restart();
        }
        let c = node.connect(0);
        let earlier = node.disk.copy();
        fill(&mut node, c, topic, 11..20);
        node.advance(5_000); // Segments have it, the buffered journal is not synced.
        node.disk.lose_since(&earlier, "buffered/");
        for _ in 0..2 {
            node = node.crash();
            let c = node.connect(0);
            assert_eq!(node.read_all(c, topic, 0, 0), values(0..11));
        }
        let c = node.connect(0);
        fill(&mut node, c, topic, 11..15);
    }
}

#[test]
fn a_checkpoint_of_an_interval_topic_is_never_ahead_of_the_synced_journal() {
    // Also not when the topic has become `always` meanwhile, or a stop came in between.
    for altered in [false, true] {
        let mut node = Node::new(1);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, INTERVAL);
        fill(&mut node, c, topic, 0..10);
        node.advance(61_000);
        let earlier = node.disk.copy();
        fill(&mut node, c, topic, 10..20);
        node.disk.fail("sync", "buffered/", 5);
        if altered {
            let set = [("fsync".to_string(), "always".to_string())].into_iter().collect();
            let alter = proto::AlterTopic { name: "orders".into(), set, if_version: None };
            node.send_and_run(c, &alter, Default::default());
        }
        node.stop();
        node.disk.heal();
        node.disk.lose_since(&earlier, "buffered/");
        let mut node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), values(0..10));
        assert_eq!(node.metrics(0).partitions_failed, 0);
    }
}

#[test]
fn an_always_topic_whose_journal_lost_synced_entries_is_refused_and_others_serve() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let other = node.create_topic(c, "other", 1, INTERVAL);
    fill(&mut node, c, other, 0..10);
    node.advance(61_000);
    // The other topic's entries are all in the buffered journal; of this one the synced journal's end is lost.
    let mut node = node.restart();
    let c = node.connect(0);
    fill(&mut node, c, topic, 0..5);
    let earlier = node.disk.copy();
    fill(&mut node, c, topic, 5..20);
    node.advance(5_000);
    node.disk.lose_since(&earlier, "0/journal/");
    let mut node = node.crash();
    let c = node.connect(0);
    let error = node.publish(c, topic, 0, batch(&["x"])).unwrap_err();
    assert_eq!((error.kind, error.kind.code()), (ErrorKind::LogDamaged, 500));
    assert!(error.message.contains("journal lost"), "{error}");
    let error = node.try_ask::<_, proto::FetchOk>(c, &proto::Fetch { topic_id: topic, ..Default::default() });
    assert_eq!(error.unwrap_err().kind, ErrorKind::LogDamaged);
    assert_eq!(node.read_all(c, other, 0, 0), values(0..10));
    fill(&mut node, c, other, 10..12);
    assert_eq!((node.metrics(0).partitions_failed, node.metrics(0).partitions_serving), (1, 1));
    let impairments = node.shards[0].impairments();
    assert!(impairments.iter().any(|words| words.contains("partition 1-0 failed")), "{impairments:?}");
    let described: proto::DescribeTopicOk = node.ask(c, &proto::DescribeTopic { name: "orders".into() });
    assert!(described.partitions[0].error.is_some());
    // It stays refused, and its files stay as they are.
    let files = node.disk.files(&format!("partitions/{topic}-"));
    let mut node = node.restart();
    assert_eq!(node.metrics(0).partitions_failed, 1);
    assert_eq!(node.disk.files(&format!("partitions/{topic}-")), files);
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_passed_over_and_said() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let numbered = |n| Some(Producer { id: ProducerId(9), epoch: 0, base_sequence: n });
    node.publish(c, topic, 0, numbered_batch(&["0"], numbered(0))).unwrap();
    let mut node = node.restart();
    let states = node.disk.files(&format!("partitions/{topic}-0/state."));
    assert_eq!(states.len(), 1);
    let mut bytes = node.disk.memory.file(&states[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    node.disk.memory.set_file(&states[0], bytes);
    node.logs.clear();
    let mut node = node.crash();
    assert!(node.logs.iter().any(|line| line.contains("state.") && line.contains("not used")), "{:?}", node.logs);
    let c = node.connect(0);
    assert!(node.publish(c, topic, 0, numbered_batch(&["0"], numbered(0))).unwrap().duplicate);
    assert_eq!(node.read_all(c, topic, 0, 0), values(0..1));
}

#[test]
fn checkpoints_are_few_and_the_same_disk_gives_the_same_node() {
    let mut node = Node::new(2);
    for round in 0..5 {
        let c = node.connect(0);
        if round == 0 {
            node.create_topic(c, "orders", 2, &[]);
        }
        for partition in 0..2 {
            node.publish(c, 1, partition, batch(&["x"])).unwrap();
        }
        node = node.restart();
    }
    assert!(node.disk.files("partitions/1-0/state.").len() <= 2);
    let copies: Vec<Node> = (0..2).map(|_| Node::start(node.disk.copy(), config(2))).collect();
    let journals = |node: &Node| {
        node.disk.files("").into_iter().map(|file| (node.disk.memory.file(&file), file)).collect::<Vec<_>>()
    };
    assert!(journals(&copies[0]) == journals(&copies[1]), "two starts on the same disk write the same bytes");
}

#[test]
fn a_disk_that_was_never_used_is_begun() {
    let mut node = Node::start(FaultyDisk::default(), config(3));
    assert_eq!(node.metrics(0).view_version, node.metrics(2).view_version);
    let c = node.connect(2);
    assert_eq!(node.ask::<_, proto::ListTopicsOk>(c, &proto::ListTopics::default()).topics, []);
}

#[test]
fn a_partition_with_data_and_without_its_journal_is_refused_and_others_serve() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 16, &[]);
    for partition in 0..16 {
        node.publish(c, topic, partition, batch(&["0"])).unwrap();
    }
    node.stop();
    node.disk.remove_directory("shards/1").unwrap();
    let lost = [0, 1].map(|shard| {
        let found = recover(&node.disk.copy(), &node.config, ShardId(shard)).unwrap();
        (found.has_lost_journals(), found.unknown().next().is_some())
    });
    assert_eq!(lost, [(false, false), (true, true)]);
    let mut node = node.crash();
    let c = node.connect(0);
    for partition in 0..16 {
        let id = lockgate_wire::PartitionId { topic: topic.into(), partition };
        if lockgate_engine::shard_of(id, 2).0 == 0 {
            assert_eq!(node.read_all(c, topic, partition, 0), values(0..1));
        } else {
            let error = node.publish(c, topic, partition, batch(&["x"])).unwrap_err();
            assert_eq!(error.kind, ErrorKind::LogDamaged);
            assert!(error.message.contains("the journal knows nothing of it"), "{error}");
        }
    }
}

#[test]
fn a_data_directory_without_its_catalog_does_not_start_as_a_new_one() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    fill(&mut node, c, topic, 0..10);
    node.stop();
    node.disk.remove_directory("shards").unwrap();
    let error = lockgate_engine::recover(&node.disk, &config(1), lockgate_wire::ShardId(0)).map(drop).unwrap_err();
    assert_eq!(error, lockgate_engine::RecoveryError::JournalMissing);
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u8),
    Resend,
    Advance(u64),
    Fsync(bool),
    Commit,
    Crash,
    Restart,
    DiskFull(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..6_u8).prop_map(Step::Publish),
        2 => Just(Step::Resend),
        3 => (1..40_000_u64).prop_map(Step::Advance),
        1 => any::<bool>().prop_map(Step::Fsync),
        1 => Just(Step::Commit),
        2 => Just(Step::Crash),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(Step::DiskFull),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// The process may die as often as it likes: what was answered is there, once, at its offset; what was resent is known.
    #[test]
    fn whatever_happens_to_the_process_the_log_is_what_was_answered(
        steps in steps(),
        size in prop_oneof![Just(1_usize), Just(30_000), Just(250_000)],
        tail in prop_oneof![Just(0_u64), Just(64 << 20)],
    ) {
        let mut config = config(2);
        config.limits.tail_bytes_per_shard = tail;
        let mut node = Node::start(FaultyDisk::default(), config);
        let mut c = node.connect(0);
        let settings = [("segment_bytes", "1MiB"), ("retention_bytes", "3MiB")];
        let topic = node.create_topic(c, "orders", 1, &settings);
        let mut log: Vec<String> = Vec::new();
        let mut numbers = 0;
        let mut cursor = None;
        let numbered = |n: i32, value: &str| {
            numbered_batch(&[value], Some(Producer { id: ProducerId(5), epoch: 0, base_sequence: n }))
        };
        for step in steps {
            match step {
                Step::Publish(count) => for _ in 0..count {
                    let value = format!("{}{}", log.len(), "x".repeat(size));
                    // A full disk may refuse it; then it is not there.
                    match node.publish(c, topic, 0, numbered(numbers, &value)) {
                        Ok(ok) => {
                            prop_assert_eq!((ok.base_offset, ok.duplicate), (log.len() as u64, false));
                            log.push(value);
                            numbers += 1;
                        }
                        Err(error) => prop_assert_eq!(error.kind, ErrorKind::StorageFull),
                    }
                },
                Step::Resend => if let Some(last) = log.last() {
                    let ok = node.publish(c, topic, 0, numbered(numbers - 1, last)).unwrap();
                    prop_assert_eq!((ok.base_offset, ok.duplicate), (log.len() as u64 - 1, true));
                },
                Step::Advance(ms) => node.advance(ms),
                Step::Fsync(always) => {
                    let fsync = if always { "always" } else { "interval(5s)" };
                    let set = [("fsync".to_string(), fsync.to_string())].into_iter().collect();
                    let _: proto::AlterTopicOk =
                        node.ask(c, &proto::AlterTopic { name: "orders".into(), set, if_version: None });
                    node.advance(20);
                }
                Step::Commit => {
                    let offset = log.len() as u64;
                    let name = "c".to_string();
                    let commit = proto::CommitCursor { topic_id: topic, partition: 0, name, offset, force: false };
                    if node.try_ask::<_, proto::CommitCursorOk>(c, &commit).is_ok() {
                        cursor = Some(offset);
                    }
                }
                Step::DiskFull(full) => {
                    node.disk.heal();
                    if full {
                        node.disk.fail("grow", "partitions/", DiskError::ENOSPC);
                    }
                }
                Step::Crash | Step::Restart => {
                    node.disk.heal();
                    node = if matches!(step, Step::Crash) { node.crash() } else { node.restart() };
                    c = node.connect(1);
                }
            }
            let list = proto::ListOffsets { topic_id: topic, partition: 0, timestamp_ms: None };
            let kept: proto::ListOffsetsOk = node.ask(c, &list);
            prop_assert_eq!(kept.high_watermark, log.len() as u64);
            let read = node.read_all(c, topic, 0, kept.earliest_offset);
            prop_assert!(read.iter().map(|(_, value)| value).eq(log[kept.earliest_offset as usize..].iter()));
            let get = proto::GetCursor { topic_id: topic, partition: 0, name: "c".into() };
            prop_assert_eq!(node.ask::<_, proto::GetCursorOk>(c, &get).offset, cursor);
        }
        node.disconnect(c);
        node.assert_idle();
    }
}

#[test]
fn a_start_whose_wall_clock_does_not_follow_on_from_the_logs_says_so() {
    const HOUR_MS: i64 = 3_600 * 1_000;
    for (jump, is_said) in [(0, false), (HOUR_MS, false), (48 * HOUR_MS, true), (-HOUR_MS, true)] {
        let mut node = Node::new(1);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, &[]);
        let written = node.publish(c, topic, 0, batch(&["a"])).unwrap().append_time_ms;
        node.now.wall.0 += jump;
        let node = node.crash();
        let names_both = |line: &&String| {
            line.contains("wall clock")
                && [written, node.now.wall.0].iter().all(|time| line.contains(&time.to_string()))
        };
        assert_eq!(node.logs.iter().filter(names_both).count(), usize::from(is_said), "{jump}: {:?}", node.logs);
    }
}

#[test]
fn a_node_that_died_before_its_catalog_had_a_directory_starts() {
    let mut node = Node::new(1);
    node.stop();
    node.disk.remove_directory("metadata").unwrap();
    let mut node = node.crash();
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    fill(&mut node, c, topic, 0..3);
}

#[test]
fn a_start_on_a_full_disk_serves_what_never_got_a_directory_and_makes_it_once_there_is_room() {
    let mut node = Node::new(1);
    for stage in ["create_directory", "grow"] {
        node.disk.fail(stage, "partitions/", DiskError::ENOSPC);
    }
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    fill(&mut node, c, topic, 0..5);
    for from in [5, 10] {
        node = node.crash();
        let c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 0, 0), values(0..from));
        fill(&mut node, c, topic, from..from + 5);
        node.advance(5_000);
    }
    assert_eq!(node.disk.files("partitions/"), Vec::<String>::new());
    assert_eq!(node.metrics(0).disk_full, 1);
    node.disk.heal();
    node.advance(5_000);
    assert_eq!((node.disk.files(".log").len(), node.metrics(0).disk_full), (1, 0));
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 0), values(0..15));
}
