//! Giving up what a damaged journal has lost: every partition that a start refuses for it goes on with what is left, durably.
//!
//! Straight-line code, run while no shard runs, at an operator's word. On a disk that keeps its changes to itself it tells
//! what it would do. What is left of a partition is its files and the entries that follow them without a hole. Everything is
//! decided before anything is changed, by the code that a start decides with. Then what the segments have behind the end is
//! cut, and one record says what the log is and ends the doubt: a crash leaves the partition refused, and to be repaired
//! with the same outcome, or repaired.
//!
//! A catalog is not repaired. It gives ids to topics, groups and producers, and says what was deleted; partitions remember
//! both. A catalog that went back would give the same ids again, and take data of one topic for another's.

use std::collections::BTreeMap;
use std::fmt;

use lockgate_catalog::Catalog;
use lockgate_catalog::settings::SEGMENT_BYTES_DEFAULT;
use lockgate_catalog::view::ClusterView;
use lockgate_consensus::{Base, RecoveredGroup, SuspectGroup};
use lockgate_storage::checkpoint;
use lockgate_storage::disk::dry_run::DryRun;
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_storage::journal::{self, AppendRefused, Damage, Draft, JournalKind, Position, Sequence};
use lockgate_storage::segment::{Limit, Segments, Survey};
use lockgate_wire::{GroupId, LogIndex, Offset, PartitionId, ShardId};

use crate::config::{NodeConfig, partition_directory};
use crate::controller::METADATA_SHARD;
use crate::offline::{OfflineJournal, WriteError};
use crate::recovery::{
    RecoveredMetadata, RecoveryError, RecoveryReport, Tag, read_journals, recover, recover_files, replay_from,
    segment_config,
};
use crate::route::shard_of;

/// What a repair comes to in one shard.
#[derive(Clone, PartialEq, Debug)]
pub struct Repairs {
    /// Every partition that a start refuses as the journals may have lost something of it.
    pub partitions: Vec<Repair>,
    /// What is damaged in the journals, a line each, whether that costs anybody anything or not.
    pub damage: Vec<String>,
}

/// A partition that a start refuses, as the journal may have lost something of it.
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
    /// A partition.
    Partition(PartitionId),
    /// A partition of which not even the number is left.
    Group(GroupId),
}

/// What is left of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The last entry of its log that is kept.
    pub up_to: LogIndex,
    /// Entries that are there and do not follow it: they are given up, with all that nobody knows of.
    pub given_up: u64,
    /// What goes out of its segments although it is there.
    pub cut: Option<Cut>,
}

/// The end of a log that is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The first record that goes.
    pub first: Offset,
    /// The last one.
    pub last: Offset,
    /// Their bytes in the segments.
    pub bytes: u64,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(id) => write!(f, "partition {id}"),
            Self::Group(group) => write!(f, "the partition of group {group}"),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keeps its log up to entry {}, and gives up what was lost", self.up_to)?;
        if self.given_up > 0 {
            write!(f, " and {} entries that are there behind it", self.given_up)?;
        }
        match self.cut {
            Some(Cut { first, last, bytes }) => {
                write!(f, "; cuts the records {first} to {last}, {bytes} bytes, out of its segments")
            }
            None => Ok(()),
        }
    }
}

