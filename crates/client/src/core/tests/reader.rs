//! Promises of readers.

use lockgate_wire::batch::{BatchBuilder, Codec, delivery_prefix};
use proptest::prelude::*;

use super::*;
use crate::config::Start;

/// A batch of these values as a broker delivers it.
fn delivered(base: u64, values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    values.iter().for_each(|value| builder.push(&record(value)).unwrap());
    let batch = builder.build(None);
    let mut bytes = batch.to_vec();
    bytes[..16].copy_from_slice(&delivery_prefix(Offset(base), batch.len(), 1));
    bytes.into()
}

fn open(world: &mut World, partitions: u32, config: &ReaderConfig) -> ReaderKey {
    world.with(|core, now| core.open_reader(now, topic(partitions), config, Duration::from_secs(30))).unwrap()
}

fn next_subscribe(world: &mut World) -> (u64, proto::Subscribe) {
    let frame = world.next_sent(Op::Subscribe).expect("a Subscribe");
    (frame.request_id, frame.message().unwrap())
}

fn subscribed(world: &mut World, next: u64, high_watermark: u64) -> proto::Subscribe {
    let (request, subscribe) = next_subscribe(world);
    let link = world.link();
    let ok = proto::SubscribeOk { next_offset: next, high_watermark, ..Default::default() };
    world.answer(link, request, &ok);
    subscribe
}

fn deliver(world: &mut World, subscribe: &proto::Subscribe, base: u64, values: &[&str], high_watermark: u64) {
    let push = proto::Deliver {
        subscription_id: subscribe.subscription_id,
        next_offset: base + values.len() as u64,
        high_watermark,
        append_time_ms: vec![77],
    };
    let link = world.link();
    world.push(link, &push, vec![delivered(base, values)]);
}

fn take(world: &mut World, key: ReaderKey) -> Take {
    world.with(|core, now| core.take(now, key))
}

/// Everything that can be taken, in short: `offset=value`, or what happened.
fn drain(world: &mut World, key: ReaderKey) -> Vec<String> {
    let mut unpacker = Unpacker::new(world.core.start_positions(key));
    let mut all = Vec::new();
    loop {
        match take(world, key) {
            Take::Item(Taken::Chunk(chunk)) => {
                unpacker.load(chunk).unwrap();
                all.extend(unpacker.by_ref().map(|record| {
                    let value = record.value.unwrap();
                    format!("{}={}", record.offset, std::str::from_utf8(&value).unwrap())
                }));
            }
            Take::Item(Taken::EndOfPartition { offset, .. }) => all.push(format!("end at {offset}")),
            Take::Item(Taken::Lost { .. }) => all.push("lost".into()),
            Take::Item(Taken::Recovered { .. }) => all.push("recovered".into()),
            Take::Item(Taken::Failed { error, .. }) => all.push(error.kind().into()),
            Take::Empty => return all,
            Take::Finished => {
                all.push("finished".into());
                return all;
            }
        }
    }
}

#[test]
fn a_reader_is_open_when_every_partition_is_subscribed() {
    let mut world = World::connected();
    let key = open(&mut world, 2, &ReaderConfig::default());
    subscribed(&mut world, 3, 10);
    assert!(world.opened.is_empty());
    subscribed(&mut world, 4, 10);
    assert_eq!(world.opened[&key], Ok(()));
    assert_eq!(world.core.start_positions(key), [(0, Offset(3)), (1, Offset(4))].into());
}

#[test]
fn opening_fails_with_the_names_of_the_partitions_that_were_not_reached() {
    let mut world = World::connected();
    let key = open(&mut world, 3, &ReaderConfig::default());
    subscribed(&mut world, 0, 0);
    let refused = world.next_sent(Op::Subscribe).unwrap();
    let link = world.link();
    world.refuse(link, &refused, &Error::new(ErrorKind::Recovering, "still recovering"));
    while world.opened.is_empty() {
        world.push(link, &proto::GoingAway::default(), vec![]);
        world.advance_to_deadline();
    }
    let Err(ClientError::Unavailable { last, .. }) = &world.opened[&key] else { panic!("{:?}", world.opened) };
    assert_eq!(last, "partition 1: still recovering (503 recovering); partition 2: no answer");
    assert!(world.core.readers.is_empty());
}

