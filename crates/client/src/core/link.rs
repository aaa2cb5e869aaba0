//! The connection: which address to dial and when, Hello, heartbeats, and how many bytes may wait to be written.
//!
//! Owns the choice among the seeds and the life of one connection at a time. Knows nothing of calls, producers and
//! readers: it tells when the link is up and when it is lost.

use std::collections::VecDeque;
use std::time::Duration;

use lockgate_wire::{Frame, FrameKind, HostPort, MonoTime, Op, OutFrame, proto};

use super::ids::LinkId;
use super::retry::{Backoff, Rng};
use super::{Output, milliseconds};
use crate::config::ClientConfig;
use crate::error::ConnectAttempt;

/// Bytes that may wait to be written before producers hold their batches back.
pub const MAX_UNWRITTEN_BYTES: usize = 4 * 1024 * 1024;
/// Heartbeats when the broker names none, and the bounds of what it may name.
pub const HEARTBEAT_DEFAULT_MS: u64 = 5_000;
/// No heartbeat is sent more often.
pub const HEARTBEAT_MIN_MS: u64 = 100;
/// No heartbeat is sent less often.
pub const HEARTBEAT_MAX_MS: u64 = 60_000;
/// A peer that was silent for so many heartbeats is gone.
pub const MISSED_HEARTBEATS: u64 = 3;
/// An address gets at least this long to answer, however many share the connect timeout.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);
/// What this library calls itself.
const CLIENT_NAME: &str = concat!("lockgate-rust/", env!("CARGO_PKG_VERSION"));

const _: () = assert!(HEARTBEAT_MIN_MS <= HEARTBEAT_DEFAULT_MS && HEARTBEAT_DEFAULT_MS <= HEARTBEAT_MAX_MS);

/// What changed for those who use the link.
#[derive(PartialEq, Debug)]
pub(super) enum LinkEvent {
    /// Everything that was not answered never will be on this connection.
    Down(String),
    /// Every seed was tried once, in vain, and there has been no connection yet.
    Unreachable(Vec<ConnectAttempt>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    seeds: Vec<HostPort>,
    /// The seed that is tried, or was reached.
    seed: usize,
    hello: proto::Hello,
    attempt_timeout: Duration,
    state: State,
    /// The last connection's number.
    last_id: u64,
    /// Failures since the last connection, one a seed at most.
    failed: Vec<ConnectAttempt>,
    was_up: bool,
    backoff: Backoff,
}

#[derive(Debug)]
enum State {
    /// No connection; the next is dialled then.
    Waiting {
        until: MonoTime,
    },
    /// The transport is being opened.
    Dialing {
        id: LinkId,
        deadline: MonoTime,
    },
    /// Hello was sent.
    Greeting {
        id: LinkId,
        request: u64,
        deadline: MonoTime,
    },
    Up(UpState),
    Closed,
}

#[derive(Debug)]
struct UpState {
    id: LinkId,
    heartbeat_ms: u64,
    sent_at: MonoTime,
    received_at: MonoTime,
    unwritten_bytes: usize,
}

impl UpState {
    fn dead_at(&self) -> MonoTime {
        self.received_at.plus_ms(self.heartbeat_ms * MISSED_HEARTBEATS)
    }
}

impl Link {
    pub(super) fn new(config: &ClientConfig, now: MonoTime) -> Self {
        let hello = proto::Hello {
            client_id: config.client_id.clone(),
            client_name: CLIENT_NAME.into(),
            features: 0,
            max_frame_bytes: config.max_frame_bytes,
            heartbeat_ms: 0,
        };
        let share = config.connect_timeout / config.seeds.len().max(1) as u32;
        Self {
            seeds: config.seeds.clone(),
            seed: 0,
            hello,
            attempt_timeout: share.max(ATTEMPT_MIN),
            state: State::Waiting { until: now },
            last_id: 0,
            failed: Vec::new(),
            was_up: false,
            backoff: Backoff::default(),
        }
    }

