//! The commands of the metadata log, and their stored form.
//!
//! A command is complete: it carries its time and every decision that was made for it (the placement). It is written to
//! the log before it is checked, so whoever applies it trusts nothing in it. A stored field is never given another
//! meaning; a new command is a new tag, which an older build refuses to read.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_wire::{NodeId, Uid, WallMs};
use prost::Message;

use crate::{CatalogError, TopicKind};

/// A change of the cluster's metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The first command of every cluster: its identity and its first node.
    InitCluster {
        /// The cluster's identity, drawn by the node that starts it.
        cluster_id: Uid,
        /// The first node.
        node: NodeId,
        /// When it was decided.
        time: WallMs,
    },
    /// Makes a topic with its partitions.
    CreateTopic {
        /// The name; short forms are completed while applying.
        name: String,
        /// What it is.
        kind: TopicKind,
        /// How many partitions.
        partitions: u32,
        /// How many replicas each has.
        replication_factor: u32,
        /// What differs from the defaults.
        settings: BTreeMap<String, String>,
        /// The nodes of each partition, the preferred leader first.
        placement: Vec<Vec<NodeId>>,
        /// When it was decided.
        time: WallMs,
    },
    /// Changes a topic's settings; an empty value is the default again.
    AlterTopic {
        /// The name.
        name: String,
        /// The settings to change.
        set: BTreeMap<String, String>,
        /// Change only if the topic still has this version.
        if_version: Option<u64>,
        /// When it was decided.
        time: WallMs,
    },
    /// Deletes a topic and all its partitions, for good.
    DeleteTopic {
        /// The name.
        name: String,
        /// When it was decided.
        time: WallMs,
    },
    /// Takes a block of producer ids out of the cluster's stock.
    AllocateProducerIds {
        /// How many.
        count: u32,
        /// When it was decided.
        time: WallMs,
    },
}

impl Command {
    /// When the command was decided, by the wall clock of who decided.
    pub fn time(&self) -> WallMs {
        match self {
            Self::InitCluster { time, .. }
            | Self::CreateTopic { time, .. }
            | Self::AlterTopic { time, .. }
            | Self::DeleteTopic { time, .. }
            | Self::AllocateProducerIds { time, .. } => *time,
        }
    }

    /// The bytes for the log; the same command gives the same bytes.
    pub fn encode(&self) -> Bytes {
        let change = match self.clone() {
            Self::InitCluster { cluster_id, node, .. } => {
                Change::InitCluster(InitCluster { cluster_id: cluster_id.0.to_vec(), node: node.0 })
            }
            Self::CreateTopic { name, kind, partitions, replication_factor, settings, placement, .. } => {
                let placement = placement.into_iter().map(Nodes::from).collect();
                let kind = kind as i32;
                Change::CreateTopic(CreateTopic { name, kind, partitions, replication_factor, settings, placement })
            }
            Self::AlterTopic { name, set, if_version, .. } => Change::AlterTopic(AlterTopic { name, set, if_version }),
            Self::DeleteTopic { name, .. } => Change::DeleteTopic(DeleteTopic { name }),
            Self::AllocateProducerIds { count, .. } => Change::AllocateProducerIds(AllocateProducerIds { count }),
        };
        StoredCommand { time: self.time().0, change: Some(change) }.encode_to_vec().into()
    }

    /// Reads a command from the log. Whether it can be applied is for the catalog to say.
    pub fn decode(bytes: &[u8]) -> Result<Self, CatalogError> {
        let StoredCommand { time, change } = StoredCommand::decode(bytes)?;
        let time = WallMs(time);
        Ok(match change.ok_or(CatalogError::UnknownCommand)? {
            Change::InitCluster(InitCluster { cluster_id, node }) => {
                Self::InitCluster { cluster_id: uid(&cluster_id)?, node: NodeId(node), time }
            }
            Change::CreateTopic(CreateTopic { name, kind, partitions, replication_factor, settings, placement }) => {
                let placement = placement.into_iter().map(Vec::from).collect();
                let kind = topic_kind(kind)?;
                Self::CreateTopic { name, kind, partitions, replication_factor, settings, placement, time }
            }
            Change::AlterTopic(AlterTopic { name, set, if_version }) => {
                Self::AlterTopic { name, set, if_version, time }
            }
            Change::DeleteTopic(DeleteTopic { name }) => Self::DeleteTopic { name, time },
            Change::AllocateProducerIds(AllocateProducerIds { count }) => Self::AllocateProducerIds { count, time },
        })
    }
}

