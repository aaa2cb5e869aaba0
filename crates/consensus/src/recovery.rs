//! What both journals hold, folded into the groups that live.
//!
//! Each journal gives its records in its own order; between the two there is none. What decides is the term in which an
//! entry was written ([`Written`]): within one term a group's log only grows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use bytes::{Bytes, BytesMut};
use lockgate_storage::journal::{Draft, JournalKind, RecordKind, RecoveredRecord, Sequence};
use lockgate_wire::{GroupId, LogIndex, ReplicaId, Term};

use crate::living::Living;
use crate::log::{self, check_order};
use crate::record::{self, Acceptance, BUFFERED_MARK, HardState, Malformed, SNAPSHOT_TERM, Truncation, Written};
use crate::{Base, Configuration, ConsensusError, Entry};

/// A group as the journals have it, to be given to [`crate::Host::open`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecoveredGroup {
    /// The group.
    pub group: GroupId,
    /// This replica's id.
    pub replica: ReplicaId,
    /// What the engine gave at bootstrap.
    pub tag: Bytes,
    /// The term, never below one that anything of the group was written in.
    pub term: Term,
    /// Whom this replica voted for in that term; 0 is nobody.
    pub vote: ReplicaId,
    /// What is known to be committed, at most the last index. A sole voter commits its whole log when it leads.
    pub commit: LogIndex,
    /// The log, in index order without a hole. It starts at 2, or later if older journal files were freed; then not after
    /// the base's next.
    pub entries: Vec<Entry>,
    /// Who takes part.
    pub configuration: Configuration,
    /// Up to here the journals may have freed the log, as the engine's files have it.
    pub base: Base,
    /// Entries before it were not kept, as the engine [said](Recovery::keep_from) that it has them.
    pub kept_from: LogIndex,
    pub(crate) living: Living,
}

impl RecoveredGroup {
    /// The last entry of the log; the virtual snapshot's index when there is none.
    pub fn last_index(&self) -> LogIndex {
        self.entries.last().map_or(self.base.index, |entry| entry.index.max(self.base.index))
    }

    /// Whether the log goes on from a state that holds everything up to `applied`, an entry of `applied_term`.
    pub fn check(&self, applied: LogIndex, applied_term: Term) -> Result<(), ConsensusError> {
        log::check(self.group, self.term, (self.base.index, &self.entries), (applied, applied_term))
    }

    /// The records that recover to this group, in their order and in the fewest: for a journal that is made anew.
    pub fn into_drafts(self) -> impl Iterator<Item = Draft> {
        let Self { group, replica, term, vote, commit, entries, living, .. } = self;
        let draft = move |kind, body| Draft { group, replica, kind, body };
        let are_marked = [living.buffered_mark, living.base_mark].map(|mark| mark > Sequence(0));
        let are_there = [true, true].into_iter().chain(are_marked);
        let heads = living.heads(HardState { term, vote, commit }).into_iter().zip(are_there);
        let heads = heads.filter_map(move |((kind, body), is_there)| is_there.then(|| draft(kind, body)));
        let mut entry_heads = BytesMut::new();
        // What was voided is not among them, so that all may count as written now.
        let entries = entries
            .into_iter()
            .map(move |entry| draft(record::record_kind(&entry), record::encode_entry(&mut entry_heads, entry, term)));
        heads.chain(entries)
    }

    /// The engine's files have everything up to `base`, durably: for [drafts](Self::into_drafts) that have no entry before it.
    pub fn set_base(&mut self, base: Base) {
        self.base = base;
        self.living.set_base(base, self.living.base_mark.max(Sequence(1)));
    }

    /// Makes this what is left of it: everything up to `base` is in the engine's files, the log goes up to `end`. Gives the
    /// record of the synced journal that makes it so at every later start. It is one record, so that a crash leaves all of it
    /// or nothing; the entries stay where they are.
    pub fn accept(&mut self, base: Base, end: LogIndex) -> Draft {
        // Everything behind the end is void, as it was written in an earlier term.
        let term = Term(self.term.max(base.term).0 + 1);
        (self.term, self.vote) = (term, self.replica);
        self.base = base;
        let entries = std::mem::take(&mut self.entries).into_iter();
        self.entries = joined(entries.take_while(|entry| entry.index <= end), base);
        self.commit = self.commit.min(self.last_index());
        let cut = Truncation { from: LogIndex(end.0 + 1), term };
        let (group, replica) = (self.group, self.replica);
        let body = record::encode_acceptance(Acceptance { base, cut });
        Draft { group, replica, kind: RecordKind::Accepted, body }
    }

