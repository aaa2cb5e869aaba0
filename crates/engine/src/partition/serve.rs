//! Requests to a partition: what each needs, what it answers, and what it starts.

use lockgate_catalog::settings::Timestamps;
use lockgate_consensus::ProposeError;
use lockgate_storage::disk::DiskResult;
use lockgate_storage::journal::Purpose;
use lockgate_wire::proto;
use lockgate_wire::{ConnectionId, Error, ErrorKind, Offset, ShardId, SubscriptionId};

use super::entry::{self, Change, CommitCursor, DeleteCursor};
use super::pipeline::{Publish, answer_remembered};
use super::producers::Check;
use super::readers::{Goal, Search, Subscribe, out_of_range};
use super::{Partition, Phase, ReaderId};
use crate::core::Core;
use crate::limits::{PROPOSE_EARLY_BYTES, SHARED_ENTRY_BYTES};
use crate::mesh::Origin;
use crate::output::FileToken;
use crate::request::{PartitionRequest, Start};

impl Partition {
    /// Handles a request. Reads need no leader that takes publishes, but one that has applied its first entry.
    pub(crate) fn handle(&mut self, core: &mut Core, origin: Origin, request: PartitionRequest) {
        let can_serve = match &request {
            PartitionRequest::Credit { .. } | PartitionRequest::Unsubscribe { .. } => true,
            PartitionRequest::Publish { .. }
            | PartitionRequest::CommitCursor { .. }
            | PartitionRequest::DeleteCursor { .. } => matches!(self.phase, Phase::Serving(_)),
            _ => matches!(self.phase, Phase::Serving(_) | Phase::Deposed),
        };
        if !can_serve {
            return core.refuse(origin, &self.refusal());
        }
        let reader = |subscription| ReaderId::Subscription(origin.shard, origin.connection, subscription);
        match request {
            PartitionRequest::Publish { ack, partitioning_version, header, batch } => {
                self.publish(core, partitioning_version, Publish { origin, ack, header, batch });
            }
            PartitionRequest::Subscribe { subscription, start, credit } => {
                self.subscribe(core, Subscribe { origin, subscription, credit }, start);
            }
            PartitionRequest::Credit { subscription, bytes } => {
                self.readers.credit(reader(subscription), bytes);
                core.done(origin);
            }
            PartitionRequest::Unsubscribe { subscription } => {
                self.readers.unsubscribe(core, origin.shard, origin.connection, subscription);
                core.answer(origin, &proto::UnsubscribeOk {});
            }
            PartitionRequest::Fetch { offset, max_bytes, max_wait_ms } => {
                self.readers.fetch(origin, offset, max_bytes, core.now.mono.plus_ms(max_wait_ms.into()));
            }
            PartitionRequest::ListOffsets { time } => self.list_offsets(core, origin, time),
            PartitionRequest::CommitCursor { name, offset, force } => {
                self.commit_cursor(core, origin, name, offset, force)
            }
            PartitionRequest::DeleteCursor { name } => {
                self.change(core, origin, Change::DeleteCursor(DeleteCursor { name }));
            }
            PartitionRequest::GetCursor { name } => {
                let offset = self.state.cursors.get(&name).map(|position| position.offset.0);
                core.answer(origin, &proto::GetCursorOk { offset });
            }
            PartitionRequest::ListCursors { after, limit } => self.list_cursors(core, origin, &after, limit),
        }
    }

