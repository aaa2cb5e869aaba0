//! Who reads a partition: subscriptions, fetches that wait, and searches for a time.
//!
//! A subscription has one slot: after a delivery it gets nothing until its connection has taken that one. So a slow
//! connection holds one delivery per subscription and delays nobody else. Deliveries stay within the credit that the
//! reader granted; only when nothing at all is outstanding is one batch delivered that is larger than the credit, so
//! that no batch is too big to be read.

mod payload;
mod scan;
mod search;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lockgate_storage::disk::{DiskResult, FileOp};
use lockgate_storage::segment::{SegmentError, StoredBatch};
use lockgate_wire::proto::{self, CloseReason};
use lockgate_wire::{
    ConnectionId, Error, ErrorKind, FrameKind, MonoTime, Offset, OutFrame, PartitionId, ShardId, SubscriptionId,
};

use self::payload::payload;
use self::scan::{Found, Scan};
use self::search::Searched;
pub(crate) use self::search::{Goal, Search};
use super::log::Log;
use crate::core::{Core, FileOwner, Reply};
use crate::limits::TOLD_READ_FAILURES;
use crate::mesh::Origin;
use crate::output::{FileToken, Lane, Level};
use crate::session::closed;

/// Names a reader of a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ReaderId {
    Subscription(ShardId, ConnectionId, SubscriptionId),
    /// A fetch or a search; the number is the partition's own.
    Once(u64),
}

enum Reader {
    Subscription(Subscription),
    Fetch(Fetch),
    Search(Search),
}

struct Subscription {
    scan: Scan,
    /// Bytes that may be delivered; below zero after a batch larger than the credit.
    credit: i64,
    /// The most credit there was: with as much again, nothing is outstanding.
    window: i64,
    slot_is_free: bool,
}

struct Fetch {
    scan: Scan,
    origin: Origin,
    max_bytes: usize,
    deadline: MonoTime,
}

/// A subscription that is to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscribe {
    pub(crate) origin: Origin,
    pub(crate) subscription: SubscriptionId,
    pub(crate) credit: u64,
}

/// What became of a reader after it was looked after.
enum Next {
    Keep,
    Drop,
}

/// The readers of one partition.
#[derive(Default)]
pub(crate) struct Readers {
    readers: BTreeMap<ReaderId, Reader>,
    /// Those for whom something changed since they were looked after.
    runnable: BTreeSet<ReaderId>,
    next_once: u64,
    /// Failures of reads that the log has a line about: one each until the restart, however often they are met.
    told: BTreeSet<String>,
}

impl Readers {
    pub(crate) fn is_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// When the first waiting fetch has to be answered.
    pub(crate) fn deadline(&self) -> Option<MonoTime> {
        self.readers
            .values()
            .filter_map(|reader| match reader {
                // A read that is under way wakes it by itself.
                Reader::Fetch(fetch) if !fetch.scan.is_reading() => Some(fetch.deadline),
                _ => None,
            })
            .min()
    }

    /// The log moved: everyone is looked after.
    pub(crate) fn wake_all(&mut self) {
        self.runnable.extend(self.readers.keys());
    }

    /// Time passed: fetches that have waited long enough are answered.
    fn wake_due(&mut self, now: MonoTime) {
        let is_due = |reader: &Reader| matches!(reader, Reader::Fetch(fetch) if fetch.deadline <= now);
        self.runnable.extend(self.readers.iter().filter(|(_, reader)| is_due(reader)).map(|(id, _)| *id));
    }

    /// Nothing more is waited for: fetches are answered with what there is.
    pub(crate) fn stop_waiting(&mut self, now: MonoTime) {
        for (id, reader) in &mut self.readers {
            if let Reader::Fetch(fetch) = reader
                && fetch.deadline > now
            {
                fetch.deadline = now;
                self.runnable.insert(*id);
            }
        }
    }

