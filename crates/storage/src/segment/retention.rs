//! Retention: whole segments go from the front. Also the new beginning after a snapshot.
//!
//! The new start is durable before a file is removed. The order of the removals is then free: what a crash leaves lies
//! below the start, and the next open removes it. It also frees retention from sealing: a segment that was never synced
//! may go, since no recovery looks for it.

use lockgate_wire::{Offset, WallMs};

use super::read::Position;
use super::summary::Segment;
use super::{LogPoint, Maintenance, Segments, index_path, log_path, start};
use crate::disk::{FileOp, Path};

/// How long records are kept. `None` is without bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retention {
    /// A segment goes when its latest append is at least this old, in milliseconds. By the leaders' clocks: a producer's
    /// clock neither keeps nor deletes data.
    pub max_age_ms: Option<u64>,
    /// A segment goes when those after it still have at least this many bytes.
    pub max_bytes: Option<u64>,
}

impl Segments {
    /// Plans to remove the segments that `policy` lets go, none with offsets from `keep_from` on. To be answered by
    /// [`Segments::expired`]; the start moves at once. Nothing while another seal or removal is in flight.
    ///
    /// The last segment goes by age too; the log is then empty and goes on at its end.
    pub fn expire(&mut self, now: WallMs, policy: &Retention, keep_from: Option<Offset>) -> Vec<FileOp> {
        if self.in_flight.is_some() {
            return Vec::new();
        }
        let mut kept_bytes = self.size_bytes();
        let mut gone = 0;
        for segment in &self.segments {
            kept_bytes -= segment.bytes;
            let needed = keep_from.is_some_and(|offset| segment.end > offset);
            let in_writing = self.written_bytes(segment) < segment.bytes;
            let too_old = policy.max_age_ms.is_some_and(|max| is_older(segment, now, max));
            let too_much = policy.max_bytes.is_some_and(|max| kept_bytes >= max) && gone + 1 < self.segments.len();
            if needed || in_writing || !(too_old || too_much) {
                break;
            }
            gone += 1;
        }
        let removed: Vec<Segment> = self.segments.drain(..gone).collect();
        match removed.last() {
            Some(last) => self.begin_at(last.end(), &removed),
            None => Vec::new(),
        }
    }

    /// Plans to drop everything and begin at `start`, the place of an installed snapshot. To be answered by
    /// [`Segments::expired`].
    ///
    /// # Panics
    /// If `start` is before the end (what lies there is no older log then, and would be taken for one after a crash), or
    /// anything is in flight.
    pub fn reset(&mut self, start: LogPoint) -> Vec<FileOp> {
        assert!(start.offset >= self.end_offset(), "a snapshot at {start:?} is behind the log's end {:?}", self.end());
        assert!(self.in_flight.is_none() && self.unwritten.is_empty(), "a reset while plans are in flight");
        let removed: Vec<Segment> = self.segments.drain(..).collect();
        self.begin_at(start, &removed)
    }

    /// Says that the removal was carried out. One that failed may be repeated as it is.
    ///
    /// # Panics
    /// If no removal is in flight.
    pub fn expired(&mut self) {
        assert_eq!(self.in_flight.take(), Some(Maintenance::Expire), "no removal is in flight");
        if self.synced.offset < self.start.offset {
            self.synced = self.start;
        }
        self.advance_synced();
    }

    fn begin_at(&mut self, start: LogPoint, removed: &[Segment]) -> Vec<FileOp> {
        self.start = start;
        if self.segments.is_empty() {
            self.written = Position::first(start.offset);
        }
        self.in_flight = Some(Maintenance::Expire);
        let directory = &self.config.directory;
        let files = |segment: &Segment| [log_path(directory, segment.base), index_path(directory, segment.base)];
        let paths: Vec<Path> = removed.iter().flat_map(files).collect();
        vec![start::replace(directory, start), FileOp::Remove { paths }]
    }
}

fn is_older(segment: &Segment, now: WallMs, max_age_ms: u64) -> bool {
    let age = now.0.saturating_sub(segment.max_append_time.0);
    u64::try_from(age).is_ok_and(|age| age >= max_age_ms)
}
