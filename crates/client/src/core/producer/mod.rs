//! Producers: records into batches, batches into partitions, within a bounded buffer.
//!
//! Owns the choice of the partition, the buffer's accounts, flushes, and the producer id. What happens to a batch within
//! its partition is [`partition`]'s.

mod batch;
mod partition;

use std::collections::{BTreeSet, VecDeque};

use lockgate_wire::batch::Record;
use lockgate_wire::frame::HARD_MAX_FRAME_BYTES;
use lockgate_wire::partitioner::partition_of_key;
use lockgate_wire::{Frame, ProducerId, proto};

use self::batch::{Identity, Outcome};
use self::partition::{Partition, Wants};
use super::call::{Calls, Purpose, Resend};
use super::context::Context;
use super::ids::{BatchId, FlushId, ProducerKey};
use super::{Output, Ticket, Topic};
use crate::config::ProducerConfig;
use crate::error::ClientError;

/// What a record costs of the buffer beside its own bytes.
pub const RECORD_OVERHEAD_BYTES: usize = 64;
/// Room in a frame beside its batch.
pub const FRAME_OVERHEAD_BYTES: usize = 64 * 1024;
/// No batch is larger, whatever the topic says: it must fit into a frame.
pub const MAX_BATCH_BYTES: usize = HARD_MAX_FRAME_BYTES as usize - FRAME_OVERHEAD_BYTES;

/// What a producer confirmed and what it did not, in records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CloseReport {
    /// Acknowledged (with ack none: handed to the connection).
    pub acknowledged: u64,
    /// Failed, and known not to be applied.
    pub refused: u64,
    /// May or may not have been applied.
    pub unconfirmed: u64,
}

/// What all partitions of a producer go by.
#[derive(Debug)]
struct Terms {
    key: ProducerKey,
    topic: Topic,
    config: ProducerConfig,
    /// No batch is above this.
    max_batch_bytes: usize,
    /// No batch grows above this.
    batch_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Producer {
    terms: Terms,
    partitions: Vec<Partition>,
    /// The newest id that was got.
    identity: Option<Identity>,
    identity_asked: bool,
    /// Where records without a key go until their batch is closed.
    sticky: u32,
    /// A record went there since the last move.
    sticky_used: bool,
    buffered_bytes: usize,
    /// Somebody was told that the buffer is full.
    refused_for_space: bool,
    unresolved: BTreeSet<BatchId>,
    /// Flushes with the last batch that each waits for, in order.
    flushes: VecDeque<(FlushId, Option<BatchId>)>,
    closing: bool,
    removed: bool,
    report: CloseReport,
    outcomes: Vec<Outcome>,
}

impl Producer {
    pub(super) fn new(context: &mut Context, key: ProducerKey, topic: Topic, config: ProducerConfig) -> Self {
        let max_batch_bytes = (topic.max_batch_bytes as usize).min(MAX_BATCH_BYTES);
        let batch_bytes = config.batch_bytes.min(max_batch_bytes);
        let partitions = (0..topic.partitions).map(Partition::new).collect();
        let sticky = context.rng.up_to(u64::from(topic.partitions) - 1) as u32;
        Self {
            terms: Terms { key, topic, config, max_batch_bytes, batch_bytes },
            partitions,
            identity: None,
            identity_asked: false,
            sticky,
            sticky_used: false,
            buffered_bytes: 0,
            refused_for_space: false,
            unresolved: BTreeSet::new(),
            flushes: VecDeque::new(),
            closing: false,
            removed: false,
            report: CloseReport::default(),
            outcomes: Vec::new(),
        }
    }

