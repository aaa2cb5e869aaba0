use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::limits::{MAX_ID, MAX_PARTITIONS, MAX_PRODUCER_IDS_PER_BLOCK, MAX_TOPICS};
use crate::plan::{self, NewTopic};
use crate::{CatalogError, TopicKind, TopicLimits};
use lockgate_wire::{Generation, GroupId, NodeId, PartitionId, Uid, WallMs};

/// A catalog with its next log index.
struct Log {
    catalog: Catalog,
    next: u64,
}

impl Log {
    fn of_one_node() -> Self {
        let mut log = Self { catalog: Catalog::default(), next: 2 };
        assert_eq!(log.apply(&init()), Ok(Outcome::ClusterInitialised));
        log
    }

    fn apply(&mut self, command: &Command) -> Result<Outcome, Error> {
        self.next += 1;
        self.catalog.apply(LogIndex(self.next - 1), command)
    }

    fn create(&mut self, name: &str, partitions: u32) -> Result<TopicId, Error> {
        self.apply(&create(name, partitions)).map(|outcome| match outcome {
            Outcome::TopicCreated { topic } => topic,
            other => panic!("{other:?}"),
        })
    }

    fn delete(&mut self, name: &str) -> Result<Outcome, Error> {
        self.apply(&Command::DeleteTopic { name: name.into(), time: WallMs(9) })
    }

    fn alter(&mut self, name: &str, if_version: Option<u64>) -> Result<Outcome, Error> {
        let set = [("retention_ms".to_string(), "1h".to_string())].into();
        self.apply(&Command::AlterTopic { name: name.into(), set, if_version, time: WallMs(9) })
    }
}

fn init() -> Command {
    Command::InitCluster { cluster_id: Uid([7; 16]), node: NodeId(1), time: WallMs(1) }
}

fn create(name: &str, partitions: u32) -> Command {
    Command::CreateTopic {
        name: name.into(),
        kind: TopicKind::Stream,
        partitions,
        replication_factor: 1,
        settings: BTreeMap::new(),
        placement: vec![vec![NodeId(1)]; partitions as usize],
        time: WallMs(5),
    }
}

fn refusal(result: Result<impl std::fmt::Debug, Error>) -> ErrorKind {
    result.unwrap_err().kind
}

#[test]
fn nothing_is_created_before_the_cluster_has_its_identity() {
    let mut catalog = Catalog::default();
    assert_eq!(refusal(catalog.apply(LogIndex(2), &create("a", 1))), ErrorKind::InvalidRequest);
    assert!(!catalog.view().is_initialised());
    catalog.apply(LogIndex(3), &init()).unwrap();
    assert_eq!(catalog.view().cluster_id, Uid([7; 16]));
    assert_eq!(catalog.view().nodes[&NodeId(1)].registered, WallMs(1));
    assert!(catalog.apply(LogIndex(4), &create("a", 1)).is_ok());
}

#[test]
fn a_cluster_gets_its_identity_once_and_a_real_one() {
    assert_eq!(refusal(Log::of_one_node().apply(&init())), ErrorKind::InvalidRequest);
    for (id, node) in [([0; 16], 1), ([7; 16], 0)] {
        let nobody = Command::InitCluster { cluster_id: Uid(id), node: NodeId(node), time: WallMs(1) };
        assert_eq!(refusal(Catalog::default().apply(LogIndex(2), &nobody)), ErrorKind::InvalidRequest);
    }
}

#[test]
fn a_topic_comes_with_its_partitions_placed_and_numbered() {
    let mut log = Log::of_one_node();
    let id = log.create("orders", 3).unwrap();
    let view = log.catalog.view();
    let topic = view.topic_by_name("default/default/orders").unwrap();
    assert_eq!((topic.id, topic.version, topic.partitioning_version, topic.created), (id, 3, 1, WallMs(5)));
    let groups: Vec<u64> = topic.partitions.iter().map(|assignment| assignment.group.0).collect();
    assert_eq!(groups, [1, 2, 3], "0 is the metadata's group");
    let last = view.assignment(PartitionId { topic: id, partition: 2 }).unwrap();
    assert_eq!((last.generation, last.preferred_leader), (Generation(1), NodeId(1)));
    assert!(last.replica_on(NodeId(1)).is_some() && last.replica_on(NodeId(2)).is_none());
    assert_eq!(view.assignment(PartitionId { topic: id, partition: 3 }), None);
    assert_eq!((view.assignments().count(), view.partition_count()), (3, 3));
}

#[test]
fn a_name_is_taken_once_in_all_its_forms() {
    let mut log = Log::of_one_node();
    log.create("a", 1).unwrap();
    for same in ["a", "default/a", "default/default/a"] {
        assert_eq!(refusal(log.create(same, 1)), ErrorKind::TopicExists);
    }
    assert!(log.create("other/a", 1).is_ok());
    assert_eq!(refusal(log.create("..", 1)), ErrorKind::InvalidName);
}

