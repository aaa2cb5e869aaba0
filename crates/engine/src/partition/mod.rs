//! A partition's replica on this shard: log, producers, cursors, readers, and its part in the Raft group.
//!
//! Phases: `opening → serving → deposed`, or `failed` from any of them. It takes publishes only while it serves, that is
//! after its own first entry of the term was applied; deposed, because its journal failed, it is still read from. What is
//! replicated changes only in [`Partition::apply`].

mod clock;
mod cursors;
pub(crate) mod entry;
mod external;
pub(crate) mod log;
mod pipeline;
mod producers;
mod readers;
mod scrub;
mod serve;
pub(crate) mod state;
pub(crate) mod upkeep;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use lockgate_catalog::settings::Fsync;
use lockgate_catalog::view::{Assignment, TopicView};
use lockgate_consensus::{Entry, EntryKind};
use lockgate_storage::disk::DiskError;
use lockgate_storage::journal::JournalKind;
use lockgate_storage::segment::{Segments, StoredBatch};
use lockgate_wire::batch::BatchHeader;
use lockgate_wire::proto::{self, CloseReason};
use lockgate_wire::{Error, ErrorKind, GroupId, LogIndex, NodeId, PartitionId, ReplicaId, Term, WallMs};

use self::clock::AppendClock;
use self::cursors::Position;
use self::entry::{Change, Content, External, Stamp};
use self::log::Log;
use self::pipeline::Pipeline;
use self::producers::Remembered;
pub(crate) use self::readers::ReaderId;
use self::readers::Readers;
use self::scrub::Damaged;
use self::state::State;
use self::upkeep::Upkeep;
use crate::core::Core;
use crate::mesh::Origin;
use crate::output::Level;

/// What a replica can do at the moment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Phase {
    /// Its own first entry is not applied yet.
    Opening,
    /// It leads in this term.
    Serving(Term),
    /// It stepped down because its journal failed: it is read from, and takes nothing more.
    Deposed,
    /// It cannot go on; the error says why.
    Failed(Error),
}

/// A partition's replica.
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) group: GroupId,
    replica: ReplicaId,
    pub(crate) phase: Phase,
    /// The newest assignment and topic that the view gave; `None` until the view has come.
    placed: Option<(Arc<Assignment>, Arc<TopicView>)>,
    log: Log,
    state: State,
    clock: AppendClock,
    pipeline: Pipeline,
    readers: Readers,
    /// Cursor changes that were proposed: index and who waits.
    changes: VecDeque<(LogIndex, Origin)>,
    upkeep: Upkeep,
    damaged: Damaged,
}

impl Partition {
    /// A replica over what recovery found; for a new one that is nothing.
    pub(crate) fn new(
        id: PartitionId,
        (group, replica): (GroupId, ReplicaId),
        segments: Segments,
        state: State,
    ) -> Self {
        let log = Log::new(segments);
        let clock = AppendClock::after(log.last_append_time().max(state.append_time));
        Self {
            id,
            group,
            replica,
            phase: Phase::Opening,
            placed: None,
            log,
            state,
            clock,
            pipeline: Pipeline::default(),
            readers: Readers::default(),
            changes: VecDeque::new(),
            upkeep: Upkeep::new(id),
            damaged: Damaged::default(),
        }
    }

    /// The journal that carries the partition's entries, by its topic's `fsync`.
    pub(crate) fn journal_of(topic: &TopicView) -> JournalKind {
        match topic.config.fsync {
            Fsync::Always => JournalKind::Synced,
            Fsync::Interval { .. } => JournalKind::Buffered,
        }
    }

    pub(crate) fn journal(&self) -> JournalKind {
        self.placed.as_ref().map_or(JournalKind::Synced, |(_, topic)| Self::journal_of(topic))
    }

