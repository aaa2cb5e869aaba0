//! One partition of a producer: batches in order, their numbers, what is sent again and what is given up.
//!
//! With idempotence the promise is: a number is never used for two contents, no number is skipped, and a batch whose
//! outcome is unknown is sent again as the same bytes until an answer resolves it. When a numbered batch ends without
//! having been applied for sure, its number is a hole that no later batch may be behind: the identity is *burnt*, batches
//! under it are led to their own ends, and the next ones begin at 0 under a new id.

use std::collections::VecDeque;
use std::time::Duration;

use lockgate_wire::batch::{BatchBuilder, Producer, Record, sequence_after};
use lockgate_wire::error::Advice;
use lockgate_wire::{Error, ErrorKind, Frame, FrameKind, MonoTime, Op, OutFrame, proto};

use super::Terms;
use super::batch::{Batch, Contents, Flight, Identity, InFlight, OpenBatch, Outcome, ReadyBatch};
use crate::config::{Ack, OnUnknown};
use crate::core::context::{Context, Owner};
use crate::core::ids::BatchId;
use crate::core::retry::Backoff;
use crate::core::timers::{Alarm, TimerKey};
use crate::core::{Ticket, milliseconds};
use crate::error::ClientError;
use crate::record::Receipt;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Partition {
    number: u32,
    open: Option<OpenBatch>,
    /// Closed, not numbered, in the order of their ids.
    ready: VecDeque<ReadyBatch>,
    /// Unresolved, in the order of their numbers.
    in_flight: VecDeque<InFlight>,
    /// How many of these are not on the connection now.
    unsent: usize,
    identity: Option<Identity>,
    next_sequence: i32,
    /// The identity takes no more numbers.
    burnt: bool,
    /// The identity that was given up last.
    given_up: Option<Identity>,
    paused_until: MonoTime,
    backoff: Backoff,
    pub(super) alarm: Alarm,
}

/// What a partition wants of its producer after it was pumped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    Nothing,
    /// An identity that is not the one it gave up.
    Identity,
}

impl Partition {
    pub(super) fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Adds a record to the open batch, or to a new one.
    pub(super) fn push(
        &mut self,
        terms: &Terms,
        now: MonoTime,
        record: &Record,
        cost: usize,
        new_id: impl FnOnce() -> BatchId,
    ) -> Result<Ticket, ClientError> {
        if !self.has_room_for(terms, record) {
            self.close_open();
        }
        if self.open.is_none() {
            let builder = BatchBuilder::new(terms.config.compression);
            let bytes = builder.size_with(record);
            if bytes > terms.max_batch_bytes {
                return Err(ClientError::RecordTooLarge { bytes, limit: terms.max_batch_bytes });
            }
            let deadline = now.plus_ms(milliseconds(terms.config.timeout));
            let batch = Batch { id: new_id(), records: 0, cost: 0, created: now, deadline };
            let close_at = now.plus_ms(milliseconds(terms.config.linger));
            self.open = Some(OpenBatch { batch, builder, close_at });
        }
        let open = self.open.as_mut().expect("it was opened above");
        let added = open.builder.push(record);
        added.expect("a batch within max_batch_bytes is within what a builder takes");
        let ticket = Ticket { partition: self.number, batch: open.batch.id, index: open.batch.records };
        open.batch.records += 1;
        open.batch.cost += cost;
        if open.builder.count() >= terms.config.batch_records || open.builder.encoded_size() >= terms.batch_bytes {
            self.close_open();
        }
        Ok(ticket)
    }

    /// Whether there is an open batch that takes this record.
    pub(super) fn has_room_for(&self, terms: &Terms, record: &Record) -> bool {
        self.open.as_ref().is_some_and(|open| open.builder.size_with(record) <= terms.batch_bytes)
    }

    pub(super) fn has_open(&self) -> bool {
        self.open.is_some()
    }

    /// No more records for the open batch.
    pub(super) fn close_open(&mut self) {
        if let Some(open) = self.open.take() {
            self.ready.push_back(ReadyBatch { batch: open.batch, contents: Contents::Records(open.builder) });
        }
    }

