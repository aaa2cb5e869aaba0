//! Requests that cross to another shard: bounded, answered, in order.

use bytes::Bytes;
use lockgate_engine::shard_of;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self};
use lockgate_wire::{ErrorKind, PartitionId, ShardId, TopicId};

use crate::support::{FaultyDisk, Node, batch, config, publish};

/// A partition of the topic that is not on shard 0.
fn remote(topic: u64) -> u32 {
    let id = |partition| PartitionId { topic: TopicId(topic), partition };
    (0..8).find(|p| shard_of(id(*p), 2) == ShardId(1)).expect("eight partitions are on both shards")
}

#[test]
fn without_a_slot_a_request_waits_its_connection_is_not_read_and_both_go_on() {
    let mut config = config(2);
    config.limits.mesh_requests = 2;
    let mut node = Node::start(FaultyDisk::default(), config);
    let connections: Vec<_> = (0..3).map(|_| node.connect(0)).collect();
    let topic = node.create_topic(connections[0], "orders", 8, &[]);
    let partition = remote(topic);
    node.hold_journal = true;
    let mut ids = Vec::new();
    for i in 0..4 {
        for c in &connections {
            ids.push((*c, node.send_and_run(*c, &publish(topic, partition), batch(&[&i.to_string()]))));
        }
    }
    let metrics = node.metrics(0);
    assert_eq!((metrics.mesh_requests, metrics.mesh_parked), (2, 3), "two under way, one of each connection waits");
    assert!(connections.iter().all(|c| node.unread(*c) > 0));
    node.release();
    assert!(ids.into_iter().all(|(c, id)| node.answer(c, id).unwrap().is_ok()));
    assert_eq!(node.read_all(connections[0], topic, partition, 0).len(), 12);
    node.assert_idle();
}

#[test]
fn connections_that_wait_for_a_slot_are_served_in_the_order_in_which_they_came() {
    let mut config = config(2);
    config.limits.mesh_requests = 1;
    let mut node = Node::start(FaultyDisk::default(), config);
    let (older, first, younger) = (node.connect(0), node.connect(0), node.connect(0));
    let topic = node.create_topic(first, "orders", 8, &[]);
    let partition = remote(topic);
    node.hold_journal = true;
    for (c, value) in [(first, "has the slot"), (younger, "came first"), (older, "came second")] {
        node.send_and_run(c, &publish(topic, partition), batch(&[value]));
    }
    node.release();
    let values: Vec<String> = node.read_all(first, topic, partition, 0).into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, ["has the slot", "came first", "came second"]);
}

#[test]
fn a_partition_that_a_shard_has_not_heard_of_yet_is_no_deleted_one() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    node.hold_views = true;
    let create = proto::CreateTopic { name: "orders".into(), partitions: 8, ..Default::default() };
    let created = node.send_and_run(c, &create, Bytes::new());
    let topology: proto::TopologyOk = node.ask(c, &proto::Topology { topics: vec!["orders".into()] });
    let topic = topology.topics[0].topic_id;
    let partition = remote(topic);
    let error = node.publish(c, topic, partition, batch(&["a"])).unwrap_err();
    assert_eq!((error.kind, error.advice()), (ErrorKind::Recovering, proto::Advice::Retry));
    node.release();
    assert!(node.answer(c, created).unwrap().is_ok());
    node.publish(c, topic, partition, batch(&["a"])).unwrap();
    // The other way round: the shard of the connection does not know yet that it is gone.
    let d = node.connect(1);
    let other = (0..8)
        .find(|p| *p != partition && shard_of(PartitionId { topic: TopicId(topic), partition: *p }, 2) == ShardId(0));
    node.hold_views = true;
    node.send_and_run(c, &proto::DeleteTopic { name: "orders".into() }, Bytes::new());
    let error = node.publish(d, topic, other.unwrap(), batch(&["b"])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TopicNotFound);
    node.release();
}

