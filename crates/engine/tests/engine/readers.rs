//! Reading: where a reader starts, what credit lets through, and that nothing is skipped or repeated on the way from
//! segments to live data.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_storage::disk::Disk;
use lockgate_wire::batch::BatchHeader;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self, CloseReason};
use lockgate_wire::{ConnectionId, ErrorKind};
use proptest::prelude::*;

use crate::support::{FaultyDisk, Node, batch, batch_at, config, publish, records, subscribe};

const ALL: u64 = 1 << 30;

/// A node whose logs keep nothing in memory that segments have.
fn cold_node(shards: u16) -> Node {
    let mut config = config(shards);
    config.limits.tail_bytes_per_shard = 0;
    Node::start(FaultyDisk::default(), config)
}

/// A topic with ten records in segments and ten in memory; timestamps are 1000 times the offset.
fn half_cold(node: &mut Node, c: ConnectionId) -> u64 {
    let topic = node.create_topic(c, "orders", 1, &[]);
    for i in 0..20 {
        if i == 10 {
            node.advance(5_000);
        }
        node.publish(c, topic, 0, batch_at(&[&i.to_string()], None, i * 1_000)).unwrap();
    }
    topic
}

fn first_of(node: &mut Node, c: ConnectionId, id: u64) -> Option<u64> {
    node.delivered(c).into_iter().find(|(subscription, ..)| *subscription == id).map(|(_, offset, _)| offset)
}

#[test]
fn a_subscription_starts_where_it_was_asked_to() {
    let mut node = cold_node(2);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    let cases = [
        (At::Earliest(true), 0),
        (At::Latest(true), 20),
        (At::Offset(7), 7),
        (At::Offset(20), 20),
        (At::Last(3), 17),
        (At::Last(1_000), 0),
        (At::Last(0), 20),
        (At::Cursor("nobody".into()), 0),
        (At::TimestampMs(-5), 0),
        (At::TimestampMs(4_500), 5),
        (At::TimestampMs(9_000), 9),
        (At::TimestampMs(9_001), 10),
        (At::TimestampMs(15_000), 15),
        (At::TimestampMs(99_000), 20),
    ];
    for (id, (at, expected)) in (1..).zip(cases) {
        let ok = node.subscribe(c, id, (topic, 0), at.clone(), ALL).unwrap();
        assert_eq!((ok.next_offset, ok.high_watermark), (expected, 20), "{at:?}");
        assert_eq!(first_of(&mut node, c, id), (expected < 20).then_some(expected), "{at:?}");
        let _: proto::UnsubscribeOk = node.ask(c, &proto::Unsubscribe { subscription_id: id });
    }
    node.assert_idle();
}

#[test]
fn offsets_by_time_are_found_in_segments_and_in_memory() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    let mut ask = |time| {
        let ok: proto::ListOffsetsOk =
            node.ask(c, &proto::ListOffsets { topic_id: topic, partition: 0, timestamp_ms: time });
        assert_eq!((ok.earliest_offset, ok.high_watermark), (0, 20));
        (ok.offset, ok.timestamp_ms)
    };
    assert_eq!(ask(None), (None, None));
    assert_eq!(ask(Some(2_500)), (Some(3), Some(3_000)));
    assert_eq!(ask(Some(19_000)), (Some(19), Some(19_000)));
    assert_eq!(ask(Some(19_001)), (None, None));
}

#[test]
fn an_offset_outside_of_the_log_is_refused_with_what_there_is() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    let error = node.subscribe(c, 1, (topic, 0), At::Offset(21), ALL).unwrap_err();
    assert_eq!((error.kind, error.details.earliest_offset), (ErrorKind::OffsetOutOfRange, Some(0)));
    assert_eq!((error.kind.code(), error.details.high_watermark), (410, Some(20)));
    // The refused subscription's id and place are free.
    node.subscribe(c, 1, (topic, 0), At::Offset(19), ALL).unwrap();
    assert_eq!(first_of(&mut node, c, 1), Some(19));
    assert_eq!(node.metrics(0).subscriptions, 1);
}

