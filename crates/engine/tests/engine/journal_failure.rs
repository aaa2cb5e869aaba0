//! A journal that fails, and a disk that is full: what was not durable is not answered, what was is still read.

use lockgate_storage::disk::DiskError;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self, Ack};
use lockgate_wire::{ConnectionId, ErrorKind};

use crate::support::{FaultyDisk, Node, batch, config, publish, publish_at};

const EIO: i32 = 5;

#[test]
fn after_a_failed_sync_what_was_under_way_is_unknown_what_is_new_refused_and_reads_go_on() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    for i in 0..5 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    let name = "c".to_string();
    let commit = proto::CommitCursor { topic_id: topic, partition: 0, name: name.clone(), offset: 3, force: false };
    let _: proto::CommitCursorOk = node.ask(c, &commit);
    node.subscribe(c, 1, (topic, 1), At::Latest(true), 1 << 20).unwrap();
    node.hold_journal = true;
    let in_flight: Vec<u64> = [Ack::Quorum, Ack::Leader]
        .into_iter()
        .map(|ack| node.send_and_run(c, &publish_at(topic, 0, ack), batch(&["lost"])))
        .collect();
    let behind = node.send_and_run(c, &publish(topic, 0), batch(&["waits"]));
    node.disk.fail("sync", "0/journal/", EIO);
    node.release();
    let error = node.answer(c, in_flight[0]).unwrap().unwrap_err();
    assert_eq!(
        (error.kind, error.kind.code(), error.advice()),
        (ErrorKind::OutcomeUnknown, 504, proto::Advice::Unknown)
    );
    let others = [in_flight[1], behind].map(|id| node.answer(c, id).unwrap().unwrap_err());
    assert!(others.iter().all(|error| matches!(error.kind.code(), 503 | 504)), "{others:?}");
    node.disk.heal();
    // A sync that succeeds now proves nothing.
    let error = node.publish(c, topic, 1, batch(&["new"])).unwrap_err();
    assert_eq!((error.kind, error.kind.code()), (ErrorKind::StorageFailed, 503));
    assert_eq!(node.try_ask::<_, proto::CommitCursorOk>(c, &commit).unwrap_err().kind, ErrorKind::StorageFailed);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 5);
    node.subscribe(c, 2, (topic, 0), At::Offset(2), 1 << 20).unwrap();
    assert_eq!(node.delivered(c).len(), 3);
    let cursor: proto::GetCursorOk = node.ask(c, &proto::GetCursor { topic_id: topic, partition: 0, name });
    assert_eq!(cursor.offset, Some(3));
    let error =
        node.try_ask::<_, proto::CreateTopicOk>(c, &proto::CreateTopic { name: "x".into(), ..Default::default() });
    assert_eq!(error.unwrap_err().kind.code(), 503);
    assert_eq!(node.metrics(0).journal_poisoned, 1);
    assert!(
        node.logs.iter().any(|line| line.contains("made to fail") && line.contains("restarted")),
        "{:?}",
        node.logs
    );
    node.advance(10_000);
    node.assert_idle();
    let mut node = node.restart();
    let c = node.connect(0);
    let read = node.read_all(c, topic, 0, 0);
    assert!(read.len() >= 5 && read[..5].iter().enumerate().all(|(i, (_, value))| *value == i.to_string()));
    node.publish(c, topic, 0, batch(&["again"])).unwrap();
}

#[test]
fn one_shards_failed_journal_leaves_the_other_shards_alone() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 8, &[]);
    node.disk.fail("sync", "shards/1/journal/", EIO);
    let mut served = 0;
    for partition in 0..8 {
        match node.publish(c, topic, partition, batch(&["a"])) {
            Ok(_) => served += 1,
            Err(error) => assert!(matches!(error.kind.code(), 503 | 504), "{error}"),
        }
    }
    assert!((1..8).contains(&served));
    assert_eq!((node.metrics(0).journal_poisoned, node.metrics(1).journal_poisoned), (0, 1));
    // Topics can still be made: the failed shard says that it has taken them, and serves none of its partitions.
    let more = node.create_topic(c, "more", 8, &[]);
    let answers: Vec<bool> = (0..8).map(|p| node.publish(c, more, p, batch(&["a"])).is_ok()).collect();
    assert!(answers.contains(&true) && answers.contains(&false));
    node.assert_idle();
}

