//! One group: the library's state machine, and what of it is on its way to the journals.
//!
//! The library hands out what is new as numbered *readies*. Each is written at once and counts as persisted when every
//! journal has confirmed what it got of it and of all readies before.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use lockgate_storage::journal::{AppendRefused, Draft, JournalKind, RecordKind, Sequence};
use lockgate_wire::{GroupId, LogIndex, ReplicaId, Term};
use raft::eraftpb::{self, Message, MessageType};
use raft::{Config, NO_LIMIT, RawNode, Ready, StateRole};

use crate::election::{ELECTION_TICKS_MAX, ELECTION_TICKS_MIN, HEARTBEAT_TICKS, timeout_ticks};
use crate::entry::kind_of;
use crate::host::Append;
use crate::living::{Base, Living};
use crate::log::Log;
use crate::record::{self, BUFFERED_MARK, ENTRY_HEAD_BYTES, HardState, Truncation, Written as WrittenEntry};
use crate::{Entry, EntryKind, Event, GroupStatus, ProposeError, Proposed, Role};

/// The most bytes that a group may have proposed and not yet committed; a first proposal is taken whatever its size.
pub const UNCOMMITTED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What an entry counts beside its context and data, so that the number of small ones is bounded too.
const ENTRY_OVERHEAD_BYTES: usize = 256;
/// The most payload bytes in one message to a follower.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
/// The most messages on their way to one follower.
const MESSAGES_IN_FLIGHT_MAX: usize = 64;

/// How far the journals have confirmed what they were given.
#[derive(Clone, Copy, Default)]
pub(crate) struct Confirmed {
    pub(crate) synced: Sequence,
    /// The buffered journal's: handed to the operating system.
    pub(crate) buffered: Sequence,
    /// The buffered journal's: on the device.
    pub(crate) buffered_on_device: Sequence,
}

/// A ready that was written and is not confirmed. Sequence 0 stands for "nothing there".
struct InFlight {
    number: u64,
    synced: Sequence,
    buffered: Sequence,
    /// The last entry that it brought.
    last: Option<(Term, LogIndex)>,
    /// How many entries it brought: the last so many records that one journal has of it, one after the other.
    entries: u64,
}

/// The last entry of the first ready that is confirmed, while not all of them are. None if a later ready brought it anew: what
/// stands at that index now is not what was confirmed.
fn confirmed_part(in_flight: &VecDeque<InFlight>, durability: JournalKind, confirmed: Confirmed) -> Option<LogIndex> {
    let part = in_flight.front()?.confirmed_part(durability, confirmed)?;
    let is_replaced = |later: &InFlight| later.first().is_some_and(|first| first <= part);
    Some(part).filter(|_| !in_flight.iter().skip(1).any(is_replaced))
}

impl InFlight {
    /// The first entry that it brought.
    fn first(&self) -> Option<LogIndex> {
        self.last.map(|(_, LogIndex(last))| LogIndex(last + 1 - self.entries))
    }

    /// The last of its entries that is confirmed, while not all of them are: a journal may need several writes for them.
    fn confirmed_part(&self, durability: JournalKind, confirmed: Confirmed) -> Option<LogIndex> {
        let (_, LogIndex(last)) = self.last?;
        let (Sequence(end), Sequence(reached)) = match durability {
            JournalKind::Synced => (self.synced, confirmed.synced),
            // What it has in the synced journal comes before its entries.
            JournalKind::Buffered if self.synced <= confirmed.synced => (self.buffered, confirmed.buffered),
            JournalKind::Buffered => return None,
        };
        let missing = end.checked_sub(reached).filter(|missing| *missing < self.entries)?;
        Some(LogIndex(last - missing))
    }
}

/// A replica of a group on this shard.
pub(crate) struct Group {
    id: GroupId,
    replica: ReplicaId,
    node: RawNode<Log>,
    /// The journal that new entries go to.
    durability: JournalKind,
    /// The journal that they shall go to as soon as the change leaves no hole.
    wanted: JournalKind,
    /// The last record that the buffered journal got from this group; none since the start is 0, as recovery synced what
    /// it read.
    last_buffered: Sequence,
    /// What the journals have of it that is needed.
    living: Living,
    in_flight: VecDeque<InFlight>,
    /// What was confirmed and not yet told.
    persisted: Option<(Term, LogIndex)>,
    /// The last entry that was handed out as committed.
    delivered: LogIndex,
    /// This leader's own first entry.
    leads_from: LogIndex,
    uncommitted_bytes: usize,
    /// Whether the group is on the host's list of those that have something to do.
    pub(crate) listed: bool,
}

