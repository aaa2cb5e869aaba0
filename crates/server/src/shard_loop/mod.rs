//! A shard's thread: the explicit loop around the engine.
//!
//! Wait; take what is there, bounded, and let the engine handle each; then carry out together what it wants done: one
//! journal write for all, one vectored write per connection, one wake per shard that got something. Nothing here
//! decides, and nothing here waits for anybody but the kernel's readiness.

mod aligned;
pub(crate) mod inbox;
pub(crate) mod journal_thread;
#[cfg(test)]
mod mesh_model;
mod outbox;
#[cfg(test)]
mod tests;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use lockgate_engine::{Input, Lane, Level, NodeConfig, Output, RecoveryError, RecoveryReport, Shard, recover};
use lockgate_storage::journal::{JournalKind, JournalWrite};
use lockgate_wire::frame::FrameError;
use lockgate_wire::{ConnectionId, Frame, MonoTime, Now, ShardId};

use crate::clock::{Clock, until};
use crate::disk::RealDisk;
use crate::driver::epoll::EpollDriver;
use crate::driver::{Driver, Handler, Wake};
use crate::status::{LoopMetrics, NodeStatus, Published};
use inbox::{InboxSender, Message};
use journal_thread::WriteMode;
use outbox::Outbox;
use workers::{FileJob, Worker, WorkerContext};

/// Messages of the inbox taken in one round.
const MESSAGES_PER_ROUND: usize = 1024;
/// How soon something that found no room is tried again, if nothing else ends the wait.
const RETRY: Duration = Duration::from_millis(1);
/// How old published numbers may be while the shard works.
const PUBLISH_EVERY_MS: u64 = 250;

/// Everything that a shard's thread is started with.
pub(crate) struct ShardSetup<D = EpollDriver> {
    pub(crate) id: ShardId,
    pub(crate) node: Arc<NodeConfig>,
    pub(crate) disk: Arc<RealDisk>,
    pub(crate) synced_mode: WriteMode,
    pub(crate) clock: Clock,
    /// Randomness for the engine, drawn once.
    pub(crate) seed: u64,
    pub(crate) driver: D,
    pub(crate) inbox: Receiver<Message>,
    /// All shards' inboxes by number, this one's included.
    pub(crate) inboxes: Arc<[InboxSender]>,
    pub(crate) status: Arc<NodeStatus>,
    /// Called once, when the engine says that its replicas serve.
    pub(crate) on_ready: Box<dyn FnOnce() + Send>,
}

/// Why a shard ended before it was told to, or could not start.
#[derive(Debug)]
pub(crate) enum ShardError {
    /// What its disk holds cannot be used.
    Recovery(RecoveryError),
    /// A thread of its own could not be started.
    Spawn(io::Error),
    /// Waiting for its connections failed.
    Poll(io::Error),
    /// One of its helper threads panicked.
    HelperPanicked(String),
}

impl std::fmt::Display for ShardError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Recovery(error) => write!(f, "recovery failed: {error}"),
            Self::Spawn(error) => write!(f, "a helper thread could not be started: {error}"),
            Self::Poll(error) => write!(f, "waiting for input failed: {error}"),
            Self::HelperPanicked(name) => write!(f, "the thread {name} panicked"),
        }
    }
}
impl std::error::Error for ShardError {}

