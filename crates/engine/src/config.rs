//! What a shard is told once, when it starts.

use lockgate_catalog::settings::TopicLimits;
use lockgate_storage::disk::Path;
use lockgate_storage::journal::{JournalConfig, JournalIdentity, JournalKind};
use lockgate_wire::{NodeId, PartitionId, ShardId, Uid};

use crate::limits::Limits;

/// What all shards of a node share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// This node.
    pub node: NodeId,
    /// The cluster it belongs to.
    pub cluster: Uid,
    /// How many shards the node has, 1 or more.
    pub shards: u16,
    /// Which of the sets of journals that the node has had is its own: grows with every change of the shard count.
    pub journals: u32,
    /// Grows at every start.
    pub incarnation: u64,
    /// Journal sizes.
    pub journal: JournalSettings,
    /// How segments are read again.
    pub scrub: ScrubSettings,
    /// The bounds.
    pub limits: Limits,
    /// Client addresses told in topology; empty: clients stay where they are.
    pub advertise: Vec<String>,
    /// The build's version, for Hello.
    pub version: String,
}

/// Sizes of a shard's two journals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalSettings {
    /// Size of a journal file.
    pub file_bytes: u64,
    /// Largest single write.
    pub max_write_bytes: u32,
    /// Most bytes of each journal. At the bound publishes are refused until older files can go.
    pub max_bytes: u64,
    /// From so many bytes on, what a write brings for one partition with `fsync = always` goes straight into its segments.
    pub external_min_bytes: u64,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self { file_bytes: 64 << 20, max_write_bytes: 4 << 20, max_bytes: 1 << 30, external_min_bytes: 256 << 10 }
    }
}

/// How sealed segments are read again in the background, so that damage is found before a reader comes to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubSettings {
    /// Most bytes of a shard that are read in a second; 0: nothing is.
    pub bytes_per_second: u64,
    /// How long it rests between the end of a pass and the beginning of the next. The first begins with the start.
    pub every_ms: u64,
}

impl Default for ScrubSettings {
    fn default() -> Self {
        Self { bytes_per_second: 4 << 20, every_ms: 7 * 24 * 3_600_000 }
    }
}

/// The directory of the catalog's checkpoints.
pub(crate) const METADATA_DIRECTORY: &str = "metadata";
/// The directory of the shards' journals; those of later sets have a number behind it.
const SHARDS_DIRECTORY: &str = "shards";
/// The directory that holds a directory for each partition.
pub(crate) const PARTITIONS_DIRECTORY: &str = "partitions";

impl NodeConfig {
    /// The largest batch that this node's frames and journal can carry, whatever a topic allows.
    pub(crate) fn topic_limits(&self) -> TopicLimits {
        TopicLimits {
            max_frame_bytes: self.limits.max_frame_bytes.into(),
            journal_max_write_bytes: self.journal.max_write_bytes.into(),
        }
    }

    /// The directory of all shards' journals.
    pub(crate) fn journals_directory(&self) -> Path {
        match self.journals {
            0 => SHARDS_DIRECTORY.into(),
            later => format!("{SHARDS_DIRECTORY}-{later}").into(),
        }
    }

    /// The configuration of one journal of a shard.
    pub fn journal(&self, shard: ShardId, kind: JournalKind) -> JournalConfig {
        let name = match kind {
            JournalKind::Synced => "journal",
            JournalKind::Buffered => "buffered",
        };
        let identity = JournalIdentity { cluster: self.cluster, node: self.node, shard };
        let directory = format!("{}/{shard}/{name}", self.journals_directory());
        let mut config = JournalConfig::new(kind, directory, identity);
        config.file_bytes = self.journal.file_bytes;
        config.max_write_bytes = self.journal.max_write_bytes;
        config.max_bytes = self.journal.max_bytes;
        if kind == JournalKind::Synced {
            config.external_min_bytes = self.journal.external_min_bytes;
        }
        config
    }
}

/// Whether a name in the data directory is that of a set of journals.
pub(crate) fn is_journals_directory(name: &str) -> bool {
    match name.strip_prefix(SHARDS_DIRECTORY) {
        Some("") => true,
        Some(rest) => rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok()),
        None => false,
    }
}

/// The directory of a partition's segments and checkpoints.
pub(crate) fn partition_directory(partition: PartitionId) -> Path {
    format!("{PARTITIONS_DIRECTORY}/{partition}").into()
}

/// The partition whose directory has this name, if it is one.
pub(crate) fn partition_of_directory(name: &str) -> Option<PartitionId> {
    let (topic, partition) = name.split_once('-')?;
    Some(PartitionId { topic: topic.parse::<u64>().ok()?.into(), partition: partition.parse().ok()? })
}