#[test]
fn a_deleted_topics_ids_never_come_back() {
    let mut log = Log::of_one_node();
    let first = log.create("a", 2).unwrap();
    let neighbour = log.create("b", 1).unwrap();
    let before = log.catalog.view();
    assert_eq!(log.delete("default/a"), Ok(Outcome::TopicDeleted { topic: first }));
    let again = log.create("a", 2).unwrap();
    assert!(again > neighbour, "a name that comes back is another topic");
    let view = log.catalog.view();
    for gone in &before.topic(first).unwrap().partitions {
        assert!(view.is_deleted(gone.group) && !before.is_deleted(gone.group));
        assert!(view.assignments().all(|assignment| assignment.group != gone.group));
        assert!(view.assignments().all(|assignment| assignment.replicas != gone.replicas));
        assert_eq!(view.assignment(gone.partition), None);
    }
    assert!(view.deleted_topics().contains(first.0) && !view.deleted_topics().contains(again.0));
    assert_eq!(refusal(log.delete("c")), ErrorKind::TopicNotFound);
}

#[test]
fn a_group_that_was_never_created_is_not_deleted() {
    let mut log = Log::of_one_node();
    log.create("a", 1).unwrap();
    log.delete("a").unwrap();
    let view = log.catalog.view();
    assert!(view.is_deleted(GroupId(1)));
    assert!(!view.is_deleted(GroupId(0)) && !view.is_deleted(GroupId(2)) && !view.is_deleted(GroupId(u64::MAX)));
}

#[test]
fn a_topic_is_altered_only_at_the_version_that_the_caller_knows() {
    let mut log = Log::of_one_node();
    log.create("a", 1).unwrap();
    let error = log.alter("a", Some(2)).unwrap_err();
    assert_eq!((error.kind, error.details.version), (ErrorKind::VersionMismatch, Some(3)));
    assert_eq!(log.alter("a", Some(3)), Ok(Outcome::TopicAltered { version: 5 }));
    let view = log.catalog.view();
    let topic = view.topic_by_name("default/default/a").unwrap();
    assert_eq!((topic.version, topic.config.retention_ms), (5, Some(3_600_000)));
    assert_eq!(log.alter("a", None), Ok(Outcome::TopicAltered { version: 6 }));
    assert_eq!(refusal(log.alter("b", None)), ErrorKind::TopicNotFound);
}

#[test]
fn a_view_shares_the_topics_that_did_not_change() {
    let mut log = Log::of_one_node();
    let (a, b) = (log.create("a", 1).unwrap(), log.create("b", 1).unwrap());
    let before = log.catalog.view();
    log.alter("b", None).unwrap();
    let after = log.catalog.view();
    assert!(Arc::ptr_eq(before.topic(a).unwrap(), after.topic(a).unwrap()));
    assert!(!Arc::ptr_eq(before.topic(b).unwrap(), after.topic(b).unwrap()));
    assert_eq!(before.topic(b).unwrap().config.retention_ms, Some(604_800_000), "an old view stays as it was");
    let placed = |view: &crate::ClusterView| view.topic(b).unwrap().partitions[0].clone();
    assert!(Arc::ptr_eq(&placed(&before), &placed(&after)));
}

#[test]
fn topics_are_listed_in_the_order_of_their_names() {
    let mut log = Log::of_one_node();
    for name in ["b", "a", "t/n/z", "a.1"] {
        log.create(name, 1).unwrap();
    }
    let view = log.catalog.view();
    let after = |name| view.topics_after(name).map(|topic| topic.name.as_str()).collect::<Vec<_>>();
    assert_eq!(after(""), ["default/default/a", "default/default/a.1", "default/default/b", "t/n/z"]);
    assert_eq!(after("default/default/a"), ["default/default/a.1", "default/default/b", "t/n/z"]);
    assert_eq!(after("default/default/aa"), ["default/default/b", "t/n/z"]);
    assert_eq!(after("u"), [""; 0]);
}