#[test]
fn deliveries_stay_within_the_credit_and_go_on_with_it() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let size = batch(&["0"]).len() as u64;
    for i in 0..10 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), 3 * size + 1).unwrap();
    assert_eq!(node.delivered(c).len(), 3);
    node.credit(c, 1, size - 2);
    assert_eq!(node.delivered(c).len(), 0, "one byte is missing");
    node.credit(c, 1, 1);
    assert_eq!(node.delivered(c).len(), 1);
    node.credit(c, 1, 100 * size);
    assert_eq!(node.delivered(c).len(), 6);
}

#[test]
fn without_credit_nothing_is_delivered_and_nothing_is_read() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), 0).unwrap();
    node.advance(1_000);
    assert_eq!((node.delivered(c).len(), node.metrics(0).cold_reads), (0, 0));
    node.credit(c, 1, ALL);
    assert_eq!(node.delivered(c).len(), 20);
}

#[test]
fn a_batch_larger_than_the_credit_is_delivered_once_nothing_is_outstanding() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let small = batch(&["small"]);
    let large = batch(&[&"x".repeat(50_000)]);
    for payload in [&small, &large, &large, &small] {
        node.publish(c, topic, 0, payload.clone()).unwrap();
    }
    let window = 1_000;
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), window).unwrap();
    assert_eq!(node.delivered(c).len(), 1, "the large one waits until the small one is taken");
    node.credit(c, 1, small.len() as u64);
    assert_eq!(node.delivered(c).len(), 1);
    node.credit(c, 1, large.len() as u64 - 1);
    assert_eq!(node.delivered(c).len(), 0, "a byte of the first large one is outstanding");
    node.credit(c, 1, 1);
    assert_eq!(node.delivered(c).len(), 1);
    node.credit(c, 1, large.len() as u64);
    assert_eq!(node.delivered(c).len(), 1);
}

#[test]
fn a_batch_larger_than_a_delivery_is_delivered_whole_from_memory_and_from_segments() {
    for cold in [false, true] {
        let mut config = config(1);
        config.limits.delivery_bytes = 1_000;
        config.limits.tail_bytes_per_shard = if cold { 0 } else { 64 << 20 };
        let mut node = Node::start(FaultyDisk::default(), config);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "1900KiB")]);
        node.publish(c, topic, 0, batch(&["first"])).unwrap();
        node.publish(c, topic, 0, batch(&[&"x".repeat(1_500_000)])).unwrap();
        node.publish(c, topic, 0, batch(&["last"])).unwrap();
        node.advance(5_000);
        node.subscribe(c, 1, (topic, 0), At::Earliest(true), 4 << 20).unwrap();
        let sizes: Vec<usize> = node.delivered(c).into_iter().map(|(_, _, value)| value.len()).collect();
        assert_eq!(sizes, [5, 1_500_000, 4]);
        assert_eq!(node.metrics(0).cold_reads > 0, cold);
    }
}

#[test]
fn what_is_delivered_says_where_it_is_and_the_producers_bytes_are_untouched() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    for payload in [batch(&["a", "b"]), batch(&[&"x".repeat(5_000)])] {
        let answer = node.publish(c, topic, 0, payload.clone()).unwrap();
        let id = 1 + answer.base_offset;
        node.subscribe(c, id, (topic, 0), At::Offset(answer.base_offset), ALL).unwrap();
        let frame = node.push_of::<proto::Deliver>(c).unwrap();
        let body: proto::Deliver = frame.message().unwrap();
        assert_eq!(body.append_time_ms, [answer.append_time_ms]);
        let header = BatchHeader::parse(&frame.payload).unwrap();
        assert_eq!(header.base_offset as u64, answer.base_offset);
        assert_eq!(frame.payload[16..], payload[16..]);
        assert_eq!(frame.payload[12..16], answer.leader_epoch.to_be_bytes());
        while node.push(c).is_some() {}
    }
}

#[test]
fn a_fetch_answers_at_once_when_there_is_something() {
    let mut node = cold_node(2);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    assert_eq!(node.read_all(c, topic, 0, 3).len(), 17);
    let error = node.try_ask::<_, proto::FetchOk>(c, &fetch(topic, 21, 0)).unwrap_err();
    assert_eq!((error.kind, error.details.earliest_offset), (ErrorKind::OffsetOutOfRange, Some(0)));
    let error = node.try_ask::<_, proto::FetchOk>(c, &fetch(topic, 0, 30_001)).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::InvalidRequest, Some(30_000)));
}

fn fetch(topic_id: u64, offset: u64, max_wait_ms: u32) -> proto::Fetch {
    proto::Fetch { topic_id, partition: 0, offset, max_bytes: 0, max_wait_ms }
}

