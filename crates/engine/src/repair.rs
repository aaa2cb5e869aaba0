//! Giving up what a damaged journal has lost: every replica that a start refuses for it goes on with what is left, durably.
//!
//! Straight-line code, run while no shard runs, at an operator's word. On a disk that keeps its changes to itself it tells
//! what it would do. What is left of a replica is its files and the entries that follow them without a hole; that becomes
//! its log, in a new term, so that nothing else of it counts. A record that says so ends the doubt at every later start.

use std::fmt;

use lockgate_catalog::settings::SEGMENT_BYTES_DEFAULT;
use lockgate_consensus::{Base, RecoveredGroup, SuspectGroup};
use lockgate_storage::checkpoint;
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_storage::journal::{AppendRefused, Draft, JournalKind, RecordKind, Sequence};
use lockgate_storage::segment::{Limit, Segments};
use lockgate_wire::{GroupId, LogIndex, Offset, PartitionId, ShardId};

use crate::config::{METADATA_DIRECTORY, NodeConfig, partition_directory};
use crate::controller::METADATA_GROUP;
use crate::offline::{OfflineJournal, WriteError};
use crate::recovery::{RecoveryError, Tag, read_journals, segment_config};

/// A replica that a start refuses, as the journal may have lost something of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Repair {
    /// Which.
    pub of: Subject,
    /// What is damaged.
    pub damage: String,
    /// What is kept of it and what is given up; or why it cannot go on.
    pub outcome: Result<Kept, String>,
}

/// Whom a repair concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The topics and settings of the node.
    Catalog,
    /// A partition.
    Partition(PartitionId),
    /// A partition of which not even the number is left.
    Group(GroupId),
}

/// What is left of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The last entry of its log that is kept.
    pub up_to: LogIndex,
    /// Entries that are there and do not follow it: they are given up, with all that nobody knows of.
    pub given_up: u64,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog => f.write_str("the catalog"),
            Self::Partition(id) => write!(f, "partition {id}"),
            Self::Group(group) => write!(f, "the partition of group {group}"),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keeps its log up to entry {}, and gives up what was lost", self.up_to)?;
        match self.given_up {
            0 => Ok(()),
            count => write!(f, " and {count} entries that are there behind it"),
        }
    }
}

/// Why nothing was repaired.
#[derive(Clone, PartialEq, Debug)]
pub enum RepairError {
    /// The journals cannot be read at all.
    Recovery(RecoveryError),
    /// The journal does not take a record: one of its settings is smaller than it was.
    Append(AppendRefused),
    /// The disk failed, or is full.
    Disk(DiskError),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovery(error) => error.fmt(f),
            Self::Append(error) => error.fmt(f),
            Self::Disk(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for RepairError {}

impl<E: Into<RecoveryError>> From<E> for RepairError {
    fn from(error: E) -> Self {
        Self::Recovery(error.into())
    }
}

impl From<WriteError> for RepairError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Append(error) => Self::Append(error),
            WriteError::Disk(error) => Self::Disk(error),
        }
    }
}

/// Repairs what a start would refuse of a shard because its journals are damaged. Gives every replica that is concerned;
/// those that cannot go on are left as they are.
pub fn repair(disk: &dyn Disk, node: &NodeConfig, shard: ShardId) -> Result<Vec<Repair>, RepairError> {
    let mut read = read_journals(disk, node, shard)?;
    let suspects = read.take_suspects();
    let mut repairs = Vec::new();
    let before = [&read.synced, &read.buffered].map(|recovered| Sequence(recovered.position.next_sequence().0 - 1));
    let (synced, buffered) = (read.synced.position.clone(), read.buffered.position.clone());
    let mut synced = OfflineJournal::open(disk, node, shard, JournalKind::Synced, synced)?;
    let mut buffered = OfflineJournal::open(disk, node, shard, JournalKind::Buffered, buffered)?;
    for SuspectGroup { group, replica, left } in suspects {
        let tag = left.as_ref().and_then(|left| Tag::decode(left.tag.clone()));
        let of = match tag {
            _ if group == METADATA_GROUP => Subject::Catalog,
            Some(tag) => Subject::Partition(tag.partition),
            None => Subject::Group(group),
        };
        let damage = read.damage().to_string();
        let outcome = match left {
            Some(left) => plan(disk, of, &left)?.map(|plan| (plan, left)),
            None => Err("nothing is left of it in the journal".to_owned()),
        };
        let outcome = match outcome {
            Err(why) => Err(why),
            Ok(((base, kept), left)) => {
                if read.buffered.doubts.is_suspect(group) && left.is_marked() {
                    buffered.append(Draft { group, replica, kind: RecordKind::Accepted, body: Vec::new() })?;
                }
                left.into_repair(base, kept.up_to).try_for_each(|draft| synced.append(draft))?;
                Ok(kept)
            }
        };
        repairs.push(Repair { of, damage, outcome });
    }
    // What is left is written before the last doubt ends: cut between the two, the next start still refuses the group.
    let [before_synced, before_buffered] = before;
    synced.end(before_synced)?;
    buffered.end(before_buffered)?;
    Ok(repairs)
}

