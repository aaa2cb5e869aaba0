//! Connections: how they begin, show life, are held back and end.

use bytes::{Bytes, BytesMut};
use lockgate_engine::{Input, Output};
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self};
use lockgate_wire::{ConnectionId, ErrorKind, FrameKind, OutFrame};

use crate::support::{FaultyDisk, Node, batch, config, publish};

fn is_closed(node: &Node, c: ConnectionId) -> bool {
    node.closed.contains(&c)
}

fn request<B: lockgate_wire::op::Body>(id: u64, body: &B) -> OutFrame {
    OutFrame::new(FrameKind::Request, id, body, Vec::new())
}

#[test]
fn the_first_frame_is_hello_and_hello_comes_once() {
    let mut node = Node::new(1);
    let c = node.connect_raw(0);
    node.send_frame(c, request(1, &proto::Topology::default()));
    node.run();
    assert_eq!(node.connection_error(c).kind, ErrorKind::HelloRequired);
    assert!(is_closed(&node, c));

    let c = node.connect(0);
    node.send_frame(c, request(9, &proto::Hello::default()));
    node.run();
    assert_eq!(node.connection_error(c).kind, ErrorKind::HelloRequired);
    assert!(is_closed(&node, c));
    node.assert_idle();
}

#[test]
fn a_hello_that_cannot_be_served_is_refused_with_the_bounds() {
    let mut node = Node::new(1);
    let hellos = [
        (proto::Hello { heartbeat_ms: 99, ..Default::default() }, ErrorKind::InvalidRequest),
        (proto::Hello { heartbeat_ms: 300_001, ..Default::default() }, ErrorKind::InvalidRequest),
        (proto::Hello { max_frame_bytes: 1000, ..Default::default() }, ErrorKind::InvalidRequest),
        (proto::Hello { client_id: "x".repeat(250), ..Default::default() }, ErrorKind::InvalidName),
    ];
    for (hello, kind) in hellos {
        let c = node.connect_raw(0);
        let error = node.try_ask::<_, proto::HelloOk>(c, &hello).unwrap_err();
        assert!(error.kind == kind || error.kind == ErrorKind::InvalidRequest, "{hello:?}: {error}");
        assert!(is_closed(&node, c));
    }
    node.assert_idle();
}

#[test]
fn who_says_no_hello_is_closed_in_time() {
    let mut node = Node::new(1);
    let c = node.connect_raw(0);
    node.advance(9_800);
    assert!(!is_closed(&node, c));
    node.advance(400);
    assert!(is_closed(&node, c));
}

#[test]
fn an_unknown_operation_is_refused_and_the_connection_lives_on() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    node.send_frame(c, OutFrame::error(9_999, 5, &lockgate_wire::Error::new(ErrorKind::Internal, "")));
    node.run();
    assert_eq!(node.connection_error(c).kind, ErrorKind::BadFrame, "an error frame is no request");
    assert!(is_closed(&node, c));

    let c = node.connect(0);
    let mut bytes = request(7, &proto::Ping {}).to_bytes().to_vec();
    bytes[6..8].copy_from_slice(&9_999_u16.to_le_bytes());
    let frame = lockgate_wire::Frame::decode(&mut BytesMut::from(&bytes[..]), 1 << 20).unwrap().unwrap();
    node.raw_input(c, Input::FrameReceived { connection: c, frame });
    assert_eq!(node.answer(c, 7).unwrap().unwrap_err().kind, ErrorKind::UnknownOp);
    let _: proto::PingOk = node.ask(c, &proto::Ping {});
    for push in [request(8, &proto::GoingAway::default()), request(8, &proto::Deliver::default())] {
        node.send_frame(c, push);
        node.run();
        assert_eq!(node.answer(c, 8).unwrap().unwrap_err().kind, ErrorKind::InvalidRequest);
    }
}

