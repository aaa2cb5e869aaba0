//! One oracle: a session and the role that uses it, driven by the world.

use std::ops::RangeInclusive;

use bytes::Bytes;
use lockgate_wire::op::Body;
use lockgate_wire::{ErrorKind, proto};

use super::session::{Incoming, Session, Stage};
use super::{Board, Role};
use crate::history::{ClientNo, Event, Life, What};
use crate::rng::Rng;
use crate::time::{MS, Time};

/// What is wanted of the oracles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Work, whatever happens.
    Stir,
    /// Finish what was begun.
    Settle,
}

/// What an oracle is told.
#[derive(Debug)]
pub enum ClientInput {
    /// The time has come that it asked for.
    Wake,
    /// The connection is there.
    Connected {
        /// Unique in the run.
        connection: u64,
        /// The process on the other side.
        life: Life,
    },
    /// Producers are to send as much as they can.
    Hurry,
    /// Bytes came.
    Received(Bytes),
    /// The connection is gone, or could not be made.
    Lost,
}

/// What all oracles share while one of them acts.
pub struct Environment<'a> {
    /// The time.
    pub now: Time,
    /// The clients' wall clock.
    pub wall_ms: i64,
    /// What is wanted.
    pub phase: Phase,
    /// Whether producers are to send as much as they can.
    pub is_rush: bool,
    /// What the oracles tell each other.
    pub board: &'a mut Board,
    /// What they saw.
    pub events: &'a mut Vec<Event>,
}

/// A client as the world sees it.
pub trait Actor {
    /// Handles an input. Afterwards the world asks what is to be done.
    fn handle(&mut self, input: ClientInput, environment: &mut Environment<'_>);
    /// A connection is to be opened; asked once.
    fn takes_connect(&mut self, now: Time) -> bool;
    /// The connection is to be closed by this side, after what was sent; asked once.
    fn takes_close(&mut self) -> bool;
    /// Bytes to be sent.
    fn takes_outgoing(&mut self) -> Vec<Bytes>;
    /// When the next [`ClientInput::Wake`] is due.
    fn next_wake(&self) -> Time;
    /// What is left to be done in the settling phase, if anything is.
    fn waits_for(&self) -> Option<String>;
}

/// An oracle client that speaks the protocol itself.
pub(super) struct Client {
    number: ClientNo,
    rng: Rng,
    session: Session,
    role: Box<dyn Role>,
    act_at: Time,
    wants_close: bool,
}

impl Client {
    /// A client that connects for the first time then.
    pub(super) fn new(number: ClientNo, role: Box<dyn Role>, rng: Rng, first_attempt: Time) -> Self {
        Self { number, rng, session: Session::new(first_attempt), role, act_at: Time::MAX, wants_close: false }
    }

    fn wake(&mut self, environment: &mut Environment<'_>) {
        if !self.session.tick(environment.now) {
            self.wants_close = true;
            self.lose(environment);
        } else if self.session.stage == Stage::Open && self.act_at <= environment.now {
            self.act_at = Time::MAX;
            self.with_role(environment, |role, io| role.act(io));
        }
    }

    fn incoming(&mut self, incoming: Incoming, environment: &mut Environment<'_>) {
        match incoming {
            Incoming::Opened => self.with_role(environment, |role, io| role.act(io)),
            Incoming::Answer { request, answer } => {
                self.with_role(environment, |role, io| role.answered(io, request, answer))
            }
            Incoming::Push(frame) if [proto::GoingAway::OP.number(), proto::Ping::OP.number()].contains(&frame.op) => {}
            Incoming::Push(frame) => self.with_role(environment, |role, io| role.pushed(io, frame)),
            Incoming::Farewell(error) => {
                // The connection ends; the world will say so. A broker in its stop or at a limit may do that.
                if !matches!(
                    error.kind,
                    ErrorKind::ShuttingDown
                        | ErrorKind::LimitReached
                        | ErrorKind::StorageFailed
                        | ErrorKind::ConnectionLost
                ) {
                    self.with_role(environment, |_, io| io.unexpected(format!("the broker said farewell: {error}")));
                }
            }
            Incoming::Unexpected(text) => self.with_role(environment, |_, io| io.unexpected(text)),
        }
    }

