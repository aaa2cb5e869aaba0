//! The orderly stop: what was taken is answered, what is new is refused, the next start is short.

use lockgate_engine::Input;
use lockgate_wire::ErrorKind;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self, CloseReason};

use crate::support::{FaultyDisk, Node, batch, config, publish, subscribe};

#[test]
fn a_stop_answers_what_was_taken_refuses_what_is_new_and_tells_everyone() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 4, &[]);
    let idle = node.create_topic(c, "idle", 1, &[]);
    for partition in 0..4 {
        node.subscribe(c, 1 + u64::from(partition), (topic, partition), At::Latest(true), 1 << 20).unwrap();
    }
    node.hold_journal = true;
    let taken: Vec<u64> = (0..4).map(|p| node.send_and_run(c, &publish(topic, p), batch(&["a"]))).collect();
    let fetch = proto::Fetch { topic_id: idle, partition: 0, offset: 0, max_bytes: 0, max_wait_ms: 30_000 };
    let waits = node.send_and_run(c, &fetch, Default::default());
    node.begin_stop();
    assert!(node.push_of::<proto::GoingAway>(c).is_some());
    let late = node.send_and_run(c, &publish(topic, 0), batch(&["b"]));
    let error = node.answer(c, late).unwrap().unwrap_err();
    assert_eq!((error.kind, error.advice()), (ErrorKind::ShuttingDown, proto::Advice::Retry));
    node.advance(100);
    assert_eq!(node.stopped, 0, "the journal is still at it");
    node.release();
    node.advance(100);
    assert_eq!(node.stopped, 2, "a fetch that waits does not hold a stop up: {:?}", node.logs);
    assert!(taken.into_iter().all(|id| node.answer(c, id).unwrap().is_ok()));
    assert!(node.answer(c, waits).unwrap().is_ok());
    let reasons: Vec<CloseReason> = std::iter::from_fn(|| node.ended(c)).map(|(_, reason, _)| reason).collect();
    assert_eq!(reasons, [CloseReason::Shutdown; 4]);
    assert!(node.closed.contains(&c));
}

#[test]
fn a_start_after_a_stop_has_nothing_to_replay() {
    for settings in [&[][..], &[("fsync", "interval(60s)")]] {
        let mut node = Node::new(2);
        let c = node.connect(0);
        let topic = node.create_topic(c, "orders", 2, settings);
        for partition in 0..2 {
            for i in 0..20 {
                node.publish(c, topic, partition, batch(&[&i.to_string()])).unwrap();
            }
        }
        node.stop();
        let report = node.recovery_report(0);
        assert!(report.ended_cleanly, "{report:?}");
        assert_eq!(report.findings, Vec::<String>::new());
        let mut node = node.crash();
        let applied: u64 = (0..2).map(|shard| node.metrics(shard).entries_applied).sum();
        assert!(applied <= 4, "only first entries of a term and the last of each segment, not {applied}");
        let c = node.connect(1);
        assert_eq!(node.read_all(c, topic, 1, 0).len(), 20);
    }
}

#[test]
fn an_idle_node_stops_at_once() {
    let mut node = Node::new(3);
    node.advance(1_000);
    node.begin_stop();
    node.advance(50);
    assert_eq!(node.stopped, 3);
}

#[test]
fn a_stop_does_not_wait_for_a_reader_that_takes_nothing() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 8, &[]);
    let reader = node.connect(0);
    node.set_hold_written_of(reader);
    for partition in 0..8 {
        node.subscribe(reader, 1 + u64::from(partition), (topic, partition), At::Earliest(true), 1 << 30).unwrap();
        node.publish(c, topic, partition, batch(&["a"])).unwrap();
    }
    assert_eq!(node.delivered(reader).len(), 8);
    // What is under way when the stop begins is answered; it is delivered by the next start.
    node.hold_journal = true;
    let taken: Vec<u64> = (0..8).map(|p| node.send_and_run(c, &publish(topic, p), batch(&["b"]))).collect();
    node.begin_stop();
    let reasons: Vec<CloseReason> = std::iter::from_fn(|| node.ended(reader)).map(|(_, reason, _)| reason).collect();
    assert_eq!(reasons, [CloseReason::Shutdown; 8]);
    node.release();
    node.advance(200);
    assert_eq!(node.stopped, 2, "{:?}", node.logs);
    assert!(taken.into_iter().all(|id| node.answer(c, id).unwrap().is_ok()));
    assert_eq!(node.delivered(reader), []);
    assert!(!node.logs.iter().any(|line| line.contains("took too long")));
}

#[test]
fn a_subscription_whose_answer_is_under_way_when_the_stop_begins_ends_after_it() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 8, &[]);
    // The other shard has something under way too, so that it still answers.
    let d = node.connect(1);
    node.hold_journal = true;
    for partition in 0..8 {
        node.send_and_run(d, &publish(topic, partition), batch(&["a"]));
    }
    node.hold_mesh = true;
    let body = |partition| subscribe(1 + u64::from(partition), (topic, partition), At::Earliest(true), 1 << 20);
    let ids: Vec<u64> = (0..8).map(|partition| node.send_and_run(c, &body(partition), Default::default())).collect();
    node.begin_stop();
    let early = std::iter::from_fn(|| node.ended(c)).count();
    assert!(early < 8, "some of them are on the other shard");
    node.release();
    node.advance(100);
    assert_eq!(node.stopped, 2);
    assert!(ids.into_iter().all(|id| node.answer(c, id).unwrap().is_ok()));
    assert_eq!(early + std::iter::from_fn(|| node.ended(c)).count(), 8);
}

#[test]
fn a_reader_that_is_told_of_the_stop_may_still_commit_its_cursor() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.publish(c, topic, 0, batch(&["a"])).unwrap();
    node.hold_journal = true;
    let taken = node.send_and_run(c, &publish(topic, 0), batch(&["b"]));
    node.begin_stop();
    let commit =
        proto::CommitCursor { topic_id: topic, partition: 0, name: "reader".into(), offset: 1, ..Default::default() };
    let committed = node.send_and_run(c, &commit, Default::default());
    node.release();
    node.advance(100);
    assert_eq!(node.stopped, 1);
    assert!(node.answer(c, taken).unwrap().is_ok() && node.answer(c, committed).unwrap().is_ok());
}

#[test]
fn a_stop_ends_in_time_although_an_answer_never_comes() {
    let mut config = config(1);
    config.limits.drain_ms = 2_000;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[]);
    node.hold_journal = true;
    node.send_and_run(c, &publish(topic, 0), batch(&["a"]));
    node.begin_stop();
    node.advance(1_900);
    assert_eq!(node.stopped, 0);
    node.advance(300);
    assert_eq!(node.stopped, 1);
    assert!(node.logs.iter().any(|line| line.contains("took too long")));
}

#[test]
fn a_second_stop_changes_nothing() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    node.begin_stop();
    node.begin_stop();
    node.raw_input(c, Input::Tick);
    node.advance(100);
    assert_eq!(node.stopped, 1);
}