    /// The record of the buffered journal that ends its doubt; to be written once the other one is durable.
    pub fn accept_buffered(&self) -> Draft {
        Draft { group: self.group, replica: self.replica, kind: RecordKind::Accepted, body: Vec::new() }
    }

    /// Whether the buffered journal may have entries of the group.
    pub fn is_marked(&self) -> bool {
        self.living.buffered_mark > Sequence(0)
    }

    /// The term of an entry; the virtual snapshot's for what the log no longer has.
    pub fn term_of(&self, index: LogIndex) -> Term {
        if index == self.base.index {
            return self.base.term;
        }
        let at = self.entries.binary_search_by_key(&index, |entry| entry.index);
        at.map_or(SNAPSHOT_TERM, |at| self.entries[at].term)
    }
}

/// A replica of which a damaged journal may have lost something: nobody knows what its log is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuspectGroup {
    /// The group.
    pub group: GroupId,
    /// The replica.
    pub replica: ReplicaId,
    /// What is left of it, if its bootstrap is: the entries may have holes.
    pub left: Option<RecoveredGroup>,
}

/// Folds the records of both journals, in any interleaving of the two.
#[derive(Default)]
pub struct Recovery {
    replicas: BTreeMap<(GroupId, ReplicaId), Replica>,
}

/// What was seen of one replica so far.
#[derive(Default)]
struct Replica {
    bootstrap: Option<(Configuration, Bytes)>,
    /// The newest applied configuration after the bootstrap's.
    configuration: Option<(LogIndex, Configuration)>,
    hard_state: HardState,
    /// Entries before it are not kept.
    keep_from: LogIndex,
    /// The latest term in which one of those was written: it voids what is above as if it were kept.
    forgotten: Term,
    /// By index; the term of writing never falls from one to the next.
    entries: BTreeMap<LogIndex, (JournalKind, Written)>,
    truncations: Vec<Truncation>,
    living: Living,
    /// Whether the synced journal, which holds the bootstrap, has anything of this replica.
    in_synced: bool,
    removed: bool,
}

impl Recovery {
    /// Nothing folded yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next record of a journal. The records of one journal must come in their order.
    pub fn fold(&mut self, journal: JournalKind, record: RecoveredRecord) -> Result<(), ConsensusError> {
        let RecoveredRecord { sequence, group, replica, kind, body, .. } = record;
        let state = self.replicas.entry((group, replica)).or_default();
        let bad = |what: Malformed| ConsensusError::BadRecord { group, journal, sequence, kind, what };
        // The mark of the buffered journal may go ahead of the bootstrap.
        if kind == RecordKind::CheckpointMark && body == BUFFERED_MARK {
            state.living.buffered_mark = sequence;
            return Ok(());
        }
        state.in_synced |= journal == JournalKind::Synced;
        match kind {
            RecordKind::Bootstrap => {
                state.bootstrap = Some(record::decode_bootstrap(body).map_err(bad)?);
                state.living.bootstrap = sequence;
            }
            RecordKind::Entry | RecordKind::ExternalEntry => {
                let written = record::decode_entry_of(kind, body).map_err(bad)?;
                state.living.read(journal, written.entry.index, sequence);
                state.entry(group, journal, written)?;
            }
            RecordKind::HardState => {
                state.hard_state(group, record::decode_hard_state(body).map_err(bad)?)?;
                state.living.hard_state = sequence;
            }
            RecordKind::Configuration => {
                state.configuration(record::decode_configuration(body).map_err(bad)?);
                // From here on the head has to have it.
                state.living.bootstrap = state.living.bootstrap.min(sequence);
            }
            RecordKind::Truncate => {
                state.truncate(record::decode_truncation(body).map_err(bad)?, sequence);
            }
            RecordKind::CheckpointMark => {
                let base = record::decode_base(body).map_err(bad)?;
                (state.living.base, state.living.base_mark) = (base, sequence);
            }
            RecordKind::Removed => state.removed = true,
            // Each journal has taken for itself that its doubt ends; the synced one says what the log is.
            RecordKind::Accepted if journal == JournalKind::Buffered => {}
            RecordKind::Accepted => {
                let Acceptance { base, cut } = record::decode_acceptance(body).map_err(bad)?;
                state.truncate(cut, sequence);
                let mark = if base == Base::default() { Sequence(0) } else { sequence };
                (state.living.base, state.living.base_mark) = (base, mark);
            }
            RecordKind::SnapshotMark => {
                return Err(ConsensusError::UnknownRecord { group, journal, sequence, kind });
            }
        }
        Ok(())
    }