#[test]
fn a_fetch_at_the_end_waits_for_data_or_for_its_deadline() {
    for shard in 0..2 {
        let mut node = Node::new(2);
        let c = node.connect(shard);
        let topic = node.create_topic(c, "orders", 1, &[]);
        let waits = node.send_and_run(c, &fetch(topic, 0, 5_000), Bytes::new());
        node.advance(4_900);
        assert!(node.answer(c, waits).is_none());
        node.publish(c, topic, 0, batch(&["a"])).unwrap();
        assert_eq!(records(node.answer(c, waits).unwrap().unwrap().payload), [(0, "a".into())]);
        let waits = node.send_and_run(c, &fetch(topic, 1, 5_000), Bytes::new());
        node.advance(4_999);
        assert!(node.answer(c, waits).is_none());
        node.advance(1);
        let frame = node.answer(c, waits).expect("answered at its deadline").unwrap();
        assert_eq!((frame.message::<proto::FetchOk>().unwrap().next_offset, frame.payload.len()), (1, 0));
        node.assert_idle();
    }
}

#[test]
fn a_reader_that_retention_passes_is_told_and_nothing_is_skipped_in_silence() {
    for credit in [0, 100] {
        let mut node = cold_node(2);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "2s")]);
        for i in 0..10 {
            node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
        }
        node.subscribe(c, 1, (topic, 0), At::Earliest(true), credit).unwrap();
        let seen = node.delivered(c).len();
        assert!(seen < 10);
        node.advance(20_000);
        node.publish(c, topic, 0, batch(&["new"])).unwrap();
        let (id, reason, error) = node.ended(c).expect("it is told");
        assert_eq!((id, reason, error.kind), (1, CloseReason::Error, ErrorKind::OffsetOutOfRange));
        assert_eq!(error.details.earliest_offset, Some(10));
        assert_eq!(node.delivered(c), []);
        let error = node.subscribe(c, 1, (topic, 0), At::Offset(3), ALL).unwrap_err();
        assert_eq!(error.details.earliest_offset, Some(10));
    }
}

#[test]
fn a_search_by_time_whose_place_retention_takes_starts_at_what_is_left() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "20s")]);
    for i in 0..10 {
        node.publish(c, topic, 0, batch_at(&[&i.to_string()], None, i)).unwrap();
    }
    node.advance(5_000);
    node.hold_reads = true;
    let id = node.send_and_run(c, &subscribe(1, (topic, 0), At::TimestampMs(5), ALL), Bytes::new());
    node.advance(30_000);
    for i in 10..13 {
        node.publish(c, topic, 0, batch_at(&[&i.to_string()], None, i)).unwrap();
    }
    node.release();
    let ok: proto::SubscribeOk = node.answer(c, id).unwrap().unwrap().message().unwrap();
    assert_eq!((ok.earliest_offset, ok.next_offset), (10, 10));
    assert_eq!(node.delivered(c).len(), 3);
}

#[test]
fn a_second_subscription_to_a_partition_replaces_the_first() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    for partition in 0..2 {
        let (first, second) = (u64::from(partition) * 2 + 1, u64::from(partition) * 2 + 2);
        node.subscribe(c, first, (topic, partition), At::Latest(true), ALL).unwrap();
        node.subscribe(c, second, (topic, partition), At::Latest(true), ALL).unwrap();
        let (id, reason, _) = node.ended(c).unwrap();
        assert_eq!((id, reason), (first, CloseReason::Superseded));
        node.publish(c, topic, partition, batch(&["a"])).unwrap();
        assert_eq!(node.delivered(c), [(second, 0, "a".into())]);
    }
    let live: u64 = (0..2).map(|shard| node.metrics(shard).subscriptions).sum();
    assert_eq!(live, 2);
    node.disconnect(c);
    node.assert_idle();
}

#[test]
fn a_subscription_id_is_used_once_at_a_time() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    node.subscribe(c, 5, (topic, 0), At::Latest(true), ALL).unwrap();
    let error = node.subscribe(c, 5, (topic, 1), At::Latest(true), ALL).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    node.publish(c, topic, 0, batch(&["the first lives on"])).unwrap();
    assert_eq!(node.delivered(c).len(), 1);
    for id in [0, 1 << 48] {
        let error = node.subscribe(c, id, (topic, 1), At::Latest(true), ALL).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
    }
    let unknown = node.try_ask::<_, proto::UnsubscribeOk>(c, &proto::Unsubscribe { subscription_id: 77 });
    assert_eq!(unknown.unwrap_err().kind, ErrorKind::SubscriptionNotFound);
}

