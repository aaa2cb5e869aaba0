//! What a partition does for itself: writing applied batches to segments, sealing, retention, checkpoints, expiry.

use bytes::Bytes;
use lockgate_catalog::settings::TopicConfig;
use lockgate_consensus::Base;
use lockgate_storage::checkpoint::{self, CheckpointHeader};
use lockgate_storage::disk::{DiskError, DiskResult, FileOp, Path};
use lockgate_storage::journal::{JournalKind, Purpose, Sequence};
use lockgate_storage::segment::Retention;
use lockgate_wire::{LogIndex, MonoTime, Offset, PartitionId, WallMs};

use super::entry::{self, Change};
use super::log::Flush;
use super::state::State;
use super::{Partition, Phase};
use crate::background::Background;
use crate::config::partition_directory;
use crate::core::{Core, FileOwner};
use crate::limits::{CHECKPOINT_BYTES, CHECKPOINT_ENTRIES, RETENTION_EVERY_MS, RETRY_FILE_MS};
use crate::output::Level;

/// What a finished plan completes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Done {
    Made,
    Flushed,
    LogsSynced,
    Sealed,
    StartMoved,
    Expired,
    Checkpointed(LogIndex),
    Removed,
}

/// The state of that work.
pub(super) struct Upkeep {
    background: Background<Done>,
    /// Whether the seal under way syncs what is durable already: should that fail, it takes nothing along.
    seals_durable: bool,
    /// Whether the directory and what says where the log begins are on their way.
    is_being_made: bool,
    directory: Path,
    pub(super) entries_since_checkpoint: u64,
    pub(super) bytes_since_checkpoint: u64,
    /// A checkpoint that waits for the journal, then is being written.
    checkpoint: Option<Pending>,
    /// Checkpoints on the disk, oldest first.
    checkpoints: Vec<LogIndex>,
    /// Set while everything is written down, so that journal files can go.
    writing_down: Option<WritingDown>,
    /// The files have less than the base of the journal says, as a checkpoint was lost: until they are written down again,
    /// the journal has to keep what is below its base.
    is_behind_base: bool,
    /// When that may begin, after it failed.
    next_writing_down: MonoTime,
    /// The newest expiry of producers that was proposed.
    expired_at: Option<LogIndex>,
    /// When retention is looked at next.
    next_look: MonoTime,
    /// Since when a rolled segment waits for its seal, and what the journal has to make durable first.
    rolled: Option<(MonoTime, Sequence)>,
    /// The record that says that the buffered journal is used.
    mark: Option<Sequence>,
    /// Whether that record was durable at the last look.
    may_flush: bool,
    /// Offsets below the first are durable, those below the second are once the buffered journal is synced that far.
    durable: (Offset, Offset, Sequence),
}

/// How far that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WritingDown {
    /// It begins as soon as nothing else of the partition is under way.
    Wanted,
    /// Logs are being synced, a checkpoint is being written, in this order.
    UnderWay,
}

/// What may be written once the buffered journal is on the device up to `after`: files never know more than the
/// journal after a loss of power.
struct Pending {
    after: Sequence,
    /// `None` once it is being written.
    op: Option<FileOp>,
    index: LogIndex,
    /// Segments and checkpoint together have the log up to here, once the checkpoint is written.
    base: Option<Base>,
}

impl Upkeep {
    pub(super) fn new(id: PartitionId) -> Self {
        Self {
            background: Background::new(FileOwner::Background(id)),
            seals_durable: false,
            is_being_made: false,
            directory: partition_directory(id),
            entries_since_checkpoint: 0,
            bytes_since_checkpoint: 0,
            checkpoint: None,
            checkpoints: Vec::new(),
            writing_down: None,
            is_behind_base: false,
            next_writing_down: MonoTime::default(),
            expired_at: None,
            next_look: MonoTime::default(),
            rolled: None,
            mark: None,
            may_flush: true,
            durable: (Offset(0), Offset(0), Sequence(0)),
        }
    }

    /// Why the partition's file work stands still, if it does.
    pub(super) fn error(&self) -> Option<&DiskError> {
        self.background.error()
    }

    /// Whether nothing is planned or wanted that a write ahead of the journal could get in the way of.
    pub(super) fn leaves_logs_alone(&self) -> bool {
        let syncs = self.background.syncs_logs() && !self.seals_durable;
        let is_busy = self.is_being_made || self.writing_down.is_some() || syncs;
        self.mark.is_none() && self.error().is_none() && !is_busy
    }
}

