//! Calls: one request, one answer, with retries in between as far as that is safe.
//!
//! A call keeps one request id over all its attempts, so that every attempt is the same bytes. What may be sent again
//! after an unknown outcome is the caller's word ([`Resend`]); a `retry` answer always may.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lockgate_wire::error::Advice;
use lockgate_wire::frame::MAX_BODY_BYTES;
use lockgate_wire::op::Body;
use lockgate_wire::{Error, Frame, FrameKind, MonoTime, Op, OutFrame};

use super::context::{Context, Owner};
use super::ids::{CallId, ProducerKey};
use super::producer::MAX_BATCH_BYTES;
use super::retry::{ATTEMPT_MIN_MS, Backoff};
use super::timers::{Alarm, TimerKey};
use super::{Output, milliseconds};
use crate::config::require;
use crate::error::ClientError;

/// Most calls that may wait for answers at once.
pub const MAX_CALLS: usize = 100_000;

/// Whether a call may be sent again when its outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resend {
    /// It changes nothing, or doing it twice is the same as once.
    Safe,
    /// Only the caller can know.
    Never,
}

/// Who is told the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Application,
    /// A producer's new id.
    Identity(ProducerKey),
}

/// A finished call's answer and whom to tell.
pub(super) type Finished = (CallId, Purpose, Result<Frame, ClientError>);

#[derive(Debug)]
struct Call {
    frame: OutFrame,
    op: Op,
    purpose: Purpose,
    resend: Resend,
    started: MonoTime,
    deadline: MonoTime,
    state: State,
    first_sent: Option<MonoTime>,
    backoff: Backoff,
    /// What the last attempt met.
    last: Option<Error>,
    alarm: Alarm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// For the link to be up.
    Waiting,
    Sent,
    Paused(MonoTime),
}

/// All calls of a client, in the order they were made.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: BTreeMap<CallId, Call>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn start<B: Body>(
        &mut self,
        context: &mut Context,
        message: &B,
        payload: Option<Bytes>,
        timeout: Duration,
        resend: Resend,
        purpose: Purpose,
    ) -> Result<CallId, ClientError> {
        if self.open.len() >= MAX_CALLS {
            return Err(ClientError::TooManyCalls { limit: MAX_CALLS });
        }
        check_size(message, payload.as_ref())?;
        let id = CallId(context.new_id());
        let now = context.now.mono;
        let call = Call {
            frame: OutFrame::new(FrameKind::Request, id.0, message, payload.into_iter().collect()),
            op: B::OP,
            purpose,
            resend,
            started: now,
            deadline: now.plus_ms(milliseconds(timeout)),
            state: State::Waiting,
            first_sent: None,
            backoff: Backoff::default(),
            last: None,
            alarm: Alarm::default(),
        };
        let call = self.open.entry(id).or_insert(call);
        call.attempt(context, id);
        Ok(id)
    }

    /// The link is up: everything that waited for it goes out, oldest first.
    pub(super) fn link_up(&mut self, context: &mut Context) {
        for (id, call) in &mut self.open {
            if call.state == State::Waiting {
                call.attempt(context, *id);
            }
        }
    }

    /// The link is down: what was sent and not answered is unknown now.
    pub(super) fn link_down(&mut self, context: &mut Context, reason: &str) -> Vec<Finished> {
        let mut unknown = Vec::new();
        for (id, call) in &mut self.open {
            match (call.state, call.resend) {
                (State::Sent, Resend::Safe) => {
                    call.state = State::Waiting;
                    call.arm(context, *id);
                }
                (State::Sent, Resend::Never) => unknown.push(*id),
                (State::Waiting | State::Paused(_), _) => {}
            }
        }
        let last = format!("the connection was lost before the answer: {reason}");
        let unknown = unknown.into_iter();
        unknown
            .filter_map(|id| self.finish(context, id, Err(ClientError::OutcomeUnknown { last: last.clone() })))
            .collect()
    }

    /// The answer to the call's attempt. `Err` if it breaks the protocol.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        id: CallId,
        frame: Frame,
    ) -> Result<Option<Finished>, String> {
        let Some(call) = self.open.get_mut(&id) else { return Ok(None) };
        if frame.kind == FrameKind::Response {
            if frame.op() != Some(call.op) {
                return Err(format!("a {} was answered with operation {}", call.op.name(), frame.op));
            }
            return Ok(self.finish(context, id, Ok(frame)));
        }
        let error = Error::from_proto(frame.message().map_err(|error| format!("an error cannot be read: {error}"))?);
        let again = match (error.advice(), call.resend) {
            (Advice::Retry | Advice::Redirect, _) | (Advice::Unknown, Resend::Safe) => true,
            (Advice::Unknown, Resend::Never) | (Advice::Terminal, _) => false,
        };
        if again {
            let until = call.backoff.failed(context.now.mono, Some(&error), &mut context.rng);
            call.state = State::Paused(until);
            call.last = Some(error);
            call.alarm.arm(&mut context.timers, TimerKey::Call(id), until);
            return Ok(None);
        }
        let error = match error.advice() {
            Advice::Terminal => ClientError::from_terminal(error),
            _ => ClientError::OutcomeUnknown { last: error.to_string() },
        };
        Ok(self.finish(context, id, Err(error)))
    }

    /// The call's pause or its deadline may be over.
    pub(super) fn tick(&mut self, context: &mut Context, id: CallId) -> Option<Finished> {
        let now = context.now.mono;
        let call = self.open.get_mut(&id)?;
        call.alarm.fired();
        if call.give_up_at() <= now {
            let error = call.too_late(now);
            return self.finish(context, id, Err(error));
        }
        match call.state {
            State::Paused(until) if until <= now => call.attempt(context, id),
            _ => call.arm(context, id),
        }
        None
    }

    /// Ends every call.
    pub(super) fn close(&mut self, context: &mut Context) -> Vec<Finished> {
        let ids: Vec<CallId> = self.open.keys().copied().collect();
        let end = |id: CallId| {
            let unknown =
                self.open.get(&id).is_some_and(|call| call.state == State::Sent && call.resend == Resend::Never);
            let error = match unknown {
                true => ClientError::OutcomeUnknown { last: "the client was closed before the answer".into() },
                false => ClientError::Closed,
            };
            self.finish(context, id, Err(error))
        };
        ids.into_iter().filter_map(end).collect()
    }

    fn finish(&mut self, context: &mut Context, id: CallId, result: Result<Frame, ClientError>) -> Option<Finished> {
        let mut call = self.open.remove(&id)?;
        call.alarm.disarm(&mut context.timers, TimerKey::Call(id));
        context.forget(id.0);
        if call.purpose == Purpose::Application {
            context.output(Output::CallDone { call: id, result });
            return None;
        }
        Some((id, call.purpose, result))
    }
}