#[test]
fn a_command_that_contradicts_itself_or_the_cluster_is_refused() {
    let placed = |nodes: &[&[u32]], partitions, replicas| {
        let mut command = create("a", partitions);
        if let Command::CreateTopic { placement, replication_factor, .. } = &mut command {
            *placement = nodes.iter().map(|nodes| nodes.iter().copied().map(NodeId).collect()).collect();
            *replication_factor = replicas;
        }
        command
    };
    for (why, command) in [
        ("too few partitions placed", placed(&[&[1]], 2, 1)),
        ("too many partitions placed", placed(&[&[1], &[1]], 1, 1)),
        ("too few replicas", placed(&[&[1], &[]], 2, 1)),
        ("twice on a node", placed(&[&[1, 1]], 1, 2)),
        ("on a node that is not there", placed(&[&[2]], 1, 1)),
        ("no partition", placed(&[], 0, 1)),
        ("no replica", placed(&[&[]], 1, 0)),
        ("more partitions than a topic may have", create("a", 1025)),
    ] {
        let mut log = Log::of_one_node();
        let before = log.catalog.view();
        assert_eq!(refusal(log.apply(&command)), ErrorKind::InvalidRequest, "{why}");
        assert_eq!(log.catalog.view(), before, "{why}");
    }
}

#[test]
fn dead_letters_stay_within_their_tenant_and_leave_their_topic() {
    let queue = |target: &str| {
        let mut command = create("acme/shop/jobs", 1);
        if let Command::CreateTopic { settings, kind, .. } = &mut command {
            *kind = TopicKind::Queue;
            settings.insert("dead_letter".into(), target.into());
        }
        command
    };
    assert_eq!(refusal(Log::of_one_node().apply(&queue("acme/shop/jobs"))), ErrorKind::InvalidSetting);
    assert_eq!(refusal(Log::of_one_node().apply(&queue("dead"))), ErrorKind::InvalidSetting);
    assert!(Log::of_one_node().apply(&queue("acme/dead/jobs")).is_ok());
}

#[test]
fn producer_ids_are_handed_out_once() {
    let mut log = Log::of_one_node();
    let mut allocate = |count| log.apply(&Command::AllocateProducerIds { count, time: WallMs(1) });
    assert_eq!(allocate(10), Ok(Outcome::ProducerIds { first: ProducerId(0), count: 10 }));
    let most = MAX_PRODUCER_IDS_PER_BLOCK;
    assert_eq!(allocate(most), Ok(Outcome::ProducerIds { first: ProducerId(10), count: most }));
    for bad in [0, most + 1] {
        assert_eq!(refusal(allocate(bad)), ErrorKind::InvalidRequest);
    }
    assert_eq!(allocate(1), Ok(Outcome::ProducerIds { first: ProducerId(65_546), count: 1 }));
}

#[test]
fn counters_of_ids_end_in_a_refusal_and_never_wrap() {
    let mut log = Log::of_one_node();
    log.catalog.ids.producers = MAX_ID - 1;
    let mut allocate = |count| log.apply(&Command::AllocateProducerIds { count, time: WallMs(1) });
    assert_eq!(refusal(allocate(2)), ErrorKind::LimitReached);
    assert!(allocate(1).is_ok());
    assert_eq!(refusal(allocate(1)), ErrorKind::LimitReached);
    log.catalog.ids.replicas = MAX_ID - 1;
    let before = log.catalog.clone();
    assert_eq!(refusal(log.create("a", 2)), ErrorKind::LimitReached);
    assert_eq!((log.catalog.ids, log.catalog.view()), (before.ids, before.view()), "no id is taken by a refusal");
}

#[test]
fn the_cluster_takes_as_many_partitions_as_it_may_and_not_one_more() {
    let mut log = Log::of_one_node();
    let full_topics = MAX_PARTITIONS / 1024;
    for topic in 0..full_topics {
        log.create(&format!("t{topic}"), 1024).unwrap();
    }
    let left = (MAX_PARTITIONS - full_topics * 1024) as u32;
    let error = log.create("last", left + 1).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::LimitReached, Some(MAX_PARTITIONS as u64)));
    log.create("last", left).unwrap();
    assert_eq!(refusal(log.create("one-more", 1)), ErrorKind::LimitReached);
    log.delete("t0").unwrap();
    assert!(log.create("one-more", 1).is_ok());
    let restored = Catalog::restore(&log.catalog.snapshot()).unwrap();
    assert!(restored == log.catalog);
}

#[test]
fn the_cluster_takes_as_many_topics_as_it_may_and_not_one_more() {
    let mut log = Log::of_one_node();
    for topic in 0..MAX_TOPICS {
        log.create(&format!("t{topic}"), 1).unwrap();
    }
    assert_eq!(refusal(log.create("one-more", 1)), ErrorKind::LimitReached);
    assert_eq!(log.catalog.view().topics().len(), MAX_TOPICS);
}

#[test]
#[should_panic(expected = "log index 2 is applied after 2")]
fn a_log_index_is_applied_once() {
    let mut log = Log::of_one_node();
    let _ = log.catalog.apply(LogIndex(2), &create("a", 1));
}

#[test]
fn a_refused_command_moves_the_applied_index_and_not_the_version() {
    let mut log = Log::of_one_node();
    assert!(log.delete("nothing").is_err());
    assert_eq!((log.catalog.applied(), log.catalog.version()), (LogIndex(3), 2));
}

