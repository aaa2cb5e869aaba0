//! One partition of a reader: its subscription, its position, its credit.
//!
//! The position is the offset after the last record that was taken in. A subscription that is lost is asked for again at
//! the position, so that across connections nothing is skipped and nothing comes twice. The broker is never granted more
//! than the window: what was granted and is not delivered, plus what was delivered and is not taken by the caller.

use bytes::Bytes;
use lockgate_wire::batch::{BatchHeader, split};
use lockgate_wire::error::Advice;
use lockgate_wire::{Error, ErrorKind, Frame, FrameKind, MonoTime, Offset, Op, OutFrame, proto};

use super::Terms;
use super::item::{Chunk, Taken};
use crate::core::context::{Context, Owner};
use crate::core::retry::Backoff;
use crate::core::timers::{Alarm, TimerKey};
use crate::error::ClientError;

/// What the caller hears of one partition's losses and recoveries ahead of taking it; more of the kind is not said.
pub(super) const MAX_QUEUED_STATUS: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) number: u32,
    /// This partition's place in its reader.
    place: u32,
    state: State,
    start: proto::StartPosition,
    /// Unknown until the first subscription was answered.
    pub(super) position: Option<Offset>,
    /// The first position.
    pub(super) opened_at: Option<Offset>,
    /// Where to stop, once known.
    end: Option<Offset>,
    /// The subscription that counts.
    subscription: u64,
    request: u64,
    /// Granted and not delivered. Below 0 when the broker gave a batch that was larger than what was left.
    granted_bytes: i64,
    /// Delivered and not taken.
    queued_bytes: u64,
    /// The caller was told of the loss and not yet of the recovery.
    lost: bool,
    end_told: bool,
    /// Items about losses and recoveries that are not taken.
    pub(super) status_queued: u32,
    backoff: Backoff,
    /// What the last attempt met.
    pub(super) last: Option<String>,
    pub(super) alarm: Alarm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For the link to be up.
    Waiting,
    Paused(MonoTime),
    Asked,
    Active,
    Ended,
}

