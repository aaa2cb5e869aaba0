//! Promises of producers, one by one. The model test beside this goes through all interleavings.

use lockgate_wire::batch::BatchHeader;

use super::*;
use crate::config::{Ack, OnUnknown};

/// A producer whose id was given, and a topic of one partition.
fn idempotent(config: ProducerConfig) -> (World, ProducerKey) {
    let mut world = World::connected();
    let key = world.with(|core, now| core.open_producer(now, topic(1), config)).unwrap();
    (world, key)
}

fn give_id(world: &mut World, id: i64) {
    let asked = world.next_sent(Op::InitProducer).expect("an id is asked for");
    let link = world.link();
    world.answer(link, asked.request_id, &proto::InitProducerOk { producer_id: id, producer_epoch: 0 });
}

fn send(world: &mut World, key: ProducerKey, value: &str) -> Ticket {
    world.with(|core, now| core.send(now, key, None, &record(value))).unwrap()
}

fn ok(offset: u64) -> proto::PublishOk {
    proto::PublishOk { base_offset: offset, append_time_ms: 5, ..Default::default() }
}

fn header(frame: &Frame) -> BatchHeader {
    BatchHeader::parse(&frame.payload).unwrap()
}

fn numbers(frames: &[Frame]) -> Vec<(i64, i32)> {
    frames.iter().map(header).map(|header| (header.producer_id, header.base_sequence)).collect()
}

fn plain(ack: Ack, on_unknown: OnUnknown) -> ProducerConfig {
    ProducerConfig { idempotent: false, ack, on_unknown, in_flight: 10, ..Default::default() }
}

#[test]
fn batches_are_numbered_in_order_and_at_most_five_are_unresolved() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    for value in ["a", "b", "c", "d", "e", "f", "g"] {
        send(&mut world, key, value);
    }
    give_id(&mut world, 42);
    // All seven gathered in one batch while there was no id.
    let first = world.all_sent(Op::Publish);
    assert_eq!((first.len(), header(&first[0]).count), (1, 7));
    for value in ["h", "i", "j", "k", "l", "m"] {
        send(&mut world, key, value);
    }
    let next = world.all_sent(Op::Publish);
    assert_eq!(numbers(&next), [(42, 7), (42, 8), (42, 9), (42, 10)], "five with the first");
    let link = world.link();
    world.answer(link, first[0].request_id, &ok(100));
    let last = world.all_sent(Op::Publish);
    assert_eq!((numbers(&last), header(&last[0]).count), (vec![(42, 11)], 2), "what waited gathered into one batch");
}

#[test]
fn what_was_not_answered_is_sent_again_as_the_same_bytes() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    let tickets = ["a", "b"].map(|value| send(&mut world, key, value));
    give_id(&mut world, 1);
    send(&mut world, key, "c");
    let before = world.all_sent(Op::Publish);
    world.disconnect();
    assert!(world.batches.is_empty(), "nothing is resolved by a lost connection");
    let link = world.connect();
    let after = world.all_sent(Op::Publish);
    assert_eq!(before, after);
    world.answer(link, after[0].request_id, &proto::PublishOk { duplicate: true, ..ok(7) });
    let receipt = world.batches[&tickets[1].batch].clone().unwrap();
    assert_eq!((receipt.offset, receipt.duplicate, tickets[1].index), (Some(Offset(7)), true, 1));
}