type Damage<'a> = &'a dyn Fn(&mut Catalog);

#[test]
fn a_snapshot_that_breaks_the_catalogs_rules_is_refused() {
    let mut log = Log::of_one_node();
    log.create("a", 2).unwrap();
    log.create("b", 1).unwrap();
    log.delete("a").unwrap();
    let broken = |break_it: Damage| {
        let mut catalog = log.catalog.clone();
        break_it(&mut catalog);
        Catalog::restore(&catalog.snapshot())
    };
    assert!(broken(&|_| ()).is_ok());
    let damages: [(&str, Damage); 7] = [
        ("a topic id that neither lives nor is deleted", &|catalog| catalog.ids.topics += 1),
        ("a group beyond the counter", &|catalog| catalog.ids.groups -= 1),
        ("a replica beyond the counter", &|catalog| catalog.ids.replicas = 1),
        ("a counter out of bounds", &|catalog| catalog.ids.producers = MAX_ID + 1),
        ("a version that was not applied yet", &|catalog| catalog.view.version = 99),
        ("an assignment on no node", &|catalog| Arc::make_mut(&mut catalog.view.nodes).clear()),
        ("a topic alive and deleted", &|catalog| Arc::make_mut(&mut catalog.view.deleted_topics).insert(2)),
    ];
    for (damage, break_it) in damages {
        assert!(matches!(broken(break_it), Err(CatalogError::InvalidField { .. })), "{damage}");
    }
    let other_format = Catalog::restore(b"\x08\x02");
    assert_eq!(other_format, Err(CatalogError::UnknownFormat { found: 2, supported: 1 }));
}

#[test]
fn a_snapshot_with_a_topic_twice_is_refused() {
    let (mut first, mut second) = (Log::of_one_node(), Log::of_one_node());
    first.create("a", 1).unwrap();
    second.create("b", 1).unwrap();
    second.delete("b").unwrap();
    second.create("a", 1).unwrap();
    // Two messages in a row are read as one, with the topics of both: the same id twice, the same name twice.
    for other in [&first, &second] {
        let both = [first.catalog.snapshot(), other.catalog.snapshot()].concat();
        let error = Catalog::restore(&both).unwrap_err();
        assert_eq!(error, CatalogError::invalid("topic", "default/default/a is there twice"));
    }
}

#[test]
fn an_empty_catalog_is_restored_as_one() {
    assert_eq!(Catalog::restore(&Catalog::default().snapshot()), Ok(Catalog::default()));
}

#[test]
fn a_request_becomes_a_command_with_all_its_decisions() {
    let log = Log::of_one_node();
    let view = log.catalog.view();
    let limits = TopicLimits { max_frame_bytes: 8 << 20, journal_max_write_bytes: 8 << 20 };
    let wish = |name: &str, replication_factor, settings: &[(&str, &str)]| {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let kind = TopicKind::Stream;
        NewTopic { name: name.into(), kind, partitions: 0, replication_factor, settings }
    };
    let plan = |topic| plan::create_topic(&view, &limits, topic, WallMs(5));
    let mut expected = create("default/default/a", 1);
    assert_eq!(plan(wish("a", 0, &[])), Ok(expected.clone()));
    if let Command::CreateTopic { time, .. } = &mut expected {
        *time = WallMs(6);
    }
    assert_ne!(plan(wish("a", 0, &[])), Ok(expected));
    assert_eq!(refusal(plan(wish("a", 2, &[]))), ErrorKind::NotSupported);
    assert_eq!(refusal(plan(wish("__groups", 0, &[]))), ErrorKind::InvalidName);
    assert_eq!(refusal(plan(wish("a", 0, &[("max_batch_bytes", "8MiB")]))), ErrorKind::InvalidSetting);
    assert_eq!(refusal(plan::delete_topic("__groups", WallMs(5))), ErrorKind::InvalidName);
}

#[test]
fn an_alteration_is_checked_before_it_is_logged() {
    let mut log = Log::of_one_node();
    log.create("a", 1).unwrap();
    let view = log.catalog.view();
    let plan = |topic: &str, setting: &str, value: &str| {
        let set = [(setting.to_string(), value.to_string())].into();
        plan::alter_topic(&view, &TopicLimits::WIDEST, topic, set, Some(3), WallMs(5))
    };
    assert_eq!(refusal(plan("b", "fsync", "always")), ErrorKind::TopicNotFound);
    assert_eq!(refusal(plan("a", "fsync", "never")), ErrorKind::InvalidSetting);
    let command = plan("a", "fsync", "interval:5").unwrap();
    assert_eq!(log.apply(&command), Ok(Outcome::TopicAltered { version: 4 }));
}