    /// Starts a subscription and answers it.
    pub(crate) fn subscribe(&mut self, core: &mut Core, log: &Log, subscribe: Subscribe, next: Offset, epoch: u32) {
        let Subscribe { origin, subscription, credit } = subscribe;
        let body = proto::SubscribeOk {
            next_offset: next.0,
            earliest_offset: log.start().0,
            high_watermark: log.end().0,
            leader_epoch: epoch,
        };
        core.answer(origin, &body);
        let id = ReaderId::Subscription(origin.shard, origin.connection, subscription);
        let credit = i64::try_from(credit).unwrap_or(i64::MAX);
        let reader = Subscription { scan: Scan::new(next), credit, window: credit, slot_is_free: true };
        self.readers.insert(id, Reader::Subscription(reader));
        self.runnable.insert(id);
    }

    /// Starts a fetch; it is answered when there is something, or at the deadline.
    pub(crate) fn fetch(&mut self, origin: Origin, offset: Offset, max_bytes: usize, deadline: MonoTime) {
        self.once(Reader::Fetch(Fetch { scan: Scan::new(offset), origin, max_bytes, deadline }));
    }

    /// Starts a search for a time.
    pub(crate) fn search(&mut self, search: Search) {
        self.once(Reader::Search(search));
    }

    fn once(&mut self, reader: Reader) {
        let id = ReaderId::Once(self.next_once);
        self.next_once += 1;
        self.readers.insert(id, reader);
        self.runnable.insert(id);
    }

    /// More credit for a subscription. One that has ended meanwhile is no error.
    pub(crate) fn credit(&mut self, id: ReaderId, bytes: u64) {
        if let Some(Reader::Subscription(subscription)) = self.readers.get_mut(&id) {
            subscription.credit = subscription.credit.saturating_add_unsigned(bytes);
            subscription.window = subscription.window.max(subscription.credit);
            self.runnable.insert(id);
        }
    }

    /// The connection took the last delivery.
    pub(crate) fn slot_free(&mut self, id: ReaderId) {
        if let Some(Reader::Subscription(subscription)) = self.readers.get_mut(&id) {
            subscription.slot_is_free = true;
            self.runnable.insert(id);
        }
    }

    /// Ends a subscription without a word; one that still searches for its start is refused.
    pub(crate) fn unsubscribe(
        &mut self,
        core: &mut Core,
        shard: ShardId,
        connection: ConnectionId,
        subscription: SubscriptionId,
    ) {
        if self.readers.remove(&ReaderId::Subscription(shard, connection, subscription)).is_some() {
            return;
        }
        let is_meant = |reader: &Reader| match reader {
            Reader::Search(Search { goal: Goal::Subscribe(wish), .. }) => {
                (wish.origin.shard, wish.origin.connection, wish.subscription) == (shard, connection, subscription)
            }
            _ => false,
        };
        for (_, reader) in self.readers.extract_if(.., |_, reader| is_meant(reader)) {
            let message = format!("subscription {subscription} ended before it began");
            if let Some(origin) = reader.origin() {
                core.refuse(origin, &Error::new(ErrorKind::SubscriptionNotFound, message));
            }
        }
    }

    /// Ends what a connection that is gone has here. Its requests are over, so that what they held is given back.
    pub(crate) fn connection_gone(&mut self, core: &mut Core, shard: ShardId, connection: ConnectionId) {
        let is_theirs = |id: &ReaderId, reader: &Reader| match id {
            ReaderId::Subscription(s, c, _) => (*s, *c) == (shard, connection),
            ReaderId::Once(_) => {
                reader.origin().is_some_and(|origin| (origin.shard, origin.connection) == (shard, connection))
            }
        };
        for (_, reader) in self.readers.extract_if(.., |id, reader| is_theirs(id, reader)) {
            if let Some(origin) = reader.origin() {
                core.done(origin);
            }
        }
    }

    /// Ends everyone with an error.
    pub(crate) fn end_all(&mut self, core: &mut Core, reason: CloseReason, error: &Error) {
        for (id, reader) in std::mem::take(&mut self.readers) {
            end(core, id, &reader, reason, error);
        }
        self.runnable.clear();
    }