    /// Sends what may be sent now: first again, then anew.
    pub(super) fn pump(
        &mut self,
        context: &mut Context,
        terms: &Terms,
        identity: Option<Identity>,
        outcomes: &mut Vec<Outcome>,
    ) -> Wants {
        let now = context.now.mono;
        self.send_again(context, terms);
        let mut wants = Wants::Nothing;
        while self.may_begin(terms, now) && self.has_next(now) {
            if !context.link.has_room() {
                context.waiting_for_room.insert((terms.key, self.number));
                break;
            }
            if terms.config.idempotent && !self.take_identity(identity) {
                wants = Wants::Identity;
                break;
            }
            self.send_next(context, terms, outcomes);
        }
        self.arm(context, terms);
        wants
    }

    fn may_begin(&self, terms: &Terms, now: MonoTime) -> bool {
        !self.burnt && self.unsent == 0 && self.in_flight.len() < terms.config.in_flight && self.paused_until <= now
    }

    fn has_next(&self, now: MonoTime) -> bool {
        !self.ready.is_empty() || self.open.as_ref().is_some_and(|open| open.close_at <= now)
    }

    fn take_identity(&mut self, newest: Option<Identity>) -> bool {
        if self.identity.is_none() && newest != self.given_up {
            self.identity = newest;
            self.next_sequence = 0;
        }
        self.identity.is_some()
    }

    fn send_next(&mut self, context: &mut Context, terms: &Terms, outcomes: &mut Vec<Outcome>) {
        if self.ready.is_empty() {
            self.close_open();
        }
        let Some(ReadyBatch { batch, contents }) = self.ready.pop_front() else { return };
        let producer = self.identity.map(|identity| {
            let base_sequence = self.next_sequence;
            self.next_sequence = sequence_after(base_sequence, batch.records as i32);
            Producer { id: identity.id, epoch: identity.epoch, base_sequence }
        });
        let bytes = contents.encode(producer);
        let size = bytes.len();
        let body = proto::Publish {
            topic_id: terms.topic.id.0,
            partition: self.number,
            ack: terms.config.ack.to_proto() as i32,
            partitioning_version: terms.topic.partitioning_version,
        };
        if terms.config.ack == Ack::None {
            context.link.send(context.now.mono, publish(0, &body, bytes), &mut context.outputs);
            let receipt = Receipt { partition: self.number, offset: None, append_time_ms: None, duplicate: false };
            outcomes.push(Outcome { batch, result: Ok(receipt), bytes: size });
            return;
        }
        let request = context.new_id();
        let frame = publish(request, &body, bytes);
        context.request(request, Owner::Batch(terms.key, self.number), frame.clone());
        let (state, first_sent) = (Flight::Sent, context.now.mono);
        self.in_flight.push_back(InFlight {
            batch,
            request,
            frame,
            state,
            maybe_applied: false,
            first_sent,
            last: None,
        });
    }

    /// Sends what is unresolved and not on the connection, in order.
    fn send_again(&mut self, context: &mut Context, terms: &Terms) {
        if self.unsent == 0 || self.paused_until > context.now.mono || !context.link.is_up() {
            return;
        }
        let mut one_before_was_sent = true;
        for flight in &mut self.in_flight {
            let send = match flight.state {
                Flight::Sent => false,
                Flight::ToSend => true,
                Flight::Behind => one_before_was_sent,
            };
            if send {
                flight.state = Flight::Sent;
                self.unsent -= 1;
                context.stats.retries += 1;
                context.request(flight.request, Owner::Batch(terms.key, self.number), flight.frame.clone());
            }
            one_before_was_sent = send;
        }
    }

