//! The threads that carry out what storage plans: a journal thread per journal, one operation at a time in each lane, free
//! reads. An operation takes effect when it ends; a process that dies before leaves any part of it behind.

use std::collections::VecDeque;

use lockgate_engine::{FileToken, Input, Lane};
use lockgate_storage::disk::{DiskResult, FileOp, parent};
use lockgate_storage::journal::{JournalKind, JournalWrite};
use lockgate_wire::ShardId;

use super::World;
use super::queue::Happening;
use crate::history::What;
use crate::invariants::journals_keep_their_bound;

/// Calls of a journal write into an open file: where a dying process may be in it, or behind it.
const WRITE_CALLS: u64 = 2;
/// Calls of what a journal write has for another file.
const DATA_CALLS: u64 = 3;
/// Calls of any other operation, about.
const CALLS_MAX: u64 = 7;

/// A file operation under way.
#[derive(Clone, Debug)]
pub(super) struct FileTask {
    pub(super) token: FileToken,
    pub(super) op: FileOp,
}

/// What a dying process leaves unfinished.
enum UnderWay {
    Journal(JournalWrite),
    File(FileOp),
}

impl World {
    pub(super) fn start_journal_write(&mut self, shard: usize, write: JournalWrite) {
        let journal = write.kind;
        let usual = self.plan.disk.journal(&write, &mut self.rng);
        let at = self.now + self.slowed(usual);
        if self.node.shards[shard].journal_writes.insert(journal, write).is_some() {
            return self.report(
                "one_journal_write_at_a_time",
                format!("shard {shard} starts a second write of its {journal:?} journal"),
            );
        }
        self.queue.push(at, Happening::JournalEnds { process: self.node.life.process, shard, journal });
    }

    pub(super) fn journal_ends(&mut self, shard: usize, journal: JournalKind) {
        if let Some(write) = self.node.shards[shard].journal_writes.remove(&journal) {
            let result = write.execute(&self.disk);
            self.note_failure(shard, &result);
            if result.as_ref().is_err_and(|error| !error.is_full()) && self.refuses_files() {
                // The journal had something for a segment: a refusal stops it, and only another start brings it back.
                let mut rng = self.rng.fork();
                self.plan_operator(&mut rng);
            }
            self.give(shard, Input::JournalWritten { journal, result });
            self.look_at_journals(shard);
        }
    }

    pub(super) fn start_file(&mut self, shard: usize, lane: Lane, task: FileTask) {
        let queue = self.node.shards[shard].lanes.entry(lane).or_default();
        queue.push_back(task);
        if queue.len() == 1 {
            self.plan_file(shard, lane);
        }
    }

    fn plan_file(&mut self, shard: usize, lane: Lane) {
        if let Some(task) = self.node.shards[shard].lanes.get(&lane).and_then(VecDeque::front) {
            let usual = self.plan.disk.file(&task.op, &mut self.rng);
            let at = self.now + self.slowed(usual);
            self.queue.push(at, Happening::FileEnds { process: self.node.life.process, shard, lane });
        }
    }

    pub(super) fn file_ends(&mut self, shard: usize, lane: Lane) {
        let task = self.node.shards[shard].lanes.get_mut(&lane).and_then(VecDeque::pop_front);
        if let Some(FileTask { token, op }) = task {
            let result = op.execute(&self.disk);
            self.note_failure(shard, &result);
            if matches!(op, FileOp::Reread { .. }) && result.is_ok() {
                self.faults.count("scrub reads");
            }
            self.give(shard, Input::FileDone { token, result });
            self.plan_file(shard, lane);
            if lane == Lane::Journal {
                self.look_at_journals(shard);
            }
        }
    }

    /// What was just done may have made a file.
    fn look_at_journals(&mut self, shard: usize) {
        let node = self.node.config.clone();
        let (max, file_bytes) = (node.journal.max_bytes, node.journal.file_bytes);
        for kind in [JournalKind::Synced, JournalKind::Buffered] {
            let directory = node.journal(ShardId(shard as u16), kind).directory;
            let files = self.disk.count_files(&directory);
            let mut max = max;
            if let Some(moved) = self.moved_files.get_mut(&directory) {
                max = max.max(*moved * file_bytes);
                *moved = files.min(*moved);
            }
            if let Err(text) = journals_keep_their_bound::check(&directory, files, max, file_bytes) {
                self.report(journals_keep_their_bound::NAME, text);
            }
        }
    }

    /// A failure that stops the buffered journal is told to the invariants. A full disk stops none.
    fn note_failure<T>(&mut self, shard: usize, result: &DiskResult<T>) {
        let Err(error) = result else { return };
        let (shard, shards) = (ShardId(shard as u16), self.node.config.shards);
        let buffered = self.node.config.journal(shard, JournalKind::Buffered).directory;
        // A file of it, or its names.
        let is_of_it = [&*error.path, parent(&error.path)].contains(&&*buffered);
        if is_of_it && !error.is_full() {
            self.saw(What::JournalStopped { shard, shards });
        }
    }

    pub(super) fn start_read(&mut self, shard: usize, task: FileTask) {
        let (usual, token) = (self.plan.disk.file(&task.op, &mut self.rng), task.token.0);
        let at = self.now + self.slowed(usual);
        self.node.shards[shard].reads.insert(token, task);
        self.queue.push(at, Happening::ReadEnds { process: self.node.life.process, shard, token });
    }

    pub(super) fn read_ends(&mut self, shard: usize, token: u64) {
        if let Some(FileTask { token, op }) = self.node.shards[shard].reads.remove(&token) {
            let result = op.execute(&self.disk);
            self.give(shard, Input::FileDone { token, result });
        }
    }

    /// The process dies now: what was under way is done up to some call, and that call in part.
    pub(super) fn tear_what_is_under_way(&mut self) {
        let mut torn = Vec::new();
        for slot in &mut self.node.shards {
            torn.extend(std::mem::take(&mut slot.journal_writes).into_values().map(UnderWay::Journal));
            let lanes = std::mem::take(&mut slot.lanes).into_values();
            torn.extend(lanes.filter_map(|mut lane| lane.pop_front()).map(|task| UnderWay::File(task.op)));
        }
        while !torn.is_empty() {
            let operation = torn.swap_remove(self.rng.below(torn.len() as u64) as usize);
            let calls = match &operation {
                UnderWay::Journal(write) => {
                    let own = if write.open.is_none() { WRITE_CALLS } else { CALLS_MAX };
                    own + DATA_CALLS * write.data.len() as u64
                }
                UnderWay::File(_) => CALLS_MAX,
            };
            self.disk.cut_after(self.rng.within(0..=calls));
            match operation {
                UnderWay::Journal(write) => drop(write.execute(&self.disk)),
                UnderWay::File(op) => drop(op.execute(&self.disk)),
            }
            self.disk.crash();
        }
    }
}