    /// Its first entry as leader was applied.
    pub(crate) fn serving(&mut self, core: &mut Core, term: Term) {
        if matches!(self.phase, Phase::Failed(_)) {
            return;
        }
        if term.leader_epoch().is_none() {
            self.fail(core, format!("term {term} does not fit the leader epoch of a batch"));
            return;
        }
        self.pipeline.lead_from(self.log.end());
        self.clock = AppendClock::after(self.log.last_append_time().max(self.state.append_time));
        self.phase = Phase::Serving(term);
    }

    /// Leadership is over. What was proposed has an unknown outcome, what waits is refused.
    pub(crate) fn stepped_down(&mut self, core: &mut Core) {
        match self.phase {
            Phase::Failed(_) => {}
            // Without its own first entry it does not know where its log ends: it cannot be read from either.
            Phase::Opening => {
                self.phase = Phase::Deposed;
                self.phase = Phase::Failed(self.refusal());
            }
            Phase::Serving(_) | Phase::Deposed => self.phase = Phase::Deposed,
        }
        self.state.producers.forget_overlay();
        self.pipeline.lose_proposed(core);
        let refusal = self.refusal();
        self.pipeline.refuse_waiting(core, &refusal);
        let unknown = Error::new(ErrorKind::OutcomeUnknown, "the leader stopped before the change was committed");
        for (_, origin) in self.changes.drain(..) {
            core.refuse(origin, &unknown);
        }
    }

    /// The version of the topic that it was last told.
    pub(crate) fn topic_version(&self) -> Option<u64> {
        self.placed.as_ref().map(|(_, topic)| topic.version)
    }

    /// What a request is told while the replica does not serve.
    fn refusal(&self) -> Error {
        match &self.phase {
            Phase::Opening => {
                Error::new(ErrorKind::Recovering, format!("partition {} is being opened; try again soon", self.id))
            }
            Phase::Serving(_) => {
                Error::new(ErrorKind::LeaderUnknown, format!("partition {} lost its leader; try again soon", self.id))
            }
            Phase::Deposed => Error::new(
                ErrorKind::StorageFailed,
                format!(
                    "the journal that partition {} writes to failed; the broker has to be restarted, its log says why",
                    self.id
                ),
            ),
            Phase::Failed(error) => error.clone(),
        }
    }

    /// The replica cannot go on. Everyone who waits is told.
    pub(crate) fn fail(&mut self, core: &mut Core, why: String) {
        self.fail_as(core, ErrorKind::StorageFailed, why);
    }

    /// It cannot go on at this or any later start: something of it is lost.
    pub(crate) fn fail_for_good(&mut self, core: &mut Core, why: String) {
        self.fail_as(core, ErrorKind::LogDamaged, why);
    }

    fn fail_as(&mut self, core: &mut Core, kind: ErrorKind, why: String) {
        core.log(Level::Error, format!("partition {} failed: {why}", self.id));
        let error = Error::new(kind, format!("partition {} failed: {why}", self.id));
        self.phase = Phase::Failed(error.clone());
        self.stepped_down(core);
        self.readers.end_all(core, CloseReason::Error, &error);
    }

    /// The shard's journals end: nothing is taken any more.
    pub(crate) fn shut(&mut self) {
        if !self.is_failed() {
            let message = "the broker stops; it takes no new work, connect to another one or try again soon";
            self.phase = Phase::Failed(Error::new(ErrorKind::ShuttingDown, message));
        }
    }

    /// The topic was deleted: everyone who waits is told.
    pub(crate) fn deleted(&mut self, core: &mut Core) {
        let error = Error::new(ErrorKind::TopicNotFound, format!("the topic of partition {} was deleted", self.id));
        self.phase = Phase::Failed(error.clone());
        self.stepped_down(core);
        self.readers.end_all(core, CloseReason::TopicDeleted, &error);
    }

    /// This replica's journal holds its log up to `index`.
    pub(crate) fn persisted(&mut self, core: &mut Core, index: LogIndex) {
        self.pipeline.persisted(core, self.id.partition, index);
    }

