//! Publishing: what each acknowledgement level waits for, what is refused at the door, what holds a publisher back.

use bytes::Bytes;
use lockgate_engine::JournalSettings;
use lockgate_storage::disk::DiskError;
use lockgate_wire::ErrorKind;
use lockgate_wire::batch::{BatchHeader, HEADER_BYTES};
use lockgate_wire::proto::{self, Ack};

use crate::support::{FaultyDisk, Node, batch, batch_at, config, publish, publish_at};

/// A batch of exactly this size.
fn batch_of(bytes: usize) -> Bytes {
    (bytes - HEADER_BYTES - 40..bytes)
        .rev()
        .map(|value| batch(&[&"v".repeat(value)]))
        .find(|batch| batch.len() == bytes)
        .expect("some value makes a batch of that size")
}

#[test]
fn no_level_is_answered_before_the_journal_has_it_and_none_is_never_answered() {
    for (ack, answered) in [(Ack::Quorum, true), (Ack::Leader, true), (Ack::None, false)] {
        let mut node = Node::new(2);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 2, &[]);
        for partition in 0..2 {
            node.hold_journal = true;
            let id = node.send(c, &publish_at(topic, partition, ack), batch(&["a"]));
            node.run();
            assert!(node.answer(c, id).is_none(), "{ack:?} was answered before the sync");
            node.release();
            assert_eq!(node.answer(c, id).map(|answer| answer.is_ok()), answered.then_some(true));
            assert_eq!(node.read_all(c, topic, partition, 0), [(0, "a".into())]);
        }
        node.assert_idle();
    }
}

#[test]
fn readers_see_nothing_before_it_is_committed() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    node.send(c, &publish_at(topic, 0, Ack::Leader), batch(&["a"]));
    node.run();
    assert_eq!(node.read_all(c, topic, 0, 0), []);
    node.release();
    assert_eq!(node.read_all(c, topic, 0, 0), [(0, "a".into())]);
}

#[test]
fn publishes_of_a_connection_keep_their_order_while_the_journal_is_busy() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    let ids: Vec<u64> = (0..50)
        .map(|i| {
            node.run();
            let large = if i % 7 == 0 { "x".repeat(20_000) } else { String::new() };
            node.send(c, &publish(topic, 0), batch(&[&format!("{i}{large}"), "second"]))
        })
        .collect();
    node.release();
    for (i, id) in ids.into_iter().enumerate() {
        let ok: proto::PublishOk = node.answer(c, id).unwrap().unwrap().message().unwrap();
        assert_eq!(ok.base_offset, 2 * i as u64);
    }
    let values = node.read_all(c, topic, 0, 0);
    assert!(values.iter().step_by(2).enumerate().all(|(i, (_, v))| v.trim_end_matches('x') == i.to_string()));
    node.assert_idle();
}

#[test]
fn a_batch_of_exactly_the_limit_is_taken_and_one_byte_more_is_refused_with_the_limit() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "4KiB")]);
    assert_eq!(node.publish(c, topic, 0, batch_of(4096)).unwrap().base_offset, 0);
    let error = node.publish(c, topic, 0, batch_of(4097)).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::BatchTooLarge, Some(4096)));
    assert_eq!(node.publish(c, topic, 0, batch(&["the connection lives on"])).unwrap().base_offset, 1);
}

#[test]
fn a_batch_of_the_largest_size_that_a_topic_may_allow_goes_through_the_journal() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "1984KiB")]);
    node.publish(c, topic, 0, batch_of(1984 << 10)).unwrap();
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 1);
}

#[test]
fn bad_batches_and_names_are_refused_and_the_connection_lives_on() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let mut broken = batch(&["a"]).to_vec();
    *broken.last_mut().unwrap() ^= 1;
    for payload in [Bytes::from(broken), Bytes::from_static(b"x"), Bytes::new()] {
        assert_eq!(node.publish(c, topic, 0, payload).unwrap_err().kind, ErrorKind::BadBatch);
    }
    assert_eq!(node.publish(c, topic, 1, batch(&["a"])).unwrap_err().kind, ErrorKind::PartitionNotFound);
    assert_eq!(node.publish(c, topic + 1, 0, batch(&["a"])).unwrap_err().kind, ErrorKind::TopicNotFound);
    let bad_ack = proto::Publish { ack: 9, ..publish(topic, 0) };
    let error = node.try_ask_with::<_, proto::PublishOk>(c, &bad_ack, batch(&["a"])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    let stale = proto::Publish { partitioning_version: 7, ..publish(topic, 0) };
    let error = node.try_ask_with::<_, proto::PublishOk>(c, &stale, batch(&["a"])).unwrap_err();
    assert_eq!((error.kind, error.details.version), (ErrorKind::StalePartitioning, Some(1)));
    assert_eq!(node.publish(c, topic, 0, batch(&["a"])).unwrap().base_offset, 0);
    node.assert_idle();
}