impl Partition {
    /// The plan that makes a new partition's directory.
    pub(crate) fn make_directory(&mut self, core: &mut Core, ops: Vec<FileOp>) {
        self.upkeep.is_being_made = true;
        self.upkeep.background.plan(ops, Done::Made);
        self.upkeep.background.run(core);
    }

    /// The partition's entries may go to the buffered journal: a record that says so has to be durable before its files
    /// get anything, so that a recovery knows that they may have more than the journal.
    pub(crate) fn mark_buffered(&mut self, core: &mut Core) {
        if self.journal() == JournalKind::Synced || self.upkeep.mark.is_some() {
            return;
        }
        match core.host.mark_buffered(self.group, &mut core.journals) {
            Ok(sequence) => self.upkeep.mark = sequence,
            Err(error) => self.fail(core, format!("its journal refused a mark: {error}")),
        }
    }

    /// Recovery found such a record.
    pub(crate) fn found_mark(&mut self) {
        self.upkeep.mark = Some(Sequence(0));
    }

    /// The checkpoints that recovery found, oldest first.
    pub(crate) fn found_checkpoints(&mut self, indexes: Vec<LogIndex>) {
        self.upkeep.checkpoints = indexes;
    }

    /// Recovery found files that have less than the journal's base says.
    pub(crate) fn found_behind_base(&mut self) {
        self.upkeep.is_behind_base = true;
    }

    /// Whether the journal has to keep what is below its base.
    pub(crate) fn is_behind_base(&self) -> bool {
        self.upkeep.is_behind_base
    }

    /// A file operation of the partition ended.
    pub(crate) fn file_done(&mut self, core: &mut Core, result: DiskResult<Bytes>) {
        let Some((done, result)) = self.upkeep.background.finished(core, result) else { return };
        match done {
            Done::Made => self.upkeep.is_being_made = false,
            Done::Removed => {}
            Done::Flushed => self.log.flush_done(core.now.mono),
            Done::LogsSynced => self.logs_synced(core, result),
            Done::Sealed => {
                self.upkeep.seals_durable = false;
                let had_failed = self.log.segments.has_failed_sync();
                self.log.segments.sealed(result.as_ref().copied());
                if self.log.segments.has_failed_sync() && !had_failed {
                    self.tell_failed_sync(core);
                }
                // Seals that fell behind a fast log catch up without a pause.
                if self.log.segments.has_rolled() {
                    self.upkeep.rolled = Some((MonoTime::default(), self.durable_after(core)));
                }
            }
            Done::StartMoved => {
                let removal = self.log.segments.started();
                self.upkeep.background.plan(vec![removal], Done::Expired);
            }
            Done::Expired => self.log.segments.expired(),
            Done::Checkpointed(index) => self.checkpointed(core, index),
        }
    }

    fn checkpointed(&mut self, core: &mut Core, index: LogIndex) {
        core.metrics.checkpoints += 1;
        if let Some(base) = self.upkeep.checkpoint.take().and_then(|written| written.base) {
            (self.upkeep.writing_down, self.upkeep.is_behind_base) = (None, false);
            // A journal that refuses it has failed or ends, and says so itself.
            let _ = core.host.mark_base(self.group, base, &mut core.journals);
        }
        if self.upkeep.checkpoints.last() != Some(&index) {
            self.upkeep.checkpoints.push(index);
        }
        if let Some(op) = checkpoint::obsolete(&self.upkeep.directory, &self.upkeep.checkpoints) {
            self.upkeep.background.plan(vec![op], Done::Removed);
            let keep = self.upkeep.checkpoints.len().saturating_sub(checkpoint::KEPT);
            self.upkeep.checkpoints.drain(..keep);
        }
    }

    /// Does what is due. `stopping`: everything that makes the next start short.
    pub(crate) fn look_after(&mut self, core: &mut Core, stopping: bool) {
        let now = core.now.mono;
        if stopping {
            self.readers.stop_waiting(now);
        }
        let is_marked = self.upkeep.mark.is_none_or(|mark| mark <= core.journals.synced.synced_sequence());
        self.upkeep.may_flush = is_marked;
        let how = match stopping {
            true => Flush::All,
            false if self.rides_along(core) => Flush::Late,
            false => Flush::Large,
        };
        let flush = if is_marked { self.log.plan_flush(now, how) } else { Vec::new() };
        if !flush.is_empty() {
            self.upkeep.background.plan(flush, Done::Flushed);
        }
        self.log.trim(core.tail_share_bytes);
        if self.upkeep.next_look <= now || stopping {
            self.upkeep.next_look = now.plus_ms(RETENTION_EVERY_MS);
            self.retain(core);
            self.seal(core);
            self.expire_producers(core);
            self.checkpoint(core, stopping);
        }
        self.go_on_writing_down(core);
        self.write_checkpoint(core);
        self.upkeep.background.run(core);
    }

