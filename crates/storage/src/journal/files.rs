//! A journal's files: which there are, how many there may be, which of them nobody needs any more, and the order in which
//! such a file goes.
//!
//! A file goes in three steps. It is *released*: nobody needs a record in it. Then a write or a file's header *states* that
//! files before the next one are not needed, and is durable. Only then it is removed, one file after another. A start that
//! finds fewer files than the newest statement asks for has lost some; one that finds more ends what was begun. One file
//! is not removed but kept for another life, which saves the zeros of a new one.

use std::collections::VecDeque;

use lockgate_wire::MonoTime;

use super::JournalConfig;
use crate::disk::{DiskResult, Path};

/// The last files of the bound, which publishes may not use: what makes room goes there.
pub(super) const RESERVE_FILES: usize = 2;
/// How long after a removal that failed it is tried again.
const REMOVE_RETRY_MS: u64 = 1000;

/// A file with records, or the one that is being written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InUse {
    pub(super) sequence: u64,
    pub(super) path: Path,
    /// The last record in it, or before it if it holds none.
    pub(super) last: u64,
    /// Its size.
    pub(super) bytes: u64,
}

/// Whose records need room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Batches: the reserve is not theirs.
    Publish,
    /// Cursors and changes of topics: half of the reserve, so that the other half is left to what makes room.
    Change,
    /// Deletions of topics, which make room: as changes, and on a full disk somewhat longer.
    Deletion,
}

impl Purpose {
    fn spared_files(self) -> usize {
        match self {
            Self::Publish => RESERVE_FILES,
            Self::Change | Self::Deletion => RESERVE_FILES / 2,
        }
    }
}

/// The files of one journal.
#[derive(Debug)]
pub(super) struct Files {
    /// Oldest first. The last one is written, once this start has opened it.
    in_use: VecDeque<InUse>,
    max: usize,
    /// Files before it are released.
    needed: u64,
    /// The last file in which records are missing. Up to there all go together: what is before the gap proves that those who
    /// are behind it lost nothing.
    gap_in: u64,
    /// The newest such number in a write that was begun…
    stating: u64,
    /// …and in one that is durable.
    stated: u64,
    removing: bool,
    retry_at: Option<MonoTime>,
    /// The size of a file that can be used again.
    file_bytes: u64,
}

impl Files {
    pub(super) fn new(config: &JournalConfig, in_use: VecDeque<InUse>, needed: u64, gap_in: u64) -> Self {
        let (max, file_bytes) = (config.max_files(), config.file_bytes);
        Self { in_use, max, needed, gap_in, stating: needed, stated: 0, removing: false, retry_at: None, file_bytes }
    }

    /// Files before it are not needed: what a write or header that is planned now has to state.
    pub(super) fn state(&mut self) -> u64 {
        self.stating = self.needed;
        self.needed
    }

    /// A write or header with this statement is durable.
    pub(super) fn stated(&mut self, needed: u64) {
        self.stated = self.stated.max(needed);
    }

    /// Whether nothing durable says as much as this statement.
    pub(super) fn is_unproven(&self, states: u64) -> bool {
        states > self.stated
    }

    /// Whether some file waits for a statement that nothing planned so far makes.
    pub(super) fn has_unstated(&self) -> bool {
        self.needed > self.stating
    }

    pub(super) fn opened(&mut self, sequence: u64, path: Path, last: u64) {
        self.in_use.push_back(InUse { sequence, path, last, bytes: self.file_bytes });
    }

    /// A record went into the newest file.
    pub(super) fn grew(&mut self, last: u64) {
        if let Some(newest) = self.in_use.back_mut() {
            newest.last = last;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.in_use.len()
    }

    /// Whether one more may be made ahead of need: within the bound; or beyond it when none is open in this start, when the
    /// next write is the one that lets a file go, or when something waits that no file of the reserve has room for: only
    /// what makes room gets that far.
    pub(super) fn may_prepare(&self, is_open: bool, waits: bool) -> bool {
        let is_used_up = waits && self.in_use.len() == self.max;
        self.in_use.len() < self.max || is_used_up || !is_open || self.has_unstated()
    }

    /// Files that may still be opened for this.
    pub(super) fn left_for(&self, purpose: Purpose) -> Option<usize> {
        self.max.saturating_sub(purpose.spared_files()).checked_sub(self.in_use.len())
    }

    /// From half of the bound on, files have to go.
    pub(super) fn wants_room(&self) -> bool {
        let kept = self.in_use.iter().filter(|file| file.sequence >= self.needed).count();
        kept >= (self.max / 2).max(RESERVE_FILES)
    }

    /// The last record of the oldest file that is not released, unless that is the newest one.
    pub(super) fn oldest_ends(&self) -> Option<u64> {
        Some(self.next_to_go()?.0)
    }

    /// The last record of the file that goes next, with all before it, and the number of the one behind it. Never the newest.
    fn next_to_go(&self) -> Option<(u64, u64)> {
        let at = self.in_use.iter().position(|file| file.sequence >= self.needed.max(self.gap_in))?;
        // A file that is missing is not needed: what it cost was decided when the journal was read.
        Some((self.in_use[at].last, self.in_use.get(at + 1)?.sequence))
    }

    /// Nobody needs a record before `floor`. The newest file stays whatever is in it.
    pub(super) fn release(&mut self, floor: u64) {
        while let Some((_, next)) = self.next_to_go().filter(|(last, _)| *last < floor) {
            self.needed = next;
        }
    }

    /// The next file to go, one at a time, and whether it is as large as a new one.
    pub(super) fn next_removal(&mut self, now: MonoTime) -> Option<(Path, bool)> {
        if self.removing || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        let oldest = self.in_use.front().filter(|oldest| oldest.sequence < self.stated)?;
        self.removing = true;
        self.retry_at = None;
        Some((oldest.path.clone(), oldest.bytes == self.file_bytes))
    }

    /// The removal ended; one that failed is tried again after a pause.
    pub(super) fn removed(&mut self, result: &DiskResult<()>, now: MonoTime) {
        assert!(std::mem::take(&mut self.removing), "a removal that was started is reported once");
        match result {
            Ok(()) => drop(self.in_use.pop_front()),
            Err(_) => self.retry_at = Some(now.plus_ms(REMOVE_RETRY_MS)),
        }
    }

    pub(super) fn deadline(&self) -> Option<MonoTime> {
        self.retry_at
    }
}