#[test]
fn a_lost_publish_that_wanted_no_answer_is_counted() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let stale = proto::Publish { partitioning_version: 7, ..publish_at(topic, 0, Ack::None) };
    let id = node.send(c, &stale, batch(&["a"]));
    node.run();
    assert!(node.answer(c, id).is_none());
    assert_eq!(node.metrics(0).publish_lost, 1);
}

#[test]
fn with_append_timestamps_records_carry_the_brokers_time() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("timestamps", "append")]);
    node.publish(c, topic, 0, batch_at(&["a"], None, 5)).unwrap();
    let fetch = proto::Fetch { topic_id: topic, partition: 0, offset: 0, max_bytes: 0, max_wait_ms: 0 };
    let id = node.send(c, &fetch, Bytes::new());
    node.run();
    let frame = node.answer(c, id).unwrap().unwrap();
    let header = BatchHeader::parse(&frame.payload).unwrap();
    assert!(header.is_append_time());
    assert_eq!(header.max_timestamp, node.now.wall.0);
}

#[test]
fn with_append_timestamps_the_records_and_the_answer_have_the_same_time_whatever_the_clock_does() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("timestamps", "append")]);
    for (offset, (jump, size)) in [(0, 1), (3_600_000, 1), (0, 50_000), (-7_200_000, 1)].into_iter().enumerate() {
        node.now.wall.0 += jump;
        let answer = node.publish(c, topic, 0, batch_at(&["x".repeat(size).as_str(), "y"], None, 5)).unwrap();
        let fetch =
            proto::Fetch { topic_id: topic, partition: 0, offset: answer.base_offset, max_bytes: 0, max_wait_ms: 0 };
        let id = node.send_and_run(c, &fetch, Bytes::new());
        let payload = node.answer(c, id).unwrap().unwrap().payload;
        let header = BatchHeader::parse(&payload).unwrap();
        assert_eq!((header.max_timestamp, answer.base_offset), (answer.append_time_ms, 2 * offset as u64));
        assert_eq!(crate::support::records(payload).len(), 2, "its checksum covers the time");
    }
}

#[test]
fn append_times_never_go_back_when_the_wall_clock_does() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let first = node.publish(c, topic, 0, batch(&["a"])).unwrap().append_time_ms;
    node.now.wall.0 -= 60_000;
    assert_eq!(node.publish(c, topic, 0, batch(&["b"])).unwrap().append_time_ms, first);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.publish(c, topic, 0, batch(&["c"])).unwrap().append_time_ms, first);
}

#[test]
fn at_the_bound_of_unflushed_bytes_publishes_wait_and_none_is_lost() {
    let mut config = config(1);
    config.limits.unflushed_bytes_per_partition = 3_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_background = true;
    let ids: Vec<u64> = (0..10).map(|i| node.send_and_run(c, &publish(topic, 0), batch_of(1_000 + i))).collect();
    let answered = |node: &mut Node, ids: &[u64]| ids.iter().filter(|id| node.answer(c, **id).is_some()).count();
    node.advance(3_000);
    assert_eq!(answered(&mut node, &ids), 3, "what fits below the bound");
    node.release();
    node.advance(3_000);
    assert_eq!(answered(&mut node, &ids), 7);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 10);
    node.assert_idle();
}

#[test]
fn a_segment_that_cannot_be_written_delays_publishes_and_then_refuses_them_with_507() {
    let mut config = config(1);
    config.limits.unflushed_bytes_per_partition = 3_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.disk.fail("write", "partitions/", DiskError::ENOSPC);
    let mut taken = 0;
    let refused = loop {
        node.advance(2_000);
        match node.publish(c, topic, 0, batch_of(1_000)) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((taken, refused.kind.code(), refused.kind), (3, 507, ErrorKind::StorageFull));
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 3, "reads go on");
    assert!(node.logs.iter().any(|line| line.contains("made to fail") && line.contains("tried again")));
    node.disk.heal();
    node.advance(2_000);
    node.publish(c, topic, 0, batch_of(1_000)).unwrap();
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 4);
}

#[test]
fn small_batches_that_share_an_entry_never_make_one_that_the_journal_refuses() {
    let mut config = config(1);
    config.journal = JournalSettings { file_bytes: 1 << 20, max_write_bytes: 72 * 1024, ..JournalSettings::default() };
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "8KiB")]);
    // While a write is under way the others gather, far more than one write of this journal takes.
    node.hold_journal = true;
    let value = "x".repeat(7_000);
    let ids: Vec<u64> = (0..200).map(|_| node.send(c, &publish(topic, 0), batch(&[&value]))).collect();
    node.run();
    node.release();
    for id in ids {
        assert!(node.answer(c, id).unwrap().is_ok());
    }
    assert_eq!(node.metrics(0).journal_poisoned, 0);
}