/// Recovers the shard and runs it until it has stopped.
pub(crate) fn run<D: Driver>(setup: ShardSetup<D>) -> Result<(), ShardError> {
    let begin = Instant::now();
    let recovered = recover(&*setup.disk, &setup.node, setup.id).map_err(ShardError::Recovery)?;
    let RecoveryReport { journal_records, journal_bytes, ended_cleanly, findings, damage } = &recovered.report;
    for finding in findings.iter().chain(damage) {
        tracing::warn!(shard = setup.id.0, "{finding}");
    }
    let took_ms = begin.elapsed().as_millis() as u64;
    tracing::info!(shard = setup.id.0, took_ms, journal_records, journal_bytes, ended_cleanly, "recovered");
    setup.status.shard(setup.id).recovered.store(true, Ordering::Release);

    let context = WorkerContext {
        shard: setup.id,
        disk: setup.disk,
        inbox: setup.inboxes[usize::from(setup.id.0)].clone(),
        status: setup.status.clone(),
        synced_mode: setup.synced_mode,
    };
    let mut out = Vec::new();
    let now = setup.clock.now();
    let shard = Shard::start(setup.node, setup.id, recovered, setup.seed, now, &mut out);
    let shard_loop = ShardLoop {
        id: setup.id,
        shard,
        clock: setup.clock,
        wake: setup.driver.wake_handle(),
        driver: setup.driver,
        inbox: setup.inbox,
        mesh: setup.inboxes.iter().map(|_| Outbox::new()).collect(),
        inboxes: setup.inboxes,
        read_lane: context.lane("read").map_err(ShardError::Spawn)?,
        journal_lane: context.lane("files").map_err(ShardError::Spawn)?,
        background_lane: context.lane("background").map_err(ShardError::Spawn)?,
        synced: context.journal(JournalKind::Synced).map_err(ShardError::Spawn)?,
        buffered: None,
        context,
        out,
        on_ready: Some(setup.on_ready),
        status: setup.status,
        metrics: LoopMetrics::default(),
        published_at: now.mono,
        unpublished: true,
        failure: None,
        stopped: false,
    };
    shard_loop.run()
}

struct ShardLoop<D> {
    id: ShardId,
    shard: Shard,
    clock: Clock,
    driver: D,
    wake: Arc<Wake>,
    inbox: Receiver<Message>,
    inboxes: Arc<[InboxSender]>,
    /// What found no room in the inbox of the shard with this number.
    mesh: Vec<Outbox<Message>>,
    read_lane: Worker<FileJob>,
    journal_lane: Worker<FileJob>,
    background_lane: Worker<FileJob>,
    synced: Worker<JournalWrite>,
    /// Started with its first write: most nodes never need it.
    buffered: Option<Worker<JournalWrite>>,
    context: WorkerContext,
    out: Vec<Output>,
    on_ready: Option<Box<dyn FnOnce() + Send>>,
    status: Arc<NodeStatus>,
    metrics: LoopMetrics,
    published_at: MonoTime,
    /// Something happened since the numbers were published.
    unpublished: bool,
    failure: Option<ShardError>,
    stopped: bool,
}

impl<D: Driver> ShardLoop<D> {
    fn run(mut self) -> Result<(), ShardError> {
        let now = self.clock.now();
        self.carry_out(now.mono);
        while !self.stopped && self.failure.is_none() {
            let timeout = self.timeout();
            self.driver.wait(timeout).map_err(ShardError::Poll)?;
            // Before looking: whoever puts something in later wakes the next wait.
            self.wake.rest();
            self.round();
        }
        self.finish()
    }

    fn round(&mut self) {
        let now = self.clock.now();
        self.metrics.rounds += 1;
        self.take_messages(now);
        let mut handler = EngineHandler {
            shard: &mut self.shard,
            now,
            out: &mut self.out,
            status: &self.status,
            id: self.id,
            events: 0,
        };
        self.driver.receive(now.mono, &mut handler);
        self.unpublished |= handler.events > 0;
        if self.shard.next_deadline().is_some_and(|deadline| deadline <= now.mono) {
            self.handle(now, Input::Tick);
        }
        self.shard.finish_round(now, &mut self.out);
        self.carry_out(now.mono);
        self.driver.flush(now.mono);
        self.retry();
        self.publish(now.mono);
    }

    fn handle(&mut self, now: Now, input: Input) {
        self.unpublished = true;
        self.shard.handle(now, input, &mut self.out);
    }

    /// How long to wait: until the engine, a closing connection, a retry or the published numbers want attention.
    fn timeout(&self) -> Option<Duration> {
        if !self.inbox.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.clock.mono();
        let publish_at = self.unpublished.then(|| self.published_at.plus_ms(PUBLISH_EVERY_MS));
        let deadlines = [self.shard.next_deadline(), self.driver.next_deadline(), publish_at];
        let next = deadlines.into_iter().flatten().min().map(|deadline| until(now, deadline));
        let waiting = self.metrics.mesh_frames_waiting + self.metrics.file_ops_waiting > 0;
        next.into_iter().chain(waiting.then_some(RETRY)).min()
    }

