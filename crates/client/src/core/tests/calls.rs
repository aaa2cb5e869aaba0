//! Promises of calls.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

fn read_call(world: &mut World, timeout: Duration) -> CallId {
    world.with(|core, now| core.call(now, &proto::ListTopics::default(), None, timeout, Resend::Safe)).unwrap()
}

fn change_call(world: &mut World, timeout: Duration) -> CallId {
    world.with(|core, now| core.call(now, &proto::DeleteTopic::default(), None, timeout, Resend::Never)).unwrap()
}

#[test]
fn a_retry_answer_is_tried_again_after_a_pause_as_the_same_bytes() {
    let mut world = World::connected();
    let link = world.link();
    let call = change_call(&mut world, TIMEOUT);
    let first = world.next_sent(Op::DeleteTopic).unwrap();
    world.refuse(link, &first, &error(ErrorKind::Recovering));
    assert_eq!(world.next_sent(Op::DeleteTopic), None, "not before a pause");
    world.advance(PAUSE_CEILING_FIRST_MS);
    assert_eq!(world.next_sent(Op::DeleteTopic).as_ref(), Some(&first));
    world.answer(link, call.0, &proto::DeleteTopicOk {});
    assert!(world.calls[&call].is_ok());
}

#[test]
fn only_terminal_ends_at_once() {
    for kind in ErrorKind::ALL {
        let mut world = World::connected();
        let link = world.link();
        let call = read_call(&mut world, TIMEOUT);
        let asked = world.next_sent(Op::ListTopics).unwrap();
        world.refuse(link, &asked, &error(*kind));
        let terminal = kind.advice() == lockgate_wire::error::Advice::Terminal;
        assert_eq!(world.calls.contains_key(&call), terminal, "{kind:?}");
    }
}

#[test]
fn a_change_that_was_not_answered_is_unknown_and_a_read_is_asked_again() {
    let mut world = World::connected();
    let change = change_call(&mut world, TIMEOUT);
    let read = read_call(&mut world, TIMEOUT);
    world.disconnect();
    assert!(world.calls[&change].as_ref().is_err_and(ClientError::outcome_unknown));
    assert!(!world.calls.contains_key(&read));
    world.sent.clear();
    let link = world.connect();
    assert_eq!(world.next_sent(Op::ListTopics).unwrap().request_id, read.0);
    world.answer(link, read.0, &proto::ListTopicsOk::default());
    assert!(world.calls[&read].is_ok());
}

#[test]
fn an_unknown_answer_to_a_change_is_not_sent_again() {
    let mut world = World::connected();
    let link = world.link();
    let change = change_call(&mut world, TIMEOUT);
    let asked = world.next_sent(Op::DeleteTopic).unwrap();
    world.refuse(link, &asked, &error(ErrorKind::OutcomeUnknown));
    assert!(world.calls[&change].as_ref().is_err_and(ClientError::outcome_unknown));
}

#[test]
fn a_change_that_was_refused_until_its_deadline_was_not_applied() {
    let mut world = World::connected();
    let link = world.link();
    let change = change_call(&mut world, Duration::from_secs(3));
    while !world.calls.contains_key(&change) {
        if let Some(asked) = world.next_sent(Op::DeleteTopic) {
            world.refuse(link, &asked, &error(ErrorKind::LeaderUnknown));
        }
        world.push(link, &proto::GoingAway::default(), vec![]);
        world.advance_to_deadline();
    }
    let Err(ClientError::Unavailable { after, last }) = &world.calls[&change] else { panic!("{:?}", world.calls) };
    assert_eq!(after.as_secs(), 3);
    assert!(last.contains("leader_unknown"), "{last}");
    assert!(world.core.stats().retries > 10, "a missing leader is asked for often");
}

#[test]
fn a_deadline_shorter_than_one_attempt_still_makes_that_attempt() {
    let mut world = World::connected();
    let link = world.link();
    let call = read_call(&mut world, Duration::ZERO);
    assert!(world.next_sent(Op::ListTopics).is_some());
    world.advance(ATTEMPT_MIN_MS - 1);
    assert!(!world.calls.contains_key(&call), "{:?}", world.calls);
    world.answer(link, call.0, &proto::ListTopicsOk::default());
    assert!(world.calls[&call].is_ok());
}

