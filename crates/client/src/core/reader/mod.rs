//! Readers: subscriptions to some partitions of a topic, merged into one queue in the order of arrival.
//!
//! The queue is bounded by the credit: a caller that takes nothing stops the flow.

mod item;
mod partition;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lockgate_wire::{Frame, MonoTime, Offset, proto};

pub use self::item::{Chunk, Taken, Unpacker};
use self::partition::Partition;
use super::context::Context;
use super::ids::ReaderKey;
use super::timers::{Alarm, TimerKey};
use super::{Output, Topic, milliseconds};
use crate::config::ReaderConfig;
use crate::error::ClientError;

/// What all partitions of a reader go by.
#[derive(Debug)]
struct Terms {
    key: ReaderKey,
    topic: Topic,
    stop_at_end: bool,
    /// The most bytes of a partition that are granted or queued.
    window_bytes: u64,
    /// More is granted once the broker has no more than this left.
    refill_below_bytes: i64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Reader {
    terms: Terms,
    /// In the order of their numbers.
    partitions: Vec<Partition>,
    queue: VecDeque<Taken>,
    /// While not every partition was subscribed to once.
    opening: Option<Opening>,
    /// The application was told that there is something, and did not find the queue empty since.
    told: bool,
    /// It could not be opened.
    failed: bool,
    scratch: Vec<Taken>,
}

#[derive(Debug)]
struct Opening {
    started: MonoTime,
    deadline: MonoTime,
    alarm: Alarm,
}

/// What taking from a reader gives.
#[derive(Clone, PartialEq, Debug)]
pub enum Take {
    /// The next thing.
    Item(Taken),
    /// Nothing now; `ReaderReady` tells when there is.
    Empty,
    /// Nothing any more.
    Finished,
}

impl Reader {
    pub(super) fn new(
        context: &mut Context,
        key: ReaderKey,
        topic: Topic,
        config: &ReaderConfig,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let mut numbers = config.partitions.clone().unwrap_or_else(|| (0..topic.partitions).collect());
        numbers.sort_unstable();
        numbers.dedup();
        if let Some(number) = numbers.iter().find(|number| **number >= topic.partitions) {
            let last = topic.partitions - 1;
            return Err(ClientError::InvalidArgument(format!(
                "partition {number} of {}: it has 0 to {last}",
                topic.name
            )));
        }
        if numbers.is_empty() {
            return Err(ClientError::InvalidArgument("a reader of no partition".into()));
        }
        let share = config.credit_bytes / numbers.len() as u64;
        let window_bytes = share.max(u64::from(topic.max_batch_bytes)).min(i64::MAX as u64);
        // What is left must take a largest batch, or the broker would wait for credit and the reader for bytes.
        let refill_below_bytes = (window_bytes / 2).max(u64::from(topic.max_batch_bytes).saturating_sub(1)) as i64;
        let partitions = numbers.iter().zip(0..);
        let partitions =
            partitions.map(|(number, place)| Partition::new(*number, place, config.from.for_partition(*number)));
        let started = context.now.mono;
        let mut opening =
            Opening { started, deadline: started.plus_ms(milliseconds(timeout)), alarm: Alarm::default() };
        opening.alarm.arm(&mut context.timers, TimerKey::Opening(key), opening.deadline);
        let mut reader = Self {
            partitions: partitions.collect(),
            terms: Terms { key, topic, stop_at_end: config.stop_at_end, window_bytes, refill_below_bytes },
            queue: VecDeque::new(),
            opening: Some(opening),
            told: false,
            failed: false,
            scratch: Vec::new(),
        };
        reader.subscribe(context);
        Ok(reader)
    }

    /// Subscribes to what waits for the link.
    pub(super) fn subscribe(&mut self, context: &mut Context) {
        for partition in &mut self.partitions {
            partition.subscribe(context, &self.terms);
        }
    }

    pub(super) fn link_down(&mut self, context: &mut Context, reason: &str) {
        for partition in &mut self.partitions {
            partition.link_down(context, reason, &mut self.scratch);
        }
        self.take_in(context);
    }

    /// The answer to a Subscribe. `Err` if it breaks the protocol.
    pub(super) fn answered(&mut self, context: &mut Context, place: u32, frame: &Frame) -> Result<(), String> {
        self.partitions[place as usize].answered(context, &self.terms, frame, &mut self.scratch)?;
        self.take_in(context);
        Ok(())
    }

    /// A Deliver. `Err` if it breaks the protocol.
    pub(super) fn delivered(
        &mut self,
        context: &mut Context,
        place: u32,
        deliver: &proto::Deliver,
        frame: &Frame,
    ) -> Result<(), String> {
        let partition = &mut self.partitions[place as usize];
        let result = partition.delivered(context, &self.terms, deliver, frame.payload.clone(), &mut self.scratch);
        self.take_in(context);
        result
    }

