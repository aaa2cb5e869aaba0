//! Streams through the one door: publish, read, restart.

use lockgate_storage::disk::DiskError;
use lockgate_wire::proto;

use crate::support::{Node, batch, publish, records};

#[test]
fn what_is_published_is_read_at_its_offsets() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 3, &[]);
    for partition in 0..3 {
        let first = node.publish(c, topic, partition, batch(&["a", "b"])).unwrap();
        assert_eq!((first.partition, first.base_offset), (partition, 0));
        assert_eq!(node.publish(c, topic, partition, batch(&["c"])).unwrap().base_offset, 2);
        let expected = ["a", "b", "c"].iter().enumerate().map(|(i, v)| (i as u64, v.to_string())).collect::<Vec<_>>();
        assert_eq!(node.read_all(c, topic, partition, 0), expected);
    }
}

#[test]
fn nothing_is_answered_before_the_journal_write_is_done() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    let id = node.send(c, &publish(topic, 0), batch(&["a"]));
    node.run();
    assert!(node.answer(c, id).is_none());
    node.release();
    assert!(node.answer(c, id).unwrap().is_ok());
}

#[test]
fn everything_answered_is_there_after_a_crash_and_after_an_orderly_stop() {
    let mut node = Node::new(2);
    let mut c = node.connect(1);
    let topic = node.create_topic(c, "orders", 2, &[]);
    let mut expected = Vec::new();
    for round in 0..6 {
        for i in 0..20 {
            let value = format!("{round}-{i}");
            let answer = node.publish(c, topic, 1, batch(&[&value])).unwrap();
            expected.push((answer.base_offset, value));
        }
        node = if round % 2 == 0 { node.crash() } else { node.restart() };
        c = node.connect(0);
        assert_eq!(node.read_all(c, topic, 1, 0), expected);
    }
}

#[test]
fn a_subscription_goes_on_from_the_log_to_live_data_without_gap_or_repeat() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    for i in 0..10 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    let start = Some(proto::StartPosition { at: Some(proto::start_position::At::Offset(3)) });
    let subscribe =
        proto::Subscribe { subscription_id: 1, topic_id: topic, partition: 0, start, credit_bytes: 1 << 20 };
    let ok: proto::SubscribeOk = node.ask(c, &subscribe);
    assert_eq!((ok.next_offset, ok.high_watermark), (3, 10));
    let mut seen = Vec::new();
    for i in 10..20 {
        while let Some(frame) = node.push(c) {
            seen.extend(records(frame.payload));
        }
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    while let Some(frame) = node.push(c) {
        seen.extend(records(frame.payload));
    }
    assert_eq!(seen, (3..20).map(|i| (i, i.to_string())).collect::<Vec<_>>());
}

#[test]
fn old_records_are_read_from_segments() {
    let mut config = crate::support::config(1);
    config.limits.tail_bytes_per_shard = 0;
    let mut node = Node::start(Default::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    for i in 0..50 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    node.advance(5_000);
    node.advance(5_000);
    let expected: Vec<_> = (0..50).map(|i| (i, i.to_string())).collect();
    assert_eq!(node.read_all(c, topic, 0, 0), expected);
    assert!(node.shards[0].metrics().cold_reads > 0);
}

#[test]
fn a_deleted_topic_is_gone_and_its_name_is_free() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    node.publish(c, topic, 0, batch(&["a"])).unwrap();
    let _: proto::DeleteTopicOk = node.ask(c, &proto::DeleteTopic { name: "orders".into() });
    let error = node.publish(c, topic, 0, batch(&["b"])).unwrap_err();
    assert_eq!(error.kind, lockgate_wire::ErrorKind::TopicNotFound);
    let again = node.create_topic(c, "orders", 2, &[]);
    assert_ne!(again, topic);
    assert_eq!(node.read_all(c, again, 0, 0), []);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.read_all(c, again, 0, 0), []);
}

#[test]
fn a_jump_of_the_wall_clock_makes_nothing_old() {
    const DAY_MS: i64 = 24 * 3_600 * 1_000;
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "7d")]);
    node.publish(c, topic, 0, batch(&["before"])).unwrap();
    node.advance(5_000);
    node.now.wall.0 += 30 * DAY_MS;
    for _ in 0..200 {
        node.advance(100);
        node.publish(c, topic, 0, batch(&["after"])).unwrap();
    }
    node.advance(60_000);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 201);
    assert_eq!(node.metrics(0).segments_expired, 0);
}

#[test]
fn append_times_go_on_after_everything_expired_and_the_clock_fell() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "60s")]);
    let before = node.publish(c, topic, 0, batch(&["a"])).unwrap().append_time_ms;
    for _ in 0..30 {
        node.advance(5_000);
    }
    assert!(node.metrics(0).segments_expired > 0);
    node.stop();
    node.now.wall.0 -= 3_600_000;
    let mut node = node.crash();
    let c = node.connect(0);
    assert!(node.publish(c, topic, 0, batch(&["b"])).unwrap().append_time_ms >= before);
}

#[test]
fn nobody_is_told_of_a_start_that_a_crash_could_take_back() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "60s")]);
    node.publish(c, topic, 0, batch(&["a"])).unwrap();
    node.advance(5_000);
    node.disk.fail("write", "/start", DiskError::ENOSPC);
    for _ in 0..30 {
        node.advance(5_000);
    }
    assert!(node.metrics(0).segments_expired > 0, "the start was to move");
    assert_eq!(node.read_all(c, topic, 0, 0), [(0, "a".into())]);
    // What comes meanwhile is not removed with it.
    assert_eq!(node.publish(c, topic, 0, batch(&["b"])).unwrap().base_offset, 1);
    node.advance(5_000);
    node.disk.heal();
    node.advance(5_000);
    assert_eq!(node.read_all(c, topic, 0, 1), [(1, "b".into())]);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 1), [(1, "b".into())]);
}