    /// A read for one of them ended.
    pub(crate) fn read_done(
        &mut self,
        core: &mut Core,
        partition: PartitionId,
        log: &Log,
        (id, token): (ReaderId, FileToken),
        result: DiskResult<Bytes>,
    ) {
        // The one that began the read may be gone, and another one may have its name.
        let Some(reader) = self.readers.get_mut(&id).filter(|reader| reader.scan().reads(token)) else { return };
        if let Err(error) = reader.scan_mut().arrived(log, result) {
            let kind = match &error {
                SegmentError::Disk(_) => ErrorKind::StorageFailed,
                SegmentError::Damaged { .. } | SegmentError::UnknownVersion { .. } => ErrorKind::LogDamaged,
            };
            let message = format!("partition {partition} cannot be read there: {error}");
            end(core, id, reader, CloseReason::Error, &Error::new(kind, message.as_str()));
            if self.told.len() < TOLD_READ_FAILURES && self.told.insert(message.clone()) {
                core.log(Level::Error, message);
            }
            self.readers.remove(&id);
            return;
        }
        self.runnable.insert(id);
    }

    /// Looks after everyone for whom something changed. `epoch` is the leader's.
    pub(crate) fn run(&mut self, core: &mut Core, partition: PartitionId, log: &Log, epoch: u32) {
        self.wake_due(core.now.mono);
        // A search that ends may begin a subscription, which is looked after at once.
        while let Some(id) = self.runnable.pop_first() {
            let Some(reader) = self.readers.get_mut(&id) else { continue };
            let next = match reader {
                Reader::Subscription(subscription) => deliver(core, partition, log, id, subscription),
                Reader::Fetch(fetch) => answer_fetch(core, partition, log, id, fetch),
                Reader::Search(search) => match search.run(log) {
                    Searched::Reading => Next::Keep,
                    Searched::Read(op) => {
                        start_read(core, partition, id, &mut search.scan, op);
                        Next::Keep
                    }
                    Searched::Ended(found) => {
                        let goal = search.goal;
                        self.readers.remove(&id);
                        self.search_ended(core, log, goal, found, epoch);
                        continue;
                    }
                },
            };
            if let Next::Drop = next {
                self.readers.remove(&id);
            }
        }
    }

    fn search_ended(&mut self, core: &mut Core, log: &Log, goal: Goal, found: Option<(Offset, i64)>, epoch: u32) {
        match goal {
            Goal::Subscribe(subscribe) => {
                let next = found.map_or_else(|| log.end(), |(offset, _)| offset.max(log.start()));
                self.subscribe(core, log, subscribe, next, epoch);
            }
            Goal::Offsets(origin) => {
                let body = proto::ListOffsetsOk {
                    earliest_offset: log.start().0,
                    high_watermark: log.end().0,
                    offset: found.map(|(offset, _)| offset.0),
                    timestamp_ms: found.map(|(_, timestamp)| timestamp),
                    leader_epoch: epoch,
                };
                core.answer(origin, &body);
            }
        }
    }
}

impl Reader {
    /// The request that waits for it, if one does.
    fn origin(&self) -> Option<Origin> {
        match self {
            Self::Subscription(_) => None,
            Self::Fetch(fetch) => Some(fetch.origin),
            Self::Search(search) => Some(search.goal.origin()),
        }
    }

    fn scan(&self) -> &Scan {
        match self {
            Self::Subscription(subscription) => &subscription.scan,
            Self::Fetch(fetch) => &fetch.scan,
            Self::Search(search) => &search.scan,
        }
    }

    fn scan_mut(&mut self) -> &mut Scan {
        match self {
            Self::Subscription(subscription) => &mut subscription.scan,
            Self::Fetch(fetch) => &mut fetch.scan,
            Self::Search(search) => &mut search.scan,
        }
    }
}

fn start_read(core: &mut Core, partition: PartitionId, id: ReaderId, scan: &mut Scan, op: FileOp) {
    core.metrics.cold_reads += 1;
    let token = core.file(Lane::Read, FileOwner::Read(partition, id), op);
    scan.started(token);
}

