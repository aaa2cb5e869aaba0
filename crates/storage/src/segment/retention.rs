//! Retention: whole segments go from the front.
//!
//! The new start is durable before anybody is told of it, and before a file is removed. The order of the removals is then
//! free: what a crash leaves lies below the start, and the next open removes it. It also frees retention from sealing: a
//! segment that was never synced may go, since no recovery looks for it.

use lockgate_wire::{Offset, WallMs};

use super::read::Position;
use super::summary::Segment;
use super::{Maintenance, Segments, index_path, log_path, start};
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
    /// Plans to move the start over the segments that `policy` lets go, none with offsets from `keep_from` on. To be
    /// answered by [`Segments::started`]. Nothing while another seal or removal is in flight.
    ///
    /// The last segment goes by age too; the log is then empty and goes on at its end.
    pub fn expire(&mut self, now: WallMs, policy: &Retention, keep_from: Option<Offset>) -> Option<FileOp> {
        if self.in_flight.is_some() {
            return None;
        }
        let mut kept_bytes = self.size_bytes();
        let mut start = None;
        for (gone, segment) in self.segments.iter().enumerate() {
            kept_bytes -= segment.bytes;
            let needed = keep_from.is_some_and(|offset| segment.end > offset);
            let in_writing = self.written_bytes(segment) < segment.bytes;
            let too_old = policy.max_age_ms.is_some_and(|max| is_older(segment, now, max));
            let too_much = policy.max_bytes.is_some_and(|max| kept_bytes >= max) && gone + 1 < self.segments.len();
            if needed || in_writing || !(too_old || too_much) {
                break;
            }
            start = Some(segment.end());
        }
        let start = start?;
        self.in_flight = Some(Maintenance::Start(start));
        Some(start::replace(&self.config.directory, start))
    }

    /// Says that the new start is durable: the log begins there now. Gives the removal of what lies before it, to be
    /// answered by [`Segments::expired`].
    ///
    /// # Panics
    /// If no start is in flight.
    pub fn started(&mut self) -> FileOp {
        let Some(Maintenance::Start(start)) = self.in_flight.take() else { panic!("no start is in flight") };
        self.start = start;
        let gone = self.segments.iter().take_while(|segment| segment.end <= start.offset).count();
        let removed: Vec<Segment> = self.segments.drain(..gone).collect();
        if self.written.offset <= start.offset {
            self.written = Position::first(start.offset);
        }
        self.in_flight = Some(Maintenance::Removal);
        let directory = &self.config.directory;
        let files = |segment: &Segment| [log_path(directory, segment.base), index_path(directory, segment.base)];
        let paths: Vec<Path> = removed.iter().flat_map(files).collect();
        FileOp::Remove { paths }
    }

    /// Says that the removal was carried out. One that failed may be repeated as it is.
    ///
    /// # Panics
    /// If no removal is in flight.
    pub fn expired(&mut self) {
        assert_eq!(self.in_flight.take(), Some(Maintenance::Removal), "no removal is in flight");
        if self.synced.offset < self.start.offset {
            self.synced = self.start;
        }
        self.advance_synced();
    }

    /// Whether a segment goes as soon as the new start is durable: nothing may be appended to it.
    pub(super) fn is_going(&self, segment: &Segment) -> bool {
        matches!(self.in_flight, Some(Maintenance::Start(start)) if segment.end <= start.offset)
    }
}

fn is_older(segment: &Segment, now: WallMs, max_age_ms: u64) -> bool {
    let age = now.0.saturating_sub(segment.max_append_time.0);
    u64::try_from(age).is_ok_and(|age| age >= max_age_ms)
}
