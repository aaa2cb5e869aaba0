//! The part of a group's log that the library reads: everything above the applied index, in memory.
//!
//! An entry is here from the moment its write was planned until the engine has applied it. Of what is below, only the
//! last term is kept. So the library's storage never has to say "not available just now".

use std::collections::VecDeque;

use lockgate_wire::{GroupId, LogIndex, Term};
use raft::eraftpb;
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::record::{HardState, SNAPSHOT_INDEX, SNAPSHOT_TERM};
use crate::{Configuration, ConsensusError, Entry, EntryKind};

/// A group's tail, with the state that the library starts from.
pub(crate) struct Log {
    /// What the library is told once, when the group opens.
    initial: RaftState,
    /// The last index that is no longer here: applied, or the virtual snapshot.
    compacted: (u64, u64),
    /// Everything above, without a gap.
    entries: VecDeque<eraftpb::Entry>,
}

impl Log {
    /// A log that holds nothing but the virtual snapshot.
    pub(crate) fn empty(configuration: &Configuration) -> Self {
        let state = HardState { term: SNAPSHOT_TERM, commit: SNAPSHOT_INDEX, ..HardState::default() };
        Self {
            initial: initial(state, configuration),
            compacted: (SNAPSHOT_INDEX.0, SNAPSHOT_TERM.0),
            entries: VecDeque::new(),
        }
    }

    /// A log as it was recovered, applied up to an index that it holds or directly precedes; without entries it ends at its
    /// base. Whatever would make the library panic is refused here: a commit index or an applied index above the last entry,
    /// a gap, a falling term.
    pub(crate) fn recovered(
        group: GroupId,
        state: HardState,
        configuration: &Configuration,
        (base, entries): (LogIndex, Vec<Entry>),
        applied: (LogIndex, Term),
    ) -> Result<Self, ConsensusError> {
        check_order(group, state.term, &entries)?;
        let (applied, applied_term) =
            if applied.0 <= SNAPSHOT_INDEX { (SNAPSHOT_INDEX, SNAPSHOT_TERM) } else { applied };
        let last = entries.last().map_or(base, |entry| entry.index);
        if applied > last {
            return Err(ConsensusError::AppliedAboveLog { group, applied, last });
        }
        match entries.first() {
            Some(first) if first.index.0 > applied.0 + 1 => {
                return Err(ConsensusError::Hole { group, after: applied, next: first.index });
            }
            None if applied < last => {
                return Err(ConsensusError::Hole { group, after: applied, next: LogIndex(last.0 + 1) });
            }
            _ => {}
        }
        let at_applied = entries.iter().find(|entry| entry.index == applied);
        if let Some(log_term) = at_applied.map(|entry| entry.term).filter(|term| *term != applied_term) {
            return Err(ConsensusError::AppliedTermDiffers { group, applied, applied_term, log_term });
        }
        let above: Vec<_> = entries.into_iter().filter(|entry| entry.index > applied).collect();
        if let Some(change) = above.iter().find(|entry| entry.kind == EntryKind::Configuration) {
            return Err(ConsensusError::ConfigurationChange { group, index: change.index });
        }
        if let Some(next) = above.first().filter(|next| next.term < applied_term) {
            return Err(ConsensusError::TermOrder { group, index: next.index, term: next.term });
        }
        let commit = state.commit.clamp(applied, last);
        Ok(Self {
            initial: initial(HardState { commit, ..state }, configuration),
            compacted: (applied.0, applied_term.0),
            entries: above.into_iter().map(Entry::into_library).collect(),
        })
    }

    /// The last index that is no longer here, which is the applied one.
    pub(crate) fn compacted(&self) -> LogIndex {
        LogIndex(self.compacted.0)
    }

    pub(crate) fn last(&self) -> LogIndex {
        LogIndex(self.compacted.0 + self.entries.len() as u64)
    }

    /// Takes entries over, whose write was just planned. What is at their indices and above goes.
    pub(crate) fn append(&mut self, entries: Vec<eraftpb::Entry>) {
        let Some(first) = entries.first() else { return };
        let kept = first.index.checked_sub(self.compacted.0 + 1).expect("an applied entry is never overwritten");
        assert!(kept <= self.entries.len() as u64, "entry {} leaves a gap after {}", first.index, self.last());
        self.entries.truncate(kept as usize);
        self.entries.extend(entries);
    }

    /// Forgets what the engine has applied.
    pub(crate) fn compact(&mut self, applied: LogIndex) {
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= applied.0) {
            self.compacted = (entry.index, entry.term);
        }
    }
}

/// Entries follow each other without a hole, and terms never fall nor exceed the group's.
pub(crate) fn check_order(group: GroupId, term: Term, entries: &[Entry]) -> Result<(), ConsensusError> {
    for pair in entries.windows(2) {
        let [before, next] = pair else { continue };
        if next.index.0 != before.index.0 + 1 {
            return Err(ConsensusError::Hole { group, after: before.index, next: next.index });
        }
        if next.term < before.term {
            return Err(ConsensusError::TermOrder { group, index: next.index, term: next.term });
        }
    }
    match entries.last() {
        Some(last) if last.term > term => Err(ConsensusError::TermOrder { group, index: last.index, term: last.term }),
        _ => Ok(()),
    }
}

fn initial(state: HardState, configuration: &Configuration) -> RaftState {
    let HardState { term, vote, commit } = state;
    let state = eraftpb::HardState { term: term.0, vote: vote.0, commit: commit.0, ..Default::default() };
    RaftState::new(state, configuration.to_library())
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.initial.clone())
    }

    /// The range as it is, whatever its size: what waits is bounded ([`crate::UNCOMMITTED_BYTES_MAX`]), and by reference.
    fn entries(
        &self,
        low: u64,
        high: u64,
        _max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<eraftpb::Entry>> {
        let from = low.checked_sub(self.compacted.0 + 1).ok_or(StorageError::Compacted)? as usize;
        let until = high.checked_sub(self.compacted.0 + 1).ok_or(StorageError::Compacted)? as usize;
        if from > until || until > self.entries.len() {
            return Err(StorageError::Unavailable.into());
        }
        Ok(self.entries.range(from..until).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.compacted.0 {
            return Ok(self.compacted.1);
        }
        let at = index.checked_sub(self.compacted.0 + 1).ok_or(StorageError::Compacted)?;
        let entry = usize::try_from(at).ok().and_then(|at| self.entries.get(at));
        entry.map(|entry| entry.term).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.compacted.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().0)
    }

    /// Only a follower that is too far behind asks for one, and a sole voter has no followers.
    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<eraftpb::Snapshot> {
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

#[cfg(test)]
mod tests;