/// What is left of a replica: up to where its files have everything, and the last entry that follows without a hole.
fn plan(disk: &dyn Disk, of: Subject, left: &RecoveredGroup) -> Result<Result<(Base, Kept), String>, RecoveryError> {
    let (checkpoint, segments_end) = match of {
        Subject::Partition(id) => match segments_end_of(disk, id, Limit::None) {
            Ok(end) => (newest(disk, &partition_directory(id))?, Some(end)),
            Err(why) => return Ok(Err(why)),
        },
        Subject::Catalog | Subject::Group(_) => (newest(disk, METADATA_DIRECTORY)?, None),
    };
    let nothing = Base::default();
    let at_checkpoint = checkpoint.unwrap_or(nothing);
    // Replay begins where the one ends that is further behind, with its last entry again, unless both end at one place.
    let from = match segments_end {
        Some(end) if end != at_checkpoint.index => at_checkpoint.index.min(LogIndex(end.0.saturating_sub(1))),
        _ => at_checkpoint.index,
    };
    let from = from.max(nothing.index);
    let base = if from == nothing.index {
        nothing
    } else if from == at_checkpoint.index {
        at_checkpoint
    } else {
        match left.entries.iter().find(|entry| entry.index == from) {
            Some(entry) => Base { index: from, term: entry.term, next_offset: Offset(0) },
            None => return Ok(Err(format!("entry {from} is lost, from where its files would be completed"))),
        }
    };
    let mut up_to = from;
    let mut given_up = 0;
    for entry in left.entries.iter().filter(|entry| entry.index > from) {
        if entry.index.0 == up_to.0 + 1 { up_to = entry.index } else { given_up += 1 }
    }
    if up_to < at_checkpoint.index {
        let index = at_checkpoint.index;
        return Ok(Err(format!(
            "its checkpoint is of entry {index}, and what follows entry {up_to} in the journal is lost"
        )));
    }
    // What the segments have beyond that goes too: there is no entry for it any more.
    if let Subject::Partition(id) = of
        && segments_end.is_some_and(|end| end > up_to)
    {
        match segments_end_of(disk, id, Limit::UpTo(up_to)) {
            Ok(end) if end <= up_to => {}
            Ok(end) => {
                return Ok(Err(format!("its segments go up to entry {end}, and what follows entry {up_to} is lost")));
            }
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok((base, Kept { up_to, given_up })))
}

/// The last entry of a partition's segments, once they are cut.
fn segments_end_of(disk: &dyn Disk, id: PartitionId, cut: Limit) -> Result<LogIndex, String> {
    let opened = Segments::open(disk, segment_config(id, SEGMENT_BYTES_DEFAULT), cut);
    let (segments, _) = opened.map_err(|error| format!("its segments cannot be opened: {error}"))?;
    Ok(segments.end_index().unwrap_or_default())
}

/// The newest checkpoint that can be used, as a base.
fn newest(disk: &dyn Disk, directory: &str) -> Result<Option<Base>, RecoveryError> {
    let loaded = match checkpoint::load_newest(disk, directory) {
        Err(error) if error.is_missing() => return Ok(None),
        loaded => loaded?,
    };
    Ok(loaded.checkpoint.map(|(header, _)| Base {
        index: header.index,
        term: header.term,
        next_offset: header.next_offset,
    }))
}
