//! From a disk to what a shard starts with: straight-line code, run once before the loop.
//!
//! The journal is the authority. Segments and checkpoints may be behind it, and are then caught up by replaying; they are
//! never trusted beyond it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use lockgate_catalog::settings::SEGMENT_BYTES_DEFAULT;
use lockgate_catalog::{Catalog, Command};
use lockgate_consensus::{BUFFERED_MARK, Base, ConsensusError, EntryKind, RecoveredGroup, Recovery, SuspectGroup};
use lockgate_storage::checkpoint;
use lockgate_storage::disk::{Disk, DiskError, FileOp};
use lockgate_storage::journal::{
    self, Damage, Doubts, JournalKind, Lost, Position, RecordKind, Recovered, RecoveredRecord,
};
use lockgate_storage::segment::{
    self, INDEX_INTERVAL_BYTES, Limit, LogPoint, OpenReport, SegmentConfig, SegmentError, Segments, Survey,
};
use lockgate_wire::{Generation, GroupId, LogIndex, PartitionId, ReplicaId, ShardId, Term, TopicId};

use crate::config::{
    METADATA_DIRECTORY, NodeConfig, PARTITIONS_DIRECTORY, partition_directory, partition_of_directory,
};
use crate::controller::{METADATA_GROUP, METADATA_SHARD, catalog_of};
use crate::partition::entry::{self, Content};
use crate::partition::state::State;
use crate::route::shard_of;

/// What a shard starts with.
pub struct RecoveredShard {
    pub(crate) synced: Position,
    pub(crate) buffered: Position,
    pub(crate) metadata: Option<RecoveredMetadata>,
    pub(crate) partitions: Vec<RecoveredPartition>,
    pub(crate) suspects: Vec<RecoveredSuspect>,
    /// What the synced journal lost, and of whom that may have been.
    pub(crate) doubts: Doubts,
    /// Partition directories of this shard that no replica belongs to, and whether they have data.
    pub(crate) leftover: BTreeMap<PartitionId, bool>,
    /// What was found and decided, for the log.
    pub report: RecoveryReport,
}

impl RecoveredShard {
    /// Partitions that will not serve, each with the reason.
    pub fn refused(&self) -> impl Iterator<Item = (PartitionId, &RecoveryError)> {
        let suspects = self.suspects.iter().filter_map(|suspect| Some((suspect.partition?, &suspect.why)));
        let partitions = self.partitions.iter();
        partitions.filter_map(|found| Some((found.tag.partition, found.files.as_ref().err()?))).chain(suspects)
    }

    /// Whether the journals are lost: they hold nothing at all, and there are partitions with data.
    pub fn has_lost_journals(&self) -> bool {
        self.report.journal_records == 0 && self.unknown().next().is_some()
    }

    /// Partitions with data of which the journals know nothing: left of a deleted topic, or of a journal that is lost.
    pub fn unknown(&self) -> impl Iterator<Item = PartitionId> {
        self.leftover.iter().filter(|(_, has_data)| **has_data).map(|(id, _)| *id)
    }
}

pub(crate) struct RecoveredMetadata {
    pub(crate) group: RecoveredGroup,
    pub(crate) catalog: Catalog,
    /// The entry up to which the catalog is.
    pub(crate) applied: (LogIndex, Term),
    pub(crate) checkpoints: Vec<LogIndex>,
}

impl RecoveredMetadata {
    /// The catalog with everything that its log has, which a sole voter commits.
    pub(crate) fn into_catalog(self) -> Result<Catalog, RecoveryError> {
        let mut catalog = self.catalog;
        for entry in self.group.entries {
            if entry.kind == EntryKind::Normal && entry.index > catalog.applied() {
                let command = Command::decode(&entry.data).map_err(|error| {
                    RecoveryError::Malformed(format!("the catalog's entry {}: {error}", entry.index))
                })?;
                // A command that is refused changes nothing, here as everywhere.
                drop(catalog.apply(entry.index, &command));
            }
        }
        Ok(catalog)
    }
}

