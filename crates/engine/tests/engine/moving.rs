//! Another number of shards.

use std::convert::Infallible;

use lockgate_engine::{FollowError, MoveError, Moved, NodeConfig, follow_shard_count, recover};
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_wire::batch::Producer;
use lockgate_wire::{ConnectionId, PartitionId, ProducerId, proto};

use crate::support::{FaultyDisk, Node, config, numbered_batch};

const EIO: i32 = 5;
const PARTITIONS: u32 = 8;
const INTERVAL: &[(&str, &str)] = &[("fsync", "interval(60s)")];

fn with(shards: u16, journals: u32) -> NodeConfig {
    NodeConfig { journals, ..config(shards) }
}

/// A node with two topics, one synced always and one by interval, with the same records in every partition.
fn filled(shards: u16) -> (Node, [u64; 2]) {
    let mut node = Node::start(FaultyDisk::default(), with(shards, 0));
    let c = node.connect(0);
    let topics =
        [node.create_topic(c, "always", PARTITIONS, &[]), node.create_topic(c, "interval", PARTITIONS, INTERVAL)];
    append(&mut node, c, topics, 0..5);
    // Some of it to segments and checkpoints.
    node.advance(30_000);
    append(&mut node, c, topics, 5..10);
    (node, topics)
}

fn append<const N: usize>(node: &mut Node, c: ConnectionId, topics: [u64; N], range: std::ops::Range<u64>) {
    for topic in topics {
        for partition in 0..PARTITIONS {
            for i in range.clone() {
                let producer = Producer { id: ProducerId(7), epoch: 0, base_sequence: i as i32 };
                let batch = numbered_batch(&[&i.to_string()], Some(producer));
                assert_eq!(node.publish(c, topic, partition, batch).unwrap().base_offset, i);
            }
        }
    }
}

fn check<const N: usize>(node: &mut Node, topics: [u64; N], range: std::ops::Range<u64>) -> ConnectionId {
    let c = node.connect(0);
    for topic in topics {
        for partition in 0..PARTITIONS {
            let expected: Vec<_> = range.clone().map(|i| (i, i.to_string())).collect();
            assert_eq!(node.read_all(c, topic, partition, 0), expected, "topic {topic} partition {partition}");
        }
    }
    c
}

/// Follows the shard count of `to`, with a switch that does not fail.
fn follow(disk: &FaultyDisk, from: &NodeConfig, to: &NodeConfig) -> Result<Option<Moved>, FollowError<Infallible>> {
    follow_shard_count(disk, from, to, |_| Ok(()))
}

fn moved(node: Node, to: NodeConfig) -> Node {
    let (disk, from, now) = (node.disk, node.config, node.now);
    follow(&disk, &from, &to).unwrap().expect("another set of journals");
    Node::start_at(disk, to, now)
}

/// The sets of journals that a disk has.
fn sets(disk: &FaultyDisk) -> Vec<String> {
    let names = disk.list("").unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.starts_with("shards")).collect()
}

#[test]
fn with_another_number_of_shards_everything_is_there_and_goes_on() {
    let (mut node, topics) = filled(2);
    let c = node.connect(0);
    let commit = proto::CommitCursor { topic_id: topics[0], partition: 3, name: "c".into(), offset: 4, force: false };
    let _: proto::CommitCursorOk = node.ask(c, &commit);
    let mut end = 10;
    for (journals, shards) in [(1, 5), (2, 1), (3, 3)] {
        node = moved(node, with(shards, journals));
        let c = check(&mut node, topics, 0..end);
        let get = proto::GetCursor { topic_id: topics[0], partition: 3, name: "c".into() };
        assert_eq!(node.ask::<_, proto::GetCursorOk>(c, &get).offset, Some(4));
        append(&mut node, c, topics, end..end + 2);
        // What was sent before the move is known.
        let producer = Producer { id: ProducerId(7), epoch: 0, base_sequence: end as i32 - 1 };
        let again = numbered_batch(&[&(end - 1).to_string()], Some(producer));
        let ok = node.publish(c, topics[0], 0, again).unwrap();
        assert_eq!((ok.base_offset, ok.duplicate), (end - 1, true));
        end += 2;
        node = node.crash();
        check(&mut node, topics, 0..end);
        node = node.restart();
        check(&mut node, topics, 0..end);
        let sets: Vec<String> = node.disk.list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(sets, ["metadata", "partitions", &format!("shards-{journals}")]);
    }
}

#[test]
fn a_move_that_ends_anywhere_leaves_one_whole_set_of_journals() {
    let (node, topics) = filled(2);
    let to = with(3, 1);
    for calls in (0..).step_by(17) {
        let disk = node.disk.copy();
        disk.cut_after(calls);
        let mut counts = (*node.config).clone();
        let result = follow_shard_count(&disk, &node.config, &to, |_| {
            counts = to.clone();
            Ok::<(), Infallible>(())
        });
        disk.heal();
        let ended = result.is_ok();
        assert!(!ended || counts == to, "nothing ends well that does not count");
        // The next start has the count that counts, or tries once more.
        assert_eq!(follow(&disk, &counts, &counts), Ok(None));
        assert_eq!(sets(&disk).len(), 1);
        check(&mut Node::start_at(disk.copy(), counts.clone(), node.now), topics, 0..10);
        check(&mut moved(Node::start_at(disk, counts, node.now), with(3, 2)), topics, 0..10);
        if ended {
            return;
        }
    }
}