    pub(super) fn send(
        &mut self,
        context: &mut Context,
        calls: &mut Calls,
        target: Option<u32>,
        record: &Record,
    ) -> Result<Ticket, ClientError> {
        if self.closing {
            return Err(ClientError::Closed);
        }
        let cost = record_cost(record);
        let buffer_bytes = self.terms.config.buffer_bytes;
        if self.buffered_bytes > 0 && self.buffered_bytes + cost > buffer_bytes {
            self.refused_for_space = true;
            return Err(ClientError::BufferFull { buffer_bytes });
        }
        let partition = self.partition_for(context, calls, target, record)?;
        let now = context.now.mono;
        let unresolved = &mut self.unresolved;
        let new_id = || {
            let id = BatchId(context.new_id());
            unresolved.insert(id);
            id
        };
        let place = &mut self.partitions[partition as usize];
        let ticket = place.push(&self.terms, now, record, cost, new_id)?;
        self.buffered_bytes += cost;
        context.stats.bytes_buffered += cost as u64;
        self.pump(context, calls, partition);
        Ok(ticket)
    }

    fn partition_for(
        &mut self,
        context: &mut Context,
        calls: &mut Calls,
        target: Option<u32>,
        record: &Record,
    ) -> Result<u32, ClientError> {
        let partitions = self.terms.topic.partitions;
        match (target, &record.key) {
            (Some(partition), _) if partition < partitions => Ok(partition),
            (Some(partition), _) => Err(ClientError::InvalidArgument(format!(
                "partition {partition} of {}: it has the partitions 0 to {}",
                self.terms.topic.name,
                partitions - 1
            ))),
            (None, Some(key)) => Ok(partition_of_key(key, partitions)),
            (None, None) => Ok(self.spread(context, calls, record)),
        }
    }

    /// The partition for a record without a key: the next one as soon as the last one's batch is closed or full.
    fn spread(&mut self, context: &mut Context, calls: &mut Calls, record: &Record) -> u32 {
        let last = self.sticky;
        let place = &mut self.partitions[last as usize];
        if std::mem::replace(&mut self.sticky_used, true) && !place.has_room_for(&self.terms, record) {
            place.close_open();
            self.sticky = (last + 1) % self.terms.topic.partitions;
            self.pump(context, calls, last);
        }
        self.sticky
    }

    /// A flush: closes the open batches, and is done when everything that was sent before is resolved.
    pub(super) fn flush(&mut self, context: &mut Context, calls: &mut Calls) -> FlushId {
        let id = FlushId(context.new_id());
        self.flushes.push_back((id, self.unresolved.last().copied()));
        for partition in 0..self.terms.topic.partitions {
            if self.partitions[partition as usize].has_open() {
                self.partitions[partition as usize].close_open();
                self.pump(context, calls, partition);
            }
        }
        self.settle(context);
        id
    }

    /// Takes no more records.
    pub(super) fn close(&mut self, context: &mut Context, calls: &mut Calls) -> FlushId {
        self.closing = true;
        self.flush(context, calls)
    }

    /// The application is done with it.
    pub(super) fn remove(&mut self, context: &mut Context, calls: &mut Calls) {
        self.removed = true;
        self.close(context, calls);
    }

    /// Nobody wants it, and nothing waits any more.
    pub(super) fn is_done(&self) -> bool {
        self.removed && self.partitions.iter().all(Partition::is_idle)
    }

    pub(super) fn report(&self) -> CloseReport {
        self.report
    }

    pub(super) fn link_up(&mut self, context: &mut Context, calls: &mut Calls) {
        for partition in 0..self.terms.topic.partitions {
            if !self.partitions[partition as usize].is_idle() {
                self.pump(context, calls, partition);
            }
        }
    }

    pub(super) fn link_down(&mut self, context: &mut Context, reason: &str) {
        for partition in &mut self.partitions {
            partition.link_down(context, &self.terms, reason, &mut self.outcomes);
        }
        self.settle(context);
    }

    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        calls: &mut Calls,
        partition: u32,
        frame: &Frame,
    ) -> Result<(), String> {
        let place = &mut self.partitions[partition as usize];
        place.answered(context, &self.terms, frame, &mut self.outcomes)?;
        self.pump(context, calls, partition);
        Ok(())
    }

