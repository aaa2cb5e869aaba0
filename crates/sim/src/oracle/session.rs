//! A client's side of one connection: Hello, request numbers, heartbeats, the end. Knows nothing of what is asked.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use lockgate_wire::frame::HARD_MAX_FRAME_BYTES;
use lockgate_wire::op::Body;
use lockgate_wire::{Error, Frame, FrameKind, OutFrame, proto};

use crate::history::Life;
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};

/// An answer that has not come after this long never will: the connection is given up.
const ANSWER_TIMEOUT: Time = 45 * SECOND;
/// Missed heartbeats after which the other side is dead.
const HEARTBEATS_MISSED: u64 = 3;

/// Where a client's connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// There is none; the next attempt is due then.
    Apart { retry_at: Time },
    /// One was asked for.
    Connecting,
    /// Hello was sent.
    Greeting,
    /// Requests may be sent.
    Open,
}

/// What a session makes of received bytes.
#[derive(Debug)]
pub(super) enum Incoming {
    /// Requests may be sent from now on.
    Opened,
    /// An answer.
    Answer { request: u64, answer: Result<Frame, Error> },
    /// A push.
    Push(Frame),
    /// The broker closes the connection, for this reason.
    Farewell(Error),
    /// Nothing that the protocol allows.
    Unexpected(String),
}

pub(super) struct Session {
    pub(super) stage: Stage,
    pub(super) life: Life,
    /// Unique in the run: which connection it is.
    pub(super) connection: u64,
    pub(super) outgoing: Vec<Bytes>,
    incoming: BytesMut,
    next_request: u64,
    unanswered: BTreeMap<u64, (u16, Time)>,
    heartbeat: Time,
    heard_at: Time,
    said_at: Time,
}

impl Session {
    pub(super) fn new(first_attempt: Time) -> Self {
        Self {
            stage: Stage::Apart { retry_at: first_attempt },
            life: Life::default(),
            connection: 0,
            outgoing: Vec::new(),
            incoming: BytesMut::new(),
            next_request: 1,
            unanswered: BTreeMap::new(),
            heartbeat: 5 * SECOND,
            heard_at: 0,
            said_at: 0,
        }
    }

    pub(super) fn connected(&mut self, connection: u64, life: Life, now: Time, rng: &mut Rng) {
        let heartbeat_ms = *rng.pick(&[0, 200, 500, 1000, 3000]);
        *self = Self { stage: Stage::Greeting, connection, life, heard_at: now, ..Self::new(now) };
        let hello = proto::Hello {
            client_id: format!("oracle-{connection}"),
            client_name: "lockgate-sim".into(),
            features: 0,
            max_frame_bytes: 0,
            heartbeat_ms,
        };
        self.ask(&hello, Vec::new(), now);
    }

    /// Back to the start, with a pause before the next attempt.
    pub(super) fn lost(&mut self, retry_at: Time) {
        *self = Self::new(retry_at);
    }

    pub(super) fn ask<B: Body>(&mut self, body: &B, payload: Vec<Bytes>, now: Time) -> u64 {
        let request = self.next_request;
        self.next_request += 1;
        self.unanswered.insert(request, (B::OP.number(), now));
        self.send(request, body, payload, now);
        request
    }

    pub(super) fn tell<B: Body>(&mut self, body: &B, payload: Vec<Bytes>, now: Time) {
        self.send(0, body, payload, now);
    }

    fn send<B: Body>(&mut self, request: u64, body: &B, payload: Vec<Bytes>, now: Time) {
        self.said_at = now;
        self.outgoing.push(OutFrame::new(FrameKind::Request, request, body, payload).to_bytes());
    }

    pub(super) fn receive(&mut self, bytes: &[u8], now: Time) {
        self.heard_at = now;
        self.incoming.extend_from_slice(bytes);
    }

    /// The next frame of what was received.
    pub(super) fn next_incoming(&mut self) -> Option<Incoming> {
        loop {
            let frame = match Frame::decode(&mut self.incoming, HARD_MAX_FRAME_BYTES) {
                Ok(frame) => frame?,
                Err(error) => return Some(Incoming::Unexpected(error.to_string())),
            };
            if let Some(incoming) = self.understand(frame) {
                return Some(incoming);
            }
        }
    }

    fn understand(&mut self, frame: Frame) -> Option<Incoming> {
        match frame.kind {
            FrameKind::Request => Some(Incoming::Unexpected(format!("a request from the broker: {:?}", frame.op()))),
            FrameKind::Push => Some(Incoming::Push(frame)),
            FrameKind::Error if frame.request_id == 0 => Some(match frame.message::<proto::Error>() {
                Ok(error) => Incoming::Farewell(Error::from_proto(error)),
                Err(error) => Incoming::Unexpected(error.to_string()),
            }),
            FrameKind::Response | FrameKind::Error => self.answer(frame),
        }
    }

    fn answer(&mut self, frame: Frame) -> Option<Incoming> {
        let request = frame.request_id;
        match self.unanswered.remove(&request) {
            Some((op, _)) if op == frame.op => {}
            asked => {
                return Some(Incoming::Unexpected(format!(
                    "answer {request} is of op {}, asked was {asked:?}",
                    frame.op
                )));
            }
        }
        let answer = match frame.kind {
            FrameKind::Error => match frame.message::<proto::Error>() {
                Ok(error) => Err(Error::from_proto(error)),
                Err(error) => return Some(Incoming::Unexpected(error.to_string())),
            },
            _ => Ok(frame),
        };
        match (self.stage, &answer) {
            (Stage::Greeting, Ok(frame)) => Some(match frame.message::<proto::HelloOk>() {
                Ok(hello) => {
                    self.heartbeat = Time::from(hello.heartbeat_ms) * MS;
                    self.stage = Stage::Open;
                    Incoming::Opened
                }
                Err(error) => Incoming::Unexpected(error.to_string()),
            }),
            (Stage::Greeting, Err(error)) => Some(Incoming::Farewell(error.clone())),
            (_, Ok(frame)) if frame.op == proto::Ping::OP.number() => None,
            _ => Some(Incoming::Answer { request, answer }),
        }
    }

    /// When [`tick`](Self::tick) is due.
    pub(super) fn next_deadline(&self) -> Time {
        match self.stage {
            Stage::Apart { retry_at } => retry_at,
            Stage::Connecting => Time::MAX,
            Stage::Greeting | Stage::Open => {
                let ping = if self.stage == Stage::Open { self.said_at + self.heartbeat } else { Time::MAX };
                let answer = self.unanswered.values().next().map_or(Time::MAX, |(_, asked)| asked + ANSWER_TIMEOUT);
                ping.min(answer).min(self.heard_at + HEARTBEATS_MISSED * self.heartbeat)
            }
        }
    }

    /// Sends a heartbeat if one is due. False: the connection is to be given up.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        if !matches!(self.stage, Stage::Greeting | Stage::Open) {
            return true;
        }
        if now >= self.heard_at + HEARTBEATS_MISSED * self.heartbeat {
            return false;
        }
        if self.unanswered.values().next().is_some_and(|(_, asked)| now >= asked + ANSWER_TIMEOUT) {
            return false;
        }
        if self.stage == Stage::Open && now >= self.said_at + self.heartbeat {
            self.ask(&proto::Ping {}, Vec::new(), now);
        }
        true
    }
}
