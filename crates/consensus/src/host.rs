//! All the groups of a shard, and their common way to the journals.
//!
//! Owns the groups and knows which of them have something to do; the others cost nothing. May call the journals only to
//! append. One round: proposals, then [`Host::advance`]; when a journal write is confirmed [`Host::persisted`], then
//! `advance` again for what that committed.

use std::collections::VecDeque;

use bytes::Bytes;
use lockgate_storage::journal::{AppendRefused, Draft, JournalKind, Journals, RecordKind, Sequence};
use lockgate_wire::{GroupId, LogIndex, ReplicaId, Term};
use rustc_hash::FxHashMap;

use crate::group::{Confirmed, Group};
use crate::log::Log;
use crate::record::{HardState, TERM_MAX};
use crate::{Configuration, ConsensusError, Event, GroupStatus, ProposeError, Proposed, RecoveredGroup};

/// Where the host's records go: the shard's two journals.
pub trait Append {
    /// Takes a record for the next write, and numbers it. Refused before anything changed.
    fn append(&mut self, journal: JournalKind, draft: Draft) -> Result<Sequence, AppendRefused>;
}

impl Append for Journals {
    fn append(&mut self, journal: JournalKind, draft: Draft) -> Result<Sequence, AppendRefused> {
        self.get_mut(journal).append(draft)
    }
}

/// The groups of one shard.
pub struct Host {
    seed: u64,
    logger: slog::Logger,
    groups: FxHashMap<GroupId, Group>,
    /// Groups that may have something to write or to tell, each once, in the order in which they got it.
    listed: Vec<GroupId>,
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
        self.start(Group::new((group, replica), log, Some((configuration, tag)), durability, &self.logger), group);
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
        let RecoveredGroup { group, replica, tag: _, term, vote, commit, entries, configuration } = recovered;
        self.check_new(group, replica)?;
        if configuration != Configuration::sole(replica) {
            return Err(ConsensusError::NotSoleVoter { group, replica, voters: configuration.voters.len() });
        }
        if term >= TERM_MAX {
            return Err(ConsensusError::TermsExhausted { group, term });
        }
        let state = HardState { term, vote, commit };
        let log = Log::recovered(group, state, &configuration, entries, (applied, applied_term))?;
        self.start(Group::new((group, replica), log, None, durability, &self.logger), group);
        Ok(())
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
        while let Some((_, group)) = waiting.pop_front_if(|(sequence, _)| *sequence <= up_to) {
            if let Some(state) = self.groups.get_mut(&group)
                && state.settle(self.confirmed)
            {
                list(&mut self.listed, state, group);
            }
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
        if let Some(state) = self.groups.remove(&group).filter(Group::is_written) {
            self.removed.push((group, state.replica()));
        }
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

/// Puts a group on the list of those that have something, once.
fn list(listed: &mut Vec<GroupId>, state: &mut Group, group: GroupId) {
    if !std::mem::replace(&mut state.listed, true) {
        listed.push(group);
    }
}

#[cfg(test)]
mod tests;