/// Why nothing was repaired.
#[derive(Clone, PartialEq, Debug)]
pub enum RepairError {
    /// The journals cannot be read at all.
    Recovery(RecoveryError),
    /// The catalog may have lost something.
    Catalog(Damage),
    /// The journal does not take a record: one of its settings is smaller than it was.
    Append(AppendRefused),
    /// The disk failed, or is full.
    Disk(DiskError),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recovery(error) => error.fmt(f),
            Self::Catalog(damage) => write!(
                f,
                "the catalog may have lost records, and without them it would give ids again that partitions have data of: \
                 {damage}. Restore the data directory from a copy"
            ),
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

/// Why a partition is not repaired.
enum Obstacle {
    /// It cannot go on with what is left.
    Hopeless(String),
    /// Nobody knows: the disk failed, and with it the whole repair.
    Failed(RecoveryError),
}

impl<E: Into<RecoveryError>> From<E> for Obstacle {
    fn from(error: E) -> Self {
        let error = error.into();
        if error.disk().is_some() { Self::Failed(error) } else { Self::Hopeless(error.to_string()) }
    }
}

/// What is to be done for a partition.
struct Plan {
    id: PartitionId,
    kept: Kept,
    /// Its segments, if something is to be cut.
    cut: Option<Survey>,
    /// For the synced journal, and for the buffered one.
    accepted: Draft,
    accepted_buffered: Option<Draft>,
}

/// Repairs what a start would refuse of a shard because its journals are damaged. Gives every partition that is concerned;
/// those that cannot go on are left as they are.
pub fn repair(disk: &dyn Disk, node: &NodeConfig, shard: ShardId) -> Result<Repairs, RepairError> {
    let mut read = read_journals(disk, node, shard)?;
    let suspects = read.take_suspects();
    let damage = read.report.damage.clone();
    if suspects.is_empty() && !read.synced.doubts.has_gap() {
        return Ok(Repairs { partitions: Vec::new(), damage });
    }
    let view = view(disk, node)?;
    let here = view.assignments().filter(|assignment| {
        assignment.replica_on(node.node).is_some() && shard_of(assignment.partition, node.shards) == shard
    });
    let mut known: BTreeMap<GroupId, PartitionId> =
        here.map(|assignment| (assignment.group, assignment.partition)).collect();
    let trial = DryRun::new(disk)?;
    let why = read.damage().to_string();
    let mut partitions = Vec::new();
    let mut plans = Vec::new();
    // The next start removes those of a topic that was deleted.
    for SuspectGroup { group, left, .. } in suspects.into_iter().filter(|suspect| !view.is_deleted(suspect.group)) {
        let named = left.as_ref().and_then(|left| Tag::decode(left.tag.clone())).map(|tag| tag.partition);
        let id = known.remove(&group).or(named);
        let needs_buffered = read.buffered.doubts.is_suspect(group);
        let planned = match (id, left) {
            (Some(id), Some(left)) => plan(disk, &trial, id, left, needs_buffered),
            (_, None) => Err(Obstacle::Hopeless(NOTHING_LEFT.into())),
            (None, Some(_)) => Err(Obstacle::Hopeless("its bootstrap record names no partition".into())),
        };
        let outcome = match planned {
            Ok(plan) => {
                let kept = plan.kept;
                plans.push(plan);
                Ok(kept)
            }
            Err(Obstacle::Hopeless(why)) => Err(why),
            Err(Obstacle::Failed(error)) => return Err(error.into()),
        };
        let of = id.map_or(Subject::Group(group), Subject::Partition);
        partitions.push(Repair { of, damage: why.clone(), outcome });
    }
    // Of these the journals have no record at all.
    let unseen = known.into_iter().filter(|(group, _)| read.synced.doubts.is_suspect(*group));
    partitions.extend(unseen.map(|(_, id)| Repair {
        of: Subject::Partition(id),
        damage: why.clone(),
        outcome: Err(NOTHING_LEFT.into()),
    }));
    let (synced, buffered) = (read.synced.position, read.buffered.position);
    carry_out(disk, node, shard, plans, (synced, buffered))?;
    Ok(Repairs { partitions, damage })
}

const NOTHING_LEFT: &str =
    "nothing is left of it in the journal; delete its topic, or restore the data directory from a copy";

/// Each step only takes away what the next repair would take away too, until the last record ends the doubt.
fn carry_out(
    disk: &dyn Disk,
    node: &NodeConfig,
    shard: ShardId,
    plans: Vec<Plan>,
    (synced, buffered): (Position, Position),
) -> Result<(), RepairError> {
    let (mut in_synced, mut in_buffered) = (Vec::new(), Vec::new());
    for plan in plans {
        if let Some(survey) = plan.cut {
            survey.settle(disk).map_err(|error| RecoveryError::Segments(plan.id, error))?;
        }
        in_synced.push(plan.accepted);
        in_buffered.extend(plan.accepted_buffered);
    }
    // The buffered journal's doubt alone may keep a partition refused: it ends when everything else is durable.
    for (kind, position, drafts) in
        [(JournalKind::Synced, synced, in_synced), (JournalKind::Buffered, buffered, in_buffered)]
    {
        if drafts.is_empty() {
            continue;
        }
        let before = Sequence(position.next_sequence().0 - 1);
        let mut journal = OfflineJournal::open(disk, node, shard, kind, position)?;
        drafts.into_iter().try_for_each(|draft| journal.append(draft))?;
        journal.end(before)?;
    }
    Ok(())
}

/// What is left of a partition: up to where its files have everything, and the last entry that follows without a hole.
/// Changes nothing.
fn plan(
    disk: &dyn Disk,
    trial: &DryRun<'_>,
    id: PartitionId,
    mut left: RecoveredGroup,
    needs_buffered: bool,
) -> Result<Plan, Obstacle> {
    let hopeless = |why: String| Err(Obstacle::Hopeless(why));
    let survey = |limit| {
        let surveyed = Segments::survey(disk, segment_config(id, SEGMENT_BYTES_DEFAULT), limit);
        surveyed.map_err(|error| RecoveryError::Segments(id, error))
    };
    let segments = survey(Limit::None)?;
    let (checkpoint, rejected) = newest_checkpoint(disk, id)?;
    // The segments have everything that the checkpoint knows of, or replay has to begin before it.
    let from = replay_from(checkpoint.index, segments.end(), &checkpoint).max(Base::default().index);
    let base = if from == checkpoint.index {
        checkpoint
    } else if from == left.base.index {
        left.base
    } else {
        match left.entries.iter().find(|entry| entry.index == from) {
            Some(entry) => Base { index: from, term: entry.term, next_offset: Offset(0) },
            None => return hopeless(format!("entry {from} is lost, from where its files would be completed")),
        }
    };
    let (mut up_to, mut given_up) = (from, 0);
    for entry in left.entries.iter().filter(|entry| entry.index > from) {
        if entry.index.0 == up_to.0 + 1 { up_to = entry.index } else { given_up += 1 }
    }
    if up_to < left.base.index {
        let written_down = left.base.index;
        return hopeless(format!(
            "its files have everything up to entry {from} only, and the journal has let go of what follows up to entry \
             {written_down}{rejected}"
        ));
    }
    if up_to < checkpoint.index {
        let index = checkpoint.index;
        return hopeless(format!(
            "its checkpoint is of entry {index}, and what follows entry {up_to} in the journal is lost"
        ));
    }
    // What the segments have beyond that goes too: there is no entry for it any more.
    let beyond = if segments.end_index() > up_to { Some(survey(Limit::UpTo(up_to))?) } else { None };
    if let Some(sealed) = beyond.as_ref().map(Survey::end_index).filter(|end| *end > up_to) {
        return hopeless(format!("its segments go up to entry {sealed}, and what follows entry {up_to} is lost"));
    }
    let cut = beyond.as_ref().map(|kept| Cut {
        first: kept.end().offset,
        last: Offset(segments.end().offset.0 - 1),
        bytes: segments.bytes() - kept.bytes(),
    });
    let accepted = left.accept(base, up_to);
    // As the next start has it.
    let files = recover_files(trial, id, &left, true, None, &mut RecoveryReport::default())?;
    left.check(files.applied.0, files.applied.1)?;
    let accepted_buffered = (needs_buffered && left.is_marked()).then(|| left.accept_buffered());
    Ok(Plan { id, kept: Kept { up_to, given_up, cut }, cut: beyond, accepted, accepted_buffered })
}

/// What a partition's newest checkpoint has, as a base, and in words which others cannot be used.
fn newest_checkpoint(disk: &dyn Disk, id: PartitionId) -> Result<(Base, String), DiskError> {
    let loaded = match checkpoint::load_newest(disk, &partition_directory(id)) {
        Err(error) if error.is_missing() => return Ok((Base::default(), String::new())),
        loaded => loaded?,
    };
    let rejected = loaded.rejected.iter().map(|(file, why)| format!("; {file} is not used: {why}")).collect();
    let base = loaded.checkpoint.map_or(Base::default(), |(header, _)| Base {
        index: header.index,
        term: header.term,
        next_offset: header.next_offset,
    });
    Ok((base, rejected))
}

/// The catalog, if it has lost nothing. If it has, no shard is repaired: the node would not start.
fn view(disk: &dyn Disk, node: &NodeConfig) -> Result<ClusterView, RepairError> {
    let recovered = recover(&DryRun::new(disk)?, node, METADATA_SHARD).map_err(|error| match error {
        RecoveryError::Journal(journal::RecoveryError::Damage(damage)) => RepairError::Catalog(damage),
        error => RepairError::Recovery(error),
    })?;
    Ok(recovered.metadata.map_or(Ok(Catalog::default()), RecoveredMetadata::into_catalog)?.view())
}