impl Group {
    /// A group over its log, as a follower. Without a bootstrap among the living records nothing of the group is in the
    /// journal yet.
    pub(crate) fn new(
        (id, replica): (GroupId, ReplicaId),
        log: Log,
        mut living: Living,
        durability: JournalKind,
        logger: &slog::Logger,
    ) -> Self {
        let applied = log.compacted();
        let config = Config {
            id: replica.0,
            election_tick: ELECTION_TICKS_MIN,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX + 1,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: applied.0,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            // The library counts data alone; the bound that counts is ours, in `propose`.
            max_uncommitted_size: NO_LIMIT,
            max_committed_size_per_ready: NO_LIMIT,
            ..Config::default()
        };
        let node = RawNode::new(&config, log, logger).expect(
            "the settings above are valid together, the log refused what the library would, and its id is not 0",
        );
        living.ballot.term = Term(node.raft.term);
        living.ballot.vote = ReplicaId(node.raft.vote);
        Self {
            id,
            replica,
            node,
            durability,
            wanted: durability,
            last_buffered: Sequence(0),
            living,
            in_flight: VecDeque::new(),
            persisted: None,
            delivered: applied,
            leads_from: applied,
            uncommitted_bytes: 0,
            listed: false,
        }
    }

    /// Stands for election, which a sole voter wins at once. The library insists that all entries are persisted then, so
    /// this is only for a group that has just been made of what the journals hold.
    pub(crate) fn campaign(&mut self, seed: u64) {
        let settled = self.in_flight.is_empty() && self.node.raft.raft_log.unstable_entries().is_empty();
        assert!(settled, "group {} campaigns with entries under way", self.id);
        self.node.campaign().expect("the library refuses no campaign");
        let raft = &mut self.node.raft;
        raft.set_randomized_election_timeout(timeout_ticks(seed, self.id, self.replica, Term(raft.term)));
        self.leads_from = LogIndex(self.node.raft.raft_log.last_index());
    }

    pub(crate) fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Whether the journal has, or will have, anything of this group.
    pub(crate) fn is_written(&self) -> bool {
        self.living.bootstrap > Sequence(0)
    }

    pub(crate) fn status(&self) -> GroupStatus {
        let raft = &self.node.raft;
        GroupStatus {
            term: Term(raft.term),
            role: match raft.state {
                StateRole::Leader => Role::Leader,
                StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
                StateRole::Follower => Role::Follower,
            },
            last: LogIndex(raft.raft_log.last_index()),
            committed: LogIndex(raft.raft_log.committed),
            applied: LogIndex(raft.raft_log.applied),
        }
    }