#[test]
fn after_unsubscribe_nothing_more_comes_also_when_its_read_was_under_way() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    node.hold_reads = true;
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), ALL).unwrap();
    let _: proto::UnsubscribeOk = node.ask(c, &proto::Unsubscribe { subscription_id: 1 });
    // The same id again, at a place that needs no read, and once more at one that does.
    node.subscribe(c, 1, (topic, 0), At::Offset(15), ALL).unwrap();
    assert_eq!(node.delivered(c).len(), 5);
    let _: proto::UnsubscribeOk = node.ask(c, &proto::Unsubscribe { subscription_id: 1 });
    node.subscribe(c, 1, (topic, 0), At::Offset(5), ALL).unwrap();
    node.release();
    let offsets: Vec<u64> = node.delivered(c).into_iter().map(|(_, offset, _)| offset).filter(|o| *o >= 5).collect();
    assert_eq!(offsets, (5..20).collect::<Vec<_>>());
}

#[test]
fn a_subscription_that_ends_while_it_searches_for_its_start_never_begins() {
    for superseded in [false, true] {
        let mut node = cold_node(2);
        let c = node.connect(0);
        let topic = half_cold(&mut node, c);
        node.hold_reads = true;
        let searching = node.send_and_run(c, &subscribe(1, (topic, 0), At::TimestampMs(5), ALL), Bytes::new());
        if superseded {
            node.subscribe(c, 2, (topic, 0), At::Latest(true), ALL).unwrap();
        } else {
            let _: proto::UnsubscribeOk = node.ask(c, &proto::Unsubscribe { subscription_id: 1 });
        }
        node.release();
        let error = node.answer(c, searching).unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::SubscriptionNotFound);
        node.publish(c, topic, 0, batch(&["new"])).unwrap();
        assert!(node.delivered(c).iter().all(|(id, ..)| *id == 2));
        node.assert_idle();
    }
}

#[test]
fn a_damaged_segment_ends_the_reader_that_comes_there_and_no_other() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    let file = node.disk.files(".log").into_iter().find(|file| file.contains("partitions/")).unwrap();
    let mut bytes = node.disk.memory.file(&file).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    node.disk.memory.set_file(&file, bytes);
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), ALL).unwrap();
    let (id, reason, error) = node.ended(c).unwrap();
    assert_eq!((id, reason, error.kind), (1, CloseReason::Error, ErrorKind::LogDamaged));
    let before = node.delivered(c);
    assert!(before.len() < 10 && before.iter().enumerate().all(|(i, (_, offset, _))| *offset == i as u64));
    node.subscribe(c, 2, (topic, 0), At::Offset(12), ALL).unwrap();
    assert_eq!(node.delivered(c).len(), 8);
    // Whoever comes there again is told, the operator once.
    for id in 3..6 {
        node.subscribe(c, id, (topic, 0), At::Earliest(true), ALL).unwrap();
        assert!(
            std::iter::from_fn(|| node.ended(c)).any(|(ended, _, e)| (ended, e.kind) == (id, ErrorKind::LogDamaged))
        );
    }
    assert_eq!(node.logs.iter().filter(|line| line.contains("is damaged")).count(), 1, "{:?}", node.logs);
}

#[test]
fn a_segment_that_is_gone_without_retention_ends_its_readers_instead_of_being_looked_for_forever() {
    let mut node = cold_node(1);
    let c = node.connect(0);
    let topic = half_cold(&mut node, c);
    let file = node.disk.files(".log").into_iter().find(|file| file.contains("partitions/")).unwrap();
    node.disk.memory.remove(&file).unwrap();
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), ALL).unwrap();
    let (id, reason, error) = node.ended(c).unwrap();
    assert_eq!((id, reason, error.kind), (1, CloseReason::Error, ErrorKind::StorageFailed));
    let search = proto::ListOffsets { topic_id: topic, partition: 0, timestamp_ms: Some(2_500) };
    let error = node.try_ask::<_, proto::ListOffsetsOk>(c, &search).unwrap_err();
    assert_eq!(error.kind, ErrorKind::StorageFailed);
    node.subscribe(c, 2, (topic, 0), At::Offset(12), ALL).unwrap();
    assert_eq!(node.delivered(c).len(), 8, "what memory has is read on");
}

