//! What a group still needs of the journals, so that their oldest files can go.
//!
//! Three kinds of records live on although newer ones follow: the *head* (bootstrap, term and vote, truncations, the mark of
//! the buffered journal), the *base* mark, and the entries above the base. The base is the place in the log up to which the
//! engine's files have everything, durably; it moves when the engine says so. A head, and a short tail of entries, can be
//! carried forward: appended once more with the same meaning.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use lockgate_storage::journal::{AppendRefused, Draft, JournalKind, RecordKind, Sequence};
use lockgate_wire::{GroupId, LogIndex, Offset, ReplicaId, Term};

use crate::host::Append;
use crate::record::{self, BUFFERED_MARK, HardState, SNAPSHOT_INDEX, SNAPSHOT_TERM, Truncation, Written};
use crate::{Configuration, Entry};

/// The most bytes of a group's entries that are kept in memory to be carried forward. A group with more above its base has
/// to be written down by the engine before its journal files go.
pub(crate) const CARRY_BYTES_MAX: usize = 4 * 1024;
/// Recovery does not see files: so many records count as one.
const READ_RUN_RECORDS: u64 = 64;
/// What an entry counts beside its context and data.
const ENTRY_OVERHEAD_BYTES: usize = 128;

/// A place in a group's log up to which the engine's files have everything, durably: a start needs no earlier entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// The last entry before it.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
    /// The offset of the next record.
    pub next_offset: Offset,
}

impl Default for Base {
    fn default() -> Self {
        Self { index: SNAPSHOT_INDEX, term: SNAPSHOT_TERM, next_offset: Offset(0) }
    }
}

/// The first of a run of entries that begin in one journal file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) from: LogIndex,
    pub(crate) sequence: Sequence,
    /// The file that was written when it was appended.
    pub(crate) file: u64,
}

/// The entries of one journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Runs {
    runs: VecDeque<Run>,
    last: LogIndex,
}

impl Runs {
    /// An entry that recovery reads. What repeats or replaces an earlier one is taken to be needed as long as that one.
    fn read(&mut self, index: LogIndex, sequence: Sequence) {
        if index > self.last {
            self.append(index, sequence, sequence.0 / READ_RUN_RECORDS);
        }
    }

    /// The entry at `index` was appended, with everything from there on void.
    fn append(&mut self, index: LogIndex, sequence: Sequence, file: u64) {
        while self.runs.pop_back_if(|run| run.from >= index).is_some() {}
        if self.runs.back().is_none_or(|newest| newest.file != file) {
            self.runs.push_back(Run { from: index, sequence, file });
        }
        self.last = index;
    }

    /// Entries up to `base` are not needed.
    pub(crate) fn drop_up_to(&mut self, base: LogIndex) {
        if self.last <= base {
            self.runs.clear();
        }
        while self.runs.get(1).is_some_and(|next| next.from.0 <= base.0 + 1) {
            self.runs.pop_front();
        }
    }

    fn floor(&self) -> Option<Sequence> {
        self.runs.front().map(|run| run.sequence)
    }
}

/// A replica's living records. Sequence 0 stands for "none".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Living {
    pub(crate) configuration: Configuration,
    pub(crate) tag: Bytes,
    /// Term, vote and commit as they were last written.
    pub(crate) ballot: HardState,
    pub(crate) bootstrap: Sequence,
    pub(crate) hard_state: Sequence,
    pub(crate) truncations: Vec<(Truncation, Sequence)>,
    pub(crate) buffered_mark: Sequence,
    pub(crate) base_mark: Sequence,
    pub(crate) base: Base,
    pub(crate) synced: Runs,
    pub(crate) buffered: Runs,
    /// The last entries of the log, as long as they are few: those that can be carried forward.
    kept: VecDeque<(JournalKind, Written)>,
    kept_bytes: usize,
}

impl Living {
    /// Nothing is written yet.
    pub(crate) fn new(configuration: Configuration, tag: Bytes) -> Self {
        Self { configuration, tag, ..Self::default() }
    }

    fn runs(&mut self, journal: JournalKind) -> &mut Runs {
        match journal {
            JournalKind::Synced => &mut self.synced,
            JournalKind::Buffered => &mut self.buffered,
        }
    }

    /// Recovery read an entry.
    pub(crate) fn read(&mut self, journal: JournalKind, index: LogIndex, sequence: Sequence) {
        self.runs(journal).read(index, sequence);
    }

    /// An entry was appended to a journal.
    pub(crate) fn appended(&mut self, journal: JournalKind, (sequence, file): (Sequence, u64), written: Written) {
        let index = written.entry.index;
        self.runs(journal).append(index, sequence, file);
        while let Some((_, void)) = self.kept.pop_back_if(|(_, kept)| kept.entry.index >= index) {
            self.kept_bytes -= weight(&void.entry);
        }
        self.keep(journal, written);
    }

