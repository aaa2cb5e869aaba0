//! The core driven by hand: a clock that the test moves, and a world that keeps what the core sends.

mod calls;
mod link;
mod producer;
mod producer_model;
mod reader;

use std::collections::{BTreeMap, VecDeque};

use lockgate_wire::error::ErrorKind;
use lockgate_wire::{Error, WallMs};

use super::*;
use crate::record::Receipt;

/// A core and what came out of it.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) now: Now,
    pub(super) dials: Vec<(LinkId, HostPort)>,
    /// Frames that the core sent and the test did not look at, as a broker gets them, with their link.
    pub(super) sent: VecDeque<(LinkId, Frame)>,
    pub(super) closed: Vec<LinkId>,
    pub(super) connected: Option<Result<(), ClientError>>,
    pub(super) calls: BTreeMap<CallId, Result<Frame, ClientError>>,
    pub(super) batches: BTreeMap<BatchId, Result<Receipt, ClientError>>,
    pub(super) flushed: Vec<FlushId>,
    pub(super) freed: Vec<ProducerKey>,
    pub(super) opened: BTreeMap<ReaderKey, Result<(), ClientError>>,
    pub(super) ready: Vec<ReaderKey>,
}

impl World {
    /// A core that has not dialled.
    pub(super) fn new(seeds: &[&str]) -> Self {
        let config = ClientConfig::with_seeds(seeds).unwrap();
        let now = Now { mono: MonoTime(0), wall: WallMs(1_000_000) };
        Self {
            core: Core::new(&config, now, 7).unwrap(),
            now,
            dials: Vec::new(),
            sent: VecDeque::new(),
            closed: Vec::new(),
            connected: None,
            calls: BTreeMap::new(),
            batches: BTreeMap::new(),
            flushed: Vec::new(),
            freed: Vec::new(),
            opened: BTreeMap::new(),
            ready: Vec::new(),
        }
    }

    /// A core with a connection.
    pub(super) fn connected() -> Self {
        let mut world = Self::new(&["a:1"]);
        world.connect();
        world
    }

    /// Lets the core dial, and greets it.
    pub(super) fn connect(&mut self) -> LinkId {
        // Dials that were given up meanwhile are left behind.
        self.dials.retain(|(link, _)| self.core.context.link.is_current(*link));
        while self.dials.is_empty() {
            self.advance_to_deadline();
        }
        let (link, _) = self.dials.remove(0);
        self.input(Input::Connected { link });
        let (_, hello) = self.sent.pop_front().expect("Hello");
        assert_eq!(hello.op(), Some(Op::Hello));
        let ok = proto::HelloOk { session_id: 1, node_id: 1, heartbeat_ms: 5_000, ..Default::default() };
        self.answer(link, hello.request_id, &ok);
        assert!(self.core.is_connected());
        link
    }

    pub(super) fn link(&self) -> LinkId {
        self.core.context.link.id().expect("a link")
    }

    pub(super) fn input(&mut self, input: Input) {
        self.core.handle(self.now, input);
        self.collect();
    }

    /// Application calls on the core, whose outputs are collected.
    pub(super) fn with<R>(&mut self, work: impl FnOnce(&mut Core, Now) -> R) -> R {
        let result = work(&mut self.core, self.now);
        self.collect();
        result
    }

    fn collect(&mut self) {
        while let Some(output) = self.core.next_output() {
            match output {
                Output::Dial { link, address } => self.dials.push((link, address)),
                Output::Send { link, frame } => {
                    let bytes = frame.size();
                    self.sent.push_back((link, as_received(&frame)));
                    // Everything is written at once.
                    self.core.handle(self.now, Input::Written { link, bytes });
                }
                Output::Close { link } => self.closed.push(link),
                Output::Connected(result) => assert!(self.connected.replace(result).is_none(), "told twice"),
                Output::CallDone { call, result } => assert!(self.calls.insert(call, result).is_none(), "told twice"),
                Output::BatchDone { batch, result } => {
                    assert!(self.batches.insert(batch, result).is_none(), "told twice");
                }
                Output::Flushed { flush } => self.flushed.push(flush),
                Output::BufferFreed { producer } => self.freed.push(producer),
                Output::ReaderOpened { reader, result } => {
                    assert!(self.opened.insert(reader, result).is_none(), "told twice");
                }
                Output::ReaderReady { reader } => self.ready.push(reader),
            }
        }
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        self.now.wall.0 += ms as i64;
        self.input(Input::Tick);
    }

    pub(super) fn advance_to_deadline(&mut self) {
        let deadline = self.core.next_deadline().expect("something is due some time");
        let ms = deadline.0.saturating_sub(self.now.mono.0).div_ceil(1_000_000);
        self.advance(ms);
    }

    pub(super) fn answer<B: Body>(&mut self, link: LinkId, request: u64, body: &B) {
        let frame = as_received(&OutFrame::response(request, body));
        self.input(Input::Received { link, frame });
    }

    pub(super) fn refuse(&mut self, link: LinkId, request: &Frame, error: &Error) {
        let frame = as_received(&OutFrame::error(request.op, request.request_id, error));
        self.input(Input::Received { link, frame });
    }

    pub(super) fn push<B: Body>(&mut self, link: LinkId, body: &B, payload: Vec<Bytes>) {
        let frame = as_received(&OutFrame::new(FrameKind::Push, 0, body, payload));
        self.input(Input::Received { link, frame });
    }

    pub(super) fn disconnect(&mut self) {
        let link = self.link();
        self.input(Input::Disconnected { link, reason: "cut".into() });
    }

    /// The next frame of an operation; others before it are dropped.
    pub(super) fn next_sent(&mut self, op: Op) -> Option<Frame> {
        loop {
            let (_, frame) = self.sent.pop_front()?;
            if frame.op() == Some(op) {
                return Some(frame);
            }
        }
    }

    pub(super) fn all_sent(&mut self, op: Op) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_sent(op)).collect()
    }
}

pub(super) fn as_received(frame: &OutFrame) -> Frame {
    let mut bytes = bytes::BytesMut::from(&frame.to_bytes()[..]);
    Frame::decode(&mut bytes, lockgate_wire::frame::HARD_MAX_FRAME_BYTES).unwrap().unwrap()
}

pub(super) fn topic(partitions: u32) -> Topic {
    Topic {
        name: "default/default/t".into(),
        id: lockgate_wire::TopicId(9),
        partitions,
        partitioning_version: 1,
        max_batch_bytes: 1024 * 1024,
    }
}

pub(super) fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "as the test wants it")
}

pub(super) fn record(value: &str) -> batch::Record {
    batch::Record { value: Some(Bytes::copy_from_slice(value.as_bytes())), timestamp_ms: 1, ..Default::default() }
}