/// A stored cluster id.
pub(crate) fn uid(bytes: &[u8]) -> Result<Uid, CatalogError> {
    bytes
        .try_into()
        .map(Uid)
        .map_err(|_| CatalogError::invalid("cluster id", format_args!("{} bytes instead of 16", bytes.len())))
}

/// A stored topic kind.
pub(crate) fn topic_kind(number: i32) -> Result<TopicKind, CatalogError> {
    TopicKind::try_from(number).map_err(|_| CatalogError::invalid("topic kind", number))
}

#[derive(Clone, PartialEq, Message)]
struct StoredCommand {
    #[prost(int64, tag = "1")]
    time: i64,
    #[prost(oneof = "Change", tags = "2, 3, 4, 5, 6")]
    change: Option<Change>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Change {
    #[prost(message, tag = "2")]
    InitCluster(InitCluster),
    #[prost(message, tag = "3")]
    CreateTopic(CreateTopic),
    #[prost(message, tag = "4")]
    AlterTopic(AlterTopic),
    #[prost(message, tag = "5")]
    DeleteTopic(DeleteTopic),
    #[prost(message, tag = "6")]
    AllocateProducerIds(AllocateProducerIds),
}

#[derive(Clone, PartialEq, Message)]
struct InitCluster {
    #[prost(bytes = "vec", tag = "1")]
    cluster_id: Vec<u8>,
    #[prost(uint32, tag = "2")]
    node: u32,
}

#[derive(Clone, PartialEq, Message)]
struct CreateTopic {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(uint32, tag = "3")]
    partitions: u32,
    #[prost(uint32, tag = "4")]
    replication_factor: u32,
    #[prost(btree_map = "string, string", tag = "5")]
    settings: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "6")]
    placement: Vec<Nodes>,
}

#[derive(Clone, PartialEq, Message)]
struct Nodes {
    #[prost(uint32, repeated, tag = "1")]
    nodes: Vec<u32>,
}

impl From<Vec<NodeId>> for Nodes {
    fn from(nodes: Vec<NodeId>) -> Self {
        Self { nodes: nodes.into_iter().map(|node| node.0).collect() }
    }
}

impl From<Nodes> for Vec<NodeId> {
    fn from(stored: Nodes) -> Self {
        stored.nodes.into_iter().map(NodeId).collect()
    }
}

#[derive(Clone, PartialEq, Message)]
struct AlterTopic {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    set: BTreeMap<String, String>,
    #[prost(uint64, optional, tag = "3")]
    if_version: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteTopic {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct AllocateProducerIds {
    #[prost(uint32, tag = "1")]
    count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_of_a_command_does_not_change() {
        let command = Command::CreateTopic {
            name: "a".into(),
            kind: TopicKind::Queue,
            partitions: 1,
            replication_factor: 2,
            settings: [("fsync".to_string(), "always".to_string())].into(),
            placement: vec![vec![NodeId(1), NodeId(300)]],
            time: WallMs(5),
        };
        let expected = b"\x08\x05\x1a\x21\x0a\x01a\x10\x01\x18\x01\x20\x02\x2a\x0f\x0a\x05fsync\x12\x06always\x32\x05\x0a\x03\x01\xac\x02";
        assert_eq!(&command.encode()[..], expected);
        assert_eq!(Command::decode(expected), Ok(command));
    }

    #[test]
    fn a_command_of_another_build_is_refused_and_says_so() {
        assert_eq!(Command::decode(b"\x08\x05"), Err(CatalogError::UnknownCommand));
        assert_eq!(Command::decode(b"\xba\x01\x00"), Err(CatalogError::UnknownCommand));
        assert!(matches!(Command::decode(b"\x08"), Err(CatalogError::Malformed(_))));
        let seven = b"\x1a\x02\x10\x07";
        assert_eq!(Command::decode(seven), Err(CatalogError::invalid("topic kind", 7)));
        let short_id = b"\x12\x03\x0a\x01\x01";
        assert_eq!(Command::decode(short_id), Err(CatalogError::invalid("cluster id", "1 bytes instead of 16")));
    }
}
