//! Idempotent producers: a batch is in the log once, however often and whenever it is sent.

use lockgate_wire::batch::Producer;
use lockgate_wire::proto::{self, Ack};
use lockgate_wire::{ConnectionId, Error, ErrorKind, ProducerId};

use crate::support::{FaultyDisk, Node, batch_at, config, numbered_batch, publish, publish_at};

fn producer(id: i64, epoch: i16, base_sequence: i32) -> Producer {
    Producer { id: ProducerId(id), epoch, base_sequence }
}

fn send(node: &mut Node, c: ConnectionId, topic: u64, at: Producer) -> Result<proto::PublishOk, Error> {
    let value = format!("{}/{}/{}", at.id, at.epoch, at.base_sequence);
    node.publish(c, topic, 0, numbered_batch(&[&value], Some(at)))
}

fn start() -> (Node, ConnectionId, u64, i64) {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let id = node.ask::<_, proto::InitProducerOk>(c, &proto::InitProducer {}).producer_id;
    (node, c, topic, id)
}

#[test]
fn a_resend_while_the_first_is_under_way_is_answered_with_it() {
    let (mut node, c, topic, id) = start();
    node.hold_journal = true;
    // The first is in the journal's write, the second and its resend wait behind it.
    let requests: Vec<u64> = [0, 0, 1, 1, 0]
        .into_iter()
        .map(|n| node.send_and_run(c, &publish(topic, 0), numbered_batch(&[&n.to_string()], Some(producer(id, 0, n)))))
        .collect();
    assert!(requests.iter().all(|request| node.answer(c, *request).is_none()), "no duplicate is answered early");
    node.release();
    let answers: Vec<(u64, bool)> = requests
        .into_iter()
        .map(|request| {
            let ok: proto::PublishOk = node.answer(c, request).unwrap().unwrap().message().unwrap();
            (ok.base_offset, ok.duplicate)
        })
        .collect();
    assert_eq!(answers, [(0, false), (0, true), (1, false), (1, true), (0, true)]);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 2);
    node.assert_idle();
}

#[test]
fn a_resend_of_an_applied_batch_is_answered_with_the_first_answer() {
    let (mut node, c, topic, id) = start();
    let first: Vec<_> = (0..5).map(|n| send(&mut node, c, topic, producer(id, 0, n)).unwrap()).collect();
    node.advance(500);
    for (n, first) in first.into_iter().enumerate() {
        let again = send(&mut node, c, topic, producer(id, 0, n as i32)).unwrap();
        assert_eq!(again, proto::PublishOk { duplicate: true, ..first });
    }
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 5);
}

#[test]
fn the_last_five_batches_are_remembered_over_crashes_and_orderly_restarts() {
    let (mut node, mut c, topic, id) = start();
    for n in 0..7 {
        send(&mut node, c, topic, producer(id, 0, n)).unwrap();
    }
    for orderly in [false, true, false] {
        node = if orderly { node.restart() } else { node.crash() };
        c = node.connect(1);
        for n in 2..7 {
            let again = send(&mut node, c, topic, producer(id, 0, n)).unwrap();
            assert_eq!((again.base_offset, again.duplicate), (n as u64, true));
        }
        for n in 0..2 {
            let error = send(&mut node, c, topic, producer(id, 0, n)).unwrap_err();
            assert_eq!((error.kind, error.details.expected_sequence), (ErrorKind::SequenceInvalid, Some(7)));
        }
    }
    assert_eq!(send(&mut node, c, topic, producer(id, 0, 7)).unwrap().base_offset, 7);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 8);
}

#[test]
fn a_number_ahead_is_told_the_expected_one_and_changes_nothing() {
    let (mut node, c, topic, id) = start();
    send(&mut node, c, topic, producer(id, 0, 0)).unwrap();
    let error = send(&mut node, c, topic, producer(id, 0, 2)).unwrap_err();
    assert_eq!((error.kind, error.details.expected_sequence), (ErrorKind::SequenceAhead, Some(1)));
    assert_eq!(error.advice(), proto::Advice::Retry);
    for n in 1..3 {
        assert!(!send(&mut node, c, topic, producer(id, 0, n)).unwrap().duplicate);
    }
}

#[test]
fn an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() {
    let (mut node, c, topic, id) = start();
    send(&mut node, c, topic, producer(id, 0, 0)).unwrap();
    let error = send(&mut node, c, topic, producer(id, 1, 1)).unwrap_err();
    assert_eq!((error.kind, error.details.expected_sequence), (ErrorKind::SequenceInvalid, Some(0)));
    send(&mut node, c, topic, producer(id, 1, 0)).unwrap();
    assert_eq!(send(&mut node, c, topic, producer(id, 0, 1)).unwrap_err().kind, ErrorKind::ProducerFenced);
    assert_eq!(send(&mut node, c, topic, producer(id, 0, 0)).unwrap_err().kind, ErrorKind::ProducerFenced);
    send(&mut node, c, topic, producer(id, 1, 1)).unwrap();
}

