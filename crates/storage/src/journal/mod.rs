//! The journal: everything of a shard that must be durable before somebody is answered. One write, one sync, for all
//! groups that wait.
//!
//! Two journals per shard, same format: the *synced* one, whose writes are durable when they are finished, and the
//! *buffered* one for topics with `fsync = interval`. [`JournalWriter`] collects records and plans writes; somebody else
//! carries them out ([`JournalWrite::execute`] gives the meaning) and reports back. [`recover`] reads a journal before the
//! shard starts and decides what counts.
//!
//! Lives on its shard's thread. Bodies have no meaning here: consensus gives them one.

mod config;
mod external;
mod files;
mod format;
pub mod inspect;
mod layout;
mod outcome;
mod recovery;
mod write;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;

use bytes::Bytes;
use lockgate_wire::{GroupId, NodeId, ReplicaId, ShardId, Uid};

pub use config::{ConfigError, JournalConfig};
pub use files::Purpose;
pub use format::{BLOCK_BYTES, FORMAT_VERSION, RECORD_HEADER_BYTES, WRITE_HEADER_BYTES};
pub use layout::DueRecord;
pub use outcome::{AppendRefused, JournalCounters, Poison};
pub use recovery::{Cut, Damage, Doubts, Lost, Position, Recovered, RecoveredRecord, RecoveryError, recover};
pub use write::{DataWrite, JournalWrite, OpenFile};
pub use writer::JournalWriter;

/// A record's number in its journal: previous + 1, over files and restarts, from 1. 0 stands for "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sequence(pub u64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which of a shard's two journals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum JournalKind {
    /// Finished writes are durable.
    Synced,
    /// Finished writes are with the operating system; a sync follows now and then.
    Buffered,
}

/// What a record is, for whoever wrote it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum RecordKind {
    /// A replica's beginning.
    Bootstrap = 1,
    /// A log entry.
    Entry = 2,
    /// Term, vote, commit.
    HardState = 3,
    /// An applied configuration.
    Configuration = 4,
    /// The log ends here; what followed is void.
    Truncate = 5,
    /// A snapshot was installed.
    SnapshotMark = 6,
    /// A checkpoint covers the log up to here.
    CheckpointMark = 7,
    /// A log entry whose data is in the segments of its partition, written ahead of the record.
    ExternalEntry = 8,
    /// The replica is gone for good.
    Removed = 9,
    /// An operator gave up what the replica may have lost before: from here on its records count on. In the synced journal it
    /// says what the replica's log is.
    Accepted = 10,
}

/// A record to be appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft {
    /// The group it belongs to.
    pub group: GroupId,
    /// The group's replica on this shard.
    pub replica: ReplicaId,
    /// What it is.
    pub kind: RecordKind,
    /// The body, in pieces that are written one after another and never copied.
    pub body: Vec<Bytes>,
}

/// Whose journal it is. A journal of another cluster, node or shard is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalIdentity {
    /// The cluster.
    pub cluster: Uid,
    /// The node.
    pub node: NodeId,
    /// The shard.
    pub shard: ShardId,
}

impl fmt::Display for JournalIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {} node {} shard {}", self.cluster, self.node, self.shard)
    }
}

impl fmt::Display for JournalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Synced => "synced",
            Self::Buffered => "buffered",
        })
    }
}

/// A shard's two journals.
#[derive(Debug)]
pub struct Journals {
    /// For everything that must survive the machine.
    pub synced: JournalWriter,
    /// For entries of topics with `fsync = interval`.
    pub buffered: JournalWriter,
}

impl Journals {
    /// The journal of this kind.
    pub fn get(&self, kind: JournalKind) -> &JournalWriter {
        match kind {
            JournalKind::Synced => &self.synced,
            JournalKind::Buffered => &self.buffered,
        }
    }

    /// The journal of this kind.
    pub fn get_mut(&mut self, kind: JournalKind) -> &mut JournalWriter {
        match kind {
            JournalKind::Synced => &mut self.synced,
            JournalKind::Buffered => &mut self.buffered,
        }
    }
}