#[test]
fn a_frame_above_the_limit_closes_the_connection_with_413() {
    let mut node = Node::new(1);
    let c = node.connect_raw(0);
    let hello = proto::Hello { client_name: "x".repeat(70_000), ..Default::default() };
    node.send_frame(c, request(1, &hello));
    node.run();
    let error = node.connection_error(c);
    assert_eq!((error.kind, error.details.limit), (ErrorKind::FrameTooLarge, Some(64 * 1024)));
    assert!(is_closed(&node, c));
}

#[test]
fn heartbeats_are_sent_and_a_silent_client_is_dead_after_three() {
    let mut node = Node::new(1);
    node.clients_live = false;
    let c = node.connect_raw(0);
    let _: proto::HelloOk = node.ask(c, &proto::Hello { heartbeat_ms: 1_000, ..Default::default() });
    let mut beats = 0;
    for _ in 0..28 {
        node.advance(100);
        beats += u64::from(node.push_of::<proto::Ping>(c).is_some());
    }
    assert_eq!(beats, 2);
    assert!(!is_closed(&node, c));
    node.advance(300);
    assert!(is_closed(&node, c));
    assert_eq!(node.connection_error(c).kind, ErrorKind::ConnectionLost);
    assert_eq!(node.metrics(0).connections_dead, 1);
    node.assert_idle();
}

#[test]
fn a_client_that_takes_nothing_is_closed_and_holds_nobody_up() {
    let mut node = Node::new(2);
    let slow = node.connect(0);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.subscribe(slow, 1, (topic, 0), At::Earliest(true), 1 << 40).unwrap();
    node.set_hold_written_of(slow);
    let value = "x".repeat(500_000);
    for _ in 0..10 {
        node.publish(c, topic, 0, batch(&[&value])).unwrap();
    }
    let waiting: u64 = (0..2).map(|shard| node.metrics(shard).outgoing_bytes).sum();
    assert!((1..2_500_000).contains(&waiting), "{waiting} bytes wait for a client that takes nothing");
    node.advance(31_000);
    assert!(is_closed(&node, slow) && !is_closed(&node, c));
    assert_eq!(node.metrics(0).connections_stalled, 1);
    node.assert_idle();
}

#[test]
fn a_client_that_does_not_go_on_with_its_frame_is_told_and_closed() {
    let mut node = Node::new(1);
    let (c, other) = (node.connect(0), node.connect(0));
    node.raw_input(c, Input::FrameStalled { connection: c });
    assert!(is_closed(&node, c) && !is_closed(&node, other));
    let error = node.connection_error(c);
    assert_eq!(error.kind, ErrorKind::ConnectionLost);
    assert!(error.message.contains("for 30000 ms"), "{error}");
    assert_eq!(node.metrics(0).connections_half_frame, 1);
    // What is closed already is not closed again, whatever the server still tells of it.
    let (now, mut out) = (node.now, Vec::new());
    for _ in 0..2 {
        node.shards[0].handle(now, Input::FrameStalled { connection: other }, &mut out);
    }
    assert_eq!(out.iter().filter(|output| matches!(output, Output::Close { .. })).count(), 1);
    assert_eq!(node.metrics(0).connections_half_frame, 2);
}

#[test]
fn a_connection_that_is_not_read_is_not_taken_for_dead() {
    let mut config = config(1);
    config.limits.unanswered_requests = 2;
    let mut node = Node::start(FaultyDisk::default(), config);
    node.clients_live = false;
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    for _ in 0..3 {
        node.send_and_run(c, &publish(topic, 0), batch(&["a"]));
    }
    assert_eq!(node.unread(c), 1);
    node.advance(60_000);
    assert!(!is_closed(&node, c), "it was not read, so its silence means nothing");
    node.release();
    assert_eq!(node.unread(c), 0);
    node.advance(16_000);
    assert!(is_closed(&node, c));
}