    fn take_messages(&mut self, now: Now) {
        for _ in 0..MESSAGES_PER_ROUND {
            let Ok(message) = self.inbox.try_recv() else { return };
            match message {
                Message::Accepted { connection, stream, peer } => match self.driver.open(connection, stream) {
                    Ok(()) => self.handle(now, Input::ConnectionOpened { connection, peer }),
                    Err(error) => {
                        self.status.shard(self.id).connections.fetch_sub(1, Ordering::Relaxed);
                        tracing::warn!(shard = self.id.0, %peer, "a connection could not be taken over: {error}");
                    }
                },
                Message::Mesh { from, frame } => self.handle(now, Input::Mesh { from, frame }),
                Message::View(view) => self.handle(now, Input::View(view)),
                Message::JournalWritten { journal, result } => {
                    self.handle(now, Input::JournalWritten { journal, result })
                }
                Message::FileDone { token, result } => self.handle(now, Input::FileDone { token, result }),
                Message::Stop => self.handle(now, Input::Stop),
                Message::Abandon => self.driver.close_all(),
                Message::WorkerPanicked(name) => self.failure = Some(ShardError::HelperPanicked(name)),
            }
        }
    }

    fn carry_out(&mut self, now: MonoTime) {
        let mut outputs = std::mem::take(&mut self.out);
        for output in outputs.drain(..) {
            match output {
                Output::Send { connection, frame } => self.driver.send(connection, frame),
                Output::ResumeReading { connection } => self.driver.resume(connection),
                Output::Close { connection, flush_ms } => {
                    self.driver.close(connection, now, now.plus_ms(flush_ms.into()));
                }
                Output::Mesh { to, frame } => self.send(to, Message::Mesh { from: self.id, frame }),
                Output::Journal(write) => self.write_journal(write),
                Output::File { lane, token, op } => match lane {
                    Lane::Read => self.read_lane.push(FileJob { token, op }),
                    Lane::Journal => self.journal_lane.push(FileJob { token, op }),
                    Lane::Background => self.background_lane.push(FileJob { token, op }),
                },
                Output::View(view) => {
                    let own = self.id;
                    for other in (0..self.inboxes.len() as u16).map(ShardId).filter(|shard| *shard != own) {
                        self.send(other, Message::View(view.clone()));
                    }
                }
                Output::Ready => {
                    if let Some(on_ready) = self.on_ready.take() {
                        on_ready();
                    }
                }
                Output::Stopped => self.stopped = true,
                Output::Log { level, message } => log(self.id, level, &message),
            }
        }
        // Its room serves the next round.
        self.out = outputs;
    }

    fn send(&mut self, to: ShardId, message: Message) {
        let inbox = &self.inboxes[usize::from(to.0)];
        self.mesh[usize::from(to.0)].push(message, |message| inbox.try_send(message));
    }

    fn write_journal(&mut self, write: JournalWrite) {
        if write.kind == JournalKind::Synced {
            return self.synced.push(write);
        }
        if self.buffered.is_none() {
            match self.context.journal(JournalKind::Buffered) {
                Ok(worker) => self.buffered = Some(worker),
                Err(error) => self.failure = Some(ShardError::Spawn(error)),
            }
        }
        if let Some(worker) = &mut self.buffered {
            worker.push(write);
        }
    }

    /// Tries again with everything that found no room.
    fn retry(&mut self) {
        for (outbox, inbox) in self.mesh.iter_mut().zip(self.inboxes.iter()) {
            outbox.retry(|message| inbox.try_send(message));
        }
        self.synced.retry();
        if let Some(worker) = &mut self.buffered {
            worker.retry();
        }
        self.read_lane.retry();
        self.journal_lane.retry();
        self.background_lane.retry();
        self.metrics.mesh_frames_waiting = self.mesh.iter().map(|outbox| outbox.len() as u64).sum();
        self.metrics.file_ops_waiting =
            [&self.read_lane, &self.journal_lane, &self.background_lane].iter().map(|lane| lane.waiting() as u64).sum();
    }