    pub(super) fn seeds(&self) -> &[HostPort] {
        &self.seeds
    }

    /// Whether requests can be sent.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether more batches should be handed out: the link is up, and not too much waits to be written.
    pub(super) fn has_room(&self) -> bool {
        matches!(&self.state, State::Up(up) if up.unwritten_bytes < MAX_UNWRITTEN_BYTES)
    }

    /// Whether this is the connection that counts.
    pub(super) fn is_current(&self, id: LinkId) -> bool {
        self.id() == Some(id)
    }

    pub(super) fn id(&self) -> Option<LinkId> {
        match &self.state {
            State::Dialing { id, .. } | State::Greeting { id, .. } => Some(*id),
            State::Up(up) => Some(up.id),
            State::Waiting { .. } | State::Closed => None,
        }
    }

    /// Sends a frame; the caller saw that the link is up.
    pub(super) fn send(&mut self, now: MonoTime, frame: OutFrame, out: &mut VecDeque<Output>) {
        let State::Up(up) = &mut self.state else { return };
        up.sent_at = now;
        up.unwritten_bytes += frame.size();
        out.push_back(Output::Send { link: up.id, frame });
    }

    /// Bytes were handed to the kernel. Tells whether there is room again.
    pub(super) fn written(&mut self, link: LinkId, bytes: usize) -> bool {
        let State::Up(up) = &mut self.state else { return false };
        if up.id != link {
            return false;
        }
        up.unwritten_bytes = up.unwritten_bytes.saturating_sub(bytes);
        up.unwritten_bytes < MAX_UNWRITTEN_BYTES
    }

    /// The transport is open: says Hello under this request id.
    pub(super) fn connected(&mut self, request: u64, out: &mut VecDeque<Output>) {
        if let State::Dialing { id, deadline } = self.state {
            out.push_back(Output::Send { link: id, frame: OutFrame::request(request, &self.hello) });
            self.state = State::Greeting { id, request, deadline };
        }
    }

    /// Part of a frame came in: the other side lives.
    pub(super) fn progressed(&mut self, now: MonoTime, link: LinkId) {
        if let State::Up(up) = &mut self.state
            && up.id == link
        {
            up.received_at = now;
        }
    }

    /// A frame came in. Gives it back when it is not the link's own affair.
    pub(super) fn received(&mut self, now: MonoTime, frame: Frame) -> Received {
        match &mut self.state {
            State::Up(up) => {
                up.received_at = now;
                if frame.kind == FrameKind::Error && frame.request_id == 0 {
                    return Received::Broken(about_the_connection(&frame));
                }
                Received::Frame(frame)
            }
            State::Greeting { id, request, .. } => match greeting(&frame, *request) {
                Ok(ok) => {
                    let asked = u64::from(ok.heartbeat_ms);
                    let asked = if asked == 0 { HEARTBEAT_DEFAULT_MS } else { asked };
                    self.state = State::Up(UpState {
                        id: *id,
                        heartbeat_ms: asked.clamp(HEARTBEAT_MIN_MS, HEARTBEAT_MAX_MS),
                        sent_at: now,
                        received_at: now,
                        unwritten_bytes: 0,
                    });
                    self.was_up = true;
                    self.failed.clear();
                    self.backoff.succeeded();
                    Received::Up
                }
                Err(reason) => Received::Broken(reason),
            },
            State::Waiting { .. } | State::Dialing { .. } | State::Closed => Received::Ignored,
        }
    }

