//! All the groups of a shard, and their common way to the journals.
//!
//! Owns the groups and knows which of them have something to do; the others cost nothing. May call the journals only to
//! append. One round: proposals, then [`Host::advance`]; when a journal write is confirmed [`Host::persisted`], then
//! `advance` again for what that committed.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use lockgate_storage::journal::{AppendRefused, Draft, JournalKind, Journals, RecordKind, Sequence};
use lockgate_wire::{GroupId, LogIndex, ReplicaId, Term};
use rustc_hash::FxHashMap;

use crate::group::{Confirmed, Group};
use crate::living::{Base, Living};
use crate::log::Log;
use crate::record::{HardState, TERM_MAX};
use crate::{Configuration, ConsensusError, Event, GroupStatus, ProposeError, Proposed, RecoveredGroup};

/// Where the host's records go: the shard's two journals.
pub trait Append {
    /// Takes a record for the next write, and numbers it. Refused before anything changed.
    fn append(&mut self, journal: JournalKind, draft: Draft) -> Result<Sequence, AppendRefused>;
    /// The number of the file that the journal writes: a record that is appended now goes there or behind it.
    fn file(&self, journal: JournalKind) -> u64;
}

impl Append for Journals {
    fn append(&mut self, journal: JournalKind, draft: Draft) -> Result<Sequence, AppendRefused> {
        self.get_mut(journal).append(draft)
    }

    fn file(&self, journal: JournalKind) -> u64 {
        self.get(journal).current_file()
    }
}

/// How a group can do without old records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Laggard {
    /// They are few and can be [carried](Host::carry) forward.
    Carry,
    /// The engine has to write down what they made, and say so ([`Host::mark_base`]).
    WriteDown,
}

/// The groups of one shard.
pub struct Host {
    seed: u64,
    logger: slog::Logger,
    groups: FxHashMap<GroupId, Group>,
    /// Groups that may have something to write or to tell, each once, in the order in which they got it.
    listed: Vec<GroupId>,
    /// Replicas that were recovered and are not open: what the journals have of them is needed all the same.
    held: BTreeMap<GroupId, (ReplicaId, Living)>,
    /// Replicas of which a journal may have lost something. They write nothing: their next record would prove that nothing
    /// is missing.
    suspects: BTreeMap<GroupId, ReplicaId>,
    /// Removed replicas whose record is not written yet.
    removed: Vec<(GroupId, ReplicaId)>,
    /// What was appended and not confirmed, by journal: a group's last record of a round, in sequence order.
    waiting_synced: VecDeque<(Sequence, GroupId)>,
    waiting_buffered: VecDeque<(Sequence, GroupId)>,
    confirmed: Confirmed,
    /// Groups that wait for the buffered journal's sync before they leave it.
    leaving_buffered: Vec<GroupId>,
    poisoned: bool,
    /// Who led when the host was poisoned, until it is told.
    stepped_down: Vec<Event>,
}