    /// What the engine gave at the replica's bootstrap, once that was folded.
    pub fn tag(&self, group: GroupId, replica: ReplicaId) -> Option<Bytes> {
        self.replicas.get(&(group, replica))?.bootstrap.as_ref().map(|(_, tag)| tag.clone())
    }

    /// The engine has everything before `index` on its disk, applied: such entries are not kept, now or later. Nothing
    /// that was committed is ever void, so the engine's copy is the log's. An index below one that was said before says
    /// nothing.
    pub fn keep_from(&mut self, group: GroupId, replica: ReplicaId, index: LogIndex) {
        let state = self.replicas.entry((group, replica)).or_default();
        if index <= state.keep_from {
            return;
        }
        let kept = state.entries.split_off(&index);
        let dropped = std::mem::replace(&mut state.entries, kept);
        state.keep_from = index;
        state.forgotten = dropped.last_key_value().map_or(state.forgotten, |(_, (_, last))| last.written_in);
    }

    /// Takes out the groups that are suspect, whatever is left of them; what remains may be [finished](Self::finish).
    pub fn take_suspects(&mut self, is_suspect: &dyn Fn(GroupId) -> bool) -> Vec<SuspectGroup> {
        let suspects = self.replicas.extract_if(.., |(group, _), _| is_suspect(*group));
        suspects
            .filter(|(_, state)| !state.removed)
            .map(|((group, replica), state)| SuspectGroup {
                group,
                replica,
                left: state.left(group, replica).ok().flatten(),
            })
            .collect()
    }

    /// The groups that live, by id.
    pub fn finish(self) -> Result<Vec<RecoveredGroup>, ConsensusError> {
        let mut groups: Vec<RecoveredGroup> = Vec::new();
        for ((group, replica), state) in self.replicas {
            let Some(recovered) = state.finish(group, replica)? else { continue };
            if let Some(first) = groups.last().filter(|last| last.group == group).map(|last| last.replica) {
                return Err(ConsensusError::TwoReplicas { group, first, second: replica });
            }
            groups.push(recovered);
        }
        Ok(groups)
    }
}

impl Replica {
    /// Keeps the entry unless something written in a later term voids it, and drops what it voids.
    fn entry(&mut self, group: GroupId, journal: JournalKind, new: Written) -> Result<(), ConsensusError> {
        let index = new.entry.index;
        if index < self.keep_from {
            self.forgotten = self.forgotten.max(new.written_in);
            self.drop_older(index, new.written_in);
            return Ok(());
        }
        let before =
            self.entries.range(..=index).next_back().map_or(self.forgotten, |(_, (_, before))| before.written_in);
        let truncated = self.truncations.iter().any(|cut| cut.from <= index && cut.term > new.written_in);
        if truncated || before > new.written_in {
            return Ok(());
        }
        self.drop_older(index, new.written_in);
        match self.entries.entry(index) {
            Slot::Vacant(slot) => drop(slot.insert((journal, new))),
            // The same entry again: carried forward within its journal.
            Slot::Occupied(slot) if slot.get().1.is_same(&new) => {}
            Slot::Occupied(_) => {
                return Err(ConsensusError::Conflict { group, index, written_in: new.written_in });
            }
        }
        Ok(())
    }