    /// Applies committed entries.
    pub(crate) fn committed(&mut self, core: &mut Core, entries: Vec<Entry>) {
        let Some(last) = entries.last().map(|entry| entry.index) else { return };
        for entry in entries {
            if matches!(self.phase, Phase::Failed(_)) {
                return;
            }
            let (index, term) = (entry.index, entry.term);
            if let Err(why) = self.apply(core, entry) {
                self.fail(core, format!("entry {index} of term {term} does not fit the log: {why}"));
                return;
            }
            core.metrics.entries_applied += 1;
            self.pipeline.applied(core, self.id.partition, index, term);
        }
        // Not the state's index: a checkpoint may have it beyond what the log has handed out since the start.
        core.host.applied(self.group, last);
        self.readers.wake_all();
    }

    /// Applies one entry. Log and state each take what they do not have yet: after a restart they may have come
    /// different ways.
    fn apply(&mut self, core: &mut Core, entry: Entry) -> Result<(), String> {
        let is_new = entry.index > self.state.index;
        // What a start has to read in the journal, should there be no newer checkpoint.
        let bytes = if self.log.has_landed() { entry.context.len() } else { entry.data.len() } as u64;
        if entry.kind == EntryKind::Normal {
            match entry::decode(entry.context, entry.data)? {
                Content::Batches(batches) => {
                    for (stamp, batch) in batches {
                        if is_new {
                            self.remember(&stamp, &batch)?;
                        }
                        self.append(core, stamp, batch, entry.index, entry.term)?;
                    }
                }
                Content::External(batches) => {
                    for External { stamp, header, .. } in batches {
                        if is_new {
                            self.remember(&stamp, &header)?;
                        }
                        if stamp.base_offset.plus(u64::from(stamp.count)) > self.log.end() {
                            return Err("its data is in no segment".into());
                        }
                    }
                }
                Content::Command(change) => {
                    if is_new {
                        self.apply_change(core, entry.index, change);
                    }
                }
            }
        }
        if is_new {
            (self.state.index, self.state.term) = (entry.index, entry.term);
            self.upkeep.entries_since_checkpoint += 1;
            self.upkeep.bytes_since_checkpoint += bytes;
        }
        Ok(())
    }

    fn remember(&mut self, stamp: &Stamp, batch: &Bytes) -> Result<(), String> {
        let (base_offset, append_time) = (stamp.base_offset, stamp.append_time);
        if base_offset != self.state.next_offset {
            return Err(format!("it begins at offset {base_offset}, the log ends at {}", self.state.next_offset));
        }
        self.state.next_offset = base_offset.plus(u64::from(stamp.count));
        self.state.append_time = self.state.append_time.max(append_time);
        let header = BatchHeader::parse(batch).map_err(|error| error.to_string())?;
        if let Some(producer) = header.producer() {
            let (first, last) = (producer.base_sequence, header.last_sequence());
            self.state.producers.apply(&producer, Remembered { first, last, base_offset, append_time });
        }
        Ok(())
    }

    fn append(
        &mut self,
        core: &mut Core,
        stamp: Stamp,
        batch: Bytes,
        index: LogIndex,
        term: Term,
    ) -> Result<(), String> {
        let end = self.log.end();
        let (base_offset, append_time) = (stamp.base_offset, stamp.append_time);
        if base_offset.plus(u64::from(stamp.count)) <= end {
            return Ok(()); // Replayed: its segment has it, or had it.
        }
        if base_offset != end {
            return Err(format!("it begins at offset {base_offset}, the log ends at {end}"));
        }
        self.clock.applied(append_time);
        self.log
            .append(StoredBatch { index, term, append_time, base_offset, count: stamp.count, batch }, core.now.mono);
        Ok(())
    }

