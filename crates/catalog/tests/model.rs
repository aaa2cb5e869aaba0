//! Random logs against a catalog that is written as plainly as can be, with snapshots taken and restored on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockgate_catalog::{Catalog, ClusterView, Command, Outcome, TopicKind};
use lockgate_wire::{ErrorKind, GroupId, LogIndex, NodeId, ProducerId, TopicId, Uid, WallMs};
use proptest::prelude::*;

/// Names as people write them, with their full form; `None` where they are no names.
const NAMES: &[(&str, Option<&str>)] = &[
    ("a", Some("default/default/a")),
    ("default/a", Some("default/default/a")),
    ("n/a", Some("default/n/a")),
    ("t/n/a", Some("t/n/a")),
    ("b", Some("default/default/b")),
    ("__groups", Some("default/default/__groups")),
    ("", None),
    ("a b", None),
    ("a/b/c/d", None),
];

/// Settings in canonical form, with the kinds that take them.
const SETTINGS: &[(&str, &str, &[TopicKind])] = &[
    ("fsync", "interval(5ms)", &[TopicKind::Stream, TopicKind::Queue, TopicKind::Cache]),
    ("fsync", "sometimes", &[]),
    ("retention_ms", "1h", &[TopicKind::Stream]),
    ("retention_ms", "", &[TopicKind::Stream]),
    ("lease_ms", "5s", &[TopicKind::Queue]),
    ("dead_letter", "default/default/dead", &[TopicKind::Queue]),
    ("ttl_ms", "1s", &[TopicKind::Cache]),
    ("colour", "red", &[]),
];

struct ModelTopic {
    id: u64,
    kind: TopicKind,
    version: u64,
    settings: BTreeMap<String, String>,
    groups: Vec<u64>,
}

#[derive(Default)]
struct Model {
    initialised: bool,
    topics: BTreeMap<String, ModelTopic>,
    topic_ids: u64,
    group_ids: u64,
    producer_ids: i64,
    deleted_topics: BTreeSet<u64>,
    deleted_groups: BTreeSet<u64>,
}

impl Model {
    fn apply(&mut self, index: u64, command: &Command) -> Result<Outcome, ErrorKind> {
        if let Command::InitCluster { .. } = command {
            let first = !std::mem::replace(&mut self.initialised, true);
            return if first { Ok(Outcome::ClusterInitialised) } else { Err(ErrorKind::InvalidRequest) };
        }
        if !self.initialised {
            return Err(ErrorKind::InvalidRequest);
        }
        match command {
            Command::CreateTopic { name, kind, partitions, replication_factor, settings, placement, .. } => {
                let name = full_name(name)?;
                if self.topics.contains_key(&name) {
                    return Err(ErrorKind::TopicExists);
                }
                let placed_well = placement.iter().all(|nodes| nodes == &[NodeId(1)]);
                let well = *partitions > 0 && *replication_factor == 1 && placement.len() == *partitions as usize;
                if !well || !placed_well {
                    return Err(ErrorKind::InvalidRequest);
                }
                let settings = altered(*kind, &name, &BTreeMap::new(), settings)?;
                self.topic_ids += 1;
                let id = self.topic_ids;
                let groups = (self.group_ids + 1..=self.group_ids + u64::from(*partitions)).collect();
                self.group_ids += u64::from(*partitions);
                self.topics.insert(name, ModelTopic { id, kind: *kind, version: index, settings, groups });
                Ok(Outcome::TopicCreated { topic: TopicId(id) })
            }
            Command::AlterTopic { name, set, if_version, .. } => {
                let name = full_name(name)?;
                let topic = self.topics.get_mut(&name).ok_or(ErrorKind::TopicNotFound)?;
                if if_version.is_some_and(|version| version != topic.version) {
                    return Err(ErrorKind::VersionMismatch);
                }
                topic.settings = altered(topic.kind, &name, &topic.settings, set)?;
                topic.version = index;
                Ok(Outcome::TopicAltered { version: index })
            }
            Command::DeleteTopic { name, .. } => {
                let topic = self.topics.remove(&full_name(name)?).ok_or(ErrorKind::TopicNotFound)?;
                self.deleted_topics.insert(topic.id);
                self.deleted_groups.extend(topic.groups);
                Ok(Outcome::TopicDeleted { topic: TopicId(topic.id) })
            }
            Command::AllocateProducerIds { count, .. } => {
                if *count == 0 || *count > 65_536 {
                    return Err(ErrorKind::InvalidRequest);
                }
                let first = ProducerId(self.producer_ids);
                self.producer_ids += i64::from(*count);
                Ok(Outcome::ProducerIds { first, count: *count })
            }
            Command::InitCluster { .. } => unreachable!(),
        }
    }