#[test]
fn one_that_came_ahead_goes_out_again_right_behind_the_earlier_one() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    send(&mut world, key, "a");
    give_id(&mut world, 1);
    send(&mut world, key, "b");
    let sent = world.all_sent(Op::Publish);
    let link = world.link();
    world.refuse(link, &sent[0], &error(ErrorKind::LeaderUnknown));
    world.refuse(link, &sent[1], &error(ErrorKind::SequenceAhead));
    assert!(world.all_sent(Op::Publish).is_empty());
    world.advance(PAUSE_CEILING_FIRST_MS);
    assert_eq!(world.all_sent(Op::Publish), sent);
    // Ahead again, and now the earlier one is answered: it goes alone.
    world.refuse(link, &sent[1], &error(ErrorKind::SequenceAhead));
    assert!(world.all_sent(Op::Publish).is_empty(), "the earlier one is on its way");
    send(&mut world, key, "c");
    assert!(world.all_sent(Op::Publish).is_empty(), "nothing new overtakes what waits");
    world.answer(link, sent[0].request_id, &ok(0));
    let then = world.all_sent(Op::Publish);
    assert_eq!((&then[..1], numbers(&then)), (&sent[1..], vec![(1, 1), (1, 2)]));
}

#[test]
fn a_producer_that_is_unknown_because_its_first_batch_was_refused_waits_for_that_one() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    send(&mut world, key, "a");
    give_id(&mut world, 1);
    let second = send(&mut world, key, "b");
    world.disconnect();
    world.sent.clear();
    let link = world.connect();
    let sent = world.all_sent(Op::Publish);
    assert_eq!(sent.len(), 2);
    world.refuse(link, &sent[0], &error(ErrorKind::Recovering));
    world.refuse(link, &sent[1], &error(ErrorKind::ProducerUnknown));
    assert!(world.batches.is_empty());
    world.advance(PAUSE_CEILING_FIRST_MS);
    assert_eq!(world.all_sent(Op::Publish), sent);
    world.answer(link, sent[0].request_id, &ok(0));
    world.answer(link, sent[1].request_id, &ok(1));
    assert!(world.batches[&second.batch].is_ok());
}

#[test]
fn a_refused_batch_leaves_no_hole_and_takes_no_other_down() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    let refused = send(&mut world, key, "a");
    give_id(&mut world, 1);
    let behind = send(&mut world, key, "b");
    let sent = world.all_sent(Op::Publish);
    let link = world.link();
    world.refuse(link, &sent[0], &error(ErrorKind::BadBatch));
    assert!(matches!(world.batches[&refused.batch], Err(ClientError::Refused(_))));
    let later = send(&mut world, key, "c");
    assert!(world.all_sent(Op::Publish).is_empty(), "nothing goes behind the hole");
    world.refuse(link, &sent[1], &error(ErrorKind::SequenceAhead));
    give_id(&mut world, 2);
    let renumbered = world.all_sent(Op::Publish);
    assert_eq!(numbers(&renumbered), [(2, 0), (2, 1)]);
    world.answer(link, renumbered[0].request_id, &ok(0));
    world.answer(link, renumbered[1].request_id, &ok(1));
    assert!(world.batches[&behind.batch].is_ok() && world.batches[&later.batch].is_ok());
}

#[test]
fn a_forgotten_producer_gets_a_new_id_for_what_was_never_applied() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    let ticket = send(&mut world, key, "a");
    give_id(&mut world, 1);
    let link = world.link();
    let sent = world.all_sent(Op::Publish);
    world.refuse(link, &sent[0], &error(ErrorKind::ProducerUnknown));
    world.advance(PAUSE_CEILING_FIRST_MS);
    give_id(&mut world, 2);
    let again = world.all_sent(Op::Publish);
    assert_eq!(numbers(&again), [(2, 0)]);
    world.answer(link, again[0].request_id, &ok(0));
    assert!(world.batches[&ticket.batch].is_ok());
}

#[test]
fn a_forgotten_producer_with_an_unknown_attempt_is_an_unknown_outcome() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    let ticket = send(&mut world, key, "a");
    give_id(&mut world, 1);
    world.disconnect();
    world.sent.clear();
    let link = world.connect();
    let again = world.all_sent(Op::Publish);
    world.refuse(link, &again[0], &error(ErrorKind::ProducerUnknown));
    assert!(world.batches[&ticket.batch].as_ref().is_err_and(ClientError::outcome_unknown));
    send(&mut world, key, "b");
    give_id(&mut world, 2);
    assert_eq!(numbers(&world.all_sent(Op::Publish)), [(2, 0)]);
}

