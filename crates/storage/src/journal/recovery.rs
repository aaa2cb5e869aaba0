//! Recovery: reads a journal before its shard starts, decides what counts, says what it decided, and repairs.
//!
//! Straight-line code over a [`Disk`]. Afterwards everything that was handed out is durable, whatever was cut can never
//! count again, and a second recovery gives the same records. What was confirmed is either handed out or reported as
//! [`Damage`]; nothing is skipped in silence.

mod doubts;
mod error;
mod inventory;
mod repair;
mod scan;
mod take_over;
mod walk;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use lockgate_wire::{GroupId, ReplicaId};

pub use doubts::Doubts;
pub use error::{Damage, Lost, RecoveryError};
use inventory::FoundFile;
pub(super) use scan::{RecordsFault, records as records_of};

use super::files::{InUse, RESERVE_FILES};
use super::{JournalConfig, RecordKind, Sequence, format};
use crate::disk::{Disk, Path};

/// A record that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredRecord {
    /// Its number.
    pub sequence: Sequence,
    /// The group it belongs to.
    pub group: GroupId,
    /// The group's replica.
    pub replica: ReplicaId,
    /// What it is.
    pub kind: RecordKind,
    /// Previous + 1 within the group.
    pub counter: u64,
    /// The body.
    pub body: Bytes,
}

/// Where a journal goes on. From recovery to the writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The next record's number, 1 or more.
    pub(super) next_sequence: u64,
    /// The next file's number, 1 or more.
    pub(super) next_file: u64,
    /// The files that are there, oldest first.
    pub(super) files: VecDeque<InUse>,
    /// Files before this one are not needed.
    pub(super) needed: u64,
    /// The last file in which records are missing; 0 if there is none.
    pub(super) gap_in: u64,
    /// The newest of them, if this start goes on in it.
    pub(super) current: Option<Current>,
    /// The newest of them, if this start could go on in it: for a disk that has no room for another one.
    pub(super) last: Option<Current>,
    /// This start's number, 1 or more.
    pub(super) epoch: u64,
    /// A prepared file that was found.
    pub(super) free: Option<Free>,
    /// The number of the next prepared file.
    pub(super) next_free: u64,
    /// Each group's last record counter.
    pub(super) counters: BTreeMap<GroupId, u64>,
}

/// A prepared file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Free {
    pub(super) path: Path,
    /// It had an earlier life.
    pub(super) reused: bool,
}

/// The file that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Current {
    pub(super) sequence: u64,
    pub(super) path: Path,
    /// The start that opened it.
    pub(super) epoch: u64,
    /// Where the next write starts.
    pub(super) offset: u64,
    /// The chain's value so far.
    pub(super) chain: u32,
}

impl Position {
    /// The beginning of a journal that has no files yet.
    pub fn first() -> Self {
        Self {
            next_sequence: 1,
            next_file: 1,
            files: VecDeque::new(),
            needed: 1,
            gap_in: 0,
            current: None,
            last: None,
            epoch: 1,
            free: None,
            next_free: 1,
            counters: BTreeMap::new(),
        }
    }

    /// The number that the next record gets.
    pub fn next_sequence(&self) -> Sequence {
        Sequence(self.next_sequence)
    }

    /// This start's number: higher than that of every start before it that opened a file.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Bytes that were made void, or a file that was removed: the log's end was torn by a crash. Nothing that was confirmed
/// was in them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The file.
    pub file: Path,
    /// From here on; 0 if the file was removed.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What was found there.
    pub why: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cut {} bytes at offset {}: {}", self.file, self.bytes, self.offset, self.why)
    }
}

/// What recovery found and where the journal goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// For the writer.
    pub position: Position,
    /// What was cut, to be logged.
    pub cuts: Vec<Cut>,
    /// What is lost although it was confirmed; empty for a journal that is whole. The first places, if there are many.
    pub damages: Vec<Damage>,
    /// Of whom that may have been.
    pub doubts: Doubts,
    /// Journal files that are in use.
    pub files: usize,
    /// Records handed out.
    pub records: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// The journal ends with an end mark: an orderly stop, and nothing since.
    pub ended_cleanly: bool,
}