    fn publish(&mut self, now: MonoTime) {
        if self.unpublished && now.ms_since(self.published_at) >= PUBLISH_EVERY_MS {
            self.published_at = now;
            self.unpublished = false;
            let published =
                Published { engine: self.shard.metrics(), io: self.metrics, impairments: self.shard.impairments() };
            self.status.shard(self.id).published.store(Arc::new(published));
        }
    }

    /// Ends what the loop has started. Nothing reads the inbox any more, so it goes first: nobody must wait for room in it.
    fn finish(mut self) -> Result<(), ShardError> {
        drop(self.inbox);
        // Closes that are under way get the time that the engine gave them.
        while self.driver.is_closing()
            && let Some(deadline) = self.driver.next_deadline()
        {
            self.driver.wait(Some(until(self.clock.mono(), deadline))).map_err(ShardError::Poll)?;
            self.driver.receive(self.clock.mono(), &mut Deaf);
            self.driver.flush(self.clock.mono());
        }
        self.synced.finish();
        if let Some(worker) = self.buffered {
            worker.finish();
        }
        self.read_lane.finish();
        self.journal_lane.finish();
        self.background_lane.finish();
        self.failure.map_or(Ok(()), Err)
    }
}

/// Lets the engine handle what the driver tells.
struct EngineHandler<'a> {
    shard: &'a mut Shard,
    now: Now,
    out: &'a mut Vec<Output>,
    status: &'a NodeStatus,
    id: ShardId,
    events: usize,
}

impl EngineHandler<'_> {
    fn handle(&mut self, input: Input) {
        self.events += 1;
        self.shard.handle(self.now, input, self.out);
    }
}

impl Handler for EngineHandler<'_> {
    fn may_read(&mut self, connection: ConnectionId) -> bool {
        self.shard.may_read(connection)
    }
    fn frame_limit(&self, connection: ConnectionId) -> u32 {
        self.shard.frame_limit(connection)
    }
    fn received(&mut self, connection: ConnectionId, frame: Frame) {
        self.handle(Input::FrameReceived { connection, frame });
    }
    fn progressed(&mut self, connection: ConnectionId) {
        self.handle(Input::BytesReceived { connection });
    }
    fn stalled(&mut self, connection: ConnectionId) {
        self.handle(Input::FrameStalled { connection });
    }
    fn ended(&mut self, connection: ConnectionId) {
        self.handle(Input::PeerEnded { connection });
    }
    fn bad_bytes(&mut self, connection: ConnectionId, error: FrameError) {
        self.handle(Input::BadBytes { connection, error });
    }
    fn written(&mut self, connection: ConnectionId, bytes: usize) {
        self.handle(Input::Written { connection, bytes });
    }
    fn closed(&mut self, connection: ConnectionId) {
        self.status.shard(self.id).connections.fetch_sub(1, Ordering::Relaxed);
        self.handle(Input::ConnectionClosed { connection });
    }
}

/// Takes nothing: the engine has stopped.
struct Deaf;

impl Handler for Deaf {
    fn may_read(&mut self, _connection: ConnectionId) -> bool {
        false
    }
    fn frame_limit(&self, _connection: ConnectionId) -> u32 {
        0
    }
    fn received(&mut self, _connection: ConnectionId, _frame: Frame) {}
    fn progressed(&mut self, _connection: ConnectionId) {}
    fn stalled(&mut self, _connection: ConnectionId) {}
    fn ended(&mut self, _connection: ConnectionId) {}
    fn bad_bytes(&mut self, _connection: ConnectionId, _error: FrameError) {}
    fn written(&mut self, _connection: ConnectionId, _bytes: usize) {}
    fn closed(&mut self, _connection: ConnectionId) {}
}

fn log(shard: ShardId, level: Level, message: &str) {
    let shard = shard.0;
    match level {
        Level::Error => tracing::error!(shard, "{message}"),
        Level::Warn => tracing::warn!(shard, "{message}"),
        Level::Info => tracing::info!(shard, "{message}"),
        Level::Debug => tracing::debug!(shard, "{message}"),
    }
}