    fn lose(&mut self, environment: &mut Environment<'_>) {
        if self.session.stage == Stage::Open {
            self.with_role(environment, |role, io| role.lost(io));
        }
        let pause = self.rng.magnitude(MS..=500 * MS);
        self.session.lost(environment.now + pause);
        self.act_at = Time::MAX;
    }

    fn with_role(&mut self, environment: &mut Environment<'_>, act: impl FnOnce(&mut dyn Role, &mut Io<'_>)) {
        let mut io = Io {
            now: environment.now,
            wall_ms: environment.wall_ms,
            phase: environment.phase,
            is_rush: environment.is_rush,
            rng: &mut self.rng,
            board: environment.board,
            client: self.number,
            session: &mut self.session,
            act_at: &mut self.act_at,
            events: environment.events,
        };
        act(&mut *self.role, &mut io);
    }
}

impl Actor for Client {
    fn handle(&mut self, input: ClientInput, environment: &mut Environment<'_>) {
        let now = environment.now;
        match input {
            ClientInput::Wake => self.wake(environment),
            ClientInput::Hurry => self.act_at = self.act_at.min(now),
            ClientInput::Connected { connection, life } => self.session.connected(connection, life, now, &mut self.rng),
            ClientInput::Received(bytes) => {
                self.session.receive(&bytes, now);
                while let Some(incoming) = self.session.next_incoming() {
                    self.incoming(incoming, environment);
                    if self.wants_close {
                        break;
                    }
                }
            }
            ClientInput::Lost => self.lose(environment),
        }
    }

    fn takes_connect(&mut self, now: Time) -> bool {
        let due = matches!(self.session.stage, Stage::Apart { retry_at } if retry_at <= now);
        if due {
            self.session.stage = Stage::Connecting;
        }
        due
    }

    fn takes_close(&mut self) -> bool {
        std::mem::take(&mut self.wants_close)
    }

    fn takes_outgoing(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.session.outgoing)
    }

    fn next_wake(&self) -> Time {
        let act_at = if self.session.stage == Stage::Open { self.act_at } else { Time::MAX };
        act_at.min(self.session.next_deadline())
    }

    fn waits_for(&self) -> Option<String> {
        let what = self.role.waits_for()?;
        Some(format!("client {} ({:?}) waits for {what}", self.number, self.session.stage))
    }
}

/// A role's hands.
pub struct Io<'a> {
    pub(super) now: Time,
    pub(super) wall_ms: i64,
    pub(super) phase: Phase,
    pub(super) is_rush: bool,
    pub(super) rng: &'a mut Rng,
    pub(super) board: &'a mut Board,
    client: ClientNo,
    session: &'a mut Session,
    act_at: &'a mut Time,
    events: &'a mut Vec<Event>,
}

impl Io<'_> {
    /// Sends a request, gives its number.
    pub(super) fn ask<B: Body>(&mut self, body: &B) -> u64 {
        self.ask_with(body, Vec::new())
    }

    /// Sends a request with a payload, gives its number.
    pub(super) fn ask_with<B: Body>(&mut self, body: &B, payload: Vec<Bytes>) -> u64 {
        self.board.operations += 1;
        self.session.ask(body, payload, self.now)
    }

    /// Sends a request that has no answer.
    pub(super) fn tell<B: Body>(&mut self, body: &B, payload: Vec<Bytes>) {
        self.board.operations += 1;
        self.session.tell(body, payload, self.now);
    }

    /// Acts again after this long, or earlier if that was asked for before.
    pub(super) fn act_in(&mut self, pause: Time) {
        *self.act_at = (*self.act_at).min(self.now + pause);
    }

    /// Acts again after some pause of this range.
    pub(super) fn act_within(&mut self, pause: RangeInclusive<Time>) {
        let pause = self.rng.magnitude(pause);
        self.act_in(pause);
    }

    /// Writes down what was seen.
    pub(super) fn saw(&mut self, what: What) {
        self.events.push(Event { at: self.now, client: self.client, life: self.session.life, what });
    }

    /// Writes down what no rule allows.
    pub(super) fn unexpected(&mut self, text: String) {
        self.saw(What::Unexpected(text));
    }

    /// Which connection this is, and to which process.
    pub(super) fn connection(&self) -> u64 {
        self.session.connection
    }

    /// The process on the other side.
    pub(super) fn life(&self) -> Life {
        self.session.life
    }
}