/// Reads the journal, in order, and repairs its end. Called once per start and journal, before anything is written; a
/// journal that is not there is begun. After an error the records that were handed out count for nothing.
///
/// Damage is told, and stays as it is: every later start finds it again, until the files that have it are not needed. What
/// was lost may have been of any group for which [`Doubts`] says so.
pub fn recover(
    disk: &dyn Disk,
    config: &JournalConfig,
    record: &mut dyn FnMut(RecoveredRecord),
) -> Result<Recovered, RecoveryError> {
    config.validate()?;
    let inventory = inventory::take(disk, config)?;
    let mut walk = walk::Walk::new(disk, config, record);
    let end = walk.all(&inventory)?;
    let is_damaged = !walk.damages.is_empty();
    // Numbers go on with its own: it may be what tells of damage before it.
    let is_next = inventory.unused.as_ref().is_some_and(|unused| unused.first_sequence == walk.expected);
    let keeps_unused = is_damaged && end.tail.is_none() && is_next;
    let keeps = repair::Keeps { unused: keeps_unused, freed: walk.reached_needed < inventory.needed };
    let cuts = repair::repair(disk, config, &inventory, &end, keeps)?;
    let mut free = repair::tidy_free_files(disk, config, &inventory)?;
    let removed = end.removed(&inventory).count();
    let kept = &inventory.files[..inventory.files.len() - removed];
    let unused = inventory.unused.as_ref().filter(|_| keeps_unused);
    let last_number = unused.or(kept.last()).map_or(0, |file| file.number);
    let mut next_free = inventory.free.last().map_or(1, |free| free.number.saturating_add(1));
    let mut current = None;
    let oldest = kept.first().map_or(1, |oldest| oldest.number);
    // Files that are missing are missed for as long as nobody can do without them; what proves that somebody lost nothing
    // stays as long as the damage.
    let needed = if is_damaged {
        walk.oldest_needed.min(oldest)
    } else if walk.has_skipped {
        walk.oldest_needed
    } else {
        oldest
    };
    let is_at_bound = kept.len() + RESERVE_FILES >= config.max_files();
    if let Some(last) = kept.last().filter(|_| is_at_bound && unused.is_none()) {
        let made = config.path(&format::free_name(next_free));
        let start = take_over::Start {
            epoch: walk.epoch + 1,
            next_sequence: walk.expected,
            // What the file that goes has stated decided this start, and has to decide the next one.
            oldest_file: walk.oldest_needed,
            free: free.clone().ok_or(made),
        };
        current = take_over::take_over(disk, config, last, &start)?;
        if current.is_some() {
            next_free += u64::from(free.take().is_none());
        }
    }
    let may_lack_room = free.is_none() && current.is_none() && !is_damaged && unused.is_none();
    let last =
        if may_lack_room && walk.end_mark.is_none() { last_file_of(disk, config, kept, walk.chain_end)? } else { None };
    let is_last = |file: usize| file + 1 == inventory.files.len();
    Ok(Recovered {
        position: Position {
            next_sequence: walk.expected,
            next_file: last_number + 1,
            files: in_use(kept.iter().chain(unused), walk.expected),
            needed,
            gap_in: walk.gap_in,
            epoch: walk.epoch + 1,
            free,
            next_free,
            current,
            last,
            counters: std::mem::take(&mut walk.counters),
        },
        ended_cleanly: cuts.is_empty() && !is_damaged && walk.end_mark.is_some_and(is_last),
        damages: std::mem::take(&mut walk.damages),
        doubts: std::mem::take(&mut walk.doubts),
        cuts,
        files: kept.len(),
        records: walk.records,
        bytes: walk.bytes,
    })
}

/// The last file, to go on in if no other can be made: nothing of its present life is behind its chain's end.
fn last_file_of(
    disk: &dyn Disk,
    config: &JournalConfig,
    kept: &[FoundFile],
    chain_end: Option<(usize, u64, u32)>,
) -> Result<Option<Current>, RecoveryError> {
    let (Some(file), Some((index, offset, chain))) = (kept.last(), chain_end) else { return Ok(None) };
    let Some((header, _)) = file.header.as_ref().filter(|_| index + 1 == kept.len() && file.fault.is_none()) else {
        return Ok(None);
    };
    if scan::next_write(&inventory::view(disk, config, file), offset, offset)?.end > offset {
        return Ok(None);
    }
    Ok(Some(Current { sequence: file.number, path: file.path.clone(), epoch: header.epoch, offset, chain }))
}

/// The files that count. `next`: the number of the next record.
fn in_use<'a>(files: impl Iterator<Item = &'a FoundFile> + Clone, next: u64) -> VecDeque<InUse> {
    let ends = files.clone().skip(1).map(|file| file.first_sequence).chain([next]);
    let file = |(file, end): (&FoundFile, u64)| InUse {
        sequence: file.number,
        path: file.path.clone(),
        last: end - 1,
        bytes: file.bytes,
    };
    files.zip(ends).map(file).collect()
}
