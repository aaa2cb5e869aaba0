//! The whole catalog as bytes: the same state gives the same bytes, and the bytes give back the same state.
//!
//! What can be derived (indexes by name, counts, typed settings) is not stored. A snapshot is checked as if it came from
//! outside: a catalog that breaks its own rules must not come to life.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use lockgate_wire::name::TopicName;
use lockgate_wire::{Generation, GroupId, LogIndex, NodeId, PartitionId, ReplicaId, TopicId, Uid, WallMs};
use prost::Message;

use crate::command::{topic_kind, uid};
use crate::ids::Ids;
use crate::limits::MAX_ID;
use crate::settings::{self, TopicLimits};
use crate::{Assignment, Catalog, CatalogError, ClusterView, IdRanges, NodeView, ReplicaPlacement, TopicView};

/// The format that this build writes, and the only one that it reads.
const FORMAT: u32 = 1;

impl Catalog {
    /// The state as bytes.
    pub fn snapshot(&self) -> Bytes {
        let view = &self.view;
        let cluster_id = if view.is_initialised() { view.cluster_id.0.to_vec() } else { Vec::new() };
        let stored = StoredCatalog {
            format: FORMAT,
            applied: self.applied.0,
            version: view.version,
            cluster_id,
            nodes: view
                .nodes
                .iter()
                .map(|(node, view)| (node.0, StoredNode { registered: view.registered.0 }))
                .collect(),
            topics: view.topics().map(|topic| StoredTopic::from(&**topic)).collect(),
            deleted_topics: store_ranges(&view.deleted_topics),
            deleted_groups: store_ranges(&view.deleted_groups),
            topic_ids: self.ids.topics,
            group_ids: self.ids.groups,
            replica_ids: self.ids.replicas,
            producer_ids: self.ids.producers,
        };
        stored.encode_to_vec().into()
    }

    /// The state that these bytes were made from.
    pub fn restore(bytes: &[u8]) -> Result<Self, CatalogError> {
        let stored = StoredCatalog::decode(bytes)?;
        if stored.format != FORMAT {
            return Err(CatalogError::UnknownFormat { found: stored.format, supported: FORMAT });
        }
        if stored.version > stored.applied {
            return Err(CatalogError::invalid("version", format_args!("{} after {}", stored.version, stored.applied)));
        }
        let ids = stored.ids()?;
        let mut view = ClusterView::default();
        view.version = stored.version;
        view.cluster_id = stored.cluster_id()?;
        view.nodes = Arc::new(stored.nodes.iter().map(|(&node, stored)| (NodeId(node), stored.view())).collect());
        view.deleted_topics = Arc::new(restore_ranges("deleted topics", &stored.deleted_topics, ids.topics)?);
        view.deleted_groups = Arc::new(restore_ranges("deleted groups", &stored.deleted_groups, ids.groups)?);
        for topic in stored.topics {
            let topic = topic.restore(&view)?;
            if view.topic(topic.id).is_some() || view.topic_by_name(&topic.name).is_some() {
                return Err(CatalogError::invalid("topic", format_args!("{} is there twice", topic.name)));
            }
            view.put_topic(topic);
        }
        check_ids(&view, &ids)?;
        Ok(Self { view, applied: LogIndex(stored.applied), ids })
    }
}

/// Every id that was handed out either lives, once, or is deleted; replica ids are unique.
fn check_ids(view: &ClusterView, ids: &Ids) -> Result<(), CatalogError> {
    let dense = |live: BTreeSet<u64>, live_count: usize, deleted: &IdRanges, handed_out: u64| {
        let in_range = live.iter().all(|&id| (1..=handed_out).contains(&id) && !deleted.contains(id));
        live.len() == live_count && in_range && live.len() as u64 + deleted.count() == handed_out
    };
    let topics = view.topics().map(|topic| topic.id.0).collect();
    if !dense(topics, view.topics().len(), &view.deleted_topics, ids.topics) {
        return Err(CatalogError::invalid("topic ids", "live and deleted ones do not add up"));
    }
    let groups = view.assignments().map(|assignment| assignment.group.0).collect();
    if !dense(groups, view.partition_count(), &view.deleted_groups, ids.groups) {
        return Err(CatalogError::invalid("group ids", "live and deleted ones do not add up"));
    }
    let mut seen = BTreeSet::new();
    let placed = view.assignments().flat_map(|assignment| &assignment.replicas);
    for ReplicaPlacement { replica, .. } in placed {
        if replica.0 == 0 || replica.0 > ids.replicas || !seen.insert(replica.0) {
            return Err(CatalogError::invalid("replica id", replica));
        }
    }
    Ok(())
}

#[derive(Clone, PartialEq, Message)]
struct StoredCatalog {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    applied: u64,
    #[prost(uint64, tag = "3")]
    version: u64,
    /// Empty before the cluster is initialised.
    #[prost(bytes = "vec", tag = "4")]
    cluster_id: Vec<u8>,
    #[prost(btree_map = "uint32, message", tag = "5")]
    nodes: BTreeMap<u32, StoredNode>,
    #[prost(message, repeated, tag = "6")]
    topics: Vec<StoredTopic>,
    #[prost(btree_map = "uint64, uint64", tag = "7")]
    deleted_topics: BTreeMap<u64, u64>,
    #[prost(btree_map = "uint64, uint64", tag = "8")]
    deleted_groups: BTreeMap<u64, u64>,
    #[prost(uint64, tag = "9")]
    topic_ids: u64,
    #[prost(uint64, tag = "10")]
    group_ids: u64,
    #[prost(uint64, tag = "11")]
    replica_ids: u64,
    #[prost(uint64, tag = "12")]
    producer_ids: u64,
}