    /// The current connection, or the attempt at one, is over. The shell is told to close it if `close` says so.
    pub(super) fn lost(
        &mut self,
        now: MonoTime,
        reason: String,
        close: bool,
        rng: &mut Rng,
        out: &mut VecDeque<Output>,
    ) -> Option<LinkEvent> {
        let id = self.id()?;
        if close {
            out.push_back(Output::Close { link: id });
        }
        let was_established = self.is_up();
        if was_established {
            // The broker that was there may be back at once: it is asked first, and again.
            self.state = State::Waiting { until: self.backoff.failed(now, None, rng) };
            return Some(LinkEvent::Down(reason));
        }
        self.failed.push(ConnectAttempt { address: self.seeds[self.seed].clone(), reason });
        self.seed = (self.seed + 1) % self.seeds.len();
        if self.failed.len() < self.seeds.len() {
            self.state = State::Waiting { until: now };
            return None;
        }
        self.state = State::Waiting { until: self.backoff.failed(now, None, rng) };
        let attempts = std::mem::take(&mut self.failed);
        (!self.was_up).then_some(LinkEvent::Unreachable(attempts))
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self) -> Option<MonoTime> {
        match &self.state {
            State::Waiting { until } => Some(*until),
            State::Dialing { deadline, .. } | State::Greeting { deadline, .. } => Some(*deadline),
            State::Up(up) => Some(up.dead_at().min(up.sent_at.plus_ms(up.heartbeat_ms))),
            State::Closed => None,
        }
    }

    /// Does what is due: dials, gives up an attempt, sends a heartbeat, or finds the peer dead.
    pub(super) fn tick(
        &mut self,
        now: MonoTime,
        rng: &mut Rng,
        ping: u64,
        out: &mut VecDeque<Output>,
    ) -> Option<LinkEvent> {
        match &mut self.state {
            State::Waiting { until } if *until <= now => {
                self.last_id += 1;
                let id = LinkId(self.last_id);
                self.state = State::Dialing { id, deadline: now.plus_ms(milliseconds(self.attempt_timeout)) };
                out.push_back(Output::Dial { link: id, address: self.seeds[self.seed].clone() });
                None
            }
            State::Dialing { deadline, .. } | State::Greeting { deadline, .. } if *deadline <= now => {
                let reason = match self.state {
                    State::Dialing { .. } => "it did not answer in time",
                    _ => "it took the connection and did not answer Hello in time",
                };
                self.lost(now, reason.into(), true, rng, out)
            }
            State::Up(up) if up.dead_at() <= now => {
                let overslept = now.ms_since(up.dead_at()) > up.heartbeat_ms;
                if overslept {
                    // This process did not run: what the peer sent meanwhile is not read yet.
                    up.received_at = now;
                    return None;
                }
                let reason = format!("the broker was silent for {} ms", up.heartbeat_ms * MISSED_HEARTBEATS);
                self.lost(now, reason, true, rng, out)
            }
            State::Up(up) if up.sent_at.plus_ms(up.heartbeat_ms) <= now => {
                self.send(now, OutFrame::request(ping, &proto::Ping {}), out);
                None
            }
            _ => None,
        }
    }

    /// Says goodbye if there is somebody to say it to, and dials no more.
    pub(super) fn close(&mut self, now: MonoTime, out: &mut VecDeque<Output>) {
        if self.is_up() {
            self.send(now, OutFrame::request(0, &proto::Close {}), out);
        }
        if let Some(link) = self.id() {
            out.push_back(Output::Close { link });
        }
        self.state = State::Closed;
    }
}

/// What a frame was.
#[derive(Debug)]
pub(super) enum Received {
    /// An affair of calls, producers or readers.
    Frame(Frame),
    /// The answer to Hello: requests can be sent.
    Up,
    /// The connection is of no use any more.
    Broken(String),
    /// Of a connection that no longer counts.
    Ignored,
}

fn greeting(frame: &Frame, request: u64) -> Result<proto::HelloOk, String> {
    match frame.kind {
        FrameKind::Error => Err(about_the_connection(frame)),
        FrameKind::Response if frame.request_id == request && frame.op() == Some(Op::Hello) => {
            frame.message().map_err(|error| format!("its answer to Hello is malformed: {error}"))
        }
        _ => Err("it spoke before it answered Hello".into()),
    }
}

fn about_the_connection(frame: &Frame) -> String {
    match frame.message::<proto::Error>() {
        Ok(error) => lockgate_wire::Error::from_proto(error).to_string(),
        Err(error) => format!("it sent an error that cannot be read: {error}"),
    }
}