    /// The answer to an attempt. `Err` if it breaks the protocol.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        terms: &Terms,
        frame: &Frame,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), String> {
        let Some(at) = self.in_flight.iter().position(|flight| flight.request == frame.request_id) else {
            return Ok(());
        };
        if frame.kind == FrameKind::Response {
            if frame.op() != Some(Op::Publish) {
                return Err(format!("a Publish was answered with operation {}", frame.op));
            }
            let ok: proto::PublishOk = frame.message().map_err(|error| error.message)?;
            self.backoff.succeeded();
            let receipt = Receipt {
                partition: self.number,
                offset: Some(ok.base_offset.into()),
                append_time_ms: Some(ok.append_time_ms),
                duplicate: ok.duplicate,
            };
            self.resolve(at, Ok(receipt), outcomes);
        } else {
            let error = frame.message().map_err(|error| format!("an error cannot be read: {error}"))?;
            self.refused(context, terms, at, Error::from_proto(error), outcomes);
        }
        self.lead_to_the_end(outcomes);
        Ok(())
    }

    fn refused(&mut self, context: &mut Context, terms: &Terms, at: usize, error: Error, outcomes: &mut Vec<Outcome>) {
        let flight = &mut self.in_flight[at];
        let behind = match error.kind {
            ErrorKind::SequenceAhead => at > 0 || self.burnt,
            // So is called what comes ahead of an id's first batch.
            ErrorKind::ProducerUnknown => at > 0,
            _ => false,
        };
        if behind {
            flight.state = Flight::Behind;
            flight.last = Some(error);
            self.unsent += 1;
            return;
        }
        match error.advice() {
            Advice::Retry | Advice::Redirect => self.pause(context, at, error),
            Advice::Unknown if terms.resends_unknown() => {
                flight.maybe_applied = true;
                self.pause(context, at, error);
            }
            Advice::Unknown => self.fail(at, ClientError::OutcomeUnknown { last: error.to_string() }, outcomes),
            Advice::Terminal if error.kind == ErrorKind::ProducerUnknown && !flight.maybe_applied => {
                // Refused by a broker that forgot this producer, and never applied: it may go under another id.
                flight.state = Flight::Behind;
                self.unsent += 1;
                self.burnt = true;
                self.paused_until = self.backoff.failed(context.now.mono, Some(&error), &mut context.rng);
            }
            Advice::Terminal if flight.maybe_applied => {
                let last = format!("an earlier attempt was not answered, and the last one: {error}");
                self.fail(at, ClientError::OutcomeUnknown { last }, outcomes);
            }
            Advice::Terminal => self.fail(at, ClientError::from_terminal(error), outcomes),
        }
    }

    fn pause(&mut self, context: &mut Context, at: usize, error: Error) {
        self.paused_until = self.backoff.failed(context.now.mono, Some(&error), &mut context.rng);
        let flight = &mut self.in_flight[at];
        flight.state = Flight::ToSend;
        flight.last = Some(error);
        self.unsent += 1;
    }

    /// The connection is gone: what was on it is unknown.
    pub(super) fn link_down(
        &mut self,
        context: &mut Context,
        terms: &Terms,
        reason: &str,
        outcomes: &mut Vec<Outcome>,
    ) {
        self.paused_until = MonoTime(0);
        let mut at = 0;
        while at < self.in_flight.len() {
            let flight = &mut self.in_flight[at];
            if flight.state == Flight::Sent && !terms.resends_unknown() {
                let last = format!("the connection was lost before the answer: {reason}");
                self.fail(at, ClientError::OutcomeUnknown { last }, outcomes);
                continue;
            }
            if flight.state == Flight::Sent {
                flight.maybe_applied = true;
                flight.state = Flight::ToSend;
                self.unsent += 1;
            }
            at += 1;
        }
        self.arm(context, terms);
    }

    /// Ends what is past its deadline.
    pub(super) fn expire(&mut self, context: &mut Context, outcomes: &mut Vec<Outcome>) {
        let now = context.now.mono;
        while let Some(at) = self.in_flight.iter().position(|flight| flight.give_up_at() <= now) {
            let flight = &self.in_flight[at];
            let last = flight.last.as_ref().map_or_else(|| "the broker did not answer".into(), Error::to_string);
            let error = match flight.maybe_applied || flight.state == Flight::Sent {
                true => ClientError::OutcomeUnknown { last },
                false => unavailable(&flight.batch, now, last),
            };
            context.forget(flight.request);
            self.fail(at, error, outcomes);
        }
        self.lead_to_the_end(outcomes);
        if self.open.as_ref().is_some_and(|open| open.batch.deadline <= now) {
            self.close_open();
        }
        while self.ready.front().is_some_and(|ready| ready.batch.deadline <= now) {
            let Some(ready) = self.ready.pop_front() else { break };
            let why = if context.link.is_up() { "earlier batches are not answered" } else { "there is no connection" };
            let result = Err(unavailable(&ready.batch, now, why.into()));
            outcomes.push(Outcome { batch: ready.batch, result, bytes: 0 });
        }
    }

    /// Ends what was never sent, with this error.
    pub(super) fn fail_unsent(&mut self, error: &ClientError, outcomes: &mut Vec<Outcome>) {
        self.close_open();
        let failed = |ready: ReadyBatch| Outcome { batch: ready.batch, result: Err(error.clone()), bytes: 0 };
        outcomes.extend(self.ready.drain(..).map(failed));
    }

    /// Ends everything: the client closes.
    pub(super) fn close(&mut self, context: &mut Context, terms: &Terms, outcomes: &mut Vec<Outcome>) {
        while let Some(flight) = self.in_flight.front() {
            context.forget(flight.request);
            let last = "the client was closed before the answer".into();
            let error = match flight.maybe_applied || flight.state == Flight::Sent {
                true => ClientError::OutcomeUnknown { last },
                false => ClientError::Closed,
            };
            self.fail(0, error, outcomes);
        }
        self.fail_unsent(&ClientError::Closed, outcomes);
        self.alarm.disarm(&mut context.timers, TimerKey::Producer(terms.key, self.number));
    }

    /// Ends a numbered batch without a receipt; its number becomes a hole.
    fn fail(&mut self, at: usize, error: ClientError, outcomes: &mut Vec<Outcome>) {
        self.burnt = self.identity.is_some();
        self.resolve(at, Err(error), outcomes);
    }

    fn resolve(&mut self, at: usize, result: Result<Receipt, ClientError>, outcomes: &mut Vec<Outcome>) {
        let Some(flight) = self.in_flight.remove(at) else { return };
        if flight.state != Flight::Sent {
            self.unsent -= 1;
        }
        let bytes = flight.frame.payload.iter().map(bytes::Bytes::len).sum();
        outcomes.push(Outcome { batch: flight.batch, result, bytes });
    }

    /// Under a burnt identity, a first batch that is behind a hole can never be applied any more: it gets a number of the
    /// next identity, unless an earlier attempt of it is unaccounted for.
    fn lead_to_the_end(&mut self, outcomes: &mut Vec<Outcome>) {
        while self.burnt && self.in_flight.front().is_some_and(|flight| flight.state == Flight::Behind) {
            if self.in_flight.front().is_some_and(|flight| flight.maybe_applied) {
                let last = "an earlier attempt was not answered, and a batch before it failed".into();
                self.resolve(0, Err(ClientError::OutcomeUnknown { last }), outcomes);
                continue;
            }
            let Some(mut flight) = self.in_flight.pop_front() else { break };
            self.unsent -= 1;
            let Some(bytes) = flight.frame.payload.pop() else { continue };
            let at = self.ready.partition_point(|ready| ready.batch.id < flight.batch.id);
            self.ready.insert(at, ReadyBatch { batch: flight.batch, contents: Contents::Encoded(bytes) });
        }
        if self.burnt && self.in_flight.is_empty() {
            self.given_up = self.identity.take();
            self.burnt = false;
        }
    }

    /// Nothing waits here.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_none() && self.ready.is_empty() && self.in_flight.is_empty()
    }

    fn arm(&mut self, context: &mut Context, terms: &Terms) {
        let now = context.now.mono;
        let open = self.open.as_ref();
        let close_at = open.map(|open| open.close_at).filter(|at| *at > now);
        let resend_at = Some(self.paused_until).filter(|at| *at > now && !self.is_idle());
        let queued = self.ready.front().map(|ready| ready.batch.deadline).or(open.map(|open| open.batch.deadline));
        let give_up_at = self.in_flight.front().map(InFlight::give_up_at);
        if let Some(at) = [close_at, resend_at, queued, give_up_at].into_iter().flatten().min() {
            self.alarm.arm(&mut context.timers, TimerKey::Producer(terms.key, self.number), at);
        }
    }
}

fn publish(request: u64, body: &proto::Publish, batch: bytes::Bytes) -> OutFrame {
    OutFrame::new(FrameKind::Request, request, body, vec![batch])
}

fn unavailable(batch: &Batch, now: MonoTime, last: String) -> ClientError {
    ClientError::Unavailable { after: Duration::from_millis(now.ms_since(batch.created)), last }
}

impl Terms {
    /// Whether a batch with an unknown outcome is sent again.
    fn resends_unknown(&self) -> bool {
        self.config.idempotent || self.config.on_unknown == OnUnknown::Resend
    }
}