pub(crate) struct RecoveredPartition {
    pub(crate) tag: Tag,
    pub(crate) group: RecoveredGroup,
    /// What its files hold, or why they cannot be used. Other partitions are not concerned.
    pub(crate) files: Result<RecoveredFiles, RecoveryError>,
    /// Whether its entries may have gone to the buffered journal.
    pub(crate) is_marked: bool,
}

/// A replica of which a damaged journal may have lost something.
pub(crate) struct RecoveredSuspect {
    pub(crate) group: GroupId,
    pub(crate) replica: ReplicaId,
    /// `None` if what says so is among what is lost.
    pub(crate) partition: Option<PartitionId>,
    pub(crate) why: RecoveryError,
}

pub(crate) struct RecoveredFiles {
    pub(crate) segments: Segments,
    pub(crate) state: State,
    pub(crate) checkpoints: Vec<LogIndex>,
    /// What the disk had no room for and has to be made first.
    pub(crate) make: Vec<FileOp>,
    /// The entry up to which both segments and state are.
    pub(crate) applied: (LogIndex, Term),
}

/// What a recovery found and decided.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RecoveryReport {
    /// Records in the journals.
    pub journal_records: u64,
    /// Their bytes.
    pub journal_bytes: u64,
    /// Whether both journals ended with an orderly stop.
    pub ended_cleanly: bool,
    /// Everything that was not as an orderly stop leaves it, a line each.
    pub findings: Vec<String>,
    /// What no crash leaves, in the journals, a line each. What it costs is told of whom it may concern.
    pub damage: Vec<String>,
}

/// Why a shard cannot start.
#[derive(Clone, PartialEq, Debug)]
pub enum RecoveryError {
    /// A journal cannot be recovered.
    Journal(journal::RecoveryError),
    /// What the journals hold of a group does not fit together.
    Consensus(ConsensusError),
    /// A partition's segments cannot be opened.
    Segments(PartitionId, SegmentError),
    /// The catalog's checkpoints have less than the journal needs them to have.
    CatalogBehind(ConsensusError),
    /// A damaged journal may have lost records of this replica, which were confirmed.
    Suspect(GroupId, Damage),
    /// The disk failed.
    Disk(DiskError),
    /// A replica's record says something that no build wrote.
    Malformed(String),
    /// There are partitions or a catalog's checkpoint, and no journal that knows of them.
    JournalMissing,
    /// A partition's files have more than its journal, which was synced: the journal lost something.
    JournalBehind {
        /// The partition.
        partition: PartitionId,
        /// The last entry of its segments or checkpoint.
        files: LogIndex,
        /// The last entry of its journal.
        journal: LogIndex,
    },
}

impl RecoveryError {
    /// The failure of the disk that it is, if it is one: another start may succeed.
    pub fn disk(&self) -> Option<&DiskError> {
        match self {
            Self::Disk(error)
            | Self::Journal(journal::RecoveryError::Disk(error))
            | Self::Segments(_, SegmentError::Disk(error)) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Journal(error) => error.fmt(f),
            Self::Consensus(error) => error.fmt(f),
            Self::Segments(partition, error) => write!(f, "partition {partition}: {error}"),
            Self::CatalogBehind(error) => write!(
                f,
                "the catalog's checkpoints in {METADATA_DIRECTORY} have less than the journal needs, the newest is missing or \
                 damaged: {error}; restore the data directory from a copy"
            ),
            Self::Suspect(group, damage) => write!(
                f,
                "records of its group {group} may be lost, which had been confirmed: {damage}. Restore the data directory \
                 from a copy, give up what is lost (`lockgate storage repair`), or delete the topic"
            ),
            Self::Disk(error) => error.fmt(f),
            Self::Malformed(what) => f.write_str(what),
            Self::JournalMissing => f.write_str(
                "the journal of shard 0 has no catalog, but there are partitions or checkpoints: the directory `shards` was \
                 lost or emptied; restore it from a copy, or start with a new data directory",
            ),
            Self::JournalBehind { partition, files, journal } => write!(
                f,
                "partition {partition}: its files go up to entry {files}, its journal only to {journal}; the journal lost \
                 synced entries, restore the data directory from a copy or remove the partition"
            ),
        }
    }
}
impl std::error::Error for RecoveryError {}