#[test]
fn a_fenced_producer_fails_what_was_refused_and_goes_on_under_a_new_id() {
    let (mut world, key) = idempotent(ProducerConfig::default());
    let ticket = send(&mut world, key, "a");
    give_id(&mut world, 1);
    let sent = world.all_sent(Op::Publish);
    let link = world.link();
    world.refuse(link, &sent[0], &error(ErrorKind::ProducerFenced));
    assert_eq!(world.batches[&ticket.batch].as_ref().unwrap_err().kind(), "producer_fenced");
    send(&mut world, key, "b");
    give_id(&mut world, 2);
    assert_eq!(numbers(&world.all_sent(Op::Publish)), [(2, 0)]);
}

#[test]
fn at_the_deadline_a_sent_batch_is_unknown_and_an_unsent_one_was_not_applied() {
    let (mut world, key) = idempotent(ProducerConfig { in_flight: 1, ..Default::default() });
    let sent = send(&mut world, key, "a");
    give_id(&mut world, 1);
    let unsent = send(&mut world, key, "b");
    for _ in 0..30 {
        assert!(world.batches.is_empty());
        world.advance(1_000);
        let link = world.link();
        world.push(link, &proto::GoingAway::default(), vec![]);
    }
    assert!(matches!(world.batches[&sent.batch], Err(ClientError::OutcomeUnknown { .. })));
    assert!(matches!(world.batches[&unsent.batch], Err(ClientError::Unavailable { .. })));
    assert_eq!(world.core.stats().bytes_buffered, 0);
}

#[test]
fn without_idempotence_a_lost_connection_is_an_unknown_outcome() {
    let (mut world, key) = idempotent(plain(Ack::Leader, OnUnknown::Return));
    let ticket = send(&mut world, key, "a");
    assert_eq!(numbers(&world.all_sent(Op::Publish)), [(-1, -1)]);
    world.disconnect();
    assert!(world.batches[&ticket.batch].as_ref().is_err_and(ClientError::outcome_unknown));
    world.connect();
    assert!(world.all_sent(Op::Publish).is_empty());
}

#[test]
fn without_idempotence_resend_is_at_least_once_when_asked_for() {
    let (mut world, key) = idempotent(plain(Ack::Quorum, OnUnknown::Resend));
    let ticket = send(&mut world, key, "a");
    let before = world.all_sent(Op::Publish);
    world.disconnect();
    let link = world.connect();
    let after = world.all_sent(Op::Publish);
    assert_eq!(before, after);
    world.answer(link, after[0].request_id, &ok(3));
    assert!(world.batches[&ticket.batch].is_ok());
}

#[test]
fn with_ack_none_a_record_is_done_when_it_is_handed_over() {
    let (mut world, key) = idempotent(plain(Ack::None, OnUnknown::Return));
    let ticket = send(&mut world, key, "a");
    assert_eq!(world.next_sent(Op::Publish).unwrap().request_id, 0);
    assert_eq!(world.batches[&ticket.batch].as_ref().unwrap().offset, None);
}

#[test]
fn idempotence_needs_quorum_and_five_at_most() {
    let mut world = World::connected();
    let leader = ProducerConfig { ack: Ack::Leader, ..Default::default() };
    let six = ProducerConfig { in_flight: 6, ..Default::default() };
    for config in [leader, six] {
        let refused = world.with(|core, now| core.open_producer(now, topic(1), config));
        assert!(matches!(refused, Err(ClientError::InvalidArgument(_))), "{refused:?}");
    }
}