    pub(super) fn tick(&mut self, context: &mut Context, calls: &mut Calls, partition: u32) {
        let place = &mut self.partitions[partition as usize];
        place.alarm.fired();
        place.expire(context, &mut self.outcomes);
        self.pump(context, calls, partition);
    }

    /// A new id, or why there is none.
    pub(super) fn identity(&mut self, context: &mut Context, calls: &mut Calls, answer: Result<Frame, ClientError>) {
        self.identity_asked = false;
        let identity = answer.and_then(|frame| {
            let ok: proto::InitProducerOk = frame.message().map_err(|error| ClientError::Protocol(error.message))?;
            match i16::try_from(ok.producer_epoch) {
                Ok(epoch) if epoch >= 0 && ok.producer_id >= 0 => {
                    Ok(Identity { id: ProducerId(ok.producer_id), epoch })
                }
                _ => Err(ClientError::Protocol(format!("producer id {}, epoch {}", ok.producer_id, ok.producer_epoch))),
            }
        });
        match identity {
            Ok(identity) => self.identity = Some(identity),
            // Asked for again by the next pump; batches end by their own deadlines.
            Err(ClientError::Unavailable { .. }) => {}
            Err(error) => {
                for partition in &mut self.partitions {
                    partition.fail_unsent(&error, &mut self.outcomes);
                }
                self.settle(context);
            }
        }
        self.link_up(context, calls);
    }

    /// Ends everything: the client closes.
    pub(super) fn shut(&mut self, context: &mut Context) {
        self.closing = true;
        for partition in &mut self.partitions {
            partition.close(context, &self.terms, &mut self.outcomes);
        }
        self.settle(context);
    }

    pub(super) fn pump(&mut self, context: &mut Context, calls: &mut Calls, partition: u32) {
        let place = &mut self.partitions[partition as usize];
        let wants = place.pump(context, &self.terms, self.identity, &mut self.outcomes);
        if wants == Wants::Identity && !self.identity_asked {
            let timeout = self.terms.config.timeout;
            let purpose = Purpose::Identity(self.terms.key);
            // With too many calls open it is asked for again by the next pump; batches end by their own deadlines.
            let asked = calls.start(context, &proto::InitProducer {}, None, timeout, Resend::Safe, purpose);
            self.identity_asked = asked.is_ok();
        }
        self.settle(context);
    }

    /// Accounts for what came to its end, and tells.
    fn settle(&mut self, context: &mut Context) {
        let mut freed = false;
        for Outcome { batch, result, bytes } in self.outcomes.drain(..) {
            let records = u64::from(batch.records);
            let (mine, all) = match &result {
                Ok(_) => (&mut self.report.acknowledged, &mut context.stats.records_acknowledged),
                Err(error) if error.outcome_unknown() => {
                    (&mut self.report.unconfirmed, &mut context.stats.records_unknown)
                }
                Err(_) => (&mut self.report.refused, &mut context.stats.records_refused),
            };
            *mine += records;
            *all += records;
            if result.is_ok() {
                context.stats.bytes_acknowledged += bytes as u64;
            }
            self.buffered_bytes -= batch.cost;
            context.stats.bytes_buffered -= batch.cost as u64;
            self.unresolved.remove(&batch.id);
            context.output(Output::BatchDone { batch: batch.id, result });
            freed = true;
        }
        if freed && std::mem::take(&mut self.refused_for_space) {
            context.output(Output::BufferFreed { producer: self.terms.key });
        }
        while let Some((flush, last)) = self.flushes.front().copied() {
            if last.is_some_and(|last| self.unresolved.first().is_some_and(|first| *first <= last)) {
                break;
            }
            self.flushes.pop_front();
            context.output(Output::Flushed { flush });
        }
    }
}

fn record_cost(record: &Record) -> usize {
    let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    let headers: usize = record.headers.iter().map(|header| header.name.len() + length(&header.value)).sum();
    RECORD_OVERHEAD_BYTES + length(&record.key) + length(&record.value) + headers
}