impl From<journal::RecoveryError> for RecoveryError {
    fn from(error: journal::RecoveryError) -> Self {
        Self::Journal(error)
    }
}
impl From<ConsensusError> for RecoveryError {
    fn from(error: ConsensusError) -> Self {
        Self::Consensus(error)
    }
}
impl From<DiskError> for RecoveryError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// What a replica's bootstrap record says it is: topic u64, partition u32, generation u64, little endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    pub(crate) partition: PartitionId,
    pub(crate) generation: Generation,
}

impl Tag {
    const BYTES: usize = 20;

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(Self::BYTES);
        bytes.put_u64_le(self.partition.topic.0);
        bytes.put_u32_le(self.partition.partition);
        bytes.put_u64_le(self.generation.0);
        bytes.freeze()
    }

    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() != Self::BYTES {
            return None;
        }
        let partition = PartitionId { topic: TopicId(bytes.get_u64_le()), partition: bytes.get_u32_le() };
        Some(Self { partition, generation: Generation(bytes.get_u64_le()) })
    }
}

/// Both journals of a shard as they were read.
pub(crate) struct ReadJournals {
    groups: Recovery,
    surveyed: BTreeMap<GroupId, Survey>,
    /// Groups whose entries may have gone to the buffered journal.
    marked: BTreeSet<GroupId>,
    pub(crate) synced: Recovered,
    pub(crate) buffered: Recovered,
    pub(crate) report: RecoveryReport,
}

/// Reads what `disk` has of a shard's journals, and makes their ends durable.
pub(crate) fn read_journals(disk: &dyn Disk, node: &NodeConfig, shard: ShardId) -> Result<ReadJournals, RecoveryError> {
    let mut journals = Journals { disk, groups: Recovery::new(), marked: BTreeSet::new(), surveyed: BTreeMap::new() };
    let mut report = RecoveryReport { ended_cleanly: true, ..RecoveryReport::default() };
    let synced = journals.recover(node, shard, JournalKind::Synced, &mut report)?;
    let buffered = journals.recover(node, shard, JournalKind::Buffered, &mut report)?;
    let Journals { groups, surveyed, marked, .. } = journals;
    Ok(ReadJournals { groups, surveyed, marked, synced, buffered, report })
}

impl ReadJournals {
    /// Whether something of the group may be lost. What is not marked has nothing in the buffered journal.
    fn is_suspect(&self, group: GroupId) -> bool {
        let in_buffered = self.marked.contains(&group) && self.buffered.doubts.is_suspect(group);
        self.synced.doubts.is_suspect(group) || in_buffered
    }

    /// Takes out the groups of which something may be lost.
    pub(crate) fn take_suspects(&mut self) -> Vec<SuspectGroup> {
        let mut groups = std::mem::take(&mut self.groups);
        let suspects = groups.take_suspects(&|group| self.is_suspect(group));
        self.groups = groups;
        suspects
    }

    /// The damage for which groups are suspect.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn damage(&self) -> Damage {
        let damages = || self.synced.damages.iter().chain(&self.buffered.damages);
        let costly = damages().find(|damage| damage.lost != Lost::Nothing);
        costly.or(damages().next()).cloned().expect("nobody is suspect without damage")
    }
}