fn end(core: &mut Core, id: ReaderId, reader: &Reader, reason: CloseReason, error: &Error) {
    match (id, reader) {
        (ReaderId::Subscription(shard, connection, subscription), _) => {
            let frame = closed(subscription, reason, error);
            core.replies.push_back(Reply::Ended { shard, connection, subscription, frame });
        }
        (_, Reader::Fetch(fetch)) => core.refuse(fetch.origin, error),
        (_, Reader::Search(search)) => core.refuse(search.goal.origin(), error),
        (ReaderId::Once(_), Reader::Subscription(_)) => unreachable!("a subscription has a subscription's id"),
    }
}

/// The refusal of an offset that is outside of the log.
pub(crate) fn out_of_range(partition: PartitionId, log: &Log, offset: Offset) -> Error {
    let message = format!(
        "offset {offset} of partition {partition} is outside of what is kept, {} to {}",
        log.start(),
        log.end()
    );
    let mut error = Error::new(ErrorKind::OffsetOutOfRange, message);
    error.details.earliest_offset = Some(log.start().0);
    error.details.high_watermark = Some(log.end().0);
    error
}

fn deliver(core: &mut Core, partition: PartitionId, log: &Log, id: ReaderId, reader: &mut Subscription) -> Next {
    let ReaderId::Subscription(shard, connection, subscription) = id else { return Next::Drop };
    if !reader.slot_is_free {
        return Next::Keep;
    }
    // Without credit nothing is read ahead either; but a place that is gone is told at once.
    if reader.credit <= 0 && reader.scan.next() >= log.start() {
        core.metrics.credit_waits += u64::from(reader.scan.next() < log.end());
        return Next::Keep;
    }
    match reader.scan.look(log) {
        Found::End | Found::Reading => Next::Keep,
        Found::Read(op) => {
            start_read(core, partition, id, &mut reader.scan, op);
            Next::Keep
        }
        Found::OutOfRange => {
            let error = out_of_range(partition, log, reader.scan.next());
            let frame = closed(subscription, CloseReason::Error, &error);
            core.replies.push_back(Reply::Ended { shard, connection, subscription, frame });
            Next::Drop
        }
        Found::Batches => {
            let nothing_outstanding = reader.credit == reader.window;
            let credit = usize::try_from(reader.credit).unwrap_or(0);
            if reader.scan.first_bytes(log) > credit && !nothing_outstanding {
                core.metrics.credit_waits += 1;
                return Next::Keep;
            }
            let batches = reader.scan.take(log, credit.min(core.node.limits.delivery_bytes as usize));
            send(core, log, id, reader, &batches);
            Next::Keep
        }
    }
}

fn send(core: &mut Core, log: &Log, id: ReaderId, reader: &mut Subscription, batches: &[StoredBatch]) {
    let ReaderId::Subscription(shard, connection, subscription) = id else { return };
    let payload = payload(core, batches);
    reader.credit = reader.credit.saturating_sub_unsigned(payload.bytes as u64);
    reader.slot_is_free = false;
    let body = proto::Deliver {
        subscription_id: subscription.0,
        next_offset: reader.scan.next().0,
        high_watermark: log.end().0,
        append_time_ms: payload.append_times,
    };
    let frame = OutFrame::new(FrameKind::Push, 0, &body, payload.pieces);
    core.replies.push_back(Reply::Deliver { shard, connection, subscription, frame });
}

fn answer_fetch(core: &mut Core, partition: PartitionId, log: &Log, id: ReaderId, fetch: &mut Fetch) -> Next {
    let batches = match fetch.scan.look(log) {
        Found::Reading => return Next::Keep,
        Found::Read(op) => {
            start_read(core, partition, id, &mut fetch.scan, op);
            return Next::Keep;
        }
        Found::End if fetch.deadline > core.now.mono => return Next::Keep,
        Found::End => Vec::new(),
        Found::OutOfRange => {
            core.refuse(fetch.origin, &out_of_range(partition, log, fetch.scan.next()));
            return Next::Drop;
        }
        Found::Batches => fetch.scan.take(log, fetch.max_bytes),
    };
    let payload = payload(core, &batches);
    let body = proto::FetchOk {
        next_offset: fetch.scan.next().0,
        earliest_offset: log.start().0,
        high_watermark: log.end().0,
        append_time_ms: payload.append_times,
    };
    core.answer_with(fetch.origin, &body, payload.pieces);
    Next::Drop
}
