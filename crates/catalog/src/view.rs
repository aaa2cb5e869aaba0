//! What a node knows of the cluster: one immutable value, swapped whole.
//!
//! Cheap to clone: everything big is behind an `Arc`, and two views share every topic that did not change between them.
//! Shards read it without a lock. The catalog works on the same structure, which is why only it can change one.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lockgate_wire::{Generation, GroupId, NodeId, PartitionId, ReplicaId, TopicId, Uid, WallMs};

use crate::{IdRanges, TopicConfig, TopicKind};

/// The cluster at one position of the metadata log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClusterView {
    /// The log index of the last command that changed anything; 0 before the first.
    pub version: u64,
    /// The cluster's identity; all zeros before the cluster is initialised.
    pub cluster_id: Uid,
    /// Every node of the cluster.
    pub nodes: Arc<BTreeMap<NodeId, NodeView>>,
    topics: Arc<BTreeMap<TopicId, Arc<TopicView>>>,
    names: Arc<BTreeMap<Arc<str>, TopicId>>,
    partitions: usize,
    pub(crate) deleted_topics: Arc<IdRanges>,
    pub(crate) deleted_groups: Arc<IdRanges>,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// When it was first registered.
    pub registered: WallMs,
}

/// A topic as it was at some version of the catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicView {
    /// Its id, never reused.
    pub id: TopicId,
    /// Its full name, `tenant/namespace/topic`.
    pub name: String,
    /// What it is.
    pub kind: TopicKind,
    /// Its settings.
    pub config: TopicConfig,
    /// Grows when partitions are added; a publish names the version that it was partitioned under.
    pub partitioning_version: u32,
    /// The log index of the last command that changed the topic: for compare-and-set.
    pub version: u64,
    /// How many replicas a partition is meant to have.
    pub replication_factor: u32,
    /// When it was created.
    pub created: WallMs,
    /// Where its partitions are, by partition number.
    pub partitions: Vec<Arc<Assignment>>,
}

/// Where one partition's replicas are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The partition.
    pub partition: PartitionId,
    /// Its Raft group, never reused.
    pub group: GroupId,
    /// Grows by every change of this assignment; 1 is the one that created the partition.
    pub generation: Generation,
    /// The replicas; at least one, on different nodes.
    pub replicas: Vec<ReplicaPlacement>,
    /// The replica's node that should lead when it can.
    pub preferred_leader: NodeId,
}

/// One replica of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaPlacement {
    /// The node that holds it.
    pub node: NodeId,
    /// Its id inside Raft, never reused.
    pub replica: ReplicaId,
}

impl Assignment {
    /// The replica on this node, if it holds one.
    pub fn replica_on(&self, node: NodeId) -> Option<ReplicaId> {
        self.replicas.iter().find(|replica| replica.node == node).map(|replica| replica.replica)
    }
}

impl ClusterView {
    /// Whether the cluster has its identity and its first node. Until then nothing else can be created.
    pub fn is_initialised(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The topic with this id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<TopicView>> {
        self.topics.get(&id)
    }

    /// The topic with this full name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<TopicView>> {
        self.topic(*self.names.get(name)?)
    }

    /// Every topic, by id.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<TopicView>> {
        self.topics.values()
    }

    /// The topics whose full names come after `name`, in the order of their names.
    pub fn topics_after(&self, name: &str) -> impl Iterator<Item = &Arc<TopicView>> {
        let range = self.names.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
        range.map(|(_, id)| &self.topics[id])
    }

    /// Every partition of every topic, by topic id and number.
    pub fn assignments(&self) -> impl Iterator<Item = &Arc<Assignment>> {
        self.topics.values().flat_map(|topic| &topic.partitions)
    }

    /// Where this partition is.
    pub fn assignment(&self, partition: PartitionId) -> Option<&Arc<Assignment>> {
        self.topic(partition.topic)?.partitions.get(partition.partition as usize)
    }

    /// How many partitions all topics have together.
    pub fn partition_count(&self) -> usize {
        self.partitions
    }

    /// Whether the group was deleted by a committed command. Its data may be removed then, and only then: a group that is
    /// merely unknown to this view must be kept.
    pub fn is_deleted(&self, group: GroupId) -> bool {
        self.deleted_groups.contains(group.0)
    }

    /// The ids of every topic that was ever deleted.
    pub fn deleted_topics(&self) -> &IdRanges {
        &self.deleted_topics
    }

    /// Puts a topic in, or in the place of its former version.
    pub(crate) fn put_topic(&mut self, topic: TopicView) {
        let (id, name, added) = (topic.id, Arc::from(topic.name.as_str()), topic.partitions.len());
        match Arc::make_mut(&mut self.topics).insert(id, Arc::new(topic)) {
            Some(former) => self.partitions -= former.partitions.len(),
            None => {
                let taken = Arc::make_mut(&mut self.names).insert(name, id);
                assert!(taken.is_none(), "topic {id} takes the name of another one");
            }
        }
        self.partitions += added;
    }

    /// Takes a topic out and leaves its tombstones.
    pub(crate) fn delete_topic(&mut self, id: TopicId) {
        let topic = Arc::make_mut(&mut self.topics).remove(&id).expect("only a topic that was looked up is deleted");
        Arc::make_mut(&mut self.names).remove(topic.name.as_str());
        Arc::make_mut(&mut self.deleted_topics).insert(id.0);
        let groups = Arc::make_mut(&mut self.deleted_groups);
        topic.partitions.iter().for_each(|partition| groups.insert(partition.group.0));
        self.partitions -= topic.partitions.len();
    }
}