#[test]
fn a_connection_that_goes_while_its_request_waits_for_a_slot_takes_it_along() {
    let mut config = config(2);
    config.limits.mesh_requests = 1;
    let mut node = Node::start(FaultyDisk::default(), config);
    let (a, b, c) = (node.connect(0), node.connect(0), node.connect(0));
    let topic = node.create_topic(a, "orders", 8, &[]);
    let partition = remote(topic);
    node.hold_journal = true;
    let first = node.send_and_run(a, &publish(topic, partition), batch(&["a"]));
    node.send_and_run(b, &publish(topic, partition), batch(&["b"]));
    let third = node.send_and_run(c, &publish(topic, partition), batch(&["c"]));
    node.disconnect(b);
    node.release();
    assert!(node.answer(a, first).unwrap().is_ok() && node.answer(c, third).unwrap().is_ok());
    let values: Vec<String> = node.read_all(a, topic, partition, 0).into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, ["a", "c"]);
    node.assert_idle();
}

#[test]
fn a_subscription_that_replaces_another_gets_through_without_free_slots() {
    let mut config = config(2);
    config.limits.mesh_requests = 1;
    let mut node = Node::start(FaultyDisk::default(), config);
    let (a, b) = (node.connect(0), node.connect(0));
    let topic = node.create_topic(a, "orders", 8, &[]);
    let partition = remote(topic);
    node.subscribe(b, 1, (topic, partition), At::Earliest(true), 1 << 20).unwrap();
    node.hold_mesh = true;
    node.send_and_run(a, &publish(topic, partition), batch(&["a"]));
    let body = crate::support::subscribe(2, (topic, partition), At::Earliest(true), 1 << 20);
    let id = node.send_and_run(b, &body, Bytes::new());
    node.release();
    assert!(node.answer(b, id).unwrap().is_ok());
    assert!(node.delivered(b).iter().any(|(id, ..)| *id == 2));
    node.assert_idle();
}

#[test]
fn frames_that_cross_while_a_connection_ends_leave_nothing_behind() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 8, &[]);
    let partition = remote(topic);
    node.publish(c, topic, partition, batch(&["a"])).unwrap();
    node.hold_mesh = true;
    let fetch = proto::Fetch { topic_id: topic, partition, offset: 1, max_bytes: 0, max_wait_ms: 10_000 };
    node.send_and_run(c, &fetch, Bytes::new());
    node.send_and_run(c, &crate::support::subscribe(1, (topic, partition), At::Earliest(true), 1 << 20), Bytes::new());
    node.disconnect(c);
    node.release();
    node.assert_idle();
    let c = node.connect(0);
    node.publish(c, topic, partition, batch(&["b"])).unwrap();
    node.assert_idle();
}

#[test]
fn an_id_is_free_again_only_when_its_partition_has_answered_for_the_old_one() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 8, &[]);
    let partition = remote(topic);
    node.publish(c, topic, partition, batch(&["a"])).unwrap();
    node.hold_mesh = true;
    let subscribe = |at| crate::support::subscribe(1, (topic, partition), at, 1 << 20);
    let refused = node.send_and_run(c, &subscribe(At::Offset(99)), Bytes::new());
    let ended = node.send_and_run(c, &proto::Unsubscribe { subscription_id: 1 }, Bytes::new());
    let early = node.send_and_run(c, &subscribe(At::Earliest(true)), Bytes::new());
    assert_eq!(node.answer(c, early).unwrap().unwrap_err().kind, ErrorKind::InvalidRequest);
    node.release();
    assert_eq!(node.answer(c, refused).unwrap().unwrap_err().kind, ErrorKind::OffsetOutOfRange);
    assert!(node.answer(c, ended).unwrap().is_ok());
    node.subscribe(c, 1, (topic, partition), At::Earliest(true), 1 << 20).unwrap();
    assert_eq!(node.delivered(c).len(), 1, "no late word about the old one ends the new one");
    node.disconnect(c);
    node.assert_idle();
}