#[test]
fn a_start_that_is_out_of_range_fails_the_opening_with_what_can_be_read() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig { from: Start::Offset(Offset(3)), ..Default::default() });
    let asked = world.next_sent(Op::Subscribe).unwrap();
    let mut refusal = error(ErrorKind::OffsetOutOfRange);
    refusal.details.earliest_offset = Some(10);
    refusal.details.high_watermark = Some(20);
    let link = world.link();
    world.refuse(link, &asked, &refusal);
    let expected = ClientError::OffsetOutOfRange { partition: 0, earliest: Offset(10), high_watermark: Offset(20) };
    assert_eq!(world.opened[&key], Err(expected));
    assert!(world.core.readers.is_empty());
}

#[test]
fn records_below_the_asked_offset_are_dropped() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig { from: Start::Offset(Offset(2)), ..Default::default() });
    let subscribe = subscribed(&mut world, 2, 4);
    deliver(&mut world, &subscribe, 0, &["a", "b", "c", "d"], 4);
    assert_eq!(drain(&mut world, key), ["2=c", "3=d", "end at 4"]);
}

#[test]
fn after_a_reconnect_it_goes_on_where_it_was_with_nothing_missing_or_twice() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig::default());
    let subscribe = subscribed(&mut world, 0, 3);
    deliver(&mut world, &subscribe, 0, &["a", "b"], 9);
    world.disconnect();
    world.connect();
    let again = subscribed(&mut world, 2, 9);
    assert_eq!(again.start.as_ref().unwrap().at, Some(proto::start_position::At::Offset(2)));
    assert_ne!(again.subscription_id, subscribe.subscription_id);
    deliver(&mut world, &subscribe, 2, &["of the old subscription"], 9);
    deliver(&mut world, &again, 1, &["b", "c"], 9);
    assert_eq!(drain(&mut world, key), ["0=a", "1=b", "lost", "recovered", "2=c"]);
}

#[test]
fn a_gap_is_not_skipped_in_silence() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig::default());
    let subscribe = subscribed(&mut world, 0, 9);
    deliver(&mut world, &subscribe, 0, &["a"], 9);
    deliver(&mut world, &subscribe, 5, &["f"], 9);
    assert!(world.next_sent(Op::Unsubscribe).is_some());
    assert_eq!(drain(&mut world, key), ["0=a", "lost"]);
    world.advance(PAUSE_CEILING_FIRST_MS);
    let again = subscribed(&mut world, 1, 9);
    assert_eq!(again.start.unwrap().at, Some(proto::start_position::At::Offset(1)));
}

#[test]
fn stop_at_end_gives_what_was_committed_at_the_opening_and_no_more() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig { stop_at_end: true, ..Default::default() });
    let subscribe = subscribed(&mut world, 0, 3);
    deliver(&mut world, &subscribe, 0, &["a", "b"], 3);
    deliver(&mut world, &subscribe, 2, &["c", "d"], 4);
    assert_eq!(drain(&mut world, key), ["0=a", "1=b", "2=c", "end at 3", "finished"]);
    assert!(world.next_sent(Op::Unsubscribe).is_some());
}

#[test]
fn an_empty_partition_ends_at_once() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig { stop_at_end: true, ..Default::default() });
    subscribed(&mut world, 0, 0);
    assert_eq!(world.ready, [key]);
    assert_eq!(drain(&mut world, key), ["end at 0", "finished"]);
}

#[test]
fn a_caller_that_does_not_take_stops_the_flow_and_one_that_takes_starts_it_again() {
    let mut world = World::connected();
    let credit_bytes = 4 * 1024 * 1024;
    let key = open(&mut world, 1, &ReaderConfig { credit_bytes, ..Default::default() });
    let subscribe = subscribed(&mut world, 0, 100);
    assert_eq!(subscribe.credit_bytes, credit_bytes);
    let large = "x".repeat(1024 * 1024 - 100);
    let batch_bytes = delivered(0, &[&large]).len() as i64;
    let mut granted = credit_bytes as i64;
    let mut base = 0;
    while granted > 0 {
        deliver(&mut world, &subscribe, base, &[&large], 100);
        granted -= batch_bytes;
        base += 1;
    }
    assert_eq!(world.all_sent(Op::Credit).len(), 0, "nothing more while nothing is taken");
    take(&mut world, key);
    let credit: proto::Credit = world.next_sent(Op::Credit).unwrap().message().unwrap();
    assert_eq!(granted + credit.bytes as i64 + (base as i64 - 1) * batch_bytes, credit_bytes as i64);
}