    fn agrees_with(&self, view: &ClusterView) {
        assert_eq!(view.is_initialised(), self.initialised);
        let names: Vec<_> = view.topics_after("").map(|topic| &topic.name).collect();
        assert_eq!(names, self.topics.keys().collect::<Vec<_>>());
        for (name, model) in &self.topics {
            let topic = view.topic_by_name(name).expect("just listed");
            assert!(Arc::ptr_eq(topic, view.topic(TopicId(model.id)).expect("the model has it")));
            assert_eq!((topic.kind, topic.version), (model.kind, model.version));
            assert_eq!(topic.config.own_settings(), model.settings);
            assert_eq!(topic.partitions.iter().map(|partition| partition.group.0).collect::<Vec<_>>(), model.groups);
            topic
                .partitions
                .iter()
                .for_each(|partition| assert_eq!(view.assignment(partition.partition), Some(partition)));
        }
        let partitions: usize = self.topics.values().map(|topic| topic.groups.len()).sum();
        assert_eq!((view.partition_count(), view.assignments().count()), (partitions, partitions));
        for group in 0..=self.group_ids + 1 {
            assert_eq!(view.is_deleted(GroupId(group)), self.deleted_groups.contains(&group));
        }
        for topic in 0..=self.topic_ids + 1 {
            assert_eq!(view.deleted_topics().contains(topic), self.deleted_topics.contains(&topic));
        }
    }
}

fn full_name(name: &str) -> Result<String, ErrorKind> {
    let (_, full) = NAMES.iter().find(|(short, _)| *short == name).expect("names come from the list");
    full.map(str::to_string).ok_or(ErrorKind::InvalidName)
}