/// A node with small journal files whose next one finds no room, and a topic.
fn with_full_disk() -> (Node, ConnectionId, u64) {
    let mut config = config(1);
    config.journal.file_bytes = 1 << 20;
    config.journal.max_write_bytes = 512 << 10;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "300KiB")]);
    node.create_topic(c, "other", 1, &[("max_batch_bytes", "300KiB")]);
    node.disk.fail("grow", "journal/", DiskError::ENOSPC);
    (node, c, topic)
}

#[test]
fn without_room_for_the_next_journal_file_publishes_get_507_and_resume_by_themselves() {
    let (mut node, c, topic) = with_full_disk();
    let value = "x".repeat(250_000);
    let mut taken = 0;
    let refused = loop {
        match node.publish(c, topic, 0, batch(&[&value])) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 20);
    };
    assert_eq!(
        (refused.kind, refused.kind.code(), refused.advice()),
        (ErrorKind::StorageFull, 507, proto::Advice::Retry)
    );
    node.advance(5_000);
    assert_eq!(node.publish(c, topic, 0, batch(&["x"])).unwrap_err().kind, ErrorKind::StorageFull);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), taken, "reads go on");
    // So do cursors and deletions, in what is left of the journal's file; a new topic does not.
    let commit = proto::CommitCursor { topic_id: topic, partition: 0, name: "billing".into(), offset: 1, force: false };
    let _: proto::CommitCursorOk = node.ask(c, &commit);
    // However many cursors there are, deletions are left some of it.
    let refused = (0..1_000).find_map(|_| node.try_ask::<_, proto::CommitCursorOk>(c, &commit).err());
    assert_eq!(refused.map(|error| error.kind), Some(ErrorKind::StorageFull));
    let settings = [("max_batch_bytes".to_owned(), "300KiB".to_owned())].into();
    let create = proto::CreateTopic { name: "more".into(), partitions: 1, settings, ..Default::default() };
    assert_eq!(node.try_ask::<_, proto::CreateTopicOk>(c, &create).unwrap_err().kind, ErrorKind::StorageFull);
    let _: proto::DeleteTopicOk = node.ask(c, &proto::DeleteTopic { name: "other".into() });
    node.disk.heal();
    node.advance(2_000);
    assert_eq!(node.publish(c, topic, 0, batch(&["x"])).unwrap().base_offset, taken as u64);
    assert_eq!(node.metrics(0).journal_poisoned, 0);
    node.assert_idle();
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), taken + 1);
}

#[test]
fn nothing_spins_while_a_journal_write_takes_long_and_the_disk_is_full() {
    let (mut node, c, topic) = with_full_disk();
    let value = "x".repeat(250_000);
    // The write that opens the last prepared file is under way when the next one cannot be made.
    let request = loop {
        node.hold_journal = true;
        let request = node.send_and_run(c, &crate::support::publish(topic, 0), batch(&[&value]));
        if node.metrics(0).disk_full == 1 {
            break request;
        }
        node.release();
        assert!(node.answer(c, request).unwrap().is_ok());
    };
    node.advance(10_000);
    assert_eq!((node.answer(c, request).map(|answer| answer.is_ok()), node.held()), (None, 1));
    node.disk.heal();
    node.release();
    assert!(node.answer(c, request).unwrap().is_ok());
    node.advance(2_000);
    node.publish(c, topic, 0, batch(&[&value])).unwrap();
}

#[test]
fn records_that_wait_for_a_journal_file_are_answered_when_there_is_room() {
    let mut config = config(1);
    config.journal.file_bytes = 1 << 20;
    config.journal.max_write_bytes = 512 << 10;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("max_batch_bytes", "300KiB")]);
    node.hold_background = true; // The next file is not made yet.
    let value = "x".repeat(250_000);
    let ids: Vec<u64> = (0..9).map(|_| node.send_and_run(c, &publish(topic, 0), batch(&[&value]))).collect();
    assert!(node.answer(c, ids[8]).is_none());
    node.advance(1_000); // Nothing spins while it waits.
    node.release();
    node.advance(100);
    let answered = ids[..8].iter().filter(|id| node.answer(c, **id).is_some_and(|answer| answer.is_ok())).count();
    assert_eq!(answered, 8);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 9);
    node.assert_idle();
}

#[test]
fn a_buffered_journal_whose_sync_fails_stops_its_shard() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("fsync", "interval(100ms)")]);
    node.disk.fail("sync", "buffered/", EIO);
    node.publish(c, topic, 0, batch(&["a"])).ok();
    node.advance(500);
    let error = node.publish(c, topic, 0, batch(&["b"])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::StorageFailed);
    assert_eq!(node.metrics(0).journal_poisoned, 1);
}
