//! Watching over a node's threads, and ending them in order.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use lockgate_wire::ShardId;

use super::untold::{RETRY, Untold};
use super::{Failure, ServerError};
use crate::admin::Admin;
use crate::data_dir::DataDir;
use crate::listen::Acceptor;
use crate::shard_loop::inbox::{InboxSender, Message};
use crate::status::{NodeStatus, Phase};

/// What a shard is given beyond the drain timeout before it counts as stuck.
const STOP_GRACE_MS: u64 = 10_000;
/// How often a start that takes long says what it waits for.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// What the supervisor is told.
#[derive(Debug)]
pub(super) enum Event {
    /// A signal came.
    Signal(&'static str),
    /// Somebody in this process wants the node to stop.
    StopWanted,
    /// All replicas of a shard serve.
    ShardReady(ShardId),
    /// A shard's thread is about to end.
    ShardEnded { shard: ShardId, failure: Option<String> },
    /// Another part ended by itself.
    Failed(Failure),
}

/// A node's threads and what they share.
pub(super) struct Node {
    /// Files that the node's disk keeps open at most.
    pub(super) max_open_files: usize,
    /// Locked as long as the node lives.
    _data: DataDir,
    drain_timeout_ms: u64,
    pub(super) status: Arc<NodeStatus>,
    pub(super) inboxes: Arc<[InboxSender]>,
    admin: Admin,
    pub(super) admin_address: SocketAddr,
    pub(super) acceptor: Option<Acceptor>,
    /// By number; a shard that could not be started and those after it are missing.
    threads: Vec<JoinHandle<()>>,
    running: BTreeSet<ShardId>,
    events: Receiver<Event>,
}

impl Node {
    pub(super) fn new(
        data: DataDir,
        drain_timeout_ms: u64,
        status: Arc<NodeStatus>,
        inboxes: Arc<[InboxSender]>,
        admin: Admin,
        admin_address: SocketAddr,
        events: Receiver<Event>,
    ) -> Self {
        let (threads, running) = (Vec::new(), BTreeSet::new());
        Self {
            max_open_files: data.disk.max_open_files(),
            _data: data,
            drain_timeout_ms,
            status,
            inboxes,
            admin,
            admin_address,
            acceptor: None,
            threads,
            running,
            events,
        }
    }

    /// Takes the thread of the next shard.
    pub(super) fn add_shard(&mut self, thread: JoinHandle<()>) {
        self.running.insert(ShardId(self.threads.len() as u16));
        self.threads.push(thread);
    }

    /// Waits until all shards serve. Otherwise the failures, none if the node was told to stop.
    pub(super) fn wait_until_ready(&mut self) -> Result<(), Vec<Failure>> {
        let begin = Instant::now();
        let mut waiting = self.running.clone();
        while !waiting.is_empty() {
            match self.events.recv_timeout(PROGRESS_EVERY) {
                Ok(Event::ShardReady(shard)) => drop(waiting.remove(&shard)),
                Ok(event) => {
                    if let Some(failures) = self.reason_to_stop(event) {
                        return Err(failures);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let recovering = |shard: &&ShardId| !self.status.shard(**shard).recovered.load(Ordering::Acquire);
                    let recovering: Vec<u16> = waiting.iter().filter(recovering).map(|shard| shard.0).collect();
                    let waiting: Vec<u16> = waiting.iter().map(|shard| shard.0).collect();
                    tracing::info!(?waiting, ?recovering, seconds = begin.elapsed().as_secs(), "still starting");
                }
                Err(RecvTimeoutError::Disconnected) => return Err(vec![lost_channel()]),
            }
        }
        Ok(())
    }

    /// Waits for a reason to stop, then stops.
    pub(super) fn supervise(mut self) -> Result<(), ServerError> {
        loop {
            let Ok(event) = self.events.recv() else { return self.stop(vec![lost_channel()]) };
            if let Some(failures) = self.reason_to_stop(event) {
                return self.stop(failures);
            }
        }
    }

    /// The failures with which the node goes down because of this event, none for an orderly stop; `None` to go on.
    fn reason_to_stop(&mut self, event: Event) -> Option<Vec<Failure>> {
        match event {
            Event::ShardReady(_) => None,
            Event::Signal(name) => {
                tracing::info!("{name}: stopping in order; a second signal ends the wait for clients");
                Some(Vec::new())
            }
            Event::StopWanted => Some(Vec::new()),
            Event::ShardEnded { shard, failure } => {
                self.running.remove(&shard);
                let what = failure.unwrap_or_else(|| "it ended without being told to".into());
                Some(vec![noticed(Failure { who: format!("shard {shard}"), what })])
            }
            Event::Failed(failure) => Some(vec![noticed(failure)]),
        }
    }

    /// Stops everything in order and reports what failed.
    pub(super) fn stop(mut self, mut failures: Vec<Failure>) -> Result<(), ServerError> {
        let begin = Instant::now();
        self.status.enter(Phase::Draining);
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop();
        }
        let mut untold = Untold::default();
        self.running.iter().for_each(|shard| untold.push(*shard, Message::Stop));
        let patience = Duration::from_millis(self.drain_timeout_ms + STOP_GRACE_MS);
        while !self.running.is_empty() {
            untold.tell(&self.inboxes);
            let left = patience.saturating_sub(begin.elapsed());
            let wait = if untold.is_empty() { left } else { left.min(RETRY) };
            match self.events.recv_timeout(wait) {
                Ok(Event::ShardEnded { shard, failure }) => {
                    self.running.remove(&shard);
                    let failure = failure.map(|what| noticed(Failure { who: format!("shard {shard}"), what }));
                    failures.extend(failure);
                }
                Ok(Event::Failed(failure)) => failures.push(noticed(failure)),
                Ok(Event::Signal(name)) => {
                    tracing::warn!("{name} again: closing all connections; what was taken is still written down");
                    self.running.iter().for_each(|shard| untold.push(*shard, Message::Abandon));
                }
                Ok(Event::ShardReady(_) | Event::StopWanted) => {}
                // Only a try for those that were not told yet.
                Err(RecvTimeoutError::Timeout) if wait < left => {}
                Err(_) => break,
            }
        }
        let stuck = self.running;
        for (number, thread) in self.threads.into_iter().enumerate() {
            // A thread that ended has told its failure already; one that is stuck ends with the process.
            if !stuck.contains(&ShardId(number as u16)) {
                drop(thread.join());
            }
        }
        self.admin.stop();
        let waited_ms = begin.elapsed().as_millis() as u64;
        if !stuck.is_empty() {
            let shards = stuck.into_iter().collect();
            return Err(ServerError::NotStopped { shards, waited_ms, failures });
        }
        tracing::info!(took_ms = waited_ms, "stopped");
        if failures.is_empty() { Ok(()) } else { Err(ServerError::Failed(failures)) }
    }
}

fn noticed(failure: Failure) -> Failure {
    tracing::error!("{failure}; the node goes down");
    failure
}

fn lost_channel() -> Failure {
    Failure { who: "supervisor".into(), what: "nobody is left to report".into() }
}
