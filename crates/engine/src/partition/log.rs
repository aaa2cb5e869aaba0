//! A partition's log as it is served: the end in memory, the rest in segments.
//!
//! Batches enter when they are applied. They stay in memory until their segment has them, and a bounded amount longer,
//! for readers at the end. Everything below the flushed end can be read from segments, so the two overlap and a reader
//! that crosses from one to the other misses nothing.

use std::collections::VecDeque;

use lockgate_storage::disk::FileOp;
use lockgate_storage::segment::{Segments, StoredBatch};
use lockgate_wire::{MonoTime, Offset, WallMs};

use crate::limits::{FLUSH_AFTER_MS, FLUSH_BYTES};

/// The log of one partition.
pub(crate) struct Log {
    pub(crate) segments: Segments,
    /// Applied batches, contiguous, up to the end of the log.
    tail: VecDeque<StoredBatch>,
    tail_bytes: u64,
    /// How many at the front of the tail are in segments.
    flushed: usize,
    unflushed_bytes: u64,
    /// Since when the oldest unflushed batch waits.
    unflushed_since: Option<MonoTime>,
    /// Batches behind the flushed ones that the flush under way writes; 0: none is.
    flushing: usize,
    last_append_time: WallMs,
}

impl Log {
    /// A log over recovered segments, with nothing in memory.
    pub(crate) fn new(segments: Segments) -> Self {
        let last_append_time = segments.max_append_time().unwrap_or_default();
        Self {
            segments,
            tail: VecDeque::new(),
            tail_bytes: 0,
            flushed: 0,
            unflushed_bytes: 0,
            unflushed_since: None,
            flushing: 0,
            last_append_time,
        }
    }

    /// The first offset that can be read.
    pub(crate) fn start(&self) -> Offset {
        self.segments.start_offset()
    }

    /// The offset after the last applied record: the high watermark.
    pub(crate) fn end(&self) -> Offset {
        self.tail.back().map_or_else(|| self.segments.end_offset(), StoredBatch::end_offset)
    }

    /// The first offset that memory has; the end when it has none.
    pub(crate) fn tail_start(&self) -> Offset {
        self.tail.front().map_or_else(|| self.end(), |batch| batch.base_offset)
    }

    pub(crate) fn last_append_time(&self) -> WallMs {
        self.last_append_time
    }

    pub(crate) fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes
    }

    /// Bytes of the log, wherever they are.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.segments.size_bytes() + self.unplanned().map(|batch| batch.batch.len() as u64).sum::<u64>()
    }

    /// Adds an applied batch; it continues the log.
    pub(crate) fn append(&mut self, batch: StoredBatch, now: MonoTime) {
        assert_eq!(batch.base_offset, self.end(), "an applied batch continues the log");
        let bytes = batch.batch.len() as u64;
        self.last_append_time = self.last_append_time.max(batch.append_time);
        self.tail_bytes += bytes;
        self.unflushed_bytes += bytes;
        self.unflushed_since.get_or_insert(now);
        self.tail.push_back(batch);
    }

    fn unplanned(&self) -> impl Iterator<Item = &StoredBatch> {
        self.tail.iter().skip(self.flushed + self.flushing)
    }

    /// When the next flush is due by time, if something waits for one.
    pub(crate) fn flush_deadline(&self) -> Option<MonoTime> {
        if self.flushing > 0 { None } else { self.unflushed_since.map(|since| since.plus_ms(FLUSH_AFTER_MS)) }
    }

    /// Whether a flush is under way.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing > 0
    }

    /// Plans to write what is not in segments yet, if there is enough of it, or it waited long enough, or `now_all`.
    pub(crate) fn plan_flush(&mut self, now: MonoTime, now_all: bool) -> Vec<FileOp> {
        let due = self.unflushed_bytes >= FLUSH_BYTES || self.flush_deadline().is_some_and(|at| at <= now) || now_all;
        if self.flushing > 0 || self.unflushed_bytes == 0 || !due {
            return Vec::new();
        }
        let batches: Vec<StoredBatch> = self.unplanned().cloned().collect();
        self.flushing = batches.len();
        self.segments.append(&batches)
    }

    /// The planned flush is with the operating system.
    pub(crate) fn flush_done(&mut self, now: MonoTime) {
        let written: u64 =
            self.tail.range(self.flushed..self.flushed + self.flushing).map(|b| b.batch.len() as u64).sum();
        self.unflushed_bytes -= written;
        self.flushed += self.flushing;
        self.flushing = 0;
        if let Some(last) = self.flushed.checked_sub(1) {
            self.segments.written(self.tail[last].end_offset());
        }
        self.unflushed_since = (self.flushed < self.tail.len()).then_some(now);
    }

    /// Lets go of flushed batches above what memory may keep.
    pub(crate) fn trim(&mut self, keep_bytes: u64) {
        while self.flushed > 0 && self.tail_bytes > keep_bytes {
            let Some(batch) = self.tail.pop_front() else { break };
            self.tail_bytes -= batch.batch.len() as u64;
            self.flushed -= 1;
        }
    }

    /// Batches in memory from the one that holds `offset`, in order. Empty below the tail and at the end.
    pub(crate) fn in_memory(&self, offset: Offset) -> impl Iterator<Item = &StoredBatch> {
        let at = self.tail.partition_point(|batch| batch.end_offset() <= offset);
        let at = if offset < self.tail_start() { self.tail.len() } else { at };
        self.tail.range(at..)
    }
}

#[cfg(test)]
mod tests;