impl Host {
    /// A host without groups. Its choices depend on the seed and on what it is told, nothing else.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            logger: slog::Logger::root(slog::Discard, slog::o!()),
            groups: FxHashMap::default(),
            listed: Vec::new(),
            held: BTreeMap::new(),
            suspects: BTreeMap::new(),
            removed: Vec::new(),
            waiting_synced: VecDeque::new(),
            waiting_buffered: VecDeque::new(),
            confirmed: Confirmed::default(),
            leaving_buffered: Vec::new(),
            poisoned: false,
            stepped_down: Vec::new(),
        }
    }

    /// Makes a group whose only voter is `replica`; only for a replica of which no trace exists. Its bootstrap record,
    /// with the engine's `tag`, goes to the synced journal at the next [`Host::advance`]; its entries go to the journal
    /// named by `durability`. It leads at once and serves when [`Event::Serving`] says so.
    pub fn bootstrap(
        &mut self,
        group: GroupId,
        replica: ReplicaId,
        tag: Bytes,
        durability: JournalKind,
    ) -> Result<(), ConsensusError> {
        self.check_new(group, replica)?;
        let configuration = Configuration::sole(replica);
        let log = Log::empty(&configuration);
        let living = Living::new(configuration, tag);
        self.start(Group::new((group, replica), log, living, durability, &self.logger), group);
        Ok(())
    }

    /// Opens a group as it was recovered. The engine's state holds everything up to `applied`, an entry of
    /// `applied_term`; index 0 or 1 stands for a state that holds nothing. What is above comes as committed entries once
    /// this replica leads, which it does when its new term and its own first entry are persisted.
    pub fn open(
        &mut self,
        recovered: RecoveredGroup,
        applied: LogIndex,
        applied_term: Term,
        durability: JournalKind,
    ) -> Result<(), ConsensusError> {
        let (group, replica, living) = (recovered.group, recovered.replica, recovered.living.clone());
        self.check_new(group, replica)?;
        match recovered_log(recovered, (applied, applied_term)) {
            Ok(log) => {
                self.start(Group::new((group, replica), log, living, durability, &self.logger), group);
                Ok(())
            }
            Err(error) => {
                self.held.insert(group, (replica, living));
                Err(error)
            }
        }
    }

    /// Keeps what the journals have of a replica that is not opened, until it is removed.
    pub fn hold(&mut self, recovered: RecoveredGroup) {
        self.held.insert(recovered.group, (recovered.replica, recovered.living));
    }

    /// Keeps everything in the journals for a replica of which something may be lost, until it is removed.
    pub fn suspect(&mut self, group: GroupId, replica: ReplicaId) {
        self.suspects.insert(group, replica);
    }

    /// The replicas for whose sake the journals let nothing go.
    pub fn suspects(&self) -> impl Iterator<Item = GroupId> {
        self.suspects.keys().copied()
    }

    /// Appends a proposal to the group's log, keeping the bytes by reference. Committed when an entry with the returned
    /// index and term is; nothing is promised before.
    pub fn propose(&mut self, group: GroupId, context: Bytes, data: Bytes) -> Result<Proposed, ProposeError> {
        if self.poisoned {
            return Err(ProposeError::Poisoned);
        }
        let state = self.groups.get_mut(&group).ok_or(ProposeError::NoSuchGroup)?;
        let proposed = state.propose(context, data)?;
        list(&mut self.listed, state, group);
        Ok(proposed)
    }

    /// Appends what is new to the journals and adds what happened to `events`. Gives the number of groups that were
    /// looked at: those that had something, and no other.
    ///
    /// A journal that refuses a record has failed, or the caller takes larger proposals than its journal: the host
    /// poisons itself.
    pub fn advance(&mut self, journals: &mut impl Append, events: &mut Vec<Event>) -> usize {
        let round = std::mem::take(&mut self.listed);
        // The one door to the journals and to the engine: closed for good by a poison, whatever else is still called.
        if !self.poisoned && self.write(&round, journals, events).is_err() {
            self.poison();
        }
        events.append(&mut self.stepped_down);
        round.len()
    }

    /// A journal has confirmed everything up to a record: synced to the device, or for the buffered journal handed to
    /// the operating system. What depended on it is told by the next [`Host::advance`].
    pub fn persisted(&mut self, journal: JournalKind, up_to: Sequence) {
        let (confirmed, waiting) = match journal {
            JournalKind::Synced => (&mut self.confirmed.synced, &mut self.waiting_synced),
            JournalKind::Buffered => (&mut self.confirmed.buffered, &mut self.waiting_buffered),
        };
        *confirmed = up_to.max(*confirmed);
        while let Some((sequence, group)) = waiting.front().copied() {
            if let Some(state) = self.groups.get_mut(&group)
                && state.settle(self.confirmed)
            {
                list(&mut self.listed, state, group);
            }
            // Of what the first that is not done has written, a part may be confirmed.
            if sequence > up_to {
                break;
            }
            waiting.pop_front();
        }
    }

    /// The buffered journal is on the device up to a record. Lets groups go that leave it ([`Host::set_durability`]).
    pub fn buffered_synced(&mut self, up_to: Sequence) {
        let on_device = &mut self.confirmed.buffered_on_device;
        *on_device = up_to.max(*on_device);
        let (groups, confirmed, listed) = (&mut self.groups, self.confirmed, &mut self.listed);
        self.leaving_buffered.retain(|group| match groups.get_mut(group) {
            Some(state) if state.may_leave_buffered(confirmed) => {
                list(listed, state, *group);
                false
            }
            Some(_) => true,
            None => false,
        });
    }

    /// The engine has applied the group's entries up to `index`, which were handed out: they leave memory.
    pub fn applied(&mut self, group: GroupId, index: LogIndex) {
        if let Some(state) = self.groups.get_mut(&group) {
            state.applied(index);
        }
    }

    /// Sends the group's future entries to another journal, as soon as that can leave no hole: when all its writes are
    /// confirmed and, leaving the buffered journal, when that was synced ([`Host::buffered_synced`]). Entries proposed
    /// until then wait.
    pub fn set_durability(&mut self, group: GroupId, durability: JournalKind) {
        if let Some(state) = self.groups.get_mut(&group)
            && state.set_durability(durability)
            && !self.leaving_buffered.contains(&group)
        {
            self.leaving_buffered.push(group);
        }
    }

    /// Drops a group for good: its record of removal is written at the next [`Host::advance`], and no recovery gives it
    /// back after that.
    pub fn remove(&mut self, group: GroupId) {
        let open = self.groups.remove(&group).filter(Group::is_written).map(|state| state.replica());
        let held = self.held.remove(&group).map(|(replica, _)| replica);
        let suspect = self.suspects.remove(&group);
        self.removed.extend(open.or(held).or(suspect).map(|replica| (group, replica)));
    }

    /// Says durably, in the synced journal, that entries of the group may be in the buffered one. `None`: it is not open.
    pub fn mark_buffered(
        &mut self,
        group: GroupId,
        journals: &mut impl Append,
    ) -> Result<Option<Sequence>, AppendRefused> {
        self.groups.get_mut(&group).map(|state| state.mark_buffered(journals)).transpose()
    }

    /// The engine's files have the group's log up to `base`, and what it made, durably: a start needs no earlier entry.
    pub fn mark_base(&mut self, group: GroupId, base: Base, journals: &mut impl Append) -> Result<(), AppendRefused> {
        self.groups.get_mut(&group).map_or(Ok(()), |state| state.mark_base(base, journals))
    }

    /// Data of the group's entries went into the engine's files, and their records refer to it: they cannot be carried
    /// forward as they were proposed.
    pub fn went_external(&mut self, group: GroupId) {
        if let Some(state) = self.groups.get_mut(&group) {
            state.living_mut().keep_nothing();
        }
    }

    /// The lowest record of a journal that a group needs; `None` when none needs any. Not to be asked while the record of
    /// a removal is not appended yet: until it is durable, the removed group's records have to stay; nor while there are
    /// [suspects](Self::suspects), which need all.
    pub fn floor(&self, journal: JournalKind) -> Option<Sequence> {
        self.all_living().filter_map(|(_, living)| living.floor(journal)).min()
    }

    /// Whether everything that was removed is said in the journal.
    pub fn has_unwritten_removals(&self) -> bool {
        !self.removed.is_empty()
    }

    /// The groups that need records of a journal up to `up_to`, by id, and how each can do without.
    pub fn laggards(&self, journal: JournalKind, up_to: Sequence) -> Vec<(GroupId, Laggard)> {
        let lags = |(group, living): (GroupId, &Living)| {
            living.floor(journal).filter(|floor| *floor <= up_to)?;
            let entries = living.entries_floor(journal).is_some_and(|floor| floor <= up_to);
            Some((group, if !entries || living.can_carry() { Laggard::Carry } else { Laggard::WriteDown }))
        };
        let mut laggards: Vec<_> = self.all_living().filter_map(lags).collect();
        laggards.sort_unstable_by_key(|(group, _)| *group);
        laggards
    }

    /// Appends once more what a journal has of the group up to `up_to`, with the same meaning. Gives how many records that
    /// took.
    pub fn carry(
        &mut self,
        group: GroupId,
        journal: JournalKind,
        up_to: Sequence,
        journals: &mut impl Append,
    ) -> Result<u64, AppendRefused> {
        let (replica, living) = match (self.groups.get_mut(&group), self.held.get_mut(&group)) {
            (Some(state), _) => (state.replica(), state.living_mut()),
            (None, Some((replica, living))) => (*replica, living),
            (None, None) => return Ok(0),
        };
        living.carry((group, replica), journal, up_to, journals)
    }

    fn all_living(&self) -> impl Iterator<Item = (GroupId, &Living)> {
        let held = self.held.iter().map(|(group, (_, living))| (*group, living));
        self.groups.iter().map(|(group, state)| (*group, state.living())).chain(held)
    }

    /// The shard's journal failed: all groups step down, nothing is taken or committed any more. The next
    /// [`Host::advance`] tells who led.
    pub fn poison(&mut self) {
        if std::mem::replace(&mut self.poisoned, true) {
            return;
        }
        let mut groups: Vec<_> = self.groups.iter_mut().collect();
        groups.sort_unstable_by_key(|(group, _)| **group);
        for (group, state) in groups {
            let stepped_down = state.step_down().map(|term| Event::SteppedDown { group: *group, term });
            self.stepped_down.extend(stepped_down);
        }
    }

    /// Whether the host takes nothing any more: its journal failed, or refused a record.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// A group's state, or `None` if it is not here.
    pub fn status(&self, group: GroupId) -> Option<GroupStatus> {
        self.groups.get(&group).map(Group::status)
    }

    fn check_new(&self, group: GroupId, replica: ReplicaId) -> Result<(), ConsensusError> {
        if self.poisoned {
            return Err(ConsensusError::Poisoned);
        }
        if self.groups.contains_key(&group) {
            return Err(ConsensusError::GroupExists { group });
        }
        if replica == ReplicaId(0) { Err(ConsensusError::InvalidReplica { group }) } else { Ok(()) }
    }

    fn start(&mut self, mut state: Group, group: GroupId) {
        state.campaign(self.seed);
        list(&mut self.listed, &mut state, group);
        self.groups.insert(group, state);
    }

    fn write(
        &mut self,
        round: &[GroupId],
        journals: &mut impl Append,
        events: &mut Vec<Event>,
    ) -> Result<(), AppendRefused> {
        for (group, replica) in self.removed.drain(..) {
            let draft = Draft { group, replica, kind: RecordKind::Removed, body: Vec::new() };
            journals.append(JournalKind::Synced, draft)?;
        }
        for group in round {
            let Some(state) = self.groups.get_mut(group) else { continue };
            state.listed = false;
            let written = state.drain(self.confirmed, journals, events)?;
            if written.synced > Sequence(0) {
                self.waiting_synced.push_back((written.synced, *group));
            }
            if written.buffered > Sequence(0) {
                self.waiting_buffered.push_back((written.buffered, *group));
            }
        }
        Ok(())
    }
}

/// The log of a recovered group, if this build can serve it.
fn recovered_log(recovered: RecoveredGroup, applied: (LogIndex, Term)) -> Result<Log, ConsensusError> {
    let RecoveredGroup { group, replica, term, vote, commit, entries, configuration, base, .. } = recovered;
    if configuration != Configuration::sole(replica) {
        return Err(ConsensusError::NotSoleVoter { group, replica, voters: configuration.voters.len() });
    }
    if term >= TERM_MAX {
        return Err(ConsensusError::TermsExhausted { group, term });
    }
    let state = HardState { term, vote, commit };
    Log::recovered(group, state, &configuration, (base.index, entries), applied)
}

/// Puts a group on the list of those that have something, once.
fn list(listed: &mut Vec<GroupId>, state: &mut Group, group: GroupId) {
    if !std::mem::replace(&mut state.listed, true) {
        listed.push(group);
    }
}

#[cfg(test)]
mod tests;