#[derive(Clone, Debug)]
enum Step {
    Publish(usize, usize),
    Advance(u64),
    Credit(u64, u64),
    HoldWritten(bool),
    HoldReads,
    Release,
    Resubscribe(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..4_usize, 1..3_000_usize).prop_map(|(records, size)| Step::Publish(records, size)),
        2 => (1..3_000_u64).prop_map(Step::Advance),
        4 => (1..4_u64, 1..20_000_u64).prop_map(|(id, bytes)| Step::Credit(id, bytes)),
        1 => any::<bool>().prop_map(Step::HoldWritten),
        1 => Just(Step::HoldReads),
        2 => Just(Step::Release),
        1 => (1..4_u64).prop_map(Step::Resubscribe),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_subscription_gets_each_record_once_and_in_order(
        steps in steps(),
        tail in prop_oneof![Just(0_u64), Just(4_000), Just(1 << 20)],
        segment_kib in 1024_u64..1100,
        home in 0..2_usize,
    ) {
        let mut config = config(2);
        config.limits.tail_bytes_per_shard = tail;
        config.limits.delivery_bytes = 2_000;
        let mut node = Node::start(FaultyDisk::default(), config);
        let writer = node.connect(0);
        let topic = node.create_topic(writer, "orders", 1, &[("segment_bytes", &format!("{segment_kib}KiB"))]);
        // One subscription a connection: the three of them read the same partition side by side.
        let readers: Vec<ConnectionId> = (0..3).map(|_| node.connect(home)).collect();
        let reader = |id: u64| readers[id as usize - 1];
        let mut next: BTreeMap<u64, u64> = BTreeMap::new();
        for id in 1..=3 {
            node.subscribe(reader(id), id, (topic, 0), At::Earliest(true), 1_000).unwrap();
            next.insert(id, 0);
        }
        let mut end = 0;
        for step in steps {
            match step {
                Step::Publish(records, size) => {
                    let values: Vec<String> = (0..records).map(|i| format!("{:0size$}", end + i as u64)).collect();
                    let values: Vec<&str> = values.iter().map(String::as_str).collect();
                    node.send_and_run(writer, &publish(topic, 0), batch(&values));
                    end += records as u64;
                }
                Step::Advance(ms) => node.advance(ms),
                Step::Credit(id, bytes) => node.credit(reader(id), id, bytes),
                Step::HoldWritten(hold) => node.set_hold_written(hold),
                Step::HoldReads => node.hold_reads = true,
                Step::Release => node.release(),
                Step::Resubscribe(id) => {
                    take(&mut node, reader(id), &mut next)?;
                    let _: proto::UnsubscribeOk =
                        node.ask(reader(id), &proto::Unsubscribe { subscription_id: id });
                    take(&mut node, reader(id), &mut next)?;
                    let from = At::Offset(next[&id]);
                    node.subscribe(reader(id), id, (topic, 0), from, 1_000).unwrap();
                }
            }
            for reader in &readers {
                take(&mut node, *reader, &mut next)?;
            }
        }
        node.set_hold_written(false);
        node.release();
        for _ in 0..2 {
            for id in 1..=3 {
                node.credit(reader(id), id, ALL);
                take(&mut node, reader(id), &mut next)?;
            }
        }
        prop_assert!(next.values().all(|next| *next == end), "{next:?} of {end}");
        for connection in readers.into_iter().chain([writer]) {
            node.disconnect(connection);
        }
        node.assert_idle();
    }
}

/// Takes what was delivered: each subscription's records follow each other.
fn take(node: &mut Node, c: ConnectionId, next: &mut BTreeMap<u64, u64>) -> Result<(), TestCaseError> {
    for (id, offset, value) in node.delivered(c) {
        let expected = next.get_mut(&id).unwrap();
        // A batch is delivered whole, also when the start is in its middle.
        if offset < *expected {
            continue;
        }
        prop_assert_eq!(offset, *expected, "subscription {}", id);
        prop_assert_eq!(value.parse::<u64>().unwrap(), offset);
        *expected += 1;
    }
    Ok(())
}