    /// Keeps the entry to be carried forward; when those become too many, none is.
    pub(crate) fn keep(&mut self, journal: JournalKind, written: Written) {
        self.kept_bytes += weight(&written.entry);
        self.kept.push_back((journal, written));
        if self.kept_bytes > CARRY_BYTES_MAX {
            self.keep_nothing();
        }
    }

    /// What is kept is not what was written: the data of entries went into the engine's files. Nothing is carried until
    /// the base has passed them.
    pub(crate) fn keep_nothing(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
    }

    /// The engine's files have everything up to here.
    pub(crate) fn set_base(&mut self, base: Base, mark: Sequence) {
        (self.base, self.base_mark) = (base, mark);
        self.synced.drop_up_to(base.index);
        self.buffered.drop_up_to(base.index);
        while let Some((_, below)) = self.kept.pop_front_if(|(_, kept)| kept.entry.index <= base.index) {
            self.kept_bytes -= weight(&below.entry);
        }
    }

    /// The lowest record of the head.
    pub(crate) fn head(&self) -> Option<Sequence> {
        let single = [self.bootstrap, self.hard_state, self.buffered_mark, self.base_mark];
        let truncations = self.truncations.iter().map(|(_, sequence)| *sequence);
        single.into_iter().chain(truncations).filter(|sequence| *sequence > Sequence(0)).min()
    }

    /// The lowest record of a journal that is needed.
    pub(crate) fn floor(&self, journal: JournalKind) -> Option<Sequence> {
        let head = if journal == JournalKind::Synced { self.head() } else { None };
        head.into_iter().chain(self.entries_floor(journal)).min()
    }

    /// The lowest entry of a journal that is needed.
    pub(crate) fn entries_floor(&self, journal: JournalKind) -> Option<Sequence> {
        match journal {
            JournalKind::Synced => self.synced.floor(),
            JournalKind::Buffered => self.buffered.floor(),
        }
    }

    /// Whether all entries above the base are kept.
    pub(crate) fn can_carry(&self) -> bool {
        let first = self.kept.front().map(|(_, kept)| kept.entry.index);
        first.is_some_and(|first| first.0 <= self.base.index.0 + 1)
    }

    /// What the records of a head say, but for the truncations: bootstrap, hard state, the mark of the buffered journal,
    /// the base.
    pub(crate) fn heads(&self, ballot: HardState) -> [(RecordKind, Vec<Bytes>); 4] {
        [
            (RecordKind::Bootstrap, record::encode_bootstrap(&self.configuration, self.tag.clone())),
            (RecordKind::HardState, record::encode_hard_state(ballot)),
            (RecordKind::CheckpointMark, vec![Bytes::from_static(BUFFERED_MARK)]),
            (RecordKind::CheckpointMark, record::encode_base(self.base)),
        ]
    }

    /// Appends once more what the journal has of this replica up to a record. Gives the number of records.
    pub(crate) fn carry(
        &mut self,
        (group, replica): (GroupId, ReplicaId),
        journal: JournalKind,
        up_to: Sequence,
        journals: &mut impl Append,
    ) -> Result<u64, AppendRefused> {
        let draft = |kind, body| Draft { group, replica, kind, body };
        let mut carried = 0;
        if journal == JournalKind::Synced && self.head().is_some_and(|head| head <= up_to) {
            let heads = self.heads(self.ballot);
            let places = [&mut self.bootstrap, &mut self.hard_state, &mut self.buffered_mark, &mut self.base_mark];
            for (sequence, (kind, body)) in places.into_iter().zip(heads) {
                if *sequence > Sequence(0) {
                    *sequence = journals.append(journal, draft(kind, body))?;
                    carried += 1;
                }
            }
            for (truncation, sequence) in &mut self.truncations {
                let body = record::encode_truncation(*truncation);
                *sequence = journals.append(journal, draft(RecordKind::Truncate, body))?;
                carried += 1;
            }
        }
        if self.entries_floor(journal).is_none_or(|floor| floor > up_to) {
            return Ok(carried);
        }
        let mut runs = Runs::default();
        let mut heads = BytesMut::new();
        for (_, Written { written_in, entry }) in self.kept.iter().filter(|(kind, _)| *kind == journal) {
            let index = entry.index;
            let body = record::encode_entry(&mut heads, entry.clone(), *written_in);
            let sequence = journals.append(journal, draft(record::record_kind(entry), body))?;
            runs.append(index, sequence, journals.file(journal));
            carried += 1;
        }
        *self.runs(journal) = runs;
        Ok(carried)
    }
}

fn weight(entry: &Entry) -> usize {
    ENTRY_OVERHEAD_BYTES + entry.context.len() + entry.data.len()
}

#[cfg(test)]
mod tests;
