//! Topics: made, changed, described, listed, deleted; retention by age and size.

use std::collections::HashMap;

use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self, CloseReason};
use lockgate_wire::{ConnectionId, Error, ErrorKind};

use crate::support::{FaultyDisk, Node, batch, config, publish};

fn alter(node: &mut Node, c: ConnectionId, set: &[(&str, &str)]) -> Result<proto::AlterTopicOk, Error> {
    let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    node.try_ask(c, &proto::AlterTopic { name: "orders".into(), set, if_version: None })
}

fn describe(node: &mut Node, c: ConnectionId) -> proto::DescribeTopicOk {
    node.ask(c, &proto::DescribeTopic { name: "orders".into() })
}

fn offsets(node: &mut Node, c: ConnectionId, topic_id: u64) -> (u64, u64) {
    let ok: proto::ListOffsetsOk = node.ask(c, &proto::ListOffsets { topic_id, partition: 0, timestamp_ms: None });
    (ok.earliest_offset, ok.high_watermark)
}

#[test]
fn a_topic_is_served_by_every_shard_when_its_creation_is_answered() {
    let mut node = Node::new(4);
    let c = node.connect(3);
    let topic = node.create_topic(c, "orders", 16, &[]);
    for shard in 0..4 {
        let c = node.connect(shard);
        for partition in 0..16 {
            node.publish(c, topic, partition, batch(&["a"])).unwrap();
        }
    }
}

#[test]
fn a_creation_is_not_answered_before_every_shard_has_taken_it() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    node.hold_journal = true;
    let create = proto::CreateTopic { name: "orders".into(), partitions: 8, ..Default::default() };
    let id = node.send_and_run(c, &create, Default::default());
    assert!(node.answer(c, id).is_none());
    node.hold_mesh = true;
    node.release_only_journal();
    node.advance(1_000);
    assert!(node.answer(c, id).is_none(), "the other shard has not said that it took the view");
    node.release();
    assert!(node.answer(c, id).unwrap().is_ok());
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason() {
    let mut node = Node::new(2);
    let c = node.connect(1);
    node.create_topic(c, "orders", 1, &[]);
    let create = |name: &str, setting: Option<(&str, &str)>| proto::CreateTopic {
        name: name.into(),
        settings: setting.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        ..Default::default()
    };
    let cases = [
        (create("orders", None), ErrorKind::TopicExists),
        (create("a b", None), ErrorKind::InvalidName),
        (create("x", Some(("fsync", "sometimes"))), ErrorKind::InvalidSetting),
        (create("x", Some(("colour", "red"))), ErrorKind::InvalidSetting),
        (proto::CreateTopic { kind: proto::TopicKind::Queue as i32, ..create("x", None) }, ErrorKind::NotSupported),
        (proto::CreateTopic { replication_factor: 3, ..create("x", None) }, ErrorKind::NotSupported),
        (proto::CreateTopic { partitions: 1_025, ..create("x", None) }, ErrorKind::InvalidRequest),
        (proto::CreateTopic { kind: 7, ..create("x", None) }, ErrorKind::InvalidRequest),
    ];
    for (create, kind) in cases {
        let error = node.try_ask::<_, proto::CreateTopicOk>(c, &create).unwrap_err();
        assert_eq!(error.kind, kind, "{create:?}: {error}");
    }
    node.assert_idle();
}

#[test]
fn topics_are_listed_in_name_order_in_pages() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    for i in 0..7 {
        node.create_topic(c, &format!("t{}", 6 - i), 1, &[]);
    }
    let mut names: Vec<String> = Vec::new();
    loop {
        let after = names.last().cloned().unwrap_or_default();
        let page: proto::ListTopicsOk = node.ask(c, &proto::ListTopics { after, limit: 3 });
        names.extend(page.topics.into_iter().map(|topic| topic.name));
        if !page.more {
            break;
        }
    }
    assert_eq!(names, (0..7).map(|i| format!("default/default/t{i}")).collect::<Vec<_>>());
}

#[test]
fn a_description_tells_of_every_partition_and_of_the_durability() {
    let mut node = Node::new(3);
    let c = node.connect(2);
    let topic = node.create_topic(c, "orders", 5, &[("fsync", "interval(100ms)")]);
    node.publish(c, topic, 4, batch(&["a", "b"])).unwrap();
    let described = describe(&mut node, c);
    let partitions: Vec<(u32, u64)> = described.partitions.iter().map(|p| (p.partition, p.high_watermark)).collect();
    assert_eq!(partitions, [(0, 0), (1, 0), (2, 0), (3, 0), (4, 2)]);
    assert!(described.partitions.iter().all(|p| p.leader_node == 1 && p.error.is_none()));
    assert!(described.partitions[4].size_bytes > 0);
    let settings: HashMap<_, _> = described.settings.into_iter().map(|s| (s.name, (s.value, s.origin))).collect();
    assert_eq!(settings["fsync"].1, proto::SettingOrigin::Topic as i32);
    assert_eq!(settings["max_batch_bytes"].1, proto::SettingOrigin::Default as i32);
    assert!(described.durability.contains("operating system"), "{}", described.durability);
    let error = node.try_ask::<_, proto::DescribeTopicOk>(c, &proto::DescribeTopic { name: "x".into() }).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TopicNotFound);
    node.assert_idle();
}