    fn apply_change(&mut self, core: &mut Core, index: LogIndex, change: Change) {
        let waiting = match self.changes.front() {
            Some((at, origin)) if *at == index => {
                let origin = *origin;
                self.changes.pop_front();
                Some(origin)
            }
            _ => None,
        };
        match change {
            Change::CommitCursor(commit) => {
                let position = Position { offset: commit.offset.into(), committed: WallMs(commit.time_ms) };
                let end = self.state.next_offset;
                let result = self.state.cursors.commit(&commit.name, position, commit.force, end);
                if let Some(origin) = waiting {
                    match result {
                        Ok(()) => core.answer(origin, &proto::CommitCursorOk {}),
                        Err(error) => core.refuse(origin, &error),
                    }
                }
            }
            Change::DeleteCursor(delete) => {
                let existed = self.state.cursors.delete(&delete.name);
                if let Some(origin) = waiting {
                    core.answer(origin, &proto::DeleteCursorOk { existed });
                }
            }
            Change::ExpireProducers(before_ms) => self.state.producers.expire(WallMs(before_ms)),
        }
    }

    /// How soon the buffered journal has to be synced for this partition, if it uses it.
    pub(crate) fn sync_interval_ms(&self) -> Option<u64> {
        let (_, topic) = self.placed.as_ref()?;
        match topic.config.fsync {
            Fsync::Always => None,
            Fsync::Interval { ms } => Some(ms.into()),
        }
    }

    pub(crate) fn is_opening(&self) -> bool {
        self.phase == Phase::Opening
    }

    pub(crate) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving(_))
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.phase, Phase::Failed(_))
    }

    /// Why it does not serve and will not by itself, if so.
    pub(crate) fn failure(&self) -> Option<&Error> {
        match &self.phase {
            Phase::Failed(error) if error.kind != ErrorKind::ShuttingDown => Some(error),
            _ => None,
        }
    }

    /// Whether a sync of its segments failed, so that only a restart brings them and the journal together again.
    pub(crate) fn needs_restart(&self) -> bool {
        self.log.segments.has_failed_sync()
    }

    /// Whether its files wait for room on the disk.
    pub(crate) fn has_no_room(&self) -> bool {
        self.upkeep.error().is_some_and(DiskError::is_full)
    }

    /// The newest append time, if the log ever had one.
    pub(crate) fn last_append_time(&self) -> Option<WallMs> {
        Some(self.log.last_append_time()).filter(|time| *time > WallMs::default())
    }

    pub(crate) fn tail_bytes(&self) -> u64 {
        self.log.tail_bytes()
    }

    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.log.unflushed_bytes()
    }

    /// Whether it stays in the round: publishes wait to be proposed, or readers to be looked after.
    pub(crate) fn has_work(&self) -> bool {
        self.pipeline.has_waiting() || self.readers.is_runnable()
    }

    /// A newer assignment or configuration of the view.
    pub(crate) fn place(&mut self, core: &mut Core, assignment: Arc<Assignment>, topic: Arc<TopicView>) {
        self.log.segments.set_segment_bytes(topic.config.segment_bytes);
        core.host.set_durability(self.group, Self::journal_of(&topic));
        self.placed = Some((assignment, topic));
        self.mark_buffered(core);
    }

    /// The partition as `topic describe` shows it.
    pub(crate) fn describe(&self, node: NodeId) -> proto::PartitionDescription {
        let (leader, epoch) = match self.phase {
            Phase::Serving(term) => (node.0, term.0 as u32),
            _ => (0, 0),
        };
        let replicas: Vec<u32> =
            self.placed.iter().flat_map(|(a, _)| &a.replicas).map(|replica| replica.node.0).collect();
        proto::PartitionDescription {
            partition: self.id.partition,
            leader_node: leader,
            leader_epoch: epoch,
            in_sync_nodes: if leader == 0 { Vec::new() } else { replicas.clone() },
            replica_nodes: replicas,
            generation: self.placed.as_ref().map_or(0, |(a, _)| a.generation.0),
            earliest_offset: self.log.start().0,
            high_watermark: self.log.end().0,
            size_bytes: self.log.size_bytes(),
            error: if leader == 0 { Some(self.refusal().to_proto()) } else { None },
        }
    }
}