impl StoredCatalog {
    fn ids(&self) -> Result<Ids, CatalogError> {
        let (topics, groups, replicas) = (self.topic_ids, self.group_ids, self.replica_ids);
        let ids = Ids { topics, groups, replicas, producers: self.producer_ids };
        match [topics, groups, replicas, self.producer_ids].into_iter().find(|&counter| counter > MAX_ID) {
            Some(counter) => Err(CatalogError::invalid("id counter", counter)),
            None => Ok(ids),
        }
    }

    /// All zeros before the cluster is initialised, and only then.
    fn cluster_id(&self) -> Result<Uid, CatalogError> {
        let id = if self.cluster_id.is_empty() { Uid::default() } else { uid(&self.cluster_id)? };
        if (id == Uid::default()) != self.nodes.is_empty() || self.nodes.contains_key(&0) {
            return Err(CatalogError::invalid("cluster id", format_args!("{id} with {} nodes", self.nodes.len())));
        }
        Ok(id)
    }
}

#[derive(Clone, PartialEq, Message)]
struct StoredNode {
    #[prost(int64, tag = "1")]
    registered: i64,
}

impl StoredNode {
    fn view(&self) -> NodeView {
        NodeView { registered: WallMs(self.registered) }
    }
}

#[derive(Clone, PartialEq, Message)]
struct StoredTopic {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(btree_map = "string, string", tag = "4")]
    settings: BTreeMap<String, String>,
    #[prost(uint32, tag = "5")]
    partitioning_version: u32,
    #[prost(uint64, tag = "6")]
    version: u64,
    #[prost(uint32, tag = "7")]
    replication_factor: u32,
    #[prost(int64, tag = "8")]
    created: i64,
    /// By partition number.
    #[prost(message, repeated, tag = "9")]
    partitions: Vec<StoredAssignment>,
}

impl From<&TopicView> for StoredTopic {
    fn from(topic: &TopicView) -> Self {
        Self {
            id: topic.id.0,
            name: topic.name.clone(),
            kind: topic.kind as i32,
            settings: topic.config.own_settings(),
            partitioning_version: topic.partitioning_version,
            version: topic.version,
            replication_factor: topic.replication_factor,
            created: topic.created.0,
            partitions: topic.partitions.iter().map(|assignment| StoredAssignment::from(&**assignment)).collect(),
        }
    }
}

impl StoredTopic {
    fn restore(self, view: &ClusterView) -> Result<TopicView, CatalogError> {
        let kind = topic_kind(self.kind)?;
        let full_name = TopicName::parse(&self.name).is_ok_and(|name| name.as_str() == self.name);
        if !full_name || self.version > view.version || self.partitions.is_empty() {
            return Err(CatalogError::invalid("topic", format_args!("{:?}, version {}", self.name, self.version)));
        }
        let config = settings::parse(kind, &self.settings, &TopicLimits::WIDEST)
            .map_err(|error| CatalogError::invalid("topic setting", error))?;
        let id = TopicId(self.id);
        let partitions = (0..).zip(self.partitions).map(|(partition, stored)| {
            let partition = PartitionId { topic: id, partition };
            stored.restore(partition, view).map(Arc::new)
        });
        Ok(TopicView {
            id,
            name: self.name,
            kind,
            config,
            partitioning_version: self.partitioning_version,
            version: self.version,
            replication_factor: self.replication_factor,
            created: WallMs(self.created),
            partitions: partitions.collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct StoredAssignment {
    #[prost(uint64, tag = "1")]
    group: u64,
    #[prost(uint64, tag = "2")]
    generation: u64,
    #[prost(message, repeated, tag = "3")]
    replicas: Vec<StoredReplica>,
    #[prost(uint32, tag = "4")]
    preferred_leader: u32,
}

#[derive(Clone, PartialEq, Message)]
struct StoredReplica {
    #[prost(uint32, tag = "1")]
    node: u32,
    #[prost(uint64, tag = "2")]
    replica: u64,
}

impl From<&Assignment> for StoredAssignment {
    fn from(assignment: &Assignment) -> Self {
        let stored = |placed: &ReplicaPlacement| StoredReplica { node: placed.node.0, replica: placed.replica.0 };
        Self {
            group: assignment.group.0,
            generation: assignment.generation.0,
            replicas: assignment.replicas.iter().map(stored).collect(),
            preferred_leader: assignment.preferred_leader.0,
        }
    }
}

impl StoredAssignment {
    fn restore(self, partition: PartitionId, view: &ClusterView) -> Result<Assignment, CatalogError> {
        let nodes: BTreeSet<u32> = self.replicas.iter().map(|placed| placed.node).collect();
        let known = nodes.iter().all(|&node| view.nodes.contains_key(&NodeId(node)));
        if nodes.len() != self.replicas.len() || !known || !nodes.contains(&self.preferred_leader) {
            return Err(CatalogError::invalid("assignment", format_args!("of partition {partition}")));
        }
        let placed =
            |stored: StoredReplica| ReplicaPlacement { node: NodeId(stored.node), replica: ReplicaId(stored.replica) };
        Ok(Assignment {
            partition,
            group: GroupId(self.group),
            generation: Generation(self.generation),
            replicas: self.replicas.into_iter().map(placed).collect(),
            preferred_leader: NodeId(self.preferred_leader),
        })
    }
}

fn store_ranges(ids: &IdRanges) -> BTreeMap<u64, u64> {
    ids.ranges().collect()
}

fn restore_ranges(field: &'static str, stored: &BTreeMap<u64, u64>, max: u64) -> Result<IdRanges, CatalogError> {
    let stored = stored.iter().map(|(&first, &last)| (first, last));
    IdRanges::from_ranges(stored, max)
        .ok_or_else(|| CatalogError::invalid(field, "ranges that overlap or leave the bounds"))
}
