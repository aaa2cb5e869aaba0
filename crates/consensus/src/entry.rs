//! What a group's log holds, in the engine's words, and its translation to the library's.

use bytes::Bytes;
use lockgate_wire::{LogIndex, ReplicaId, Term};
use raft::eraftpb::{self, EntryType};

/// An entry of a group's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its place in the log, 2 or more: index 1 is the virtual snapshot.
    pub index: LogIndex,
    /// The term of the leader that proposed it.
    pub term: Term,
    /// What it is for.
    pub kind: EntryKind,
    /// The engine's stamps.
    pub context: Bytes,
    /// The engine's payload, the very bytes that were proposed.
    pub data: Bytes,
}

/// What an entry is for. The numbers are on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// Something the engine proposed.
    Normal = 1,
    /// A leader's first entry: it has neither context nor data.
    Empty = 2,
    /// A change of the group's configuration.
    Configuration = 3,
    /// Something the engine proposed whose data it has in its own files: it holds what the engine put in its place. Comes
    /// from journals alone, and is handed out as [`EntryKind::Normal`]: the engine knows its own.
    External = 4,
}

/// Who takes part in a group, in ascending order of ids.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Configuration {
    /// Who votes.
    pub voters: Vec<ReplicaId>,
    /// Who receives the log and does not vote.
    pub learners: Vec<ReplicaId>,
    /// Who voted before a change that is under way; empty when none is.
    pub voters_outgoing: Vec<ReplicaId>,
    /// Who becomes a learner when the change under way ends.
    pub learners_next: Vec<ReplicaId>,
}

impl Configuration {
    /// One voter and nobody else.
    pub fn sole(replica: ReplicaId) -> Self {
        Self { voters: vec![replica], ..Self::default() }
    }

    pub(crate) fn to_library(&self) -> eraftpb::ConfState {
        let ids = |replicas: &[ReplicaId]| replicas.iter().map(|replica| replica.0).collect();
        let mut state = eraftpb::ConfState::default();
        state.set_voters(ids(&self.voters));
        state.set_learners(ids(&self.learners));
        state.set_voters_outgoing(ids(&self.voters_outgoing));
        state.set_learners_next(ids(&self.learners_next));
        state
    }
}

impl Entry {
    pub(crate) fn from_library(entry: eraftpb::Entry) -> Self {
        let kind = kind_of(&entry);
        Self { index: LogIndex(entry.index), term: Term(entry.term), kind, context: entry.context, data: entry.data }
    }

    pub(crate) fn into_library(self) -> eraftpb::Entry {
        let Self { index, term, kind, context, data } = self;
        let entry_type = match kind {
            EntryKind::Normal | EntryKind::Empty | EntryKind::External => EntryType::EntryNormal,
            EntryKind::Configuration => EntryType::EntryConfChangeV2,
        };
        eraftpb::Entry { entry_type, index: index.0, term: term.0, context, data, ..Default::default() }
    }
}

/// The library has no type for a leader's first entry: it is the one that carries nothing. [`crate::Host::propose`]
/// refuses proposals that carry nothing, so that nobody else writes one.
pub(crate) fn kind_of(entry: &eraftpb::Entry) -> EntryKind {
    match entry.get_entry_type() {
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => EntryKind::Configuration,
        EntryType::EntryNormal if entry.data.is_empty() && entry.context.is_empty() => EntryKind::Empty,
        EntryType::EntryNormal => EntryKind::Normal,
    }
}