#[test]
fn a_full_buffer_refuses_and_tells_when_there_is_room() {
    let config = ProducerConfig { buffer_bytes: 2 * RECORD_OVERHEAD_BYTES + 10, ..Default::default() };
    let (mut world, key) = idempotent(config);
    send(&mut world, key, "a");
    send(&mut world, key, "b");
    give_id(&mut world, 1);
    let full = world.with(|core, now| core.send(now, key, None, &record("a record that is too much")));
    assert!(matches!(full, Err(ClientError::BufferFull { .. })), "{full:?}");
    assert!(world.freed.is_empty());
    let sent = world.all_sent(Op::Publish);
    let link = world.link();
    world.answer(link, sent[0].request_id, &ok(0));
    assert_eq!(world.freed, [key]);
    assert_eq!(world.core.stats().bytes_buffered, 0);
    let alone = "x".repeat(1_000);
    send(&mut world, key, &alone);
    assert!(world.core.stats().bytes_buffered > 1_000, "one record is taken however small the buffer");
}

#[test]
fn a_record_that_no_batch_can_hold_is_refused_and_the_boundary_is_exact() {
    let mut world = World::connected();
    let small = Topic { max_batch_bytes: 1_000, ..topic(1) };
    let key = world.with(|core, now| core.open_producer(now, small, plain(Ack::Quorum, OnUnknown::Return))).unwrap();
    let fits = (1..1_000).rev().find(|bytes| {
        let record = record(&"x".repeat(*bytes));
        batch::BatchBuilder::new(batch::Codec::None).size_with(&record) == 1_000
    });
    let fits = fits.unwrap();
    send(&mut world, key, &"x".repeat(fits));
    assert_eq!(world.next_sent(Op::Publish).unwrap().payload.len(), 1_000);
    let refused = world.with(|core, now| core.send(now, key, None, &record(&"x".repeat(fits + 1))));
    assert_eq!(refused, Err(ClientError::RecordTooLarge { bytes: 1_001, limit: 1_000 }));
}

#[test]
fn a_batch_is_closed_by_its_bytes_its_count_and_its_linger() {
    let linger = Duration::from_millis(20);
    let config = ProducerConfig { linger, batch_records: 3, ..plain(Ack::Quorum, OnUnknown::Return) };
    let (mut world, key) = idempotent(config);
    for _ in 0..4 {
        send(&mut world, key, "a");
    }
    assert_eq!(world.all_sent(Op::Publish).iter().map(|frame| header(frame).count).collect::<Vec<_>>(), [3]);
    world.advance(19);
    assert!(world.all_sent(Op::Publish).is_empty());
    world.advance(1);
    assert_eq!(world.all_sent(Op::Publish).iter().map(|frame| header(frame).count).collect::<Vec<_>>(), [1]);
    let large = "x".repeat(40 * 1024);
    send(&mut world, key, &large);
    send(&mut world, key, &large);
    let sent = world.all_sent(Op::Publish);
    assert_eq!(sent.iter().map(|frame| header(frame).count).collect::<Vec<_>>(), [1], "two do not fit into 64 KiB");
}

#[test]
fn a_flush_sends_what_lingers_and_waits_for_what_was_before() {
    let config = ProducerConfig { linger: Duration::from_secs(1), ..plain(Ack::Quorum, OnUnknown::Return) };
    let (mut world, key) = idempotent(config);
    let empty = world.with(|core, now| core.flush(now, key)).unwrap();
    assert_eq!(world.flushed, [empty]);
    send(&mut world, key, "a");
    let flush = world.with(|core, now| core.flush(now, key)).unwrap();
    let sent = world.all_sent(Op::Publish);
    assert_eq!(sent.len(), 1);
    send(&mut world, key, "after the flush");
    assert_eq!(world.flushed, [empty]);
    let link = world.link();
    world.answer(link, sent[0].request_id, &ok(0));
    assert_eq!(world.flushed, [empty, flush]);
}

#[test]
fn a_removed_producer_still_sends_what_it_took() {
    let config = ProducerConfig { linger: Duration::from_secs(1), ..plain(Ack::Quorum, OnUnknown::Return) };
    let (mut world, key) = idempotent(config);
    let ticket = send(&mut world, key, "a");
    world.with(|core, now| core.remove_producer(now, key));
    let sent = world.all_sent(Op::Publish);
    let link = world.link();
    world.answer(link, sent[0].request_id, &ok(0));
    assert!(world.batches[&ticket.batch].is_ok());
    assert!(world.core.producers.is_empty());
}

