//! Another number of shards: what the journals hold is written anew, every partition's part to the shard that has it from
//! now on.
//!
//! Straight-line code, run before the shards start. The new journals are made beside the old ones and count from the moment
//! at which the caller notes them durably as the node's, by replacing one file; until then the old ones do. What does not
//! count is removed, first by every start. So a crash at any point leaves one whole set. (storage.md, "Other shard count".)

use std::fmt;

use lockgate_consensus::{Base, RecoveredGroup};
use lockgate_storage::disk::{Disk, DiskError, DiskResult, Entry, FileOp};
use lockgate_storage::journal::{AppendRefused, JournalKind, Position, Sequence};
use lockgate_wire::{PartitionId, ShardId};

use crate::config::{NodeConfig, is_journals_directory, partition_directory};
use crate::controller::METADATA_SHARD;
use crate::offline::{OfflineJournal, WriteError};
use crate::recovery::{RecoveredFiles, RecoveredPartition, RecoveryError, Tag, recover};
use crate::route::shard_of;

impl From<WriteError> for MoveError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Append(error) => Self::Append(error),
            WriteError::Disk(error) => Self::Disk(error),
        }
    }
}

/// What was moved.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Replicas, the catalog's included.
    pub groups: u64,
    /// Records that were written for them.
    pub records: u64,
    /// Everything in the old journals that was not as an orderly stop leaves it, a line each.
    pub findings: Vec<String>,
}

/// Why nothing was moved. The old journals are as they were, and go on with the old number of shards.
#[derive(Clone, PartialEq, Debug)]
pub enum MoveError {
    /// A shard would not have started with the old number of shards either.
    Recovery(ShardId, RecoveryError),
    /// A partition would not have served. It is not moved as long as that is so: nobody should look for what it lost in
    /// files that somebody has made anew.
    Refused(PartitionId, RecoveryError),
    /// Its journal has lost something, of nobody knows whom: what tells of it has to stay.
    Damaged(ShardId),
    /// The new journals cannot hold something, as one of their settings is smaller than it was.
    Append(AppendRefused),
    /// The disk failed, or is full.
    Disk(DiskError),
}

impl MoveError {
    /// The disk's own error, if nothing is wrong but that.
    pub fn disk(&self) -> Option<&DiskError> {
        match self {
            Self::Recovery(_, error) | Self::Refused(_, error) => error.disk(),
            Self::Append(_) | Self::Damaged(_) => None,
            Self::Disk(error) => Some(error),
        }
    }
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the partitions cannot be moved to another number of shards: ")?;
        match self {
            Self::Recovery(shard, error) => write!(f, "shard {shard} cannot be read: {error}"),
            Self::Refused(partition, error) => write!(f, "partition {partition} does not serve: {error}"),
            Self::Damaged(shard) => write!(
                f,
                "the journal of shard {shard} has lost records. Start with the number of shards as it was: the log says what \
                 is damaged and which partitions may have lost something. If none has, or after `lockgate storage repair`, \
                 the number can be changed once the damaged files are no longer needed and gone"
            ),
            Self::Append(error) => error.fmt(f),
            Self::Disk(error) => error.fmt(f),
        }
    }
}
impl std::error::Error for MoveError {}

impl<E: fmt::Display> fmt::Display for FollowError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove(error) => error.fmt(f),
            Self::Move(error) => error.fmt(f),
            Self::Switch(error) => error.fmt(f),
        }
    }
}
impl<E: std::error::Error> std::error::Error for FollowError<E> {}

impl From<DiskError> for MoveError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// Why a start did not come to have the journals of its number of shards.
#[derive(Clone, PartialEq, Debug)]
pub enum FollowError<E> {
    /// Journals that do not count could not be removed. The others are as they were.
    Remove(DiskError),
    /// Nothing was moved.
    Move(MoveError),
    /// The caller could not note which journals count.
    Switch(E),
}

