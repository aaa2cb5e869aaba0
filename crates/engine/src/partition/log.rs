//! A partition's log as it is served: the end in memory, the rest in segments.
//!
//! Batches enter when they are applied. They stay in memory until their segment has them, and a bounded amount longer,
//! for readers at the end. Everything below the flushed end can be read from segments, so the two overlap and a reader
//! that crosses from one to the other misses nothing.

use std::collections::VecDeque;

use lockgate_storage::disk::FileOp;
use lockgate_storage::segment::{Ahead, Segments, StoredBatch};
use lockgate_wire::{MonoTime, Offset, WallMs};

use crate::limits::{FLUSH_AFTER_MS, FLUSH_BYTES};

/// The log of one partition.
pub(crate) struct Log {
    pub(crate) segments: Segments,
    /// Applied batches, contiguous, up to the end of the log.
    tail: VecDeque<StoredBatch>,
    tail_bytes: u64,
    /// The offset after the last applied record. Segments may be planned beyond it: written ahead of the journal.
    end: Offset,
    unflushed_bytes: u64,
    /// Since when the oldest unflushed batch waits.
    unflushed_since: Option<MonoTime>,
    /// The flush under way, up to an offset.
    flush: Option<(Offset, Vec<FileOp>)>,
    /// What is on its way to the segments ahead of the journal, behind the flush if there is one, up to the end of what they
    /// have planned.
    ahead: Option<Progress>,
    last_append_time: WallMs,
}

/// When a flush is worth while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// Whatever there is.
    All,
    /// From a size on.
    Large,
    /// Only what has waited too long: the rest is about to go with something else.
    Late,
}

/// How far batches are that the journal write under way refers to, and applied ones that waited before them.
#[derive(Debug)]
enum Progress {
    /// They are being written. As appends, in case that there is no room for them.
    Started(Vec<FileOp>),
    /// They are durable, and about to be applied.
    Landed,
    /// There was no room for them: they are appended like all others, once they are applied.
    Refused(Vec<FileOp>),
}

impl Log {
    /// A log over recovered segments, with nothing in memory.
    pub(crate) fn new(segments: Segments) -> Self {
        let last_append_time = segments.max_append_time().unwrap_or_default();
        Self {
            end: segments.end_offset(),
            segments,
            tail: VecDeque::new(),
            tail_bytes: 0,
            unflushed_bytes: 0,
            unflushed_since: None,
            flush: None,
            ahead: None,
            last_append_time,
        }
    }

    /// The first offset that can be read.
    pub(crate) fn start(&self) -> Offset {
        self.segments.start_offset()
    }

    /// The offset after the last applied record: the high watermark.
    pub(crate) fn end(&self) -> Offset {
        self.end
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
        assert_eq!(batch.base_offset, self.end, "an applied batch continues the log");
        let bytes = batch.batch.len() as u64;
        self.last_append_time = self.last_append_time.max(batch.append_time);
        self.tail_bytes += bytes;
        self.end = batch.end_offset();
        self.unflushed_bytes += bytes;
        self.unflushed_since.get_or_insert(now);
        self.tail.push_back(batch);
        if self.has_landed() && self.end >= self.segments.end_offset() {
            self.ahead = None;
            self.note_written(self.segments.end_offset(), now);
        }
    }

    fn unplanned(&self) -> impl Iterator<Item = &StoredBatch> {
        self.behind(self.segments.end_offset())
    }

    /// The batches in memory that end behind an offset.
    fn behind(&self, offset: Offset) -> impl Iterator<Item = &StoredBatch> {
        self.tail.range(self.tail.partition_point(|batch| batch.end_offset() <= offset)..)
    }

    /// When the next flush is due by time, if something waits for one.
    pub(crate) fn flush_deadline(&self) -> Option<MonoTime> {
        if self.is_under_way() { None } else { self.unflushed_since.map(|since| since.plus_ms(FLUSH_AFTER_MS)) }
    }

    /// Whether anything is on its way to the segments.
    pub(crate) fn is_under_way(&self) -> bool {
        self.flush.is_some() || self.ahead.is_some()
    }

    /// Whether anything is on its way ahead of the journal.
    pub(crate) fn is_written_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Whether batches that are applied now were written ahead of the journal, so that no start will read them there.
    pub(crate) fn has_landed(&self) -> bool {
        matches!(self.ahead, Some(Progress::Landed))
    }

    /// Plans to write what is not in segments yet, if there is enough of it for `how`, or it waited long enough.
    pub(crate) fn plan_flush(&mut self, now: MonoTime, how: Flush) -> Vec<FileOp> {
        if self.flush.is_none()
            && self.end >= self.segments.end_offset()
            && let Some(Progress::Refused(appends)) = self.ahead.take_if(|ahead| matches!(ahead, Progress::Refused(_)))
        {
            self.flush = Some((self.end, appends.clone()));
            return appends;
        }
        let is_enough = match how {
            Flush::All => true,
            Flush::Large => self.unflushed_bytes >= FLUSH_BYTES,
            Flush::Late => false,
        };
        let due = is_enough || self.flush_deadline().is_some_and(|at| at <= now);
        if self.is_under_way() || self.unflushed_bytes == 0 || !due {
            return Vec::new();
        }
        let batches: Vec<StoredBatch> = self.unplanned().cloned().collect();
        let appends = self.segments.append(&batches);
        self.flush = Some((self.end, appends.clone()));
        appends
    }

    /// Plans to write batches ahead of the journal, behind all that waits. They continue the log, which is all in the
    /// journal. What a flush is about to write is written here too: whichever is later changes nothing.
    pub(crate) fn plan_ahead(&mut self, batches: &[StoredBatch]) -> Ahead {
        let waiting: Vec<StoredBatch> = self.unplanned().cloned().collect();
        // One that an earlier such write has made durable may still be on its way.
        let flush = self.flush.as_ref().filter(|(end, _)| *end > self.segments.written_offset());
        let flush = flush.map_or(&[][..], |(_, appends)| appends);
        let ahead = self.segments.append_ahead(flush, &waiting, batches);
        self.ahead = Some(Progress::Started(ahead.clone().into_appends()));
        ahead
    }

    /// What was planned ahead is durable, or had no room.
    pub(crate) fn ahead_done(&mut self, has_room: bool) {
        let Some(Progress::Started(appends)) = self.ahead.take() else { return };
        self.ahead = Some(if has_room {
            self.segments.durable();
            Progress::Landed
        } else {
            Progress::Refused(appends)
        });
    }

    /// The planned flush is with the operating system.
    pub(crate) fn flush_done(&mut self, now: MonoTime) {
        if let Some((end, _)) = self.flush.take() {
            self.note_written(end, now);
        }
    }

    fn note_written(&mut self, end: Offset, now: MonoTime) {
        self.segments.written(end);
        self.unflushed_bytes = self.behind(self.segments.written_offset()).map(|batch| batch.batch.len() as u64).sum();
        self.unflushed_since = (self.unflushed_bytes > 0).then_some(now);
    }

    /// Lets go of flushed batches above what memory may keep.
    pub(crate) fn trim(&mut self, keep_bytes: u64) {
        let written = self.segments.written_offset();
        while self.tail_bytes > keep_bytes {
            let Some(batch) = self.tail.pop_front_if(|batch| batch.end_offset() <= written) else { break };
            self.tail_bytes -= batch.batch.len() as u64;
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
