//! What is kept in memory of a segment: its bounds and a sparse index by offset and time.

use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use super::frame::Frame;
use super::{LogPoint, Position};
use crate::disk::BLOCK_BYTES;

/// An entry of the sparse index: what is known where a frame begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// The frame's base offset.
    pub(super) offset: Offset,
    /// Where it begins.
    pub(super) byte: u64,
    /// The greatest record timestamp of the segment's frames before it.
    pub(super) max_timestamp_before: i64,
}

/// A segment. Its first frame, at byte 0, needs no mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) base: Offset,
    pub(super) end: Offset,
    /// Index and term of its last frame.
    pub(super) last_index: LogIndex,
    pub(super) last_term: Term,
    /// Over its records.
    pub(super) max_timestamp: i64,
    /// Over its frames.
    pub(super) max_append_time: WallMs,
    /// Bytes of its frames.
    pub(super) bytes: u64,
    /// In order of offset and byte.
    pub(super) marks: Vec<Mark>,
    /// It is durable and takes no more frames.
    pub(super) sealed: bool,
    /// So many bytes of it, and its name, are durable, sealed or not.
    pub(super) durable_bytes: u64,
}

impl Segment {
    /// A segment that is to get its first frame at `base`.
    pub(super) fn new(base: Offset) -> Self {
        Self {
            base,
            end: base,
            last_index: LogIndex(0),
            last_term: Term(0),
            max_timestamp: i64::MIN,
            max_append_time: WallMs(i64::MIN),
            bytes: 0,
            marks: Vec::new(),
            sealed: false,
            durable_bytes: 0,
        }
    }

    /// Takes account of a frame at the segment's end.
    pub(super) fn add(&mut self, frame: &Frame, index_interval_bytes: u32) {
        let batch = &frame.batch;
        let marked = self.marks.last().map_or(0, |mark| mark.byte);
        if self.bytes > 0 && self.bytes - marked >= u64::from(index_interval_bytes) {
            self.marks.push(Mark {
                offset: batch.base_offset,
                byte: self.bytes,
                max_timestamp_before: self.max_timestamp,
            });
        }
        self.end = batch.end_offset();
        self.last_index = batch.index;
        self.last_term = batch.term;
        self.max_timestamp = self.max_timestamp.max(frame.max_timestamp);
        self.max_append_time = self.max_append_time.max(batch.append_time);
        self.bytes += frame.bytes as u64;
    }

    /// The next frame begins at a block.
    pub(super) fn fill_block(&mut self) {
        self.bytes = self.bytes.next_multiple_of(BLOCK_BYTES as u64);
    }

    /// The place after its last frame.
    pub(super) fn end(&self) -> LogPoint {
        LogPoint { offset: self.end, index: self.last_index, term: self.last_term }
    }

    /// The largest known frame start at or below `offset`, which is not below `base`.
    pub(super) fn locate(&self, offset: Offset) -> Position {
        self.last_of(self.marks.partition_point(|mark| mark.offset <= offset))
    }

    /// The largest known frame start before which every record is older than `timestamp`.
    pub(super) fn locate_time(&self, timestamp: i64) -> Position {
        self.last_of(self.marks.partition_point(|mark| mark.max_timestamp_before < timestamp))
    }

    /// Where the last of the first `marks` marks stands.
    fn last_of(&self, marks: usize) -> Position {
        let Some(last) = marks.checked_sub(1) else { return Position::first(self.base) };
        let Mark { offset, byte, .. } = self.marks[last];
        Position { segment: self.base, byte, offset }
    }
}