#[test]
fn close_answers_first_what_was_asked_before() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    node.hold_journal = true;
    let publishes: Vec<u64> = (0..2).map(|p| node.send_and_run(c, &publish(topic, p), batch(&["a"]))).collect();
    let close = node.send_and_run(c, &proto::Close {}, Bytes::new());
    let late = node.send_and_run(c, &proto::Ping {}, Bytes::new());
    assert!(node.answer(c, close).is_none() && !is_closed(&node, c));
    node.release();
    assert!(publishes.into_iter().all(|id| node.answer(c, id).unwrap().is_ok()));
    assert!(node.answer(c, close).unwrap().is_ok());
    assert!(is_closed(&node, c));
    assert!(node.answer(c, late).is_none(), "nothing is taken after Close");
    node.assert_idle();
}

#[test]
fn a_connection_that_goes_gives_back_everything_it_held() {
    for home in 0..2 {
        let mut node = Node::new(2);
        let c = node.connect(home);
        let topic = node.create_topic(c, "orders", 8, &[]);
        for partition in 0..8 {
            node.publish(c, topic, partition, batch(&["a"])).unwrap();
            node.subscribe(c, 1 + u64::from(partition), (topic, partition), At::Earliest(true), 1 << 20).unwrap();
        }
        node.hold_journal = true;
        for partition in 0..8 {
            let fetch = proto::Fetch { topic_id: topic, partition, offset: 1, max_bytes: 0, max_wait_ms: 20_000 };
            node.send(c, &fetch, Bytes::new());
            node.send(c, &publish(topic, partition), batch(&["b"]));
            let name = "c".to_string();
            let commit = proto::CommitCursor { topic_id: topic, partition, name, offset: 0, force: false };
            node.send(c, &commit, Bytes::new());
        }
        node.send(c, &proto::CreateTopic { name: "other".into(), ..Default::default() }, Bytes::new());
        node.run();
        let busy = node.metrics(home);
        assert!(busy.charged_bytes > 0 && busy.publish_in_flight_bytes > 0 && busy.mesh_requests > 0);
        node.disconnect(c);
        node.release();
        node.assert_idle();
        let c = node.connect(home);
        assert_eq!(node.read_all(c, topic, 3, 0).len(), 2, "what was published is in the log");
        assert_eq!(node.metrics(home).connections, 1);
    }
}

#[test]
fn one_connection_too_many_is_told_so_and_closed() {
    let mut config = config(1);
    config.limits.connections_per_shard = 2;
    let mut node = Node::start(FaultyDisk::default(), config);
    let first = node.connect(0);
    node.connect(0);
    let third = node.connect_raw(0);
    let error = node.connection_error(third);
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(2)));
    assert!(is_closed(&node, third));
    node.disconnect(first);
    node.connect(0);
}

#[test]
fn sessions_of_a_node_have_ids_of_their_own() {
    let mut node = Node::new(2);
    let mut ids = Vec::new();
    for shard in [0, 1, 0, 1] {
        let c = node.connect_raw(shard);
        ids.push(node.ask::<_, proto::HelloOk>(c, &proto::Hello::default()).session_id);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn parts_of_a_frame_are_life() {
    let mut node = Node::new(1);
    node.clients_live = false;
    let c = node.connect(0);
    for _ in 0..20 {
        node.advance(5_000);
        node.raw_input(c, Input::BytesReceived { connection: c });
    }
    assert!(!is_closed(&node, c));
    node.advance(16_000);
    assert!(is_closed(&node, c));
}

#[test]
fn who_sends_no_more_is_closed_once_everything_that_was_asked_is_answered() {
    let mut node = Node::new(1);
    let idle = node.connect(0);
    node.raw_input(idle, Input::PeerEnded { connection: idle });
    assert!(is_closed(&node, idle));

    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    let asked = node.send_and_run(c, &publish(topic, 0), batch(&["last words"]));
    node.raw_input(c, Input::PeerEnded { connection: c });
    assert!(!is_closed(&node, c));
    node.release();
    assert!(node.answer(c, asked).unwrap().is_ok());
    assert!(is_closed(&node, c));
    node.assert_idle();
}
