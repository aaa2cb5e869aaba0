//! Giving up what a damaged journal has lost: what is left serves again, and nothing else goes than was said.

use lockgate_engine::{Kept, Repair, RepairError, Subject, recover, repair, shard_of};
use lockgate_storage::disk::dry_run::DryRun;
use lockgate_storage::segment::{INDEX_INTERVAL_BYTES, Limit, SegmentConfig, Segments};
use lockgate_wire::{PartitionId, ShardId, proto};

use crate::support::{FaultyDisk, Node, batch};
use crate::suspects::{PARTITIONS, Rig, bounded, damage};

/// Repairs shard 1 on a copy that keeps its changes to itself, then for good: with the same outcome.
fn repair_shard_1(rig: &Rig) -> Vec<Repair> {
    let before = rig.node.disk.memory.paths();
    let proposed = repair(&DryRun::new(&rig.node.disk).unwrap(), &rig.node.config, ShardId(1)).unwrap();
    assert_eq!(rig.node.disk.memory.paths(), before);
    let done = repair(&rig.node.disk, &rig.node.config, ShardId(1)).unwrap();
    assert_eq!(done, proposed);
    // What is repaired is damaged still, and told.
    assert!(done.partitions.is_empty() || !done.damage.is_empty());
    done.partitions
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

/// A partition that gets three records or more, the second of which is damaged at rest afterwards, in these files.
fn with_a_hole(settings: &[(&str, &str)], files: &str, behind: impl FnOnce(&mut Rig, u32)) -> (Rig, u32) {
    let mut rig = Rig::new(settings);
    let hurt = rig.here[0];
    rig.publish(hurt, "first");
    let before = rig.node.disk.copy();
    rig.publish(hurt, "lost");
    let after = rig.node.disk.copy();
    behind(&mut rig, hurt);
    damage(&rig.node, &before, &after, files);
    (rig, hurt)
}

/// One more record, and time for it to get into the segments.
fn flushed(rig: &mut Rig, hurt: u32) {
    rig.publish(hurt, "behind");
    rig.node.advance(1_000);
}

#[test]
fn entries_behind_a_hole_are_given_up_and_counted() {
    let (mut rig, hurt) = with_a_hole(&[], "shards/1/journal/", |rig, hurt| rig.publish(hurt, "behind"));
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

#[test]
fn a_repair_that_is_cut_anywhere_keeps_everything_that_it_said_it_would() {
    let mut config = bounded();
    // Less than there is since the last checkpoint.
    (config.journal.file_bytes, config.journal.max_write_bytes) = (1 << 20, 128 << 10);
    config.journal.max_bytes = 16 << 20;
    let small = ("max_batch_bytes", "64KiB");
    for settings in [&[small][..], &[small, ("fsync", "interval(10ms)")]] {
        let mut rig = Rig::with(config.clone(), settings);
        let always = rig.node.create_topic(rig.c, "always", PARTITIONS, &[small]);
        let (lost, full) = (rig.here[0], rig.here[1]);
        let values: Vec<String> = (0..5).map(|n| format!("{n}").repeat(40_000)).collect();
        values.iter().for_each(|value| rig.publish(full, value));
        rig.here.clone().into_iter().for_each(|partition| rig.publish(partition, "small"));
        rig.node.advance(1_000);
        let before = rig.node.disk.copy();
        for partition in 0..PARTITIONS {
            rig.node.publish(rig.c, always, partition, batch(&["lost"])).unwrap();
        }
        rig.publish(lost, "lost");
        let after = rig.node.disk.copy();
        // Behind the hole, and in the segments.
        rig.publish(lost, "behind");
        rig.node.advance(1_000);
        damage(&rig.node, &before, &after, "shards/1/");
        // What a start then finds of each partition, if it is not refused.
        let check = |node: &mut Node, calls: u64, may_be_refused: bool| {
            let c = node.connect(0);
            for partition in &rig.here {
                if may_be_refused && node.publish(c, rig.topic, *partition, batch(&["new"])).is_err() {
                    continue;
                }
                let read = node.read_all(c, rig.topic, *partition, 0).into_iter().map(|(_, value)| value);
                let read: Vec<String> = read.filter(|value| value != "new").collect();
                let large = if *partition == full { &values[..] } else { &[] };
                let is_whole = read.iter().eq(large.iter().chain([&"small".to_owned()]));
                assert!(is_whole, "partition {partition}: {} records, cut after {calls} calls", read.len());
            }
        };
        for calls in 0.. {
            let disk = rig.node.disk.copy();
            disk.cut_after(calls);
            let is_done = repair(&disk, &config, ShardId(1)).is_ok();
            disk.lose_unsynced();
            disk.heal();
            let contents =
                |disk: &FaultyDisk| disk.files("").into_iter().map(|path| disk.memory.file(&path)).collect::<Vec<_>>();
            if contents(&disk) == contents(&rig.node.disk) {
                continue;
            }
            let mut node = Node::start(disk.copy(), config.clone());
            check(&mut node, calls, !is_done);
            for disk in [disk, node.disk] {
                repair(&disk, &config, ShardId(1)).unwrap();
                check(&mut Node::start(disk, config.clone()), calls, false);
            }
            if is_done {
                break;
            }
        }
    }
}

fn id(rig: &Rig, partition: u32) -> PartitionId {
    PartitionId { topic: rig.topic.into(), partition }
}

fn outcome_of(rig: &Rig, repairs: &[Repair], partition: u32) -> Result<Kept, String> {
    let of = Subject::Partition(id(rig, partition));
    repairs.iter().find(|repair| repair.of == of).unwrap().outcome.clone()
}

/// The partition's segments, byte for byte.
fn segments_of(rig: &Rig, partition: u32) -> Vec<(String, Option<Vec<u8>>)> {
    let files = rig.node.disk.files(&format!("partitions/{}/", id(rig, partition)));
    files.into_iter().map(|file| (file.clone(), rig.node.disk.memory.file(&file).map(|bytes| bytes.to_vec()))).collect()
}

#[test]
fn a_partition_whose_data_ahead_of_the_journal_is_damaged_is_not_repaired_and_nothing_of_it_is_cut() {
    let mut config = bounded();
    config.journal.external_min_bytes = 256 << 10;
    let mut rig = Rig::with(config, &[]);
    let (lost, large) = (rig.here[0], rig.here[1]);
    for partition in rig.here.clone() {
        rig.publish(partition, "first");
    }
    rig.node.advance(1_000);
    let before = rig.node.disk.copy();
    rig.publish(large, &"a".repeat(400_000));
    let after = rig.node.disk.copy();
    rig.publish(large, &"b".repeat(400_000));
    damage(&rig.node, &before, &after, &format!("partitions/{}/", id(&rig, large)));
    rig = rig.crash_with_damage_to(|rig| rig.publish(lost, "lost"));
    let before = segments_of(&rig, large);
    let repairs = repair_shard_1(&rig);
    let why = outcome_of(&rig, &repairs, large).unwrap_err();
    assert!(why.contains("is damaged at byte"), "{why}");
    assert!(segments_of(&rig, large) == before);
    assert!(outcome_of(&rig, &repairs, lost).is_ok());
    rig = rig.crash();
    assert_eq!(rig.refused(), [large]);
}

#[test]
fn a_partition_whose_sealed_segments_reach_past_the_hole_is_not_repaired_and_nothing_of_it_is_cut() {
    let (rig, hurt) = with_a_hole(&[("segment_bytes", "1MiB")], "shards/1/journal/", |rig, hurt| {
        ["a", "b", "c", "d"].iter().for_each(|text| rig.publish(hurt, &text.repeat(400_000)));
        rig.node.advance(1_000);
    });
    let directory = format!("partitions/{}", id(&rig, hurt)).into();
    let config = SegmentConfig { directory, segment_bytes: 1 << 20, index_interval_bytes: INDEX_INTERVAL_BYTES };
    let (mut segments, _) = Segments::open(&rig.node.disk, config, Limit::None).unwrap();
    while let Some(ops) = segments.next_seal() {
        ops.iter().for_each(|op| drop(op.execute(&rig.node.disk).unwrap()));
        segments.sealed(Ok(()));
    }
    let before = segments_of(&rig, hurt);
    assert!(before.iter().filter(|(path, _)| path.ends_with(".log")).count() > 1, "a sealed one, and another");
    let repairs = repair_shard_1(&rig);
    let why = outcome_of(&rig, &repairs, hurt).unwrap_err();
    assert!(why.contains("its segments go up to entry"), "{why}");
    assert!(segments_of(&rig, hurt) == before);
}

#[test]
fn records_that_go_although_they_are_in_the_segments_are_named() {
    let (mut rig, hurt) = with_a_hole(&[], "shards/1/journal/", flushed);
    let repairs = repair_shard_1(&rig);
    let kept = outcome_of(&rig, &repairs, hurt).unwrap();
    assert!(kept.to_string().contains("cuts the records 1 to 2"), "{kept}");
    rig = rig.crash();
    assert_eq!(rig.node.read_all(rig.c, rig.topic, hurt, 0).len(), 1);
}

/// Publishes to a topic of its own until shard 1 has let files go. Gives the partition.
fn fill_the_journal(rig: &mut Rig) -> PartitionId {
    let topic = rig.node.create_topic(rig.c, "hot", PARTITIONS, &[]);
    let ids = (0..PARTITIONS).map(|partition| PartitionId { topic: topic.into(), partition });
    let id = ids.into_iter().find(|id| shard_of(*id, 2).0 == 1).unwrap();
    for _ in 0..100 {
        rig.node.publish(rig.c, topic, id.partition, batch(&[&"x".repeat(500_000)])).unwrap();
        rig.node.advance(25);
    }
    assert!(rig.node.metrics(1).journal.files_freed > 2);
    id
}

#[test]
fn what_was_repaired_stays_so_when_the_damage_has_gone_with_its_files() {
    for settings in [&[][..], &[("fsync", "interval(10ms)")]] {
        let (mut rig, hurt) = with_a_hole(settings, "shards/1/", flushed);
        assert!(repair_shard_1(&rig).iter().all(|repair| repair.outcome.is_ok()));
        rig = rig.crash();
        rig.publish(hurt, "second");
        fill_the_journal(&mut rig);
        for _ in 0..2 {
            rig.node.advance(1_000);
            rig = rig.crash();
            let values: Vec<String> =
                rig.node.read_all(rig.c, rig.topic, hurt, 0).into_iter().map(|(_, value)| value).collect();
            assert_eq!(values, ["first", "second"], "{settings:?}");
            assert!(!rig.node.logs.iter().any(|line| line.contains("damaged")), "{:?}", rig.node.logs);
        }
    }
}

/// A node on which two partitions were written down, idle since, and may have lost something: one with a record, one without.
fn with_idle_suspects() -> (Rig, [u32; 2]) {
    let mut rig = Rig::new(&[]);
    let (idle, empty) = (rig.here[0], rig.here[1]);
    // More than is carried forward, and nothing in the segments for the last of it.
    rig.publish(idle, &"first".repeat(1_000));
    for (partition, offset) in std::iter::repeat_n([(idle, 1), (empty, 0)], 40).flatten() {
        let (topic_id, name) = (rig.topic, "reader".into());
        let cursor = proto::CommitCursor { topic_id, partition, name, offset, force: false };
        rig.node.ask::<_, proto::CommitCursorOk>(rig.c, &cursor);
    }
    rig = rig.crash();
    let hot = fill_the_journal(&mut rig);
    rig.node.advance(10_000);
    rig = rig.crash_with_damage_to(|rig| {
        rig.node.publish(rig.c, hot.topic.0, hot.partition, batch(&["lost"])).unwrap();
    });
    assert!([idle, empty].iter().all(|partition| rig.refused().contains(partition)));
    (rig, [idle, empty])
}

#[test]
fn a_partition_whose_newest_checkpoint_cannot_be_read_is_left_alone() {
    let (rig, [idle, _]) = with_idle_suspects();
    let checkpoints = rig.node.disk.files(&format!("partitions/{}-{idle}/state.", rig.topic));
    for path in &checkpoints {
        let mut bytes = rig.node.disk.memory.file(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        rig.node.disk.memory.set_file(path, bytes);
    }
    let before = rig.node.disk.files("partitions/").len();
    let of = Subject::Partition(PartitionId { topic: rig.topic.into(), partition: idle });
    let repairs = repair_shard_1(&rig);
    let repair = repairs.iter().find(|repair| repair.of == of).unwrap();
    let why = repair.outcome.as_ref().unwrap_err();
    assert!(why.contains("the journal has let go of") && why.contains("is not used"), "{why}");
    assert_eq!(rig.node.disk.files("partitions/").len(), before);
}

#[test]
fn a_partition_that_was_written_down_and_idle_since_is_repaired() {
    let (mut rig, [idle, _]) = with_idle_suspects();
    let repairs = repair_shard_1(&rig);
    assert!(repairs.iter().all(|repair| repair.outcome.is_ok()), "{repairs:?}");
    rig = rig.crash();
    assert_eq!(rig.refused(), Vec::<u32>::new());
    assert!(rig.first_value(idle).unwrap().starts_with("first"));
}

#[test]
fn a_partition_of_which_nothing_is_left_is_named_and_not_repaired_and_ends_with_its_topic() {
    let mut rig = Rig::new(&[]);
    let mut topic = 0;
    rig = rig.crash_with_damage_to(|rig| topic = rig.node.create_topic(rig.c, "new", PARTITIONS, &[]));
    let is_here = |partition: &u32| shard_of(PartitionId { topic: topic.into(), partition: *partition }, 2).0 == 1;
    let new: Vec<PartitionId> =
        (0..PARTITIONS).filter(is_here).map(|partition| PartitionId { topic: topic.into(), partition }).collect();
    assert!(!new.is_empty());
    let hopeless = |rig: &Rig| -> Vec<Subject> {
        let repairs = repair_shard_1(rig);
        repairs.into_iter().filter(|repair| repair.outcome.is_err()).map(|repair| repair.of).collect()
    };
    let expected: Vec<Subject> = new.iter().copied().map(Subject::Partition).collect();
    assert_eq!(hopeless(&rig), expected);
    // The others are repaired, these are still named.
    assert_eq!(hopeless(&rig), expected);
    rig = rig.crash();
    assert_eq!(rig.refused(), Vec::<u32>::new());
    rig.node.ask::<_, proto::DeleteTopicOk>(rig.c, &proto::DeleteTopic { name: "new".into() });
    rig.node.advance(1_000);
    let rig = rig.crash();
    assert!(repair_shard_1(&rig).is_empty());
}

#[test]
fn a_catalog_that_may_have_lost_something_is_not_repaired() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "kept", 1, &[]);
    node.publish(c, topic, 0, batch(&["a"])).unwrap();
    let before = node.disk.copy();
    node.create_topic(c, "lost", 1, &[]);
    let after = node.disk.copy();
    node.advance(100);
    damage(&node, &before, &after, "shards/0/journal/");
    for _ in 0..2 {
        let error = repair(&node.disk, &node.config, ShardId(0)).unwrap_err();
        assert!(matches!(error, RepairError::Catalog(_)), "{error}");
        assert!(recover(&node.disk, &node.config, ShardId(0)).is_err());
    }
}
