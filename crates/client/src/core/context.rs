//! What calls, producers and readers share: the link, the requests that wait for answers, the timers, the outputs.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use lockgate_wire::op::Body;
use lockgate_wire::{FrameKind, Now, OutFrame};
use rustc_hash::FxHashMap;

use super::Output;
use super::ids::{CallId, ProducerKey, ReaderKey};
use super::link::Link;
use super::retry::Rng;
use super::stats::Stats;
use super::timers::Timers;

/// Whose request it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Call(CallId),
    /// A batch of a producer's partition.
    Batch(ProducerKey, u32),
    /// A subscription of a reader, by its place in the reader.
    Subscription(ReaderKey, u32),
}

/// See the module. Lives in one [`Core`](super::Core).
#[derive(Debug)]
pub(super) struct Context {
    pub(super) now: Now,
    pub(super) link: Link,
    pub(super) timers: Timers,
    pub(super) rng: Rng,
    pub(super) stats: Stats,
    pub(super) outputs: VecDeque<Output>,
    /// Requests on the current connection that are not answered. Looked up, never iterated.
    requests: FxHashMap<u64, Owner>,
    last_request: u64,
    /// Subscriptions of the current connection: a reader and its partition's place. Looked up, never iterated.
    pub(super) subscriptions: FxHashMap<u64, (ReaderKey, u32)>,
    /// Partitions that have batches to send and wait for room on the link.
    pub(super) waiting_for_room: BTreeSet<(ProducerKey, u32)>,
}

impl Context {
    pub(super) fn new(now: Now, link: Link, seed: u64) -> Self {
        Self {
            now,
            link,
            timers: Timers::default(),
            rng: Rng::new(seed),
            stats: Stats::default(),
            outputs: VecDeque::new(),
            requests: FxHashMap::default(),
            last_request: 0,
            subscriptions: FxHashMap::default(),
            waiting_for_room: BTreeSet::new(),
        }
    }

    /// An id that was never used, for requests, calls and subscriptions.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Sends a request whose answer goes to `owner`. The link is up.
    pub(super) fn request(&mut self, id: u64, owner: Owner, frame: OutFrame) {
        self.requests.insert(id, owner);
        self.stats.requests += 1;
        self.link.send(self.now.mono, frame, &mut self.outputs);
    }

    /// Sends a message that nobody answers.
    pub(super) fn tell<B: Body>(&mut self, message: &B, payload: Option<Bytes>) {
        let frame = OutFrame::new(FrameKind::Request, 0, message, payload.into_iter().collect());
        self.link.send(self.now.mono, frame, &mut self.outputs);
    }

    /// Whose answer this is; `None` if nobody waits for it any more.
    pub(super) fn answered(&mut self, id: u64) -> Option<Owner> {
        self.requests.remove(&id)
    }

    /// Nobody waits for the answer any more.
    pub(super) fn forget(&mut self, id: u64) {
        self.requests.remove(&id);
    }

    /// The connection is gone, and with it every answer and subscription.
    pub(super) fn forget_all(&mut self) {
        self.requests.clear();
        self.subscriptions.clear();
        self.waiting_for_room.clear();
    }

    pub(super) fn output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }
}