    fn publish(&mut self, core: &mut Core, partitioning_version: u32, publish: Publish) {
        core.metrics.publish_requests += 1;
        let origin = publish.origin;
        if let Some(producer) = publish.header.producer() {
            let max = core.node.limits.producers_per_partition;
            match self.state.producers.check(&producer, publish.header.last_sequence(), max) {
                Check::Append => {}
                Check::UnderWay(serial) => return self.pipeline.join(serial, origin),
                Check::Duplicate(batch) => {
                    core.metrics.publish_duplicates += 1;
                    let term = self.term();
                    let at = (batch.base_offset, batch.append_time);
                    return answer_remembered(core, origin, self.id.partition, at, term, true);
                }
                Check::Refused(error) => return core.refuse(origin, &error),
            }
        }
        // The duplicate check comes before the fence: what was appended under an older version stays answered.
        if let Some(error) = self.stale(partitioning_version) {
            return core.refuse(origin, &error);
        }
        if let Some(producer) = publish.header.producer() {
            self.state.producers.take(&producer, publish.header.last_sequence(), self.pipeline.next_serial());
        }
        self.pipeline.take(publish);
        if self.pipeline.waiting_bytes() >= PROPOSE_EARLY_BYTES {
            self.propose(core);
        }
    }

    fn term(&self) -> lockgate_wire::Term {
        match self.phase {
            Phase::Serving(term) => term,
            _ => self.state.term,
        }
    }

    fn stale(&self, version: u32) -> Option<Error> {
        let (_, topic) = self.placed.as_ref()?;
        (version != topic.partitioning_version).then(|| {
            let message = format!(
                "the publish was partitioned under version {version} of {}, which is at version {}; ask for the topology and try again",
                topic.name, topic.partitioning_version
            );
            let mut error = Error::new(ErrorKind::StalePartitioning, message);
            error.details.version = Some(topic.partitioning_version.into());
            error
        })
    }

    /// Proposes what waits, if it may: at the end of a round when the journal is free, or earlier when there is much.
    pub(crate) fn propose(&mut self, core: &mut Core) {
        if !self.pipeline.has_waiting() || !matches!(self.phase, Phase::Serving(_)) {
            return;
        }
        let journal = self.journal();
        if !core.is_writing(journal) || self.pipeline.waiting_bytes() >= SHARED_ENTRY_BYTES {
            self.propose_now(core);
        }
    }

    /// Proposes what waits, as far as there is room for it.
    fn propose_now(&mut self, core: &mut Core) {
        if let Some(error) = self.storage_refusal(core, Purpose::Publish) {
            return self.refuse_waiting(core, &error);
        }
        if self.log.unflushed_bytes() >= core.node.limits.unflushed_bytes_per_partition {
            return; // They wait until segments have caught up.
        }
        let timestamps = self.placed.as_ref().map_or(Timestamps::Create, |(_, topic)| topic.config.timestamps);
        if self.pipeline.propose(core, (self.group, self.journal()), &mut self.clock, timestamps).is_err() {
            let error = self.refusal();
            self.refuse_waiting(core, &error);
        }
    }

    /// Why nothing can be written now, if so.
    fn storage_refusal(&self, core: &Core, purpose: Purpose) -> Option<Error> {
        if let Some(error) = core.room_refusal(self.journal(), purpose) {
            return Some(error);
        }
        let bound = core.node.limits.unflushed_bytes_per_partition;
        let error = self.upkeep.error().filter(|_| self.log.unflushed_bytes() >= bound)?;
        let kind = if error.is_full() { ErrorKind::StorageFull } else { ErrorKind::StorageFailed };
        Some(Error::new(
            kind,
            format!("partition {} cannot write its segments ({error}); publishes resume when it can", self.id),
        ))
    }

    fn refuse_waiting(&mut self, core: &mut Core, error: &Error) {
        let first = self.pipeline.refuse_waiting(core, error);
        self.state.producers.untake_from(first);
    }

    fn subscribe(&mut self, core: &mut Core, subscribe: Subscribe, start: Start) {
        let (first, end) = (self.log.start(), self.log.end());
        let next = match start {
            Start::Earliest => first,
            Start::Latest => end,
            Start::Offset(offset) => offset,
            Start::Last(count) => Offset(end.0.saturating_sub(count)).max(first),
            Start::Cursor(name) => self.state.cursors.get(&name).map_or(first, |position| position.offset),
            Start::Time(time) => {
                return self.readers.search(Search::new(&self.log, time, Goal::Subscribe(subscribe)));
            }
        };
        if next < first || next > end {
            return core.refuse(subscribe.origin, &out_of_range(self.id, &self.log, next));
        }
        let epoch = self.term().0 as u32;
        self.readers.subscribe(core, &self.log, subscribe, next, epoch);
    }

