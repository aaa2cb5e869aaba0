//! Reading a log forward from an offset: from memory where memory has it, else from segments with read-ahead.

use std::collections::VecDeque;

use bytes::Bytes;
use lockgate_storage::disk::{DiskResult, FileOp};
use lockgate_storage::segment::{Position, SegmentError, StoredBatch};
use lockgate_wire::Offset;

use crate::limits::READ_AHEAD_BYTES;
use crate::output::FileToken;
use crate::partition::log::Log;

/// A place in a log that moves forward. At most one read of it is under way.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The next offset to be given out.
    next: Offset,
    /// Where the segments go on, when the last read came from there.
    at: Option<Position>,
    /// Read and not given out yet.
    ahead: VecDeque<StoredBatch>,
    /// The read under way: where, and how many bytes were asked for.
    reading: Option<(Position, usize)>,
    /// That read's token.
    token: Option<FileToken>,
    /// Bytes that the next batch needs, when a read was too short for it.
    need: usize,
}

/// What a scan finds at its place.
pub(crate) enum Found {
    /// Batches can be taken.
    Batches,
    /// A read has to be started.
    Read(FileOp),
    /// A read is under way.
    Reading,
    /// Nothing: this is the end of the log.
    End,
    /// The place is not retained any more, or not there yet.
    OutOfRange,
}

impl Scan {
    pub(crate) fn new(next: Offset) -> Self {
        Self { next, at: None, ahead: VecDeque::new(), reading: None, token: None, need: 0 }
    }

    /// A scan that begins at a position in the segments.
    pub(crate) fn at(position: Position) -> Self {
        Self { at: Some(position), ..Self::new(position.offset) }
    }

    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    /// The read that was found to be needed is under way.
    pub(crate) fn started(&mut self, token: FileToken) {
        self.token = Some(token);
    }

    /// Whether this read is the one under way.
    pub(crate) fn reads(&self, token: FileToken) -> bool {
        self.is_reading() && self.token == Some(token)
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Looks for batches and remembers a read that has to be started.
    pub(crate) fn look(&mut self, log: &Log) -> Found {
        if !self.ahead.is_empty() {
            return Found::Batches;
        }
        if self.reading.is_some() {
            return Found::Reading;
        }
        if let Some(op) = self.read(log, self.at) {
            return op;
        }
        self.at = None;
        match self.next {
            next if next < log.start() || next > log.end() => Found::OutOfRange,
            next if next == log.end() => Found::End,
            next if next >= log.tail_start() => Found::Batches,
            next => match self.read(log, log.segments.locate(next)) {
                Some(read) => read,
                // Between the tail and what can be located there is nothing: retention just passed this place.
                None => Found::OutOfRange,
            },
        }
    }

    fn read(&mut self, log: &Log, at: Option<Position>) -> Option<Found> {
        if self.next >= log.tail_start() {
            return None;
        }
        let position = at?;
        let op = log.segments.read(position, READ_AHEAD_BYTES.max(self.need))?;
        let FileOp::Read { len, .. } = op else { return None };
        self.reading = Some((position, len));
        Some(Found::Read(op))
    }

    /// The read ended. A file that is gone is no error while the log has moved on: the next look says what that means.
    /// One that is gone from where the log has it is lost.
    pub(crate) fn arrived(&mut self, log: &Log, result: DiskResult<Bytes>) -> Result<(), SegmentError> {
        let (position, asked) = self.reading.take().expect("one read is under way");
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() && log.segments.locate(self.next) != Some(position) => {
                self.at = None;
                return Ok(());
            }
            Err(error) => return Err(SegmentError::Disk(error)),
        };
        if log.start() > self.next {
            return Ok(()); // Retention passed this place meanwhile.
        }
        let parsed = log.segments.parse(position, asked, bytes)?;
        self.need = parsed.need.unwrap_or(0);
        self.at = Some(parsed.next);
        let next = self.next;
        self.ahead.extend(parsed.batches.into_iter().filter(|batch| batch.end_offset() > next));
        let begins = self.ahead.front().is_none_or(|first| first.base_offset <= next);
        assert!(begins, "segments are contiguous, and a scan begins at or below its offset");
        Ok(())
    }

    /// Size of the first batch that can be taken; 0 when there is none.
    pub(crate) fn first_bytes(&self, log: &Log) -> usize {
        self.ahead.front().or_else(|| log.in_memory(self.next).next()).map_or(0, |batch| batch.batch.len())
    }

    /// Takes batches up to `max_bytes`, the first whatever its size.
    pub(crate) fn take(&mut self, log: &Log, max_bytes: usize) -> Vec<StoredBatch> {
        let mut bytes = 0;
        let mut fits = |batch: &StoredBatch| {
            let is_first = bytes == 0;
            bytes += batch.batch.len();
            is_first || bytes <= max_bytes
        };
        let mut taken: Vec<StoredBatch> = Vec::new();
        if self.ahead.is_empty() {
            taken.extend(log.in_memory(self.next).take_while(|batch| fits(batch)).cloned());
        } else {
            while self.ahead.front().is_some_and(&mut fits) {
                taken.extend(self.ahead.pop_front());
            }
        }
        if let Some(last) = taken.last() {
            self.next = last.end_offset();
        }
        taken
    }
}