#[test]
fn what_is_queued_over_a_reconnect_counts_against_the_new_credit() {
    let mut world = World::connected();
    let config = ReaderConfig::default();
    let key = open(&mut world, 1, &config);
    let mut subscribe = subscribed(&mut world, 0, 100);
    let large = "x".repeat(1024 * 1024 - 100);
    let batch_bytes = delivered(0, &[&large]).len() as u64;
    // Until the window is full, each batch over a connection of its own.
    for base in 0..9 {
        assert_eq!(subscribe.credit_bytes, config.credit_bytes - base * batch_bytes);
        deliver(&mut world, &subscribe, base, &[&large], 100);
        world.disconnect();
        world.connect();
        if base < 8 {
            subscribe = subscribed(&mut world, base + 1, 100);
        }
    }
    assert_eq!(world.next_sent(Op::Subscribe), None, "there is no room for anything");
    while !matches!(take(&mut world, key), Take::Item(Taken::Chunk(_))) {}
    let (_, again) = next_subscribe(&mut world);
    assert!((1..=batch_bytes).contains(&again.credit_bytes), "{}", again.credit_bytes);
}

#[test]
fn a_broker_that_goes_beyond_the_credit_is_left() {
    let mut world = World::connected();
    let topic = Topic { max_batch_bytes: 1_000, ..topic(1) };
    let config = ReaderConfig { credit_bytes: 1, ..Default::default() };
    let key = world.with(|core, now| core.open_reader(now, topic, &config, Duration::from_secs(1))).unwrap();
    let subscribe = subscribed(&mut world, 0, 100);
    assert_eq!(subscribe.credit_bytes, 1_000, "one largest batch at least");
    let most = "x".repeat(900);
    deliver(&mut world, &subscribe, 0, &[&most], 100);
    deliver(&mut world, &subscribe, 1, &[&most], 100);
    assert!(world.core.is_connected(), "the last batch may be larger than what is left");
    deliver(&mut world, &subscribe, 2, &[&most], 100);
    assert!(!world.core.is_connected());
    let _ = key;
}

#[test]
fn a_closed_subscription_is_asked_for_again_unless_the_topic_is_gone() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig::default());
    let subscribe = subscribed(&mut world, 0, 3);
    let link = world.link();
    let mut closed = proto::SubscriptionClosed { subscription_id: subscribe.subscription_id, ..Default::default() };
    closed.set_reason(proto::CloseReason::OwnerMoved);
    world.push(link, &closed, vec![]);
    world.advance(PAUSE_CEILING_LEADER_MS);
    let again = subscribed(&mut world, 0, 3);
    closed.subscription_id = again.subscription_id;
    closed.set_reason(proto::CloseReason::TopicDeleted);
    world.push(link, &closed, vec![]);
    assert_eq!(drain(&mut world, key), ["lost", "recovered", "topic_not_found", "finished"]);
}

#[test]
fn a_partition_that_is_taken_and_lost_again_and_again_is_asked_for_ever_more_rarely() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig::default());
    let mut last = subscribed(&mut world, 0, 9);
    let mut asked = 1;
    let mut lose = |world: &mut World, for_ms: u64| {
        let (begin, before) = (world.now.mono, asked);
        while world.now.mono.ms_since(begin) < for_ms {
            let mut closed = proto::SubscriptionClosed { subscription_id: last.subscription_id, ..Default::default() };
            closed.error = Some(error(ErrorKind::Overloaded).to_proto());
            let link = world.link();
            world.push(link, &closed, vec![]);
            while !world.sent.iter().any(|(_, frame)| frame.op() == Some(Op::Subscribe)) {
                world.advance_to_deadline();
                world.push(link, &proto::GoingAway::default(), vec![]);
            }
            last = subscribed(world, 0, 9);
            asked += 1;
        }
        (last.clone(), asked - before)
    };
    let (_, first) = lose(&mut world, 60_000);
    let (current, later) = lose(&mut world, 60_000);
    assert!((20..150).contains(&first) && (20..130).contains(&later), "{first}, {later} in a minute");
    // A delivery makes the next pause a first one again.
    deliver(&mut world, &current, 0, &["a"], 9);
    let mut closed = proto::SubscriptionClosed { subscription_id: current.subscription_id, ..Default::default() };
    closed.error = Some(error(ErrorKind::Overloaded).to_proto());
    let link = world.link();
    world.push(link, &closed, vec![]);
    world.advance(PAUSE_CEILING_FIRST_MS);
    subscribed(&mut world, 1, 9);
    assert_eq!(drain(&mut world, key)[..3], ["lost", "recovered", "lost"]);
}