impl Partition {
    pub(super) fn new(number: u32, place: u32, start: proto::StartPosition) -> Self {
        Self {
            number,
            place,
            state: State::Waiting,
            start,
            position: None,
            opened_at: None,
            end: None,
            subscription: 0,
            request: 0,
            granted_bytes: 0,
            queued_bytes: 0,
            lost: false,
            end_told: false,
            status_queued: 0,
            backoff: Backoff::default(),
            last: None,
            alarm: Alarm::default(),
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Subscribes if it is time to.
    pub(super) fn subscribe(&mut self, context: &mut Context, terms: &Terms) {
        let due = match self.state {
            State::Waiting => true,
            State::Paused(until) => until <= context.now.mono,
            State::Asked | State::Active | State::Ended => false,
        };
        if !due {
            return;
        }
        self.state = State::Waiting;
        let credit_bytes = terms.window_bytes.saturating_sub(self.queued_bytes);
        if !context.link.is_up() || credit_bytes == 0 {
            return;
        }
        let at = self.position.map(|position| proto::start_position::At::Offset(position.0));
        let start = at.map_or_else(|| self.start.clone(), |at| proto::StartPosition { at: Some(at) });
        context.subscriptions.remove(&self.subscription);
        self.subscription = context.new_id();
        context.subscriptions.insert(self.subscription, (terms.key, self.place));
        self.request = context.new_id();
        self.granted_bytes = credit_bytes as i64;
        let subscribe = proto::Subscribe {
            subscription_id: self.subscription,
            topic_id: terms.topic.id.0,
            partition: self.number,
            start: Some(start),
            credit_bytes,
        };
        let frame = OutFrame::request(self.request, &subscribe);
        context.request(self.request, Owner::Subscription(terms.key, self.place), frame);
        self.state = State::Asked;
    }

    /// The answer to Subscribe. `Err` if it breaks the protocol.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        terms: &Terms,
        frame: &Frame,
        items: &mut Vec<Taken>,
    ) -> Result<(), String> {
        if self.state != State::Asked || frame.request_id != self.request {
            return Ok(());
        }
        if frame.kind == FrameKind::Error {
            let error = frame.message().map_err(|error| format!("an error cannot be read: {error}"))?;
            self.refused(context, terms, Error::from_proto(error), items);
            return Ok(());
        }
        if frame.op() != Some(Op::Subscribe) {
            return Err(format!("a Subscribe was answered with operation {}", frame.op));
        }
        let ok: proto::SubscribeOk = frame.message().map_err(|error| error.message)?;
        let next = Offset(ok.next_offset);
        if self.position.is_some_and(|position| position != next) {
            return Err(format!("partition {} goes on at {next} instead of {:?}", self.number, self.position));
        }
        self.state = State::Active;
        self.position = Some(next);
        self.opened_at.get_or_insert(next);
        if terms.stop_at_end && self.end.is_none() {
            self.end = Some(Offset(ok.high_watermark));
        }
        if std::mem::take(&mut self.lost) {
            self.status_queued += 1;
            items.push(Taken::Recovered { partition: self.number });
        }
        self.look_for_end(context, Offset(ok.high_watermark), items);
        Ok(())
    }

    /// A push of the subscription that counts. `Err` if it breaks the protocol.
    pub(super) fn delivered(
        &mut self,
        context: &mut Context,
        terms: &Terms,
        deliver: &proto::Deliver,
        payload: Bytes,
        items: &mut Vec<Taken>,
    ) -> Result<(), String> {
        let Some(mut position) = self.position.filter(|_| self.state == State::Active) else { return Ok(()) };
        if self.granted_bytes <= 0 && !payload.is_empty() {
            return Err(format!("partition {} was delivered beyond the credit that the reader gave", self.number));
        }
        self.granted_bytes -= payload.len() as i64;
        context.stats.bytes_delivered += payload.len() as u64;
        let mut returned = 0;
        for (index, batch) in split(payload).enumerate() {
            let batch = batch.map_err(|error| error.to_string())?;
            let header = BatchHeader::parse(&batch).map_err(|error| error.to_string())?;
            let (base, after) = span(&header)?;
            if base > position {
                self.position = Some(position);
                self.lose(context, terms, format!("offsets {position} to {base} were left out"), items);
                return Ok(());
            }
            let wanted = after > position && self.end.is_none_or(|end| position < end);
            if !wanted {
                returned += batch.len() as u64;
                position = position.max(after);
                continue;
            }
            // A subscription that is taken and gives nothing is no success: it may end at once, again and again.
            self.backoff.succeeded();
            self.queued_bytes += batch.len() as u64;
            let append_time_ms = deliver.append_time_ms.get(index).copied().unwrap_or(header.max_timestamp);
            items.push(Taken::Chunk(Chunk {
                partition: self.number,
                batch,
                from: position,
                until: self.end,
                append_time_ms,
            }));
            position = after;
        }
        self.position = Some(position);
        self.look_for_end(context, Offset(deliver.high_watermark), items);
        if returned > 0 {
            self.grant(context, terms);
        }
        Ok(())
    }

    /// Tells that the end was reached, the first time, and stops there if so asked.
    fn look_for_end(&mut self, context: &mut Context, high_watermark: Offset, items: &mut Vec<Taken>) {
        let end = self.end.unwrap_or(high_watermark);
        let Some(position) = self.position.filter(|position| *position >= end) else { return };
        self.backoff.succeeded();
        if !std::mem::replace(&mut self.end_told, true) {
            items.push(Taken::EndOfPartition { partition: self.number, offset: position.min(end) });
        }
        if self.end.is_some() {
            self.stop(context);
        }
    }

    /// The caller took a chunk of so many bytes.
    pub(super) fn taken(&mut self, context: &mut Context, terms: &Terms, bytes: u64) {
        self.queued_bytes -= bytes;
        match self.state {
            State::Active => self.grant(context, terms),
            State::Waiting => self.subscribe(context, terms),
            State::Asked | State::Paused(_) | State::Ended => {}
        }
    }

    /// Grants what is free of the window, once the broker has little left.
    fn grant(&mut self, context: &mut Context, terms: &Terms) {
        let used = self.granted_bytes + self.queued_bytes as i64;
        let free = terms.window_bytes as i64 - used;
        if free <= 0 || self.granted_bytes > terms.refill_below_bytes || !context.link.is_up() {
            return;
        }
        self.granted_bytes += free;
        context.tell(&proto::Credit { subscription_id: self.subscription, bytes: free as u64 }, None);
    }

    /// The broker ended the subscription.
    pub(super) fn closed(
        &mut self,
        context: &mut Context,
        terms: &Terms,
        closed: proto::SubscriptionClosed,
        items: &mut Vec<Taken>,
    ) {
        let reason = closed.reason();
        let error = closed.error.map(Error::from_proto);
        let error = error.unwrap_or_else(|| match reason {
            proto::CloseReason::TopicDeleted => Error::new(ErrorKind::TopicNotFound, "the topic was deleted"),
            _ => Error::new(ErrorKind::LeaderUnknown, format!("the subscription was closed: {}", reason.as_str_name())),
        });
        self.refused(context, terms, error, items);
    }

    /// The connection is gone.
    pub(super) fn link_down(&mut self, context: &mut Context, reason: &str, items: &mut Vec<Taken>) {
        if matches!(self.state, State::Active | State::Asked) {
            self.state = State::Waiting;
            self.tell_lost(context, reason.to_owned(), items);
        }
    }

    /// Ends the subscription for good; what is queued stays.
    pub(super) fn stop(&mut self, context: &mut Context) {
        if self.state == State::Active && context.link.is_up() {
            context.tell(&proto::Unsubscribe { subscription_id: self.subscription }, None);
        }
        if self.state == State::Asked {
            context.forget(self.request);
        }
        context.subscriptions.remove(&self.subscription);
        self.state = State::Ended;
    }

    pub(super) fn drop_queued(&mut self, bytes: u64) {
        self.queued_bytes -= bytes;
    }

    fn refused(&mut self, context: &mut Context, terms: &Terms, error: Error, items: &mut Vec<Taken>) {
        let failure = match (error.kind, error.advice()) {
            (ErrorKind::OffsetOutOfRange, _) => ClientError::OffsetOutOfRange {
                partition: self.number,
                earliest: Offset(error.details.earliest_offset.unwrap_or(0)),
                high_watermark: Offset(error.details.high_watermark.unwrap_or(0)),
            },
            (_, Advice::Terminal) => ClientError::from_terminal(error),
            (_, Advice::Retry | Advice::Redirect | Advice::Unknown) => {
                self.pause(context, terms, Some(&error));
                self.tell_lost(context, error.to_string(), items);
                return;
            }
        };
        self.state = State::Ended;
        items.push(Taken::Failed { partition: self.number, error: failure });
    }

    /// Leaves a subscription that went wrong, to begin it again at the position.
    fn lose(&mut self, context: &mut Context, terms: &Terms, reason: String, items: &mut Vec<Taken>) {
        context.tell(&proto::Unsubscribe { subscription_id: self.subscription }, None);
        self.pause(context, terms, None);
        self.tell_lost(context, reason, items);
    }

    fn pause(&mut self, context: &mut Context, terms: &Terms, error: Option<&Error>) {
        let until = self.backoff.failed(context.now.mono, error, &mut context.rng);
        self.state = State::Paused(until);
        self.alarm.arm(&mut context.timers, TimerKey::Reader(terms.key, self.place), until);
    }

    fn tell_lost(&mut self, context: &mut Context, reason: String, items: &mut Vec<Taken>) {
        context.stats.subscriptions_lost += 1;
        self.last = Some(reason.clone());
        let opened = self.position.is_some();
        if opened && !self.lost && self.status_queued < MAX_QUEUED_STATUS {
            self.lost = true;
            self.status_queued += 1;
            items.push(Taken::Lost { partition: self.number, reason });
        }
    }
}

/// The first offset of a batch and the one after its last.
fn span(header: &BatchHeader) -> Result<(Offset, Offset), String> {
    let base = u64::try_from(header.base_offset).map_err(|_| format!("a batch begins at {}", header.base_offset))?;
    let records = u64::try_from(header.last_offset_delta).map_err(|_| "a batch of a negative count".to_owned())? + 1;
    Ok((Offset(base), Offset(base.saturating_add(records))))
}