fn altered(
    kind: TopicKind,
    name: &str,
    settings: &BTreeMap<String, String>,
    set: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ErrorKind> {
    let mut settings = settings.clone();
    for (key, value) in set {
        let known = SETTINGS.iter().find(|(name, text, _)| name == key && text == value);
        let known = known.expect("settings come from the list");
        let foreign = key == "dead_letter" && !name.starts_with("default/");
        if !known.2.contains(&kind) || foreign {
            return Err(ErrorKind::InvalidSetting);
        }
        if value.is_empty() {
            settings.remove(key)
        } else {
            settings.insert(key.clone(), value.clone())
        };
    }
    Ok(settings)
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![4 => 0..5_usize, 1 => 0..NAMES.len()].prop_map(|pick| NAMES[pick].0.to_string())
}

fn settings() -> impl Strategy<Value = BTreeMap<String, String>> {
    let one = (0..SETTINGS.len()).prop_map(|pick| (SETTINGS[pick].0.to_string(), SETTINGS[pick].1.to_string()));
    proptest::collection::vec(one, 0..3).prop_map(|list| list.into_iter().collect())
}

fn placements() -> impl Strategy<Value = (u32, u32, Vec<Vec<NodeId>>)> {
    let good = (1..4_u32).prop_map(|count| (count, 1, vec![vec![NodeId(1)]; count as usize]));
    let node = (0..3_u32).prop_map(NodeId);
    let any = (0..3_u32, 0..3_u32, proptest::collection::vec(proptest::collection::vec(node, 0..3), 0..3));
    prop_oneof![5 => good, 1 => any]
}

fn commands() -> impl Strategy<Value = Command> {
    let time = WallMs(1_700_000_000_000);
    let kind = prop_oneof![Just(TopicKind::Stream), Just(TopicKind::Queue), Just(TopicKind::Cache)];
    let create = (names(), kind, placements(), settings()).prop_map(move |(name, kind, placed, settings)| {
        let (partitions, replication_factor, placement) = placed;
        Command::CreateTopic { name, kind, partitions, replication_factor, settings, placement, time }
    });
    let alter = (names(), settings(), proptest::option::of(0..80_u64))
        .prop_map(move |(name, set, if_version)| Command::AlterTopic { name, set, if_version, time });
    let count = prop_oneof![Just(0), Just(1), Just(65_536), Just(65_537), 1..1000_u32];
    prop_oneof![
        1 => Just(Command::InitCluster { cluster_id: Uid([3; 16]), node: NodeId(1), time }),
        6 => create,
        4 => alter,
        4 => names().prop_map(move |name| Command::DeleteTopic { name, time }),
        2 => count.prop_map(move |count| Command::AllocateProducerIds { count, time }),
    ]
}

proptest! {
    #[test]
    fn every_log_does_what_the_plain_catalog_does(
        steps in proptest::collection::vec((commands(), 1..3_u64, proptest::bool::weighted(0.1)), 1..60),
    ) {
        let mut model = Model::default();
        let (mut catalog, mut unbroken) = (Catalog::default(), Catalog::default());
        let mut index = 1;
        let init = Command::InitCluster { cluster_id: Uid([3; 16]), node: NodeId(1), time: WallMs(1) };
        let start = [(init, 1, false)];
        let late_start = matches!(steps[0].0, Command::DeleteTopic { .. });
        for (command, gap, restart) in start.into_iter().skip(late_start.into()).chain(steps) {
            index += gap;
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command.clone()));
            let before = catalog.view();
            let outcome = catalog.apply(LogIndex(index), &command).map_err(|error| error.kind);
            prop_assert_eq!(&outcome, &model.apply(index, &command), "{:?}", command);
            prop_assert_eq!(unbroken.apply(LogIndex(index), &command).map_err(|error| error.kind), outcome);
            let after = catalog.view();
            prop_assert_eq!(catalog.applied(), LogIndex(index));
            match outcome {
                Ok(_) => prop_assert_eq!(catalog.version(), index),
                Err(_) => prop_assert_eq!(&after, &before),
            }
            model.agrees_with(&after);
            for topic in before.topics() {
                let same = after.topic(topic.id).filter(|later| later.version == topic.version);
                prop_assert!(same.is_none_or(|later| Arc::ptr_eq(topic, later)));
            }
            if restart {
                let bytes = catalog.snapshot();
                catalog = Catalog::restore(&bytes).unwrap();
                prop_assert_eq!(catalog.snapshot(), bytes);
            }
        }
        prop_assert_eq!(catalog.snapshot(), unbroken.snapshot());
        prop_assert!(catalog == unbroken);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(command) = Command::decode(&bytes) {
            let _ = Catalog::default().apply(LogIndex(1), &command);
        }
        let _ = Catalog::restore(&bytes);
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_still_a_sound_catalog(
        steps in proptest::collection::vec(commands(), 1..20),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        more in proptest::collection::vec(commands(), 1..10),
    ) {
        let mut catalog = Catalog::default();
        let init = Command::InitCluster { cluster_id: Uid([3; 16]), node: NodeId(1), time: WallMs(1) };
        for (index, command) in (1..).zip([init].iter().chain(&steps)) {
            let _ = catalog.apply(LogIndex(index), command);
        }
        let mut bytes = catalog.snapshot().to_vec();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(mut catalog) = Catalog::restore(&bytes) {
            let first = catalog.applied().0.saturating_add(1);
            for (index, command) in (first..u64::MAX).zip(&more) {
                let _ = catalog.apply(LogIndex(index), command);
            }
            let bytes = catalog.snapshot();
            prop_assert_eq!(Catalog::restore(&bytes).map(|restored| restored.snapshot()), Ok(bytes));
        }
    }
}