/// Reads what `disk` has of a shard and decides what it starts with.
pub fn recover(disk: &dyn Disk, node: &NodeConfig, shard: ShardId) -> Result<RecoveredShard, RecoveryError> {
    let mut read = read_journals(disk, node, shard)?;
    if shard == METADATA_SHARD && read.is_suspect(METADATA_GROUP) {
        return Err(journal::RecoveryError::Damage(read.damage()).into());
    }
    let suspects: Vec<RecoveredSuspect> = read
        .take_suspects()
        .into_iter()
        .map(|SuspectGroup { group, replica, left }| {
            let partition = left.and_then(|left| Tag::decode(left.tag)).map(|tag| tag.partition);
            RecoveredSuspect { group, replica, partition, why: RecoveryError::Suspect(group, read.damage()) }
        })
        .collect();
    let ReadJournals { groups, mut surveyed, marked, synced, buffered, mut report } = read;
    let mut metadata = None;
    let mut partitions = Vec::new();
    for group in groups.finish()? {
        if group.group == METADATA_GROUP {
            metadata = Some(recover_metadata(disk, group, &mut report)?);
            continue;
        }
        let tag = Tag::decode(group.tag.clone()).ok_or_else(|| {
            RecoveryError::Malformed(format!("group {}: its bootstrap record names no partition", group.group))
        })?;
        let is_marked = marked.contains(&group.group);
        let surveyed = surveyed.remove(&group.group).filter(|_| !is_marked);
        // A buffered journal without a file never had one, or lost them all: then what the files have beyond it proves that.
        let may_cut = is_marked && buffered.files > 0;
        let files = recover_files(disk, tag.partition, &group, may_cut, surveyed, &mut report);
        partitions.push(RecoveredPartition { tag, group, files, is_marked });
    }
    let owned: BTreeSet<PartitionId> = partitions
        .iter()
        .map(|partition| partition.tag.partition)
        .chain(suspects.iter().filter_map(|suspect| suspect.partition))
        .collect();
    let mut leftover = directories(disk)?;
    if shard == METADATA_SHARD && metadata.is_none() {
        check_nothing_is_known(disk, !leftover.is_empty())?;
    }
    leftover.retain(|id, _| shard_of(*id, node.shards) == shard && !owned.contains(id));
    let doubts = synced.doubts;
    let (synced, buffered) = (synced.position, buffered.position);
    Ok(RecoveredShard { synced, buffered, metadata, partitions, suspects, doubts, leftover, report })
}

/// The partitions that have a directory, and whether there is data in it.
fn directories(disk: &dyn Disk) -> Result<BTreeMap<PartitionId, bool>, RecoveryError> {
    let entries = match disk.list(PARTITIONS_DIRECTORY) {
        Ok(entries) => entries,
        Err(error) if error.is_missing() => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    for id in entries.iter().filter_map(|entry| partition_of_directory(&entry.name)) {
        let files = disk.list(&partition_directory(id))?;
        found.insert(id, files.iter().any(|file| file.name.ends_with(".log")));
    }
    Ok(found)
}

/// A journal without a catalog is that of a new node. One that has a partition's directory, which is made once the catalog
/// durably knows its topic, lost its journal.
fn check_nothing_is_known(disk: &dyn Disk, has_partitions: bool) -> Result<(), RecoveryError> {
    let checkpoint = checkpoint::load_newest(disk, METADATA_DIRECTORY);
    if has_partitions || checkpoint.is_ok_and(|loaded| loaded.checkpoint.is_some()) {
        return Err(RecoveryError::JournalMissing);
    }
    Ok(())
}

/// Both journals of a shard while they are read.
struct Journals<'a> {
    disk: &'a dyn Disk,
    groups: Recovery,
    /// Groups whose entries may have gone to the buffered journal.
    marked: BTreeSet<GroupId>,
    /// Segments that were looked at on the way, to know what need not be kept in memory.
    surveyed: BTreeMap<GroupId, Survey>,
}