#[test]
fn so_many_descriptions_are_under_way_and_one_more_is_refused() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    node.create_topic(c, "orders", 8, &[]);
    node.hold_mesh = true;
    let describe = proto::DescribeTopic { name: "orders".into() };
    let ids: Vec<u64> = (0..65).map(|_| node.send_and_run(c, &describe, Default::default())).collect();
    assert_eq!(node.answer(c, ids[64]).unwrap().unwrap_err().kind, ErrorKind::Overloaded);
    node.release();
    assert!(ids[..64].iter().all(|id| node.answer(c, *id).unwrap().is_ok()));
    node.assert_idle();
}

#[test]
fn a_topic_is_altered_under_the_version_that_was_seen() {
    let mut node = Node::new(2);
    let c = node.connect(1);
    let topic = node.create_topic(c, "orders", 1, &[]);
    let version = describe(&mut node, c).version;
    let set = HashMap::from([("max_batch_bytes".to_string(), "2KiB".to_string())]);
    let set: std::collections::BTreeMap<String, String> = set.into_iter().collect();
    let body = proto::AlterTopic { name: "orders".into(), set, if_version: Some(version) };
    let altered: proto::AlterTopicOk = node.ask(c, &body);
    assert!(altered.version > version);
    let error = node.try_ask::<_, proto::AlterTopicOk>(c, &body).unwrap_err();
    assert_eq!((error.kind, error.details.version), (ErrorKind::VersionMismatch, Some(altered.version)));
    let error = node.publish(c, topic, 0, batch(&[&"x".repeat(3_000)])).unwrap_err();
    assert_eq!(error.details.limit, Some(2048));
    let error = alter(&mut node, c, &[("max_batch_bytes", "huge")]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidSetting);
    alter(&mut node, c, &[("max_batch_bytes", "")]).unwrap();
    node.publish(c, topic, 0, batch(&[&"x".repeat(3_000)])).unwrap();
}

#[test]
fn a_change_of_fsync_keeps_every_record_over_every_kind_of_restart() {
    let mut node = Node::new(2);
    let mut c = node.connect(0);
    let topic = node.create_topic(c, "orders", 2, &[]);
    let mut expected = Vec::new();
    for (round, fsync) in ["interval(60s)", "always", "interval(1ms)", "always", "interval(1s)"].iter().enumerate() {
        for i in 0..5 {
            let value = format!("{round}-{i}");
            expected.push((node.publish(c, topic, 0, batch(&[&value])).unwrap().base_offset, value));
        }
        alter(&mut node, c, &[("fsync", fsync)]).unwrap();
        for i in 5..10 {
            let value = format!("{round}-{i}");
            expected.push((node.publish(c, topic, 0, batch(&[&value])).unwrap().base_offset, value));
        }
        if round % 2 == 0 {
            node.advance(1_500);
        }
        node = if round % 3 == 2 { node.restart() } else { node.crash() };
        c = node.connect(1);
        assert_eq!(node.read_all(c, topic, 0, 0), expected, "after {fsync}");
    }
    node.assert_idle();
}

#[test]
fn a_topic_that_becomes_always_does_not_wait_out_its_old_interval() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("fsync", "interval(60s)")]);
    node.publish(c, topic, 0, batch(&["a"])).unwrap();
    alter(&mut node, c, &[("fsync", "always")]).unwrap();
    let id = node.send_and_run(c, &publish(topic, 0), batch(&["b"]));
    node.advance(10);
    assert!(node.answer(c, id).expect("the buffered journal is synced at once").is_ok());
}

#[test]
fn retention_by_age_removes_what_is_old_and_keeps_offsets() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("retention_ms", "10s")]);
    for i in 0..5 {
        node.publish(c, topic, 0, batch(&[&i.to_string()])).unwrap();
    }
    node.advance(5_000);
    assert_eq!(offsets(&mut node, c, topic), (0, 5));
    node.advance(7_000);
    assert_eq!(offsets(&mut node, c, topic), (5, 5));
    assert_eq!(node.disk.files(".log").len(), 0);
    assert!(node.metrics(0).segments_expired > 0);
    for orderly in [false, true] {
        node = if orderly { node.restart() } else { node.crash() };
        let c = node.connect(0);
        assert_eq!(offsets(&mut node, c, topic).0, 5);
    }
    let c = node.connect(0);
    assert_eq!(node.publish(c, topic, 0, batch(&["new"])).unwrap().base_offset, 5);
    assert_eq!(node.read_all(c, topic, 0, 5), [(5, "new".into())]);
}