    pub(super) fn closed(&mut self, context: &mut Context, place: u32, closed: proto::SubscriptionClosed) {
        self.partitions[place as usize].closed(context, &self.terms, closed, &mut self.scratch);
        self.take_in(context);
    }

    pub(super) fn tick_partition(&mut self, context: &mut Context, place: u32) {
        let partition = &mut self.partitions[place as usize];
        partition.alarm.fired();
        partition.subscribe(context, &self.terms);
    }

    /// The time to open is over. Tells whether the reader is of no use.
    pub(super) fn tick_opening(&mut self, context: &mut Context) -> bool {
        let Some(opening) = &mut self.opening else { return false };
        opening.alarm.fired();
        let after = Duration::from_millis(context.now.mono.ms_since(opening.started));
        let missing = self.partitions.iter().filter(|partition| partition.position.is_none());
        let missing = missing.map(|partition| match &partition.last {
            Some(last) => format!("partition {}: {last}", partition.number),
            None => format!("partition {}: no answer", partition.number),
        });
        let last = missing.collect::<Vec<_>>().join("; ");
        self.opening = None;
        context.output(Output::ReaderOpened {
            reader: self.terms.key,
            result: Err(ClientError::Unavailable { after, last }),
        });
        true
    }

    /// It could not be opened, and somebody was told.
    pub(super) fn is_failed(&self) -> bool {
        self.failed
    }

    /// The next thing of the queue.
    pub(super) fn take(&mut self, context: &mut Context) -> Take {
        let Some(item) = self.queue.pop_front() else {
            self.told = false;
            let finished = self.partitions.iter().all(Partition::is_ended);
            return if finished { Take::Finished } else { Take::Empty };
        };
        match &item {
            Taken::Chunk(chunk) => {
                let bytes = chunk.batch.len() as u64;
                if let Some(place) = self.place_of_number(chunk.partition) {
                    self.partitions[place].taken(context, &self.terms, bytes);
                }
            }
            Taken::Lost { partition, .. } | Taken::Recovered { partition } => {
                if let Some(place) = self.place_of_number(*partition) {
                    self.partitions[place].status_queued -= 1;
                }
            }
            Taken::EndOfPartition { .. } | Taken::Failed { .. } => {}
        }
        Take::Item(item)
    }

    /// Reads this partition no further and forgets what of it is queued.
    pub(super) fn abandon(&mut self, context: &mut Context, number: u32) {
        let Some(place) = self.place_of_number(number) else { return };
        self.partitions[place].stop(context);
        let mut dropped = 0;
        self.queue.retain(|item| match item {
            Taken::Chunk(chunk) if chunk.partition == number => {
                dropped += chunk.batch.len() as u64;
                false
            }
            _ => true,
        });
        self.partitions[place].drop_queued(dropped);
    }

    /// Where each partition began; meaningful once the reader is open and until something is taken.
    pub(super) fn positions(&self) -> BTreeMap<u32, Offset> {
        self.partitions.iter().filter_map(|partition| Some((partition.number, partition.opened_at?))).collect()
    }

    /// Ends all subscriptions.
    pub(super) fn close(&mut self, context: &mut Context) {
        let key = self.terms.key;
        for (partition, place) in self.partitions.iter_mut().zip(0..) {
            partition.stop(context);
            partition.alarm.disarm(&mut context.timers, TimerKey::Reader(key, place));
        }
        if let Some(mut opening) = self.opening.take() {
            opening.alarm.disarm(&mut context.timers, TimerKey::Opening(key));
            context.output(Output::ReaderOpened { reader: key, result: Err(ClientError::Closed) });
        }
        context.output(Output::ReaderReady { reader: key });
    }

    fn place_of_number(&self, number: u32) -> Option<usize> {
        self.partitions.binary_search_by_key(&number, |partition| partition.number).ok()
    }

    /// Puts what happened into the queue and tells the application.
    fn take_in(&mut self, context: &mut Context) {
        self.queue.extend(self.scratch.drain(..));
        if let Some(opening) = &mut self.opening {
            let failed = self.queue.iter().find_map(|item| match item {
                Taken::Failed { error, .. } => Some(error.clone()),
                _ => None,
            });
            let result = match failed {
                Some(error) => Err(error),
                None if self.partitions.iter().all(|partition| partition.position.is_some()) => Ok(()),
                None => return,
            };
            opening.alarm.disarm(&mut context.timers, TimerKey::Opening(self.terms.key));
            self.opening = None;
            self.failed = result.is_err();
            context.output(Output::ReaderOpened { reader: self.terms.key, result });
        }
        let all_ended = self.queue.is_empty() && self.partitions.iter().all(Partition::is_ended);
        if (!self.queue.is_empty() || all_ended) && !std::mem::replace(&mut self.told, true) {
            context.output(Output::ReaderReady { reader: self.terms.key });
        }
    }
}