impl Journals<'_> {
    fn recover(
        &mut self,
        node: &NodeConfig,
        shard: ShardId,
        kind: JournalKind,
        report: &mut RecoveryReport,
    ) -> Result<Recovered, RecoveryError> {
        let mut failed = None;
        let disk = self.disk;
        let recovered = journal::recover(disk, &node.journal(shard, kind), &mut |record| {
            if failed.is_none() {
                failed = self.record(kind, record).err();
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        report.journal_records += recovered.records;
        report.journal_bytes += recovered.bytes;
        // A journal that was never used has nothing that could have ended otherwise.
        report.ended_cleanly &= recovered.ended_cleanly || recovered.files == 0;
        report.findings.extend(recovered.cuts.iter().map(ToString::to_string));
        report.damage.extend(recovered.damages.iter().map(ToString::to_string));
        Ok(recovered)
    }

    fn record(&mut self, journal: JournalKind, record: RecoveredRecord) -> Result<(), RecoveryError> {
        let (group, replica, kind) = (record.group, record.replica, record.kind);
        if kind == RecordKind::CheckpointMark && record.body == BUFFERED_MARK {
            self.marked.insert(group);
        }
        self.groups.fold(journal, record)?;
        if kind == RecordKind::Bootstrap
            && let Some(tag) = self.groups.tag(group, replica).and_then(Tag::decode)
        {
            let from = self.held_up_to(group, tag.partition)?;
            self.groups.keep_from(group, replica, from);
        }
        Ok(())
    }

    /// Entries before it are in the partition's segments and in its checkpoint, and need not be held in memory while the
    /// journal is read. It is one before the last that both have: replaying may begin with that one, and needs the term
    /// before it. That stays true if what is now at the segments' end turns out to be beyond the journal's, and is cut: what
    /// comes before it is there. Files that cannot be used hold nothing here; opening them later says why.
    fn held_up_to(&mut self, group: GroupId, id: PartitionId) -> Result<LogIndex, RecoveryError> {
        let directory = partition_directory(id);
        let checkpoint = match checkpoint::load_newest(self.disk, &directory) {
            Ok(loaded) => loaded.checkpoint.map_or(LogIndex(0), |(header, _)| header.index),
            Err(error) if error.is_missing() => LogIndex(0),
            Err(error) => return Err(error.into()),
        };
        // What a buffered journal may have lost counts only where it is sealed.
        let in_segments = if checkpoint == LogIndex(0) {
            LogIndex(0)
        } else if self.marked.contains(&group) {
            segment::sealed_end(self.disk, &directory).map_or(LogIndex(0), |end| end.index)
        } else {
            let surveyed = Segments::survey(self.disk, segment_config(id, SEGMENT_BYTES_DEFAULT), Limit::None).ok();
            let end = surveyed.as_ref().map_or(LogIndex(0), Survey::end_index);
            self.surveyed.extend(surveyed.map(|surveyed| (group, surveyed)));
            end
        };
        Ok(LogIndex(in_segments.min(checkpoint).0.saturating_sub(2)))
    }
}

fn recover_metadata(
    disk: &dyn Disk,
    group: RecoveredGroup,
    report: &mut RecoveryReport,
) -> Result<RecoveredMetadata, RecoveryError> {
    let loaded = load(disk, METADATA_DIRECTORY, report)?;
    // As for segments: a checkpoint that is seen has to last.
    if loaded.checkpoint.is_some() {
        disk.sync_directory(METADATA_DIRECTORY)?;
    }
    let (catalog, index) = match &loaded.checkpoint {
        Some((header, chunks)) if header.index <= group.last_index() => {
            (catalog_of(chunks).map_err(RecoveryError::Malformed)?, header.index)
        }
        Some((header, _)) => {
            return Err(RecoveryError::JournalBehind {
                partition: PartitionId::default(),
                files: header.index,
                journal: group.last_index(),
            });
        }
        None => (Catalog::default(), LogIndex(0)),
    };
    let applied = (index, group.term_of(index));
    group.check(applied.0, applied.1).map_err(RecoveryError::CatalogBehind)?;
    Ok(RecoveredMetadata { group, catalog, applied, checkpoints: loaded.indices })
}

fn load(disk: &dyn Disk, directory: &str, report: &mut RecoveryReport) -> Result<checkpoint::Loaded, RecoveryError> {
    let loaded = checkpoint::load_newest(disk, directory)?;
    let rejected = loaded.rejected.iter();
    report.findings.extend(rejected.map(|(file, why)| format!("{directory}/{file} is not used: {why}")));
    Ok(loaded)
}

/// The entry behind which replay begins, of files that have everything up to their base if they have its records.
pub(crate) fn replay_from(state: LogIndex, segments: LogPoint, base: &Base) -> LogIndex {
    // Where the one ends that is further behind. Its last entry again: a cut may have fallen into it.
    let index = state.min(LogIndex(segments.index.0.saturating_sub(1)));
    if state >= base.index && segments.offset >= base.next_offset { index.max(base.index) } else { index }
}

/// What a partition's files hold, brought in line with its journal. What they have beyond that is cut if `may_cut`, and
/// otherwise proves damage.
pub(crate) fn recover_files(
    disk: &dyn Disk,
    id: PartitionId,
    group: &RecoveredGroup,
    may_cut: bool,
    surveyed: Option<Survey>,
    report: &mut RecoveryReport,
) -> Result<RecoveredFiles, RecoveryError> {
    let directory = partition_directory(id);
    let last = group.last_index();
    let (segments, opened) = open_segments(disk, id, group, may_cut, surveyed)?;
    report.findings.extend(opened.findings().into_iter().map(|what| format!("partition {id}: {what}")));
    let loaded = load(disk, &directory, report)?;
    let state = match &loaded.checkpoint {
        Some((header, chunks)) => State::from_chunks(header, chunks)
            .ok_or_else(|| RecoveryError::Malformed(format!("partition {id}: its checkpoint cannot be read")))?,
        None => State::default(),
    };
    let files = segments.end_index().unwrap_or_default().max(state.index);
    if files > last {
        return Err(RecoveryError::JournalBehind { partition: id, files, journal: last });
    }
    let index = replay_from(state.index, segments.end(), &group.base).max(group.kept_from);
    let applied = (index, group.term_of(index));
    Ok(RecoveredFiles { segments, state, checkpoints: loaded.indices, make: opened.make, applied })
}

/// Opens a partition's segments, which have to have all that the journal refers to: looked for before anything is cut.
fn open_segments(
    disk: &dyn Disk,
    id: PartitionId,
    group: &RecoveredGroup,
    may_cut: bool,
    surveyed: Option<Survey>,
) -> Result<(Segments, OpenReport), RecoveryError> {
    let damaged = |error| RecoveryError::Segments(id, error);
    let last = group.last_index();
    // Entries that nobody lived to refer to are found only now, when the journal was read to its end.
    let survey = match surveyed.filter(|survey| survey.end_index() <= last) {
        Some(survey) => survey,
        None => {
            let limit = if may_cut { Limit::UpTo(last) } else { Limit::AheadUpTo(last) };
            Segments::survey(disk, segment_config(id, SEGMENT_BYTES_DEFAULT), limit).map_err(damaged)?
        }
    };
    for entry in group.entries.iter().filter(|entry| entry.kind == EntryKind::External) {
        let malformed = |why| RecoveryError::Malformed(format!("partition {id}, entry {}: {why}", entry.index));
        let Content::External(batches) = entry::decode(entry.context.clone(), entry.data.clone()).map_err(malformed)?
        else {
            return Err(malformed("its record says that its data is elsewhere, and it does not say where"));
        };
        for batch in batches {
            survey.check(batch.stamp.base_offset, &batch.place).map_err(damaged)?;
        }
    }
    survey.settle(disk).map_err(damaged)
}

/// Where a partition's segments are.
pub(crate) fn segment_config(id: PartitionId, segment_bytes: u64) -> SegmentConfig {
    SegmentConfig { directory: partition_directory(id), segment_bytes, index_interval_bytes: INDEX_INTERVAL_BYTES }
}
