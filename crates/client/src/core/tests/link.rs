//! Promises of the connection.

use super::*;

fn fail_dial(world: &mut World, reason: &str) -> HostPort {
    while world.dials.is_empty() {
        world.advance_to_deadline();
    }
    let (link, address) = world.dials.remove(0);
    world.input(Input::DialFailed { link, reason: reason.into() });
    address
}

#[test]
fn every_seed_is_tried_once_and_named_when_none_answers() {
    let mut world = World::new(&["a:1", "b:2"]);
    fail_dial(&mut world, "refused");
    assert_eq!(world.connected, None);
    fail_dial(&mut world, "no such host");
    let Some(Err(ClientError::Connect { attempts })) = world.connected else { panic!("{:?}", world.connected) };
    let text = ClientError::Connect { attempts }.to_string();
    assert_eq!(text, "no broker could be reached: a:1: refused; b:2: no such host");
}

#[test]
fn seeds_that_never_answer_share_the_connect_timeout() {
    let mut world = World::new(&["a:1", "b:2"]);
    while world.connected.is_none() {
        world.advance_to_deadline();
    }
    assert_eq!(world.now.mono.ms_since(MonoTime(0)), 2_000);
    assert_eq!(world.closed.len(), 2);
}

#[test]
fn a_server_that_takes_the_connection_and_never_answers_hello_is_left() {
    let mut world = World::new(&["a:1"]);
    world.advance(0);
    let (link, _) = world.dials.remove(0);
    world.input(Input::Connected { link });
    world.advance(1_999);
    assert_eq!(world.connected, None);
    world.advance(1);
    let Some(Err(error)) = &world.connected else { panic!("{:?}", world.connected) };
    assert!(error.to_string().contains("did not answer Hello"), "{error}");
    assert_eq!(world.closed, [link]);
}

#[test]
fn a_refused_hello_is_told_in_the_brokers_words() {
    let mut world = World::new(&["a:1"]);
    world.advance(0);
    let (link, _) = world.dials.remove(0);
    world.input(Input::Connected { link });
    let hello = world.next_sent(Op::Hello).unwrap();
    world.refuse(link, &hello, &Error::new(ErrorKind::LimitReached, "10000 connections, the limit is 10000"));
    let Some(Err(error)) = &world.connected else { panic!("{:?}", world.connected) };
    assert!(error.to_string().contains("10000 connections"), "{error}");
}

#[test]
fn the_lost_broker_is_asked_first_and_then_every_seed_for_ever() {
    let mut world = World::new(&["a:1", "b:2"]);
    world.connect();
    world.disconnect();
    let tried: Vec<String> = (0..6).map(|_| fail_dial(&mut world, "refused").to_string()).collect();
    assert_eq!(tried, ["a:1", "b:2", "a:1", "b:2", "a:1", "b:2"]);
    assert_eq!(world.connected, Some(Ok(())), "what happened later is not the first connection's outcome");
    world.connect();
}

#[test]
fn a_ping_goes_out_when_nothing_else_did() {
    let mut world = World::connected();
    world.advance(4_999);
    assert!(world.sent.is_empty());
    world.advance(1);
    let ping = world.next_sent(Op::Ping).unwrap();
    assert_ne!(ping.request_id, 0);
    let link = world.link();
    world.answer(link, ping.request_id, &proto::PingOk {});
    assert_eq!(world.core.stats().late_answers, 0);
}

#[test]
fn a_broker_that_is_silent_for_three_heartbeats_is_dead() {
    let mut world = World::connected();
    let link = world.link();
    for _ in 0..2 {
        world.advance(5_000);
    }
    assert!(world.core.is_connected());
    world.advance(5_000);
    assert!(!world.core.is_connected());
    assert_eq!(world.closed, [link]);
}

#[test]
fn any_frame_is_life_and_an_unanswered_ping_alone_is_not_death() {
    let mut world = World::connected();
    let link = world.link();
    for _ in 0..20 {
        world.advance(5_000);
        world.push(link, &proto::GoingAway::default(), vec![]);
    }
    assert!(world.core.is_connected());
}

#[test]
fn a_broker_whose_frame_comes_slowly_is_alive_as_long_as_its_bytes_come() {
    let mut world = World::connected();
    let link = world.link();
    for _ in 0..20 {
        world.advance(5_000);
        world.input(Input::BytesReceived { link });
    }
    assert!(world.core.is_connected());
    (0..3).for_each(|_| world.advance(5_000));
    assert!(!world.core.is_connected());
    world.sent.clear();
    world.connect();
    for _ in 0..3 {
        world.advance(5_000);
        world.input(Input::BytesReceived { link });
    }
    assert!(!world.core.is_connected(), "the bytes of another link are no life");
}

#[test]
fn a_process_that_slept_reads_before_it_judges() {
    let mut world = World::connected();
    world.advance(60_000);
    assert!(world.core.is_connected());
    for _ in 0..3 {
        world.advance(5_000);
    }
    assert!(!world.core.is_connected());
}

#[test]
fn a_ping_of_the_broker_is_answered() {
    let mut world = World::connected();
    let frame = as_received(&OutFrame::request(77, &proto::Ping {}));
    let link = world.link();
    world.input(Input::Received { link, frame });
    let answer = world.next_sent(Op::Ping).unwrap();
    assert_eq!((answer.kind, answer.request_id), (FrameKind::Response, 77));
}

#[test]
fn what_comes_from_an_old_link_changes_nothing() {
    let mut world = World::connected();
    let old = world.link();
    world.disconnect();
    world.connect();
    world.input(Input::Disconnected { link: old, reason: "late".into() });
    world.input(Input::DialFailed { link: old, reason: "late".into() });
    assert!(world.core.is_connected());
}

#[test]
fn an_answer_of_the_wrong_operation_ends_the_connection() {
    let mut world = World::connected();
    let link = world.link();
    let seconds = Duration::from_secs(30);
    let call =
        world.with(|core, now| core.call(now, &proto::ListTopics::default(), None, seconds, Resend::Safe)).unwrap();
    world.answer(link, call.0, &proto::CreateTopicOk::default());
    assert!(!world.core.is_connected());
    assert_eq!(world.closed, [link]);
}

#[test]
fn an_error_about_the_connection_ends_it() {
    let mut world = World::connected();
    let link = world.link();
    let frame = as_received(&OutFrame::error(0, 0, &error(ErrorKind::BadFrame)));
    world.input(Input::Received { link, frame });
    assert!(!world.core.is_connected());
}

#[test]
fn a_close_says_goodbye_and_dials_no_more() {
    let mut world = World::connected();
    world.with(|core, now| core.close(now));
    assert!(world.next_sent(Op::Close).is_some());
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.core.next_deadline(), None);
    let refused = world.with(|core, now| core.call(now, &proto::Ping {}, None, Duration::ZERO, Resend::Safe));
    assert_eq!(refused, Err(ClientError::Closed));
}