#[test]
fn retention_by_size_keeps_that_much_and_whole_segments() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let settings = [("retention_bytes", "2MiB"), ("segment_bytes", "1MiB")];
    let topic = node.create_topic(c, "orders", 1, &settings);
    let value = "x".repeat(100_000);
    for _ in 0..60 {
        node.publish(c, topic, 0, batch(&[&value])).unwrap();
        node.advance(200);
    }
    node.advance(5_000);
    let (earliest, end) = offsets(&mut node, c, topic);
    let kept = (end - earliest) * 100_000;
    assert!((2 << 20..4 << 20).contains(&kept), "{kept} bytes are kept");
    assert_eq!(node.read_all(c, topic, 0, earliest).len() as u64, end - earliest);
    let mut node = node.crash();
    let c = node.connect(0);
    assert_eq!(offsets(&mut node, c, topic), (earliest, end));
}

#[test]
fn rolled_segments_are_sealed_and_a_start_reads_little_of_the_journal() {
    let mut node = Node::new(1);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[("segment_bytes", "1MiB")]);
    let value = "x".repeat(100_000);
    for _ in 0..60 {
        node.publish(c, topic, 0, batch(&[&value])).unwrap();
    }
    node.advance(60_000);
    let segments = node.disk.files(".log").len();
    let sealed = node.disk.files(".index").len();
    assert!(segments >= 5 && sealed >= segments - 1, "{sealed} of {segments} segments are sealed");
}

#[test]
fn readers_of_a_deleted_topic_are_told_and_its_files_go() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 4, &[]);
    for partition in 0..4 {
        node.publish(c, topic, partition, batch(&["a"])).unwrap();
        node.subscribe(c, 1 + u64::from(partition), (topic, partition), At::Latest(true), 1 << 20).unwrap();
    }
    let fetch = proto::Fetch { topic_id: topic, partition: 0, offset: 1, max_bytes: 0, max_wait_ms: 30_000 };
    let waits = node.send_and_run(c, &fetch, Default::default());
    node.advance(3_000);
    assert!(!node.disk.files(&format!("partitions/{topic}-")).is_empty());
    node.hold_journal = true;
    let under_way = node.send_and_run(c, &publish(topic, 1), batch(&["b"]));
    let delete = node.send_and_run(c, &proto::DeleteTopic { name: "orders".into() }, Default::default());
    node.release();
    node.answer(c, delete).unwrap().unwrap();
    for _ in 0..4 {
        let (_, reason, error) = node.ended(c).unwrap();
        assert_eq!((reason, error.kind), (CloseReason::TopicDeleted, ErrorKind::TopicNotFound));
    }
    assert_eq!(node.answer(c, waits).unwrap().unwrap_err().kind, ErrorKind::TopicNotFound);
    assert!(node.answer(c, under_way).is_some(), "one way or the other");
    assert_eq!(node.disk.files(&format!("partitions/{topic}-")), Vec::<String>::new());
    assert_eq!((node.metrics(0).partitions, node.metrics(1).partitions), (0, 0));
    node.assert_idle();
}

#[test]
fn what_a_crash_leaves_of_a_deleted_topic_is_removed_at_the_next_start() {
    let mut node = Node::new(2);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 4, &[]);
    let other = node.create_topic(c, "other", 1, &[]);
    for partition in 0..4 {
        node.publish(c, topic, partition, batch(&["a"])).unwrap();
    }
    node.publish(c, other, 0, batch(&["kept"])).unwrap();
    node.advance(3_000);
    node.hold_background = true;
    let delete = node.send_and_run(c, &proto::DeleteTopic { name: "orders".into() }, Default::default());
    node.answer(c, delete).unwrap().unwrap();
    assert!(!node.disk.files(&format!("partitions/{topic}-")).is_empty());
    let mut node = node.crash();
    assert_eq!(node.disk.files(&format!("partitions/{topic}-")), Vec::<String>::new());
    let c = node.connect(0);
    assert_eq!(node.read_all(c, other, 0, 0).len(), 1);
}

#[test]
fn a_thousand_partitions_are_open_after_a_restart() {
    let mut config = config(2);
    config.limits.tail_bytes_per_shard = 1 << 20;
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1_000, &[]);
    for partition in (0..1_000).step_by(100) {
        node.publish(c, topic, partition, batch(&["a"])).unwrap();
    }
    for orderly in [false, true] {
        node = if orderly { node.restart() } else { node.crash() };
        let c = node.connect(1);
        let serving: u64 = (0..2).map(|shard| node.metrics(shard).partitions_serving).sum();
        assert_eq!(serving, 1_000);
        assert_eq!(node.read_all(c, topic, 900, 0).len(), 1);
    }
}