/// A message or payload that no frame holds comes from the caller and is refused.
pub(super) fn check_size<B: Body>(message: &B, payload: Option<&Bytes>) -> Result<(), ClientError> {
    let (body, payload) = (message.encoded_len(), payload.map_or(0, Bytes::len));
    let name = B::OP.name();
    require(body <= MAX_BODY_BYTES && payload <= MAX_BATCH_BYTES, || {
        format!(
            "{name} with a body of {body} bytes and a payload of {payload}; the limits are {MAX_BODY_BYTES} and {MAX_BATCH_BYTES}"
        )
    })
}

impl Call {
    /// Sends the request if there is a connection, else waits for one.
    fn attempt(&mut self, context: &mut Context, id: CallId) {
        self.state = State::Waiting;
        if context.link.is_up() {
            if self.first_sent.is_some() {
                context.stats.retries += 1;
            }
            self.first_sent.get_or_insert(context.now.mono);
            self.state = State::Sent;
            context.request(id.0, Owner::Call(id), self.frame.clone());
        }
        self.arm(context, id);
    }

    fn arm(&mut self, context: &mut Context, id: CallId) {
        let at = match self.state {
            State::Paused(until) => until.min(self.give_up_at()),
            State::Waiting | State::Sent => self.give_up_at(),
        };
        self.alarm.arm(&mut context.timers, TimerKey::Call(id), at);
    }

    /// The deadline; later only for a first attempt that is under way.
    fn give_up_at(&self) -> MonoTime {
        match (self.state, self.first_sent, &self.last) {
            (State::Sent, Some(sent), None) => self.deadline.max(sent.plus_ms(ATTEMPT_MIN_MS)),
            _ => self.deadline,
        }
    }

    fn too_late(&self, now: MonoTime) -> ClientError {
        let after = Duration::from_millis(now.ms_since(self.started));
        let last = match (&self.last, self.state) {
            (Some(error), _) => error.to_string(),
            (None, State::Sent) => "the broker did not answer".into(),
            (None, _) => "there is no connection".into(),
        };
        match (self.state, self.resend) {
            (State::Sent, Resend::Never) => ClientError::OutcomeUnknown { last },
            _ => ClientError::Unavailable { after, last },
        }
    }
}
