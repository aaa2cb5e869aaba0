//! The bounds: what happens at each, and that it is over when there is room again.

use bytes::Bytes;
use lockgate_wire::ErrorKind;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self};

use crate::support::{FaultyDisk, Node, batch, config, publish};

#[test]
fn at_the_bound_of_unanswered_requests_a_connection_is_not_read_until_one_is_answered() {
    let mut config = config(2);
    config.limits.unanswered_requests = 3;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    node.hold_journal = true;
    let ids: Vec<u64> =
        (0..10).map(|i| node.send_and_run(c, &publish(topic, i % 2), batch(&[&i.to_string()]))).collect();
    assert_eq!((node.unread(c), node.metrics(0).unanswered_requests), (7, 3));
    assert_eq!(node.metrics(0).connections_paused, 1);
    node.release();
    assert_eq!(node.unread(c), 0);
    assert!(ids.into_iter().all(|id| node.answer(c, id).unwrap().is_ok()));
    node.assert_idle();
}

#[test]
fn at_the_bound_of_bytes_a_connection_is_not_read_and_others_are() {
    let mut config = config(2);
    config.limits.unanswered_bytes = 10_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let (c, other) = (node.connect(0), node.connect(0));
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    let value = "x".repeat(4_000);
    for _ in 0..6 {
        node.send_and_run(c, &publish(topic, 0), batch(&[&value]));
    }
    assert_eq!(node.unread(c), 3, "read up to the first request beyond the bound");
    let _: proto::PingOk = node.ask(other, &proto::Ping {});
    node.release();
    assert_eq!(node.unread(c), 0);
    node.assert_idle();
}

#[test]
fn a_client_that_takes_no_answers_is_not_read_beyond_its_bound() {
    let mut config = config(1);
    config.limits.unanswered_bytes = 10_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.publish(c, topic, 0, batch(&[&"x".repeat(3_000)])).unwrap();
    node.set_hold_written(true);
    for _ in 0..10 {
        let fetch = proto::Fetch { topic_id: topic, partition: 0, offset: 0, max_bytes: 1, max_wait_ms: 0 };
        node.send_and_run(c, &fetch, Bytes::new());
    }
    assert!(node.unread(c) >= 5, "{} unread", node.unread(c));
    assert!(node.metrics(0).outgoing_bytes < 15_000);
    node.set_hold_written(false);
    assert_eq!(node.unread(c), 0);
    node.assert_idle();
}

#[test]
fn at_the_bound_of_publish_memory_publishers_are_not_read_and_readers_are() {
    let mut config = config(2);
    config.limits.publish_bytes_per_shard = 10_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let (a, b, reader) = (node.connect(0), node.connect(0), node.connect(0));
    let topic = node.create_topic(a, "orders", 2, &[]);
    for c in [a, b] {
        node.publish(c, topic, 0, batch(&["once"])).unwrap();
    }
    node.hold_journal = true;
    let value = "x".repeat(4_000);
    for _ in 0..4 {
        node.send_and_run(a, &publish(topic, 1), batch(&[&value]));
    }
    // The other publisher has nothing under way: it is held back by the memory alone, and has to be told when it may.
    let id = node.send_and_run(b, &publish(topic, 0), batch(&["b"]));
    assert_eq!((node.unread(a), node.unread(b)), (1, 1));
    let _: proto::PingOk = node.ask(reader, &proto::Ping {});
    node.release();
    assert_eq!((node.unread(a), node.unread(b)), (0, 0));
    assert!(node.answer(b, id).unwrap().is_ok());
    node.assert_idle();
}

#[test]
fn a_session_has_so_many_subscriptions_and_no_more() {
    let mut config = config(2);
    config.limits.subscriptions_per_session = 5;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 6, &[]);
    for partition in 0..5 {
        node.subscribe(c, 1 + u64::from(partition), (topic, partition), At::Latest(true), 1).unwrap();
    }
    let error = node.subscribe(c, 6, (topic, 5), At::Latest(true), 1).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(5)));
    // One that replaces another needs no place of its own.
    node.subscribe(c, 7, (topic, 4), At::Latest(true), 1).unwrap();
    let _: proto::UnsubscribeOk = node.ask(c, &proto::Unsubscribe { subscription_id: 1 });
    node.subscribe(c, 6, (topic, 5), At::Latest(true), 1).unwrap();
    assert_eq!(node.metrics(0).subscriptions, 5);
    node.disconnect(c);
    node.assert_idle();
}

#[test]
fn a_thousand_subscriptions_of_one_session_are_served() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1_001, &[]);
    for partition in 0..1_000 {
        node.subscribe(c, 1 + u64::from(partition), (topic, partition), At::Earliest(true), 1 << 20).unwrap();
    }
    let error = node.subscribe(c, 5_000, (topic, 1_000), At::Latest(true), 1).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(1_000)));
    for partition in [0, 500, 999] {
        node.publish(c, topic, partition, batch(&["a"])).unwrap();
    }
    let subscriptions: Vec<u64> = node.delivered(c).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(subscriptions, [1, 501, 1_000]);
    node.disconnect(c);
    node.assert_idle();
}

#[test]
fn a_request_names_so_many_topics_and_no_more() {
    let mut config = config(1);
    config.limits.topics_per_request = 2;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let ask = |count: usize| proto::Topology { topics: vec!["orders".into(); count] };
    assert_eq!(node.ask::<_, proto::TopologyOk>(c, &ask(2)).topics.len(), 2);
    let error = node.try_ask::<_, proto::TopologyOk>(c, &ask(3)).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::InvalidRequest, Some(2)));
}

#[test]
fn the_ends_of_logs_share_their_memory() {
    let mut config = config(1);
    config.limits.tail_bytes_per_shard = 40_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let first = node.create_topic(c, "first", 1, &[]);
    let value = "x".repeat(1_000);
    for _ in 0..100 {
        node.publish(c, first, 0, batch(&[&value])).unwrap();
    }
    node.advance(3_000);
    assert!((20_000..=40_000).contains(&node.metrics(0).tail_bytes));
    let more = node.create_topic(c, "more", 9, &[]);
    assert!(node.metrics(0).tail_bytes <= 4_000, "the first gives up what is above its share");
    for partition in 0..9 {
        for _ in 0..10 {
            node.publish(c, more, partition, batch(&[&value])).unwrap();
        }
    }
    node.advance(3_000);
    let metrics = node.metrics(0);
    assert!(metrics.tail_bytes <= 40_000 && metrics.unflushed_bytes == 0, "{} bytes", metrics.tail_bytes);
}