    /// Appends a proposal to the log. Steps a message of our own, as the library's `propose` copies the bytes.
    pub(crate) fn propose(&mut self, context: Bytes, data: Bytes) -> Result<Proposed, ProposeError> {
        if self.node.raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader);
        }
        if context.is_empty() && data.is_empty() {
            return Err(ProposeError::Empty);
        }
        let (waiting_bytes, bytes) = (self.uncommitted_bytes, weight(&context, &data));
        if waiting_bytes > 0 && waiting_bytes + bytes > UNCOMMITTED_BYTES_MAX {
            return Err(ProposeError::TooManyUncommitted { waiting_bytes, bytes, limit_bytes: UNCOMMITTED_BYTES_MAX });
        }
        let entry = eraftpb::Entry { context, data, ..Default::default() };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.replica.0;
        message.set_entries(vec![entry].into());
        self.node.step(message).map_err(|_| ProposeError::NotLeader)?;
        self.uncommitted_bytes += bytes;
        Ok(Proposed { term: Term(self.node.raft.term), index: LogIndex(self.node.raft.raft_log.last_index()) })
    }

    /// The engine has applied everything up to `index`: it may leave memory.
    pub(crate) fn applied(&mut self, index: LogIndex) {
        assert!(index <= self.delivered, "group {}: {index} applied, {} handed out", self.id, self.delivered);
        if index.0 > self.node.raft.raft_log.applied {
            self.node.advance_apply_to(index.0);
            self.node.mut_store().compact(index);
        }
    }

    /// Wishes for another journal. True if the switch has to wait for the buffered journal's sync.
    pub(crate) fn set_durability(&mut self, wanted: JournalKind) -> bool {
        self.wanted = wanted;
        self.durability == JournalKind::Buffered && wanted == JournalKind::Synced
    }

    /// Whether the buffered journal's sync reached the last that this group gave to it.
    pub(crate) fn may_leave_buffered(&self, confirmed: Confirmed) -> bool {
        self.last_buffered <= confirmed.buffered_on_device
    }

    /// Leaves leadership without the library's help: nothing is written any more. Gives the term, if it led.
    pub(crate) fn step_down(&mut self) -> Option<Term> {
        let term = self.node.raft.term;
        let led = self.node.raft.state == StateRole::Leader;
        self.node.raft.become_follower(term, raft::INVALID_ID);
        led.then_some(Term(term))
    }

    /// Takes note of what the journals confirmed. True if that made something persisted.
    pub(crate) fn settle(&mut self, confirmed: Confirmed) -> bool {
        let mut number = None;
        while let Some(ready) = self
            .in_flight
            .pop_front_if(|ready| ready.synced <= confirmed.synced && ready.buffered <= confirmed.buffered)
        {
            number = Some(ready.number);
            self.persisted = ready.last.or(self.persisted);
        }
        if let Some(number) = number {
            self.node.on_persist_ready(number);
        }
        let part = confirmed_part(&self.in_flight, self.durability, confirmed);
        part.is_some_and(|index| self.settle_part(index)) || number.is_some()
    }

    /// Takes note that entries up to this one are confirmed, and not yet all that were written with it. True if that is new.
    fn settle_part(&mut self, LogIndex(index): LogIndex) -> bool {
        let log = &self.node.raft.raft_log;
        let Ok(term) = log.term(index) else { return false };
        let before = log.persisted;
        self.node.raft.on_persist_entries(index, term);
        let is_new = self.node.raft.raft_log.persisted > before;
        if is_new {
            self.persisted = Some((Term(term), LogIndex(index)));
        }
        is_new
    }

    /// Writes what is new, tells what is persisted and committed.
    pub(crate) fn drain(
        &mut self,
        confirmed: Confirmed,
        journals: &mut impl Append,
        events: &mut Vec<Event>,
    ) -> Result<Written, AppendRefused> {
        let mut written = Written::default();
        if let Some((term, index)) = self.persisted.take() {
            events.push(Event::Persisted { group: self.id, term, index });
        }
        if !self.switch_or_hold(confirmed) {
            return Ok(written);
        }
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            debug_assert!(ready.messages().is_empty() && ready.persisted_messages().is_empty(), "nobody to send to");
            let in_flight = self.write(&mut ready, journals)?;
            written.synced = written.synced.max(in_flight.synced);
            written.buffered = written.buffered.max(in_flight.buffered);
            self.last_buffered = self.last_buffered.max(in_flight.buffered);
            let committed = ready.take_committed_entries();
            self.node.advance_append_async(ready);
            self.in_flight.push_back(in_flight);
            self.deliver(committed, events);
            // A ready that brought nothing to write is persisted as soon as those before it are.
            self.settle(confirmed);
        }
        Ok(written)
    }

    /// Entries of one log may change their journal only where a crash cannot leave a hole: nothing is on its way, and
    /// what the buffered journal holds is on the device. Until then new entries are held; everything else goes on.
    fn switch_or_hold(&mut self, confirmed: Confirmed) -> bool {
        if self.durability == self.wanted {
            return true;
        }
        let settled = self.in_flight.is_empty();
        if settled && (self.durability == JournalKind::Synced || self.may_leave_buffered(confirmed)) {
            self.durability = self.wanted;
            return true;
        }
        self.node.raft.raft_log.unstable_entries().is_empty()
    }

    /// Appends what a ready holds to the journals, and its entries to the log.
    fn write(&mut self, ready: &mut Ready, journals: &mut impl Append) -> Result<InFlight, AppendRefused> {
        let mut in_flight =
            InFlight { number: ready.number(), synced: Sequence(0), buffered: Sequence(0), last: None, entries: 0 };
        let (group, replica) = (self.id, self.replica);
        let draft = |kind, body| Draft { group, replica, kind, body };
        if !self.is_written() {
            let body = record::encode_bootstrap(&self.living.configuration, self.living.tag.clone());
            in_flight.synced = journals.append(JournalKind::Synced, draft(RecordKind::Bootstrap, body))?;
            self.living.bootstrap = in_flight.synced;
        }
        // The commit index alone is no reason to write: a sole voter commits its whole log when it leads again.
        let ballot = (self.living.ballot.term.0, self.living.ballot.vote.0);
        if let Some(state) = ready.hs().filter(|state| (state.term, state.vote) != ballot) {
            let state =
                HardState { term: Term(state.term), vote: ReplicaId(state.vote), commit: LogIndex(state.commit) };
            let body = record::encode_hard_state(state);
            in_flight.synced = journals.append(JournalKind::Synced, draft(RecordKind::HardState, body))?;
            (self.living.ballot, self.living.hard_state) = (state, in_flight.synced);
        }
        let entries = ready.take_entries();
        let Some((first, last)) = entries.first().zip(entries.last()) else { return Ok(in_flight) };
        in_flight.last = Some((Term(last.term), LogIndex(last.index)));
        in_flight.entries = entries.len() as u64;
        let term = Term(self.node.raft.term);
        if first.index <= self.node.store().last().0 {
            let truncation = Truncation { from: LogIndex(first.index), term };
            let body = record::encode_truncation(truncation);
            in_flight.synced = journals.append(JournalKind::Synced, draft(RecordKind::Truncate, body))?;
            self.living.truncations.push((truncation, in_flight.synced));
        }
        let mut heads = BytesMut::with_capacity(entries.len() * ENTRY_HEAD_BYTES);
        for entry in &entries {
            let entry = Entry::from_library(entry.clone());
            let body = record::encode_entry(&mut heads, entry.clone(), term);
            let sequence = journals.append(self.durability, draft(RecordKind::Entry, body))?;
            let place = (sequence, journals.file(self.durability));
            self.living.appended(self.durability, place, WrittenEntry { written_in: term, entry });
            match self.durability {
                JournalKind::Synced => in_flight.synced = sequence,
                JournalKind::Buffered => in_flight.buffered = sequence,
            }
        }
        self.node.mut_store().append(entries);
        Ok(in_flight)
    }

    /// Says in the synced journal that entries may be in the buffered one.
    pub(crate) fn mark_buffered(&mut self, journals: &mut impl Append) -> Result<Sequence, AppendRefused> {
        let mark = self.checkpoint_mark(vec![Bytes::from_static(BUFFERED_MARK)], journals)?;
        self.living.buffered_mark = mark;
        Ok(mark)
    }

    /// Says in the synced journal that the engine's files have everything up to `base`.
    pub(crate) fn mark_base(&mut self, base: Base, journals: &mut impl Append) -> Result<(), AppendRefused> {
        let mark = self.checkpoint_mark(record::encode_base(base), journals)?;
        self.living.set_base(base, mark);
        Ok(())
    }

    fn checkpoint_mark(&self, body: Vec<Bytes>, journals: &mut impl Append) -> Result<Sequence, AppendRefused> {
        let draft = Draft { group: self.id, replica: self.replica, kind: RecordKind::CheckpointMark, body };
        journals.append(JournalKind::Synced, draft)
    }

    pub(crate) fn living(&self) -> &Living {
        &self.living
    }

    pub(crate) fn living_mut(&mut self) -> &mut Living {
        &mut self.living
    }

    /// Hands committed entries out, and says when the leader's own first is among them.
    fn deliver(&mut self, committed: Vec<eraftpb::Entry>, events: &mut Vec<Event>) {
        let Some(last) = committed.last().map(|entry| LogIndex(entry.index)) else { return };
        let own = committed.iter().filter(|entry| entry.index > self.leads_from.0);
        let bytes: usize = own.map(|entry| weight(&entry.context, &entry.data)).sum();
        self.uncommitted_bytes = self.uncommitted_bytes.checked_sub(bytes).expect("counted when it was proposed");
        debug_assert!(committed.iter().all(|entry| kind_of(entry) != EntryKind::Configuration), "nobody proposes one");
        let serves = self.delivered < self.leads_from && self.leads_from <= last;
        self.delivered = last;
        let entries = committed.into_iter().map(Entry::from_library).collect();
        events.push(Event::Committed { group: self.id, entries });
        if serves {
            events.push(Event::Serving { group: self.id, term: Term(self.node.raft.term) });
        }
    }
}

/// The last records that a group's drain gave to the journals; 0 if none.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) synced: Sequence,
    pub(crate) buffered: Sequence,
}

/// What an entry counts towards its group's bound.
fn weight(context: &Bytes, data: &Bytes) -> usize {
    ENTRY_OVERHEAD_BYTES + context.len() + data.len()
}

#[cfg(test)]
mod tests;