    /// Whether nothing of the partition is on its way to the disk.
    pub(crate) fn is_settled(&self) -> bool {
        let saved = self.upkeep.entries_since_checkpoint == 0 && self.upkeep.checkpoint.is_none();
        let stuck = self.upkeep.error().is_some() || !matches!(self.phase, Phase::Serving(_));
        self.pipeline.is_empty() && self.changes.is_empty() && ((self.upkeep.background.is_idle() && saved) || stuck)
    }

    /// When the partition has to be looked at again.
    pub(crate) fn deadline(&self) -> Option<MonoTime> {
        let idle = self.log.unflushed_bytes() == 0
            && self.upkeep.rolled.is_none()
            && self.upkeep.writing_down.is_none()
            && self.upkeep.entries_since_checkpoint == 0;
        let look = (!idle || self.log.start() < self.log.end()).then_some(self.upkeep.next_look);
        let flush = self.log.flush_deadline().filter(|_| self.upkeep.may_flush);
        [flush, self.upkeep.background.deadline(), self.readers.deadline(), look].into_iter().flatten().min()
    }

    fn retain(&mut self, core: &mut Core) {
        let Some((_, topic)) = &self.placed else { return };
        if !self.may_let_go() {
            return;
        }
        let TopicConfig { retention_ms, retention_bytes, .. } = topic.config;
        let policy = Retention { max_age_ms: retention_ms, max_bytes: retention_bytes };
        let durable = self.durable_offset(core);
        // By the log's clock, as the append times are: a jump of the node's makes nothing old.
        let now = self.clock.stamp(core.now);
        if let Some(start) = self.log.segments.expire(now, &policy, Some(durable)) {
            core.metrics.segments_expired += 1;
            self.upkeep.background.plan(vec![start], Done::StartMoved);
        }
    }

    /// What the buffered journal has to make durable before files may say that they have all of the log. Also for a topic
    /// that left it: some of what was applied may be there alone, and not be synced yet.
    fn durable_after(&self, core: &Core) -> Sequence {
        match self.upkeep.mark {
            None => Sequence(0), // What was applied is durable already.
            Some(_) => core.journals.buffered.written_sequence(),
        }
    }

    /// Below it everything is durable in the partition's journal. Moves on with every call.
    fn durable_offset(&mut self, core: &Core) -> Offset {
        let (durable, next, after) = self.upkeep.durable;
        let reached = core.journals.buffered.synced_sequence() >= after;
        if reached {
            self.upkeep.durable = (next, self.log.end(), self.durable_after(core));
        }
        match self.upkeep.mark {
            None => self.log.end(),
            Some(_) if reached => next,
            Some(_) => durable,
        }
    }

    fn seal(&mut self, core: &Core) {
        if self.upkeep.rolled.is_none() && self.log.segments.has_rolled() {
            self.upkeep.rolled = Some((core.now.mono, self.durable_after(core)));
        }
        if let Some((since, after)) = self.upkeep.rolled
            && (self.log.segments.closed_are_durable()
                || core.now.mono.ms_since(since) >= core.node.limits.seal_after_ms)
            && core.journals.buffered.synced_sequence() >= after
            && self.may_seal(core)
        {
            self.upkeep.rolled = None;
            if let Some(ops) = self.log.segments.next_seal() {
                self.upkeep.seals_durable = self.log.segments.closed_are_durable();
                self.upkeep.background.plan_once(ops, Done::Sealed);
            }
        }
    }