#[test]
fn closing_the_client_ends_every_record_once() {
    let (mut world, key) = idempotent(ProducerConfig { in_flight: 1, ..Default::default() });
    let sent = send(&mut world, key, "a");
    give_id(&mut world, 1);
    let unsent = send(&mut world, key, "b");
    world.with(|core, now| core.close(now));
    assert!(matches!(world.batches[&sent.batch], Err(ClientError::OutcomeUnknown { .. })));
    assert!(matches!(world.batches[&unsent.batch], Err(ClientError::Closed)));
    assert_eq!(world.core.stats().bytes_buffered, 0);
}

#[test]
fn keys_go_where_kafka_puts_them_and_the_rest_is_spread_batch_by_batch() {
    let mut world = World::connected();
    let config = ProducerConfig { batch_records: 2, ..plain(Ack::Quorum, OnUnknown::Return) };
    let config = ProducerConfig { linger: Duration::from_secs(1), ..config };
    let key = world.with(|core, now| core.open_producer(now, topic(1000), config)).unwrap();
    let keyed = batch::Record { key: Some(Bytes::from_static(b"21")), ..record("a") };
    let ticket = world.with(|core, now| core.send(now, key, None, &keyed)).unwrap();
    assert_eq!(ticket.partition, 340);
    let spread: Vec<u32> = (0..6).map(|_| send(&mut world, key, "b").partition).collect();
    assert!(spread.chunks(2).all(|pair| pair[0] == pair[1]), "{spread:?}");
    assert!(spread[1] != spread[2] && spread[3] != spread[4], "{spread:?}");
    let refused = world.with(|core, now| core.send(now, key, Some(1000), &record("c")));
    assert!(matches!(refused, Err(ClientError::InvalidArgument(_))));
}

#[test]
fn the_spread_moves_on_however_a_batch_was_closed() {
    let mut world = World::connected();
    let config = ProducerConfig { batch_bytes: 1_000, in_flight: 1, ..plain(Ack::Quorum, OnUnknown::Return) };
    let key = world.with(|core, now| core.open_producer(now, topic(2), config)).unwrap();
    // By its bytes, while nothing is answered: ten records a batch.
    let value = "x".repeat(80);
    let partitions: Vec<u32> = (0..42).map(|_| send(&mut world, key, &value).partition).collect();
    let changes = partitions.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((4..=6).contains(&changes), "{partitions:?}");
    // By being sent when an answer made room.
    let before = send(&mut world, key, "small").partition;
    let link = world.link();
    while let Some(publish) = world.next_sent(Op::Publish) {
        world.answer(link, publish.request_id, &ok(0));
    }
    assert_ne!(send(&mut world, key, "small").partition, before);
}

#[test]
fn a_link_with_too_much_to_write_holds_batches_back() {
    let mut world = World::connected();
    let config = ProducerConfig { in_flight: 1000, ..plain(Ack::None, OnUnknown::Return) };
    let key = world.with(|core, now| core.open_producer(now, topic(1), config)).unwrap();
    let large = record(&"x".repeat(60 * 1024));
    let mut sent = 0;
    for _ in 0..200 {
        // Not collected by the world, so nothing is written.
        world.core.send(world.now, key, None, &large).unwrap();
        while let Some(output) = world.core.next_output() {
            if let Output::Send { frame, .. } = output {
                sent += frame.size();
            }
        }
    }
    assert!((MAX_UNWRITTEN_BYTES..MAX_UNWRITTEN_BYTES + 64 * 1024).contains(&sent), "{sent}");
    let link = world.link();
    world.input(Input::Written { link, bytes: sent });
    assert!(!world.all_sent(Op::Publish).is_empty());
}
