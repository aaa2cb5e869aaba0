//! A shard's helpers: threads that may block on the disk, each fed by a bounded channel, each answering through the
//! shard's inbox. They end when the shard drops their channel, after finishing what is in it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use lockgate_engine::FileToken;
use lockgate_storage::disk::FileOp;
use lockgate_storage::journal::{JournalKind, JournalWrite};
use lockgate_wire::ShardId;

use super::inbox::{InboxSender, Message};
use super::journal_thread::{JournalFiles, WriteMode};
use super::outbox::Outbox;
use crate::disk::RealDisk;
use crate::status::NodeStatus;

/// File operations that wait in a lane; more stay with the shard.
const LANE_CAPACITY: usize = 64;
/// Writes that wait for a journal's thread: one is in flight, none should wait.
const JOURNAL_CAPACITY: usize = 2;

/// A file operation with the token of its answer.
pub(super) struct FileJob {
    pub(super) token: FileToken,
    pub(super) op: FileOp,
}

/// A helper thread and its queue.
pub(super) struct Worker<T> {
    channel: Sender<T>,
    outbox: Outbox<T>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts the helper. Should it panic, the shard is told: it would wait for an answer for ever.
    fn spawn(
        name: String,
        capacity: usize,
        inbox: InboxSender,
        body: impl FnOnce(Receiver<T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (channel, receiver) = bounded(capacity);
        let told = name.clone();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| body(receiver))).is_err() {
                inbox.send(Message::WorkerPanicked(told));
            }
        })?;
        Ok(Self { channel, outbox: Outbox::new(), thread })
    }

    /// Hands a job over, now or as soon as there is room.
    pub(super) fn push(&mut self, job: T) {
        self.outbox.push(job, |job| hand_over(&self.channel, job));
    }

    /// Tries again with what found no room.
    pub(super) fn retry(&mut self) {
        self.outbox.retry(|job| hand_over(&self.channel, job));
    }

    pub(super) fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Ends the helper after what is in its channel.
    pub(super) fn finish(self) {
        drop(self.channel);
        // A panic of the body was caught and told: the thread itself always ends well.
        drop(self.thread.join());
    }
}

/// A job for a helper that is gone is dropped: the message about its panic ends the shard.
fn hand_over<T>(channel: &Sender<T>, job: T) -> Option<T> {
    match channel.try_send(job) {
        Err(TrySendError::Full(job)) => Some(job),
        Ok(()) | Err(TrySendError::Disconnected(_)) => None,
    }
}

/// What all helpers of a shard are made with.
#[derive(Clone)]
pub(super) struct WorkerContext {
    pub(super) shard: ShardId,
    pub(super) disk: Arc<RealDisk>,
    pub(super) inbox: InboxSender,
    pub(super) status: Arc<NodeStatus>,
    /// How synced journals are written.
    pub(super) synced_mode: WriteMode,
}

impl WorkerContext {
    /// A lane that carries out file operations one after another.
    pub(super) fn lane(&self, what: &str) -> io::Result<Worker<FileJob>> {
        let Self { disk, inbox, .. } = self.clone();
        Worker::spawn(
            format!("shard-{}-{what}", self.shard),
            LANE_CAPACITY,
            inbox.clone(),
            move |jobs: Receiver<FileJob>| {
                for FileJob { token, op } in jobs {
                    inbox.send(Message::FileDone { token, result: op.execute(&*disk) });
                }
            },
        )
    }

    /// The thread of one journal.
    pub(super) fn journal(&self, kind: JournalKind) -> io::Result<Worker<JournalWrite>> {
        let Self { shard, disk, inbox, status, synced_mode } = self.clone();
        let (what, mode) = match kind {
            JournalKind::Synced => ("journal", synced_mode),
            JournalKind::Buffered => ("buffered", WriteMode::Buffered),
        };
        Worker::spawn(
            format!("shard-{shard}-{what}"),
            JOURNAL_CAPACITY,
            inbox.clone(),
            move |writes: Receiver<JournalWrite>| {
                let mut files = JournalFiles::new(disk, mode);
                for write in writes {
                    let begin = Instant::now();
                    let result = files.execute(&write);
                    if kind == JournalKind::Synced {
                        status.shard(shard).synced_writes.record(begin.elapsed());
                    }
                    inbox.send(Message::JournalWritten { journal: kind, result });
                }
            },
        )
    }
}