    fn expire_producers(&mut self, core: &mut Core) {
        let Phase::Serving(_) = self.phase else { return };
        // Nothing is added to a journal that has no room, and one such change is under way at a time.
        if core.room_refusal(self.journal(), Purpose::Change).is_some()
            || self.upkeep.expired_at.is_some_and(|at| at > self.state.index)
        {
            return;
        }
        let expiry = i64::try_from(core.node.limits.producer_expiry_ms).unwrap_or(i64::MAX);
        // By the log's clock: a jump of the node's does not make anybody idle.
        let before = self.clock.stamp(core.now).0.saturating_sub(expiry);
        if self.state.producers.oldest().is_some_and(|seen| seen < WallMs(before)) {
            let (context, data) = entry::command(Change::ExpireProducers(before));
            // Refused now, it is tried again at the next look.
            self.upkeep.expired_at = core.host.propose(self.group, context, data).ok().map(|proposed| proposed.index);
        }
    }

    fn checkpoint(&mut self, core: &Core, stopping: bool) {
        let entries = self.upkeep.entries_since_checkpoint;
        let grown = entries >= CHECKPOINT_ENTRIES || self.upkeep.bytes_since_checkpoint >= CHECKPOINT_BYTES;
        let due = grown || (stopping && entries > 0);
        if due && self.upkeep.checkpoint.is_none() {
            self.plan_checkpoint(core, None);
        }
    }

    fn plan_checkpoint(&mut self, core: &Core, base: Option<Base>) {
        let header = CheckpointHeader {
            group: self.group,
            replica: self.replica,
            index: self.state.index,
            term: self.state.term,
            next_offset: self.state.next_offset,
        };
        let path = checkpoint::path(&self.upkeep.directory, header.index);
        let pieces = checkpoint::encode(&header, &self.state.chunks());
        let op = Some(FileOp::Replace { path, pieces });
        (self.upkeep.entries_since_checkpoint, self.upkeep.bytes_since_checkpoint) = (0, 0);
        self.upkeep.checkpoint = Some(Pending { after: self.durable_after(core), op, index: header.index, base });
    }

    /// Has everything of the partition written down, so that the journal need not have it. False: it cannot be done now.
    pub(crate) fn write_down(&mut self, now: MonoTime) -> bool {
        if self.upkeep.writing_down.is_some() {
            return true;
        }
        let can = self.is_serving() && !self.log.segments.has_failed_sync() && self.upkeep.next_writing_down <= now;
        self.upkeep.writing_down = can.then_some(WritingDown::Wanted);
        can
    }

    /// Writes the end of the log to its segment, syncs what is not sealed, then writes a checkpoint of the same moment.
    fn go_on_writing_down(&mut self, core: &mut Core) {
        // While entries are replayed, log and state are not at the same place yet.
        let is_between = self.log.is_under_way()
            || !self.upkeep.may_flush
            || self.upkeep.checkpoint.is_some()
            || self.log.end() != self.state.next_offset;
        if self.upkeep.writing_down != Some(WritingDown::Wanted) || is_between {
            return;
        }
        self.upkeep.writing_down = Some(WritingDown::UnderWay);
        let flush = self.log.plan_flush(core.now.mono, Flush::All);
        if !flush.is_empty() {
            self.upkeep.background.plan(flush, Done::Flushed);
        }
        let syncs = self.log.segments.sync_unsealed();
        if !syncs.is_empty() {
            self.upkeep.background.plan_once(syncs, Done::LogsSynced);
        }
        let State { index, term, next_offset, .. } = self.state;
        self.plan_checkpoint(core, Some(Base { index, term, next_offset }));
    }

    fn logs_synced(&mut self, core: &mut Core, result: DiskResult<()>) {
        let Err(error) = result else { return };
        // The checkpoint is as good as any, but the journal keeps what the segments may not have.
        if let Some(checkpoint) = &mut self.upkeep.checkpoint {
            checkpoint.base = None;
        }
        self.upkeep.writing_down = None;
        self.upkeep.next_writing_down = core.now.mono.plus_ms(RETRY_FILE_MS);
        if error.is_sync() {
            self.log.segments.sync_failed();
            self.tell_failed_sync(core);
        }
    }

    fn tell_failed_sync(&self, core: &mut Core) {
        let id = self.id;
        core.log(
            Level::Error,
            format!(
                "a sync of the segments of partition {id} failed: what they hold may never reach the device, so the journal \
                 keeps it and cannot let go of its files; restart the broker"
            ),
        );
    }

    fn write_checkpoint(&mut self, core: &Core) {
        if let Some(pending) = &mut self.upkeep.checkpoint
            && core.journals.buffered.synced_sequence() >= pending.after
            && let Some(op) = pending.op.take()
        {
            self.upkeep.background.plan(vec![op], Done::Checkpointed(pending.index));
        }
    }
}
