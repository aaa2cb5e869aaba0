//! Cursors: named positions that are as durable as the log.

use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self};
use lockgate_wire::{ConnectionId, Error, ErrorKind};

use crate::support::{FaultyDisk, Node, batch, config};

fn commit(
    node: &mut Node,
    c: ConnectionId,
    topic_id: u64,
    (name, offset, force): (&str, u64, bool),
) -> Result<proto::CommitCursorOk, Error> {
    node.try_ask(c, &proto::CommitCursor { topic_id, partition: 0, name: name.into(), offset, force })
}

fn get(node: &mut Node, c: ConnectionId, topic_id: u64, name: &str) -> Option<u64> {
    node.ask::<_, proto::GetCursorOk>(c, &proto::GetCursor { topic_id, partition: 0, name: name.into() }).offset
}

fn start(shards: u16) -> (Node, ConnectionId, u64) {
    let mut node = Node::new(shards);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    for i in 0..10 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    (node, c, topic)
}

#[test]
fn a_commit_is_answered_when_it_is_durable_and_survives_every_restart() {
    let (mut node, c, topic) = start(2);
    node.hold_journal = true;
    let body = proto::CommitCursor { topic_id: topic, partition: 0, name: "c".into(), offset: 4, force: false };
    let id = node.send_and_run(c, &body, Default::default());
    assert!(node.answer(c, id).is_none());
    node.release();
    assert!(node.answer(c, id).unwrap().is_ok());
    for orderly in [false, true, false] {
        node = if orderly { node.restart() } else { node.crash() };
        let c = node.connect(1);
        assert_eq!(get(&mut node, c, topic, "c"), Some(4));
        let ok = node.subscribe(c, 1, (topic, 0), At::Cursor("c".into()), 1 << 20).unwrap();
        assert_eq!(ok.next_offset, 4);
    }
}

#[test]
fn a_cursor_goes_back_only_with_force_and_never_beyond_the_end() {
    let (mut node, c, topic) = start(1);
    commit(&mut node, c, topic, ("c", 5, false)).unwrap();
    let error = commit(&mut node, c, topic, ("c", 4, false)).unwrap_err();
    assert_eq!((error.kind, error.kind.code()), (ErrorKind::CursorBackwards, 412));
    assert_eq!(get(&mut node, c, topic, "c"), Some(5));
    commit(&mut node, c, topic, ("c", 4, true)).unwrap();
    assert_eq!(get(&mut node, c, topic, "c"), Some(4));
    let error = commit(&mut node, c, topic, ("c", 11, true)).unwrap_err();
    assert_eq!((error.kind, error.details.high_watermark), (ErrorKind::OffsetOutOfRange, Some(10)));
}

#[test]
fn a_commit_sees_the_publishes_that_were_sent_before_it() {
    let (mut node, c, topic) = start(1);
    node.hold_journal = true;
    node.send_and_run(c, &crate::support::publish(topic, 0), batch(&["10"]));
    node.send_and_run(c, &crate::support::publish(topic, 0), batch(&["11"]));
    let body = proto::CommitCursor { topic_id: topic, partition: 0, name: "c".into(), offset: 12, force: false };
    let id = node.send_and_run(c, &body, Default::default());
    node.release();
    node.answer(c, id).unwrap().unwrap();
    assert_eq!(get(&mut node, c, topic, "c"), Some(12));
}

#[test]
fn cursors_are_listed_in_pages_and_deleted() {
    let (mut node, c, topic) = start(2);
    for i in 0..7 {
        commit(&mut node, c, topic, (&format!("c{i}"), i, false)).unwrap();
    }
    let mut names = Vec::new();
    loop {
        let after = names.last().cloned().unwrap_or_default();
        let page: proto::ListCursorsOk =
            node.ask(c, &proto::ListCursors { topic_id: topic, partition: 0, after, limit: 3 });
        assert!(page.cursors.len() <= 3);
        names.extend(page.cursors.into_iter().map(|cursor| cursor.name));
        if !page.more {
            break;
        }
    }
    assert_eq!(names, (0..7).map(|i| format!("c{i}")).collect::<Vec<_>>());
    let delete = proto::DeleteCursor { topic_id: topic, partition: 0, name: "c3".into() };
    assert!(node.ask::<_, proto::DeleteCursorOk>(c, &delete).existed);
    assert!(!node.ask::<_, proto::DeleteCursorOk>(c, &delete).existed);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(get(&mut node, c, topic, "c3"), None);
    assert_eq!(get(&mut node, c, topic, "c4"), Some(4));
}

#[test]
fn a_partition_keeps_so_many_cursors_and_no_more() {
    let mut config = config(1);
    config.limits.cursors_per_partition = 2;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    commit(&mut node, c, topic, ("a", 0, false)).unwrap();
    commit(&mut node, c, topic, ("b", 0, false)).unwrap();
    let error = commit(&mut node, c, topic, ("c", 0, false)).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(2)));
    commit(&mut node, c, topic, ("a", 0, false)).unwrap();
}

#[test]
fn a_cursor_that_retention_passed_is_refused_with_the_earliest_offset() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "1s")]);
    for i in 0..10 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    commit(&mut node, c, topic, ("c", 3, false)).unwrap();
    node.advance(10_000);
    let error = node.subscribe(c, 1, (topic, 0), At::Cursor("c".into()), 1 << 20).unwrap_err();
    assert_eq!((error.kind, error.details.earliest_offset), (ErrorKind::OffsetOutOfRange, Some(10)));
}

#[test]
fn a_bad_cursor_name_is_refused() {
    let (mut node, c, topic) = start(1);
    let error = commit(&mut node, c, topic, ("", 0, false)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidName);
}