#[test]
fn a_move_after_a_loss_of_power_makes_no_entry_missing() {
    let mut node = Node::start(FaultyDisk::default(), with(1, 0));
    let c = node.connect(0);
    let topics = [node.create_topic(c, "interval", PARTITIONS, INTERVAL)];
    append(&mut node, c, topics, 0..10);
    node = moved(node, with(2, 1));
    let c = node.connect(0);
    append(&mut node, c, topics, 10..11);
    // Entries without batches, which a checkpoint has and no segment: a leader's first of each start.
    for _ in 0..5 {
        node = node.restart();
    }
    let earlier = node.disk.copy();
    let c = node.connect(0);
    append(&mut node, c, topics, 11..20);
    node.advance(5_000); // Segments have it, the buffered journal is not synced.
    node.disk.lose_since(&earlier, "buffered/");
    for (journals, shards) in [(2, 3), (3, 1)] {
        node = moved(node, with(shards, journals));
        check(&mut node, topics, 0..11);
    }
    node = node.crash();
    let c = check(&mut node, topics, 0..11);
    append(&mut node, c, topics, 11..15);
}

#[test]
fn what_was_moved_is_on_the_device_before_it_counts() {
    let (node, topics) = filled(2);
    let (to, disk) = (with(3, 1), node.disk.copy());
    let mut switched = false;
    let switch = |_: &Moved| {
        assert_eq!(sets(&disk), ["shards", "shards-1"], "the old ones count until then");
        disk.lose_unsynced();
        switched = true;
        Ok::<(), Infallible>(())
    };
    follow_shard_count(&disk, &node.config, &to, switch).unwrap();
    assert!(switched && sets(&disk) == ["shards-1"]);
    check(&mut Node::start_at(disk, to, node.now), topics, 0..10);
}

#[test]
fn old_journals_that_could_not_be_removed_go_with_the_next_start() {
    let (node, topics) = filled(2);
    let (to, disk) = (with(3, 1), node.disk.copy());
    let switch = |_: &Moved| {
        disk.fail("remove_directory", "shards", EIO);
        Ok::<(), Infallible>(())
    };
    let error = follow_shard_count(&disk, &node.config, &to, switch).unwrap_err();
    assert!(matches!(error, FollowError::Remove(_)), "{error}");
    disk.heal();
    assert_eq!(follow(&disk, &to, &to), Ok(None));
    assert_eq!(sets(&disk), ["shards-1"]);
    check(&mut Node::start_at(disk, to, node.now), topics, 0..10);
}

#[test]
fn a_switch_that_failed_leaves_the_old_journals() {
    let (node, topics) = filled(2);
    let (config, now, disk) = ((*node.config).clone(), node.now, node.disk.copy());
    let error = follow_shard_count(&disk, &config, &with(3, 1), |_| Err("no")).unwrap_err();
    assert_eq!(error, FollowError::Switch("no"));
    assert_eq!(sets(&disk), ["shards", "shards-1"]);
    assert_eq!(follow(&disk, &config, &config), Ok(None));
    assert_eq!(sets(&disk), ["shards"]);
    check(&mut Node::start_at(disk, config, now), topics, 0..10);
}

#[test]
fn a_full_disk_leaves_the_node_with_the_shards_it_has() {
    let (node, topics) = filled(2);
    let (config, now, disk) = ((*node.config).clone(), node.now, node.disk.copy());
    disk.fail("grow", "shards-1", DiskError::ENOSPC);
    let error = follow(&disk, &config, &with(3, 1)).unwrap_err();
    assert!(matches!(&error, FollowError::Move(MoveError::Disk(error)) if error.is_full()), "{error}");
    disk.heal();
    assert_eq!(follow(&disk, &config, &config), Ok(None));
    check(&mut Node::start_at(disk, config, now), topics, 0..10);
}

#[test]
fn a_partition_that_does_not_serve_is_not_moved() {
    let (mut node, topics) = filled(2);
    node.stop();
    let id = PartitionId { topic: topics[0].into(), partition: 0 };
    let start = node.disk.files(&format!("partitions/{id}/start")).remove(0);
    node.disk.memory.set_file(&start, vec![1; 3]);
    let error = follow(&node.disk, &node.config, &with(3, 1)).unwrap_err();
    assert!(matches!(error, FollowError::Move(MoveError::Refused(refused, _)) if refused == id), "{error}");
    assert!(error.to_string().contains("does not serve"), "{error}");
    let found = recover(&node.disk, &node.config, lockgate_engine::shard_of(id, 2)).unwrap();
    assert_eq!(found.refused().map(|(id, _)| id).collect::<Vec<_>>(), [id]);
}