#[test]
fn a_broker_that_never_answers_is_given_up_at_the_deadline() {
    let mut world = World::connected();
    let (read, change) = (read_call(&mut world, TIMEOUT), change_call(&mut world, TIMEOUT));
    let link = world.link();
    for _ in 0..30 {
        assert!(world.calls.is_empty());
        world.push(link, &proto::GoingAway::default(), vec![]);
        world.advance(1_000);
    }
    assert!(matches!(world.calls[&read], Err(ClientError::Unavailable { .. })));
    assert!(matches!(world.calls[&change], Err(ClientError::OutcomeUnknown { .. })));
    world.answer(link, read.0, &proto::ListTopicsOk::default());
    assert_eq!(world.core.stats().late_answers, 1, "and a late answer is nobody's");
}

#[test]
fn without_a_connection_a_call_waits_until_its_deadline() {
    let mut world = World::connected();
    world.disconnect();
    let change = change_call(&mut world, Duration::from_secs(2));
    world.advance(2_000);
    assert!(matches!(world.calls[&change], Err(ClientError::Unavailable { .. })), "{:?}", world.calls);
}

#[test]
fn more_calls_than_the_bound_are_refused() {
    let mut world = World::connected();
    for _ in 0..MAX_CALLS {
        read_call(&mut world, TIMEOUT);
    }
    let refused = world.with(|core, now| core.call(now, &proto::Ping {}, None, TIMEOUT, Resend::Safe));
    assert_eq!(refused, Err(ClientError::TooManyCalls { limit: MAX_CALLS }));
    assert_eq!(world.core.stats().calls_open, MAX_CALLS as u64);
}

#[test]
fn closing_ends_every_call_once() {
    let mut world = World::connected();
    let (read, change) = (read_call(&mut world, TIMEOUT), change_call(&mut world, TIMEOUT));
    world.with(|core, now| core.close(now));
    assert!(matches!(world.calls[&read], Err(ClientError::Closed)));
    assert!(matches!(world.calls[&change], Err(ClientError::OutcomeUnknown { .. })));
}

#[test]
fn what_no_frame_holds_is_refused_before_it_is_sent() {
    let mut world = World::connected();
    let name = "x".repeat(lockgate_wire::frame::MAX_BODY_BYTES);
    let large = proto::DeleteTopic { name };
    let refused = world.with(|core, now| core.call(now, &large, None, TIMEOUT, Resend::Never));
    assert!(matches!(refused, Err(ClientError::InvalidArgument(_))), "{refused:?}");
    let payload = Some(Bytes::from(vec![0; MAX_BATCH_BYTES + 1]));
    let refused = world.with(|core, now| core.call(now, &proto::Publish::default(), payload, TIMEOUT, Resend::Never));
    assert!(matches!(refused, Err(ClientError::InvalidArgument(_))), "{refused:?}");
    let payload = Some(Bytes::from(vec![0; MAX_BATCH_BYTES]));
    world.with(|core, now| core.call(now, &proto::Publish::default(), payload, TIMEOUT, Resend::Never)).unwrap();
    assert_eq!(world.core.stats().calls_open, 1);
}

#[test]
fn what_nobody_answers_waits_for_room_to_be_written() {
    let mut world = World::connected();
    let payload = Bytes::from(vec![0; MAX_UNWRITTEN_BYTES / 2]);
    let tell = |world: &mut World| {
        let told = world.core.tell(world.now, &proto::Publish::default(), Some(payload.clone()));
        // Not collected by the world, so nothing is written.
        while world.core.next_output().is_some() {}
        told
    };
    assert_eq!(tell(&mut world), Ok(()));
    assert_eq!(tell(&mut world), Ok(()));
    assert_eq!(tell(&mut world), Err(ClientError::BufferFull { buffer_bytes: MAX_UNWRITTEN_BYTES }));
    let link = world.link();
    world.input(Input::Written { link, bytes: MAX_UNWRITTEN_BYTES });
    assert_eq!(tell(&mut world), Ok(()));
    world.disconnect();
    assert!(matches!(tell(&mut world), Err(ClientError::Unavailable { .. })));
}
