//! File work that nobody waits for: one operation at a time and owner, in order, tried again until it succeeds.
//!
//! Everything that goes through here is in the journal too, so a disk that fails delays it and loses nothing.

use std::collections::VecDeque;

use lockgate_storage::disk::{DiskError, DiskResult, FileOp};
use lockgate_wire::MonoTime;

use crate::core::{Core, FileOwner};
use crate::limits::RETRY_FILE_MS;
use crate::output::{Lane, Level};

/// The queue of one owner. `D` says what a finished operation completes, if it is the last one of its plan.
pub(crate) struct Background<D> {
    owner: FileOwner,
    queue: VecDeque<Planned<D>>,
    in_flight: bool,
    retry_at: Option<MonoTime>,
    /// Why the front operation failed the last time it was tried.
    error: Option<DiskError>,
}

struct Planned<D> {
    op: FileOp,
    /// On the last operation of a plan.
    done: Option<D>,
    /// Whether it may be tried again. A sync may not: one that succeeds after one that failed proves nothing.
    again: bool,
}

impl<D> Background<D> {
    pub(crate) fn new(owner: FileOwner) -> Self {
        Self { owner, queue: VecDeque::new(), in_flight: false, retry_at: None, error: None }
    }

    /// Queues a plan; `done` comes back when all of it is carried out, however often it takes. An empty plan is not
    /// allowed.
    pub(crate) fn plan(&mut self, ops: Vec<FileOp>, done: D) {
        self.queue_up(ops, done, true);
    }

    /// Queues a plan that is given up, with `done` and the error, as soon as one of its operations fails.
    pub(crate) fn plan_once(&mut self, ops: Vec<FileOp>, done: D) {
        self.queue_up(ops, done, false);
    }

    fn queue_up(&mut self, ops: Vec<FileOp>, done: D, again: bool) {
        let last = ops.len().checked_sub(1).expect("a plan has an operation");
        let mut done = Some(done);
        for (i, op) in ops.into_iter().enumerate() {
            self.queue.push_back(Planned { op, done: if i == last { done.take() } else { None }, again });
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a sync of a file that is written in place is planned.
    pub(crate) fn syncs_logs(&self) -> bool {
        self.queue.iter().any(|planned| matches!(planned.op, FileOp::Sync { .. }))
    }

    /// Why the work stands still, if it does.
    pub(crate) fn error(&self) -> Option<&DiskError> {
        self.error.as_ref()
    }

    pub(crate) fn deadline(&self) -> Option<MonoTime> {
        if self.in_flight { None } else { self.retry_at }
    }

    /// Starts the front operation unless it is under way or waits for its next try.
    pub(crate) fn run(&mut self, core: &mut Core) {
        if self.in_flight || self.retry_at.is_some_and(|at| at > core.now.mono) {
            return;
        }
        if let Some(planned) = self.queue.front() {
            core.file(Lane::Background, self.owner, planned.op.clone());
            self.in_flight = true;
            self.retry_at = None;
        }
    }

    /// The front operation ended. Gives what its plan completes, and whether it did.
    pub(crate) fn finished(
        &mut self,
        core: &mut Core,
        result: DiskResult<bytes::Bytes>,
    ) -> Option<(D, DiskResult<()>)> {
        self.in_flight = false;
        let error = match result {
            Ok(_) => {
                if self.error.take().is_some() {
                    core.log(Level::Info, "a file operation that had failed succeeded");
                }
                return self.queue.pop_front().and_then(|planned| planned.done).map(|done| (done, Ok(())));
            }
            Err(error) => error,
        };
        core.metrics.file_failures += 1;
        if self.queue.front().is_some_and(|planned| !planned.again) {
            core.log(Level::Error, format!("{error}; the journal has what it was about"));
            while let Some(planned) = self.queue.pop_front() {
                if let Some(done) = planned.done {
                    return Some((done, Err(error)));
                }
            }
            return None;
        }
        if self.error.as_ref() != Some(&error) {
            core.log(Level::Error, format!("{error}; tried again every {RETRY_FILE_MS} ms, nothing is lost"));
        }
        self.error = Some(error);
        self.retry_at = Some(core.now.mono.plus_ms(RETRY_FILE_MS));
        None
    }
}