#[test]
fn a_subscription_that_ends_for_good_ends_its_partition_with_the_brokers_words_and_no_other() {
    let mut world = World::connected();
    let key = open(&mut world, 2, &ReaderConfig::default());
    let (first, second) = (subscribed(&mut world, 0, 9), subscribed(&mut world, 0, 9));
    let told = proto::Error {
        code: 500,
        kind: "log_damaged".into(),
        advice: lockgate_wire::error::Advice::Terminal as i32,
        message: "the log of partition 0 is damaged at offset 3".into(),
        ..Default::default()
    };
    let closed =
        proto::SubscriptionClosed { subscription_id: first.subscription_id, error: Some(told), ..Default::default() };
    let link = world.link();
    world.push(link, &closed, vec![]);
    let Take::Item(Taken::Failed { partition: 0, error }) = take(&mut world, key) else { panic!("a failure") };
    assert!(error.to_string().contains("damaged at offset 3"), "{error}");
    world.advance(10_000);
    assert_eq!(world.next_sent(Op::Subscribe), None, "it is not asked for again");
    deliver(&mut world, &second, 0, &["c"], 9);
    assert_eq!(drain(&mut world, key), ["0=c"]);
}

#[test]
fn losses_and_recoveries_that_nobody_takes_do_not_pile_up() {
    let mut world = World::connected();
    let key = open(&mut world, 1, &ReaderConfig::default());
    subscribed(&mut world, 0, 3);
    for _ in 0..50 {
        world.disconnect();
        world.connect();
        subscribed(&mut world, 0, 3);
    }
    assert_eq!(drain(&mut world, key), ["lost", "recovered", "lost", "recovered"]);
    world.disconnect();
    assert_eq!(drain(&mut world, key), ["lost"]);
}

#[test]
fn a_damaged_batch_ends_its_partition_and_no_other() {
    let mut world = World::connected();
    let key = open(&mut world, 2, &ReaderConfig::default());
    let (first, second) = (subscribed(&mut world, 0, 9), subscribed(&mut world, 0, 9));
    let mut damaged = delivered(0, &["a"]).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let push = proto::Deliver { subscription_id: first.subscription_id, high_watermark: 9, ..Default::default() };
    let link = world.link();
    world.push(link, &push, vec![damaged.into(), delivered(1, &["b"])]);
    let Take::Item(Taken::Chunk(chunk)) = take(&mut world, key) else { panic!("a chunk") };
    let refused = Unpacker::new(BTreeMap::new()).load(chunk);
    assert!(matches!(refused, Err(ClientError::Corrupt { partition: 0, offset: Offset(0), .. })), "{refused:?}");
    world.with(|core, now| core.abandon_partition(now, key, 0));
    deliver(&mut world, &second, 0, &["c"], 9);
    assert_eq!(drain(&mut world, key), ["0=c"]);
}

#[test]
fn a_removed_reader_unsubscribes() {
    let mut world = World::connected();
    let key = open(&mut world, 2, &ReaderConfig::default());
    subscribed(&mut world, 0, 9);
    subscribed(&mut world, 0, 9);
    world.with(|core, now| core.remove_reader(now, key));
    assert_eq!(world.all_sent(Op::Unsubscribe).len(), 2);
    assert_eq!(take(&mut world, key), Take::Finished);
}

/// What may happen in the random run below.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver { records: u64 },
    Take,
    Cut,
    Close,
    Advance,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..5).prop_map(|records| Step::Deliver { records }),
        4 => Just(Step::Take),
        1 => Just(Step::Cut),
        1 => Just(Step::Close),
        1 => Just(Step::Advance),
    ]
}