/// Leaves the node with one set of journals, those of `to`; to be called by every start before it reads any. `from` is what
/// the node has; if `to` names another set, everything is moved there. `switch` then notes durably that this one counts.
pub fn follow_shard_count<E>(
    disk: &dyn Disk,
    from: &NodeConfig,
    to: &NodeConfig,
    switch: impl FnOnce(&Moved) -> Result<(), E>,
) -> Result<Option<Moved>, FollowError<E>> {
    remove_other_journals(disk, from).map_err(FollowError::Remove)?;
    if to.journals == from.journals {
        return Ok(None);
    }
    let moved = move_journals(disk, from, to).map_err(FollowError::Move)?;
    switch(&moved).map_err(FollowError::Switch)?;
    remove_other_journals(disk, to).map_err(FollowError::Remove)?;
    Ok(Some(moved))
}

/// Makes the journals of `to` out of those of `from`, durably. Nothing refers to them yet.
fn move_journals(disk: &dyn Disk, from: &NodeConfig, to: &NodeConfig) -> Result<Moved, MoveError> {
    FileOp::RemoveDirectory { path: to.journals_directory() }.execute(disk)?;
    let make = |shard| OfflineJournal::open(disk, to, ShardId(shard), JournalKind::Synced, Position::first());
    let mut new = (0..to.shards).map(make).collect::<Result<Vec<_>, _>>()?;
    let mut moved = Moved::default();
    for shard in (0..from.shards).map(ShardId) {
        let recovered = recover(disk, from, shard).map_err(|error| MoveError::Recovery(shard, error))?;
        if let Some((partition, error)) = recovered.refused().next() {
            return Err(MoveError::Refused(partition, error.clone()));
        }
        if recovered.doubts.has_gap() {
            return Err(MoveError::Damaged(shard));
        }
        moved.findings.extend(recovered.report.findings);
        moved.findings.extend(recovered.report.damage);
        if let Some(metadata) = recovered.metadata {
            take(&mut new[usize::from(METADATA_SHARD.0)], metadata.group, &mut moved)?;
        }
        for RecoveredPartition { tag: Tag { partition: id, .. }, mut group, files, .. } in recovered.partitions {
            sync_log(disk, id)?;
            let RecoveredFiles { applied: (index, term), segments, .. } = files.expect("nobody is refused");
            if index > group.base.index {
                // What recovery did not keep is not in the new journals: that the files have it is to be said there. They may
                // have more, which does no harm: the new journals have that as well.
                group.set_base(Base { index, term, next_offset: segments.end().offset });
            }
            take(&mut new[usize::from(shard_of(id, to.shards).0)], group, &mut moved)?;
        }
    }
    new.into_iter().try_for_each(|journal| journal.end(Sequence(0)))?;
    Ok(moved)
}

fn take(journal: &mut OfflineJournal<'_>, group: RecoveredGroup, moved: &mut Moved) -> Result<(), MoveError> {
    moved.groups += 1;
    for draft in group.into_drafts() {
        moved.records += 1;
        journal.append(draft)?;
    }
    Ok(())
}

/// Removes all sets of journals but the node's own: left of a move that did not end, or that has ended.
fn remove_other_journals(disk: &dyn Disk, node: &NodeConfig) -> DiskResult<()> {
    let own = node.journals_directory();
    let is_other = |entry: &Entry| entry.is_directory && is_journals_directory(&entry.name) && entry.name != *own;
    let others: Vec<Entry> = disk.list("")?.into_iter().filter(is_other).collect();
    if others.is_empty() {
        return Ok(());
    }
    // The file that names the own set may have been replaced by a process that did not live to see it last.
    disk.sync_directory("")?;
    others.into_iter().try_for_each(|other| FileOp::RemoveDirectory { path: other.name.into() }.execute(disk).map(drop))
}

/// Recovery does not keep what a partition's segments have: there it has to be durable before its journal goes. The names in
/// its directory are: recovery has synced them.
fn sync_log(disk: &dyn Disk, id: PartitionId) -> DiskResult<()> {
    let directory = partition_directory(id);
    for entry in disk.list(&directory)?.iter().filter(|entry| entry.name.ends_with(".log")) {
        disk.sync(&format!("{directory}/{}", entry.name))?;
    }
    Ok(())
}
