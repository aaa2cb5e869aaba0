//! Reading: from an offset or a time to a place, from a place to bytes, from bytes to batches.
//!
//! An index is needed once, to begin; a reader then goes on from [`Parsed::next`].

use std::cmp::Ordering;

use bytes::Bytes;
use lockgate_wire::Offset;

use super::frame::{self, Fault, VERSION_AHEAD};
use super::summary::Segment;
use super::{SegmentError, Segments, StoredBatch, log_path};
use crate::disk::FileOp;

/// Where a frame begins or will begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The base offset of its segment.
    pub segment: Offset,
    /// The byte within the segment's log.
    pub byte: u64,
    /// The frame's base offset.
    pub offset: Offset,
}

impl Position {
    /// The first frame of a segment.
    pub(super) fn first(base: Offset) -> Self {
        Self { segment: base, byte: 0, offset: base }
    }
}

/// What was found in the bytes of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The whole batches, slices of the bytes that were read.
    pub batches: Vec<StoredBatch>,
    /// Where to go on.
    pub next: Position,
    /// The bytes that the next batch takes, when not even one fitted. Without one there may be no batch either, if only
    /// filler was read.
    pub need: Option<usize>,
}

impl Segments {
    /// The largest known position at or below `offset`; the batches before `offset` are to be skipped. `None` when
    /// `offset` is not between the start and [`Segments::written_offset`].
    pub fn locate(&self, offset: Offset) -> Option<Position> {
        if offset < self.start.offset || offset >= self.written.offset {
            return None;
        }
        let after = self.segments.partition_point(|segment| segment.base <= offset);
        Some(self.segments[after.checked_sub(1)?].locate(offset))
    }

    /// A position before which every record is older than `timestamp`, so that reading on from there finds the first
    /// batch whose greatest timestamp is not. `None` when there is no such batch. It may still be on its way to the file.
    pub fn locate_time(&self, timestamp: i64) -> Option<Position> {
        let segment = self.segments.iter().find(|segment| segment.max_timestamp >= timestamp)?;
        Some(segment.locate_time(timestamp))
    }

    /// Plans to read up to `max_bytes` of what is written. `None` when there is nothing: at the end, or because retention
    /// removed the segment; the reader then compares its next offset with start and end and locates it anew.
    ///
    /// A file may be removed while its read is on its way: one that is missing then (`is_missing`) means the same.
    pub fn read(&self, position: Position, max_bytes: usize) -> Option<FileOp> {
        let at = self.settle(position);
        let left = self.written_bytes(self.segment(at.segment)?).checked_sub(at.byte).filter(|left| *left > 0)?;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(max_bytes);
        Some(FileOp::Read { path: log_path(&self.config.directory, at.segment), offset: at.byte, len })
    }

    /// Takes the batches out of `bytes`, the answer to a read of `asked` bytes that was planned at `position`.
    ///
    /// Whole batches only, each checked. Damage behind good batches is reported by the next call.
    pub fn parse(&self, position: Position, asked: usize, bytes: Bytes) -> Result<Parsed, SegmentError> {
        let at = self.settle(position);
        let segment = self.segment(at.segment);
        if bytes.len() < asked {
            return Err(self.damage(at, bytes.len(), "the file is shorter than what was written to it"));
        }
        let mut batches: Vec<StoredBatch> = Vec::new();
        let mut next = at;
        let mut rest = bytes;
        let end = segment.map_or(0, |segment| self.written_bytes(segment));
        let fault = loop {
            match frame::decode(&rest) {
                Ok(frame) if frame.batch.base_offset == next.offset => {
                    drop(rest.split_to(frame.bytes));
                    next.byte += frame.bytes as u64;
                    next.offset = frame.batch.end_offset();
                    batches.push(frame.batch);
                }
                Ok(_) => break Fault::Bad("a whole frame of another place"),
                Err(fault) => match frame::filler(&rest, next.byte, fault, next.byte + rest.len() as u64 == end) {
                    Some(len) if len <= rest.len() => {
                        drop(rest.split_to(len));
                        next.byte += len as u64;
                    }
                    Some(len) => break Fault::Incomplete(len),
                    None => {
                        // Too little may be left for a frame: whether it is filler, all of it tells.
                        let left = end.saturating_sub(next.byte) as usize;
                        break match fault {
                            Fault::Incomplete(needed) if needed > left && rest.len() < left => Fault::Incomplete(left),
                            fault => fault,
                        };
                    }
                },
            }
        };
        // Filler alone is no batch, but the reader gets on.
        let need = if next.byte > at.byte { None } else { Some(self.needed(at, segment, fault)?) };
        Ok(Parsed { batches, next: self.settle(next), need })
    }

    /// The bytes that the frame at `at` takes, if there is one.
    fn needed(&self, at: Position, segment: Option<&Segment>, fault: Fault) -> Result<usize, SegmentError> {
        match fault {
            Fault::Incomplete(needed) => match segment {
                Some(segment) if at.byte.saturating_add(needed as u64) > segment.bytes => {
                    Err(self.damage(at, 0, "a frame goes on beyond the end of its segment"))
                }
                _ => Ok(needed),
            },
            Fault::Version(found) => Err(SegmentError::UnknownVersion {
                path: log_path(&self.config.directory, at.segment),
                found,
                known: VERSION_AHEAD,
            }),
            Fault::Bad(reason) => Err(self.damage(at, 0, reason)),
        }
    }

    fn damage(&self, at: Position, ahead: usize, reason: &'static str) -> SegmentError {
        let path = log_path(&self.config.directory, at.segment);
        SegmentError::Damaged { path, position: at.byte.saturating_add(ahead as u64), reason }
    }

    /// The segment with this base.
    fn segment(&self, base: Offset) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&base, |segment| segment.base).ok()?;
        self.segments.get(at)
    }

    /// Crosses to the following segment from the end of one that takes no more frames.
    fn settle(&self, position: Position) -> Position {
        let Ok(at) = self.segments.binary_search_by_key(&position.segment, |segment| segment.base) else {
            return position;
        };
        match self.segments.get(at + 1) {
            Some(next) if position.byte == self.segments[at].bytes => Position::first(next.base),
            _ => position,
        }
    }

    /// The bytes of a segment that are in its file.
    pub(super) fn written_bytes(&self, segment: &Segment) -> u64 {
        match segment.base.cmp(&self.written.segment) {
            Ordering::Less => segment.bytes,
            Ordering::Equal => self.written.byte,
            Ordering::Greater => 0,
        }
    }
}