/// A broker with one endless partition whose record n is the text n, in batches of three.
struct Broker {
    subscription: Option<Subscription>,
    window: i64,
}

struct Subscription {
    id: u64,
    next: u64,
    credit: i64,
}

impl Broker {
    /// Answers what the client sent.
    fn serve(&mut self, world: &mut World) {
        while let Some((link, frame)) = world.sent.pop_front() {
            match frame.op() {
                Some(Op::Subscribe) => {
                    let asked: proto::Subscribe = frame.message().unwrap();
                    let next = match asked.start.unwrap().at.unwrap() {
                        proto::start_position::At::Offset(offset) => offset,
                        _ => 0,
                    };
                    let credit = asked.credit_bytes as i64;
                    self.subscription = Some(Subscription { id: asked.subscription_id, next, credit });
                    let ok = proto::SubscribeOk { next_offset: next, high_watermark: 1 << 40, ..Default::default() };
                    world.answer(link, frame.request_id, &ok);
                }
                Some(Op::Credit) => {
                    let credit: proto::Credit = frame.message().unwrap();
                    let subscription = self.subscription.as_mut().filter(|s| s.id == credit.subscription_id);
                    if let Some(subscription) = subscription {
                        subscription.credit += credit.bytes as i64;
                        assert!(subscription.credit <= self.window, "more than the window was granted");
                    }
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self, world: &mut World, batches: u64) {
        let Some(subscription) = self.subscription.as_mut() else { return };
        for _ in 0..batches {
            // A batch is never cut: the first may begin below what was asked for.
            let base = subscription.next / 3 * 3;
            let values: Vec<String> = (base..base + 3).map(|value| value.to_string()).collect();
            let payload = delivered(base, &values.iter().map(String::as_str).collect::<Vec<_>>());
            if payload.len() as i64 > subscription.credit {
                return;
            }
            subscription.credit -= payload.len() as i64;
            subscription.next = base + 3;
            let push = proto::Deliver {
                subscription_id: subscription.id,
                next_offset: base + 3,
                high_watermark: 1 << 40,
                append_time_ms: vec![1],
            };
            let link = world.link();
            world.push(link, &push, vec![payload]);
        }
    }
}

proptest! {
    /// Whatever is delivered, taken and lost in whatever order: the records come once each, in order, without a gap, and
    /// never more than the window is granted or queued.
    #[test]
    fn records_come_once_and_in_order_over_any_losses(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::connected();
        let topic = Topic { max_batch_bytes: 400, ..topic(1) };
        let config = ReaderConfig { credit_bytes: 1_000, ..Default::default() };
        let key = world.with(|core, now| core.open_reader(now, topic, &config, Duration::from_secs(30))).unwrap();
        let mut broker = Broker { subscription: None, window: 1_000 };
        broker.serve(&mut world);
        let mut unpacker = Unpacker::new(world.core.start_positions(key));
        let mut expected = 0;
        for step in steps.into_iter().chain([Step::Advance, Step::Take, Step::Deliver { records: 1 }, Step::Take]) {
            match step {
                Step::Deliver { records } => broker.deliver(&mut world, records),
                Step::Take => while let Take::Item(taken) = take(&mut world, key) {
                    let Taken::Chunk(chunk) = taken else { continue };
                    unpacker.load(chunk).unwrap();
                    for record in unpacker.by_ref() {
                        prop_assert_eq!(record.offset, Offset(expected));
                        prop_assert_eq!(record.value.unwrap(), expected.to_string());
                        expected += 1;
                    }
                    prop_assert_eq!(unpacker.positions()[&0], Offset(expected));
                },
                Step::Cut => {
                    broker.subscription = None;
                    world.disconnect();
                    world.connect();
                }
                Step::Close => if let Some(subscription) = broker.subscription.take() {
                    let closed = proto::SubscriptionClosed { subscription_id: subscription.id, ..Default::default() };
                    let link = world.link();
                    world.push(link, &closed, vec![]);
                },
                Step::Advance => world.advance(PAUSE_CEILING_LEADER_MS),
            }
            broker.serve(&mut world);
        }
        prop_assert!(expected > 0, "in the end something is delivered");
    }
}