#[test]
fn an_unknown_producer_begins_at_zero_or_is_told_that_its_state_is_gone() {
    let (mut node, c, topic, id) = start();
    let error = send(&mut node, c, topic, producer(id, 0, 3)).unwrap_err();
    assert_eq!((error.kind, error.advice()), (ErrorKind::ProducerUnknown, proto::Advice::Terminal));
    send(&mut node, c, topic, producer(id, 0, 0)).unwrap();
}

#[test]
fn a_sixth_batch_under_way_is_refused_and_may_come_again() {
    let (mut node, c, topic, id) = start();
    node.hold_journal = true;
    let send = |node: &mut Node, n: i32| {
        node.send_and_run(c, &publish(topic, 0), numbered_batch(&["v"], Some(producer(id, 0, n))))
    };
    let taken: Vec<u64> = (0..5).map(|n| send(&mut node, n)).collect();
    let sixth = send(&mut node, 5);
    let error = node.answer(c, sixth).unwrap().unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(5)));
    node.release();
    assert!(taken.into_iter().all(|id| node.answer(c, id).unwrap().is_ok()));
    let sixth = send(&mut node, 5);
    assert!(node.answer(c, sixth).unwrap().is_ok());
}

#[test]
fn numbered_batches_are_taken_at_quorum_only() {
    let (mut node, c, topic, id) = start();
    let numbered = numbered_batch(&["a"], Some(producer(id, 0, 0)));
    let error = node.try_ask_with::<_, proto::PublishOk>(c, &publish_at(topic, 0, Ack::Leader), numbered).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
}

#[test]
fn producer_ids_are_never_given_twice_over_restarts() {
    let (mut node, mut c, _, first) = start();
    let mut seen = vec![first];
    for orderly in [true, false, true] {
        for _ in 0..1_100 {
            seen.push(node.ask::<_, proto::InitProducerOk>(c, &proto::InitProducer {}).producer_id);
        }
        node = if orderly { node.restart() } else { node.crash() };
        c = node.connect(1);
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[test]
fn an_idle_producer_expires_and_a_jump_of_the_wall_clock_expires_nobody() {
    let mut config = config(1);
    config.limits.producer_expiry_ms = 60_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    send(&mut node, c, topic, producer(1, 0, 0)).unwrap();
    node.now.wall.0 += 3_600_000;
    node.advance(5_000);
    assert!(send(&mut node, c, topic, producer(1, 0, 0)).unwrap().duplicate, "still known after the jump");
    node.advance(130_000);
    assert_eq!(send(&mut node, c, topic, producer(1, 0, 1)).unwrap_err().kind, ErrorKind::ProducerUnknown);
}

#[test]
fn a_partition_remembers_so_many_producers_and_no_more() {
    let mut config = config(1);
    config.limits.producers_per_partition = 3;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    for id in 1..=3 {
        send(&mut node, c, topic, producer(id, 0, 0)).unwrap();
    }
    // Known producers with something under way do not count twice.
    node.hold_journal = true;
    let under_way = node.send_and_run(c, &publish(topic, 0), numbered_batch(&["v"], Some(producer(1, 0, 1))));
    let error = send(&mut node, c, topic, producer(4, 0, 0)).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(3)));
    node.release();
    assert!(node.answer(c, under_way).unwrap().is_ok());
}

#[test]
fn a_duplicate_is_known_also_when_the_record_is_gone_by_retention() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "1s")]);
    let at = producer(1, 0, 0);
    let old = node.now.wall.0;
    node.publish(c, topic, 0, batch_at(&["a"], Some(at), old)).unwrap();
    node.advance(10_000);
    assert_eq!(node.ask::<_, proto::ListOffsetsOk>(c, &list(topic)).earliest_offset, 1);
    assert!(node.publish(c, topic, 0, batch_at(&["a"], Some(at), old)).unwrap().duplicate);
    let mut node = node.crash();
    let c = node.connect(0);
    assert!(node.publish(c, topic, 0, batch_at(&["a"], Some(at), old)).unwrap().duplicate);
    assert_eq!(node.ask::<_, proto::ListOffsetsOk>(c, &list(topic)).high_watermark, 1);
}

fn list(topic_id: u64) -> proto::ListOffsets {
    proto::ListOffsets { topic_id, partition: 0, timestamp_ms: None }
}