    fn truncate(&mut self, cut: Truncation, sequence: Sequence) {
        self.drop_older(cut.from, cut.term);
        self.truncations.push(cut);
        self.living.truncations.retain(|(known, _)| *known != cut);
        self.living.truncations.push((cut, sequence));
    }

    /// Drops what was written before `term` at `from` and above. It is a run, as terms of writing never fall along it.
    fn drop_older(&mut self, from: LogIndex, term: Term) {
        let older = |(index, (_, old)): (&LogIndex, &(JournalKind, Written))| (old.written_in < term).then_some(*index);
        while let Some(index) = self.entries.range(from..).next().and_then(older) {
            self.entries.remove(&index);
        }
    }

    fn hard_state(&mut self, group: GroupId, new: HardState) -> Result<(), ConsensusError> {
        let old = self.hard_state;
        if new.term < old.term {
            return Err(ConsensusError::TermFell { group, from: old.term, to: new.term });
        }
        self.hard_state = HardState { commit: new.commit.max(old.commit), ..new };
        Ok(())
    }

    fn configuration(&mut self, new: (LogIndex, Configuration)) {
        if self.configuration.as_ref().is_none_or(|old| old.0 <= new.0) {
            self.configuration = Some(new);
        }
    }

    fn finish(self, group: GroupId, replica: ReplicaId) -> Result<Option<RecoveredGroup>, ConsensusError> {
        let left = self.left(group, replica)?;
        if let Some(RecoveredGroup { term, entries, .. }) = &left {
            check_order(group, *term, entries)?;
        }
        Ok(left)
    }

    /// The group, whether its entries have holes or not.
    fn left(self, group: GroupId, replica: ReplicaId) -> Result<Option<RecoveredGroup>, ConsensusError> {
        if self.removed {
            return Ok(None);
        }
        let Some((configuration, tag)) = self.bootstrap else {
            // The bootstrap goes ahead of everything else in the synced journal. Where that has nothing, the bootstrap
            // was never confirmed, hence nothing else was: the crash came before the group existed.
            return if self.in_synced { Err(ConsensusError::NoBootstrap { group, replica }) } else { Ok(None) };
        };
        let configuration = self.configuration.map_or(configuration, |(_, newer)| newer);
        let HardState { mut term, mut vote, commit } = self.hard_state;
        term = term.max(SNAPSHOT_TERM);
        let written = self.entries.last_key_value().map_or(self.forgotten, |(_, (_, last))| last.written_in);
        let written = self.truncations.iter().map(|cut| cut.term).fold(written, Term::max);
        if written > term {
            // The buffered journal got further than the synced one, which was to hold this term and its vote. Neither
            // was confirmed, but the term is used up: voting for itself in it gives nobody else a second vote.
            (term, vote) = (written, replica);
        }
        term = term.max(self.living.base.term);
        let mut living = self.living;
        living.configuration = configuration.clone();
        living.tag = tag.clone();
        living.ballot = self.hard_state;
        living.set_base(living.base, living.base_mark);
        let base = living.base;
        let kept_from = self.keep_from;
        let entries = joined(self.entries.values().map(|(_, written)| written.entry.clone()), base);
        for (index, (journal, written)) in self.entries {
            if index > base.index {
                living.keep(journal, written);
            }
        }
        let last = entries.last().map_or(base.index, |last| last.index);
        let commit = commit.min(last);
        Ok(Some(RecoveredGroup {
            group,
            replica,
            tag,
            term,
            vote,
            commit,
            entries,
            configuration,
            base,
            kept_from,
            living,
        }))
    }
}

/// Entries in their order, as a log over this base. What lies before a hole was freed, though not everywhere, if the engine's
/// files reach behind the hole.
fn joined(entries: impl Iterator<Item = Entry>, base: Base) -> Vec<Entry> {
    let mut log: Vec<Entry> = Vec::new();
    for entry in entries {
        let follows = log.last().is_none_or(|before| before.index.0 + 1 == entry.index.0);
        if !follows && entry.index.0 <= base.index.0 + 1 {
            log.clear();
        }
        log.push(entry);
    }
    if log.last().is_some_and(|last| last.index < base.index) {
        log.clear();
    }
    log
}

#[cfg(test)]
mod tests;
