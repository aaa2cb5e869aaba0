//! The core behind one lock, and those who wait for its outputs.
//!
//! Lives in every handle and task of one client. The lock is held for short, straight-line work and never across an
//! await; the clock is read here and nowhere else.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lockgate_wire::{Frame, HostPort, MonoTime, Now, OutFrame, WallMs};
use rustc_hash::FxHashMap;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::connection;
use super::delivery::Completion;
use crate::core::{BatchId, CallId, Core, FlushId, Input, LinkId, Output, ProducerKey, ReaderKey};
use crate::error::ClientError;

type Answer<T> = oneshot::Sender<Result<T, ClientError>>;

/// See the module.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Bytes were written, or the connection is gone.
    pub(super) written: Notify,
    /// The earliest deadline may have come closer.
    pub(super) deadline_moved: Notify,
    started: Instant,
    runtime: Handle,
}

/// What the lock guards. The maps are looked up and never iterated.
pub(super) struct State {
    pub(super) core: Core,
    /// Frames that are to be written on the current link.
    pub(super) outbox: VecDeque<OutFrame>,
    /// The current link.
    pub(super) link: Option<OpenLink>,
    /// Largest frame that is accepted.
    pub(super) max_frame_bytes: u32,
    /// Until when the timer task sleeps.
    pub(super) sleeps_until: Option<MonoTime>,
    pub(super) connected: Option<Answer<()>>,
    pub(super) calls: FxHashMap<CallId, Answer<Frame>>,
    pub(super) batches: FxHashMap<BatchId, Arc<Completion>>,
    pub(super) flushes: FxHashMap<FlushId, oneshot::Sender<()>>,
    pub(super) freed: FxHashMap<ProducerKey, Arc<Notify>>,
    pub(super) opened: FxHashMap<ReaderKey, Answer<()>>,
    pub(super) ready: FxHashMap<ReaderKey, Arc<Notify>>,
}

/// A connection, or an attempt at one.
pub(super) struct OpenLink {
    pub(super) id: LinkId,
    /// The transport is open.
    pub(super) connected: bool,
    /// To be closed once the outbox is written.
    pub(super) closing: bool,
    /// The writer has something to send, or the link is to be closed.
    to_write: Arc<Notify>,
    task: AbortHandle,
}

impl Shared {
    pub(super) fn new(core: Core, started: Instant, max_frame_bytes: u32, connected: Answer<()>) -> Arc<Self> {
        let state = State {
            core,
            outbox: VecDeque::new(),
            link: None,
            max_frame_bytes,
            sleeps_until: None,
            connected: Some(connected),
            calls: FxHashMap::default(),
            batches: FxHashMap::default(),
            flushes: FxHashMap::default(),
            freed: FxHashMap::default(),
            opened: FxHashMap::default(),
            ready: FxHashMap::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            written: Notify::new(),
            deadline_moved: Notify::new(),
            started,
            runtime: Handle::current(),
        })
    }

    pub(super) fn now(&self) -> Now {
        read_clocks(self.started)
    }

    pub(super) fn instant(&self, time: MonoTime) -> Instant {
        self.started + std::time::Duration::from_nanos(time.0)
    }

    /// Works with the core and carries out what came of it.
    pub(super) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut State, Now) -> R) -> R {
        let now = self.now();
        let mut state = self.lock();
        let result = work(&mut state, now);
        self.carry_out(&mut state);
        result
    }

    /// Looks without changing anything.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// Changes what is not the core's.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock was a broken invariant and is reported where it happened; the others must still end.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out(self: &Arc<Self>, state: &mut State) {
        let mut to_write = false;
        while let Some(output) = state.core.next_output() {
            match output {
                Output::Send { link, frame } => {
                    if state.open_link(link).is_some() {
                        state.outbox.push_back(frame);
                        to_write = true;
                    }
                }
                Output::Dial { link, address } => self.dial(state, link, address),
                Output::Close { link } => {
                    if let Some(open) = state.open_link(link) {
                        open.closing = true;
                        to_write = true;
                        if !open.connected {
                            open.task.abort();
                        }
                    }
                }
                told => state.tell(told),
            }
        }
        if let Some(open) = state.link.as_ref().filter(|_| to_write) {
            open.to_write.notify_one();
        }
        let next = state.core.next_deadline();
        if next.is_some_and(|next| state.sleeps_until.is_none_or(|until| next < until)) {
            state.sleeps_until = next;
            self.deadline_moved.notify_one();
        }
    }

    fn dial(self: &Arc<Self>, state: &mut State, link: LinkId, address: HostPort) {
        if let Some(old) = state.link.take() {
            old.task.abort();
        }
        state.outbox.clear();
        let to_write = Arc::new(Notify::new());
        let connection = connection::run(Arc::clone(self), link, address, Arc::clone(&to_write));
        let task = self.runtime.spawn(connection).abort_handle();
        state.link = Some(OpenLink { id: link, connected: false, closing: false, to_write, task });
    }
}

impl State {
    /// Brings an end or a sign to those who wait for it. Whoever does not wait any more is no error.
    fn tell(&mut self, output: Output) {
        match output {
            Output::Connected(result) => {
                if let Some(waiting) = self.connected.take() {
                    let _ = waiting.send(result);
                }
            }
            Output::CallDone { call, result } => {
                if let Some(waiting) = self.calls.remove(&call) {
                    let _ = waiting.send(result);
                }
            }
            Output::BatchDone { batch, result } => {
                if let Some(completion) = self.batches.remove(&batch) {
                    completion.complete(result);
                }
            }
            Output::Flushed { flush } => {
                if let Some(waiting) = self.flushes.remove(&flush) {
                    let _ = waiting.send(());
                }
            }
            Output::BufferFreed { producer } => {
                if let Some(freed) = self.freed.get(&producer) {
                    freed.notify_one();
                }
            }
            Output::ReaderOpened { reader, result } => {
                if let Some(waiting) = self.opened.remove(&reader) {
                    let _ = waiting.send(result);
                }
            }
            Output::ReaderReady { reader } => {
                if let Some(ready) = self.ready.get(&reader) {
                    ready.notify_one();
                }
            }
            Output::Dial { .. } | Output::Send { .. } | Output::Close { .. } => {}
        }
    }

    pub(super) fn open_link(&mut self, id: LinkId) -> Option<&mut OpenLink> {
        self.link.as_mut().filter(|open| open.id == id)
    }

    /// Tells the core of the connection.
    pub(super) fn input(&mut self, now: Now, input: Input) {
        self.core.handle(now, input);
    }
}

pub(super) fn read_clocks(started: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    Now { mono: MonoTime(started.elapsed().as_nanos() as u64), wall: WallMs(wall) }
}