    fn list_offsets(&mut self, core: &mut Core, origin: Origin, time: Option<lockgate_wire::WallMs>) {
        if let Some(time) = time {
            return self.readers.search(Search::new(&self.log, time, Goal::Offsets(origin)));
        }
        let body = proto::ListOffsetsOk {
            earliest_offset: self.log.start().0,
            high_watermark: self.log.end().0,
            offset: None,
            timestamp_ms: None,
            leader_epoch: self.term().0 as u32,
        };
        core.answer(origin, &body);
    }

    fn commit_cursor(&mut self, core: &mut Core, origin: Origin, name: String, offset: Offset, force: bool) {
        let max = core.node.limits.cursors_per_partition;
        if self.state.cursors.get(&name).is_none() && self.state.cursors.len() + self.changes.len() >= max as usize {
            let message = format!(
                "the partition has {max} cursors, the most it may have; delete some or raise limits.cursors_per_partition"
            );
            return core.refuse(origin, &Error::new(ErrorKind::LimitReached, message).with_limit(max.into()));
        }
        let time_ms = self.clock.stamp(core.now).0;
        self.change(core, origin, Change::CommitCursor(CommitCursor { name, offset: offset.0, force, time_ms }));
    }

    fn change(&mut self, core: &mut Core, origin: Origin, change: Change) {
        if let Some(error) = self.storage_refusal(core, Purpose::Change) {
            return core.refuse(origin, &error);
        }
        // Publishes taken before it are proposed before it: requests of a partition are handled in order.
        self.propose_now(core);
        let (context, data) = entry::command(change);
        let proposed =
            if self.pipeline.has_waiting() { None } else { Some(core.host.propose(self.group, context, data)) };
        match proposed {
            Some(Ok(proposed)) => self.changes.push_back((proposed.index, origin)),
            None | Some(Err(ProposeError::TooManyUncommitted { .. })) => {
                let message = format!("partition {} has as much under way as it may; try again soon", self.id);
                core.refuse(origin, &Error::new(ErrorKind::Overloaded, message));
            }
            Some(Err(_)) => core.refuse(origin, &self.refusal()),
        }
    }

    fn list_cursors(&mut self, core: &mut Core, origin: Origin, after: &str, limit: usize) {
        let mut items = self.state.cursors.after(after);
        let cursors = items
            .by_ref()
            .take(limit)
            .map(|(name, position)| proto::Cursor {
                name: name.clone(),
                offset: position.offset.0,
                committed_ms: position.committed.0,
            })
            .collect();
        let more = items.next().is_some();
        core.answer(origin, &proto::ListCursorsOk { cursors, more });
    }

    /// The connection took the last delivery of a subscription.
    pub(crate) fn delivery_taken(&mut self, shard: ShardId, connection: ConnectionId, subscription: SubscriptionId) {
        self.readers.slot_free(ReaderId::Subscription(shard, connection, subscription));
    }

    /// A connection is gone: what it has here ends. Publishes that were taken go on.
    pub(crate) fn connection_gone(&mut self, core: &mut Core, shard: ShardId, connection: ConnectionId) {
        self.readers.connection_gone(core, shard, connection);
    }

    /// A read for a reader ended.
    pub(crate) fn read_done(&mut self, core: &mut Core, read: (ReaderId, FileToken), result: DiskResult<bytes::Bytes>) {
        self.readers.read_done(core, self.id, &self.log, read, result);
    }

    /// Gives readers what there is for them.
    pub(crate) fn run_readers(&mut self, core: &mut Core) {
        let epoch = self.term().0 as u32;
        self.readers.run(core, self.id, &self.log, epoch);
    }
}
