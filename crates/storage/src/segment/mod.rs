//! Segments: a partition's committed, applied batches in the form in which they are read.
//!
//! Owns the files `<base offset, 20 digits>.log` (frames), `<base offset>.index` (a seal with a sparse index) and `start`
//! (where the log begins) in the partition's directory. Lives in the shard of its partition; pure: it plans
//! [`FileOp`](crate::disk::FileOp)s, which the caller carries out in the order in which they were planned, and hears of them by
//! [`Segments::written`], [`Segments::sealed`] and [`Segments::expired`].
//!
//! The rule that recovery rests on: what is not in a sealed segment is still in the journal. So whatever is unsealed may
//! be cut at the first bad frame, and nothing that was sealed is ever cut: a fault there is damage, and is named. Frames
//! that were written ahead of the journal are the exception: it refers to them, and what it refers to is not cut either.
//!
//! Memory: 24 bytes per started `index_interval_bytes` of log and about 120 per segment: at 256 KiB and 1 GiB segments,
//! 96 KiB per GiB of log, and never more than one entry per frame.

mod append;
mod external;
mod frame;
mod index;
pub mod inspect;
mod open;
mod read;
mod retention;
mod scrub;
mod seal;
mod start;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use crate::disk::{DiskError, Path};
pub use external::{Ahead, Place};
pub use open::{Cut, Limit, OpenReport, Survey, sealed_end};
pub use read::{Parsed, Position};
pub use retention::Retention;
pub use scrub::{Damage, Scrub, ScrubPlace, Scrubbed};
use summary::Segment;

/// Default distance of two entries of a segment's index.
pub const INDEX_INTERVAL_BYTES: u32 = 256 * 1024;

/// Where a partition's segments are and how they are divided.
#[derive(Clone, Debug)]
pub struct SegmentConfig {
    /// The partition's directory.
    pub directory: Path,
    /// A segment is closed before it would grow beyond this. Only a single entry larger than it makes a larger one.
    pub segment_bytes: u64,
    /// Bytes of log per entry of the index; [`INDEX_INTERVAL_BYTES`] by default.
    pub index_interval_bytes: u32,
}

/// A batch with what the log knows about it: the content of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredBatch {
    /// The Raft entry it came in. Several small batches may share one.
    pub index: LogIndex,
    /// The entry's term.
    pub term: Term,
    /// When the leader appended it.
    pub append_time: WallMs,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// Its records, 1 or more.
    pub count: u32,
    /// The batch as its producer sent it.
    pub batch: Bytes,
}

impl StoredBatch {
    /// The offset after its last record.
    pub fn end_offset(&self) -> Offset {
        self.base_offset.plus(u64::from(self.count))
    }
}

/// A place in the log between two entries: the next offset, and the entry before it (0 and 0 when there is none).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogPoint {
    /// The first offset after this place.
    pub offset: Offset,
    /// Index of the last entry with records before this place.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
}

/// Why segments cannot be opened or read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The disk failed.
    Disk(DiskError),
    /// Bytes that were durable are gone or changed. Nothing was cut or removed.
    Damaged {
        /// The file.
        path: Path,
        /// The byte from which it is bad.
        position: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// A file of a later release. Nothing was cut or removed.
    UnknownVersion {
        /// The file.
        path: Path,
        /// The version it states.
        found: u8,
        /// The latest version that is known.
        known: u8,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Damaged { path, position, reason } => {
                let what_to_do = "restore it from a copy or, where there are more replicas, from its peers";
                write!(f, "{path} is damaged at byte {position}: {reason}; {what_to_do}")
            }
            Self::UnknownVersion { path, found, known } => {
                write!(f, "{path} has format version {found}, this release knows {known}: start a later release")
            }
        }
    }
}
impl std::error::Error for SegmentError {}

impl From<DiskError> for SegmentError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// A partition's segments. See the module for the rules.
#[derive(Debug)]
pub struct Segments {
    config: SegmentConfig,
    /// Where the log begins: the end of what retention removed.
    start: LogPoint,
    /// Oldest first, contiguous from `start`, each with at least one frame. The last one grows unless it is sealed.
    segments: VecDeque<Segment>,
    /// Ends of the appends that were planned and are not yet confirmed, oldest first. As many as the caller has in
    /// flight.
    unwritten: VecDeque<Position>,
    /// Everything before is in the files and may be read.
    written: Position,
    /// Everything before is in sealed segments, or durably removed.
    synced: LogPoint,
    /// The one seal or removal in flight.
    in_flight: Option<Maintenance>,
    /// A sync of a log failed: what it held may never reach the device, so nothing is sealed until the next open.
    sync_failed: bool,
}

/// A plan that excludes others of its kind until it is confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Maintenance {
    /// The segment with this base is being sealed.
    Seal(Offset),
    /// The start moves here.
    Start(LogPoint),
    /// Files before the start are being removed.
    Removal,
}

impl Segments {
    /// From the next segment on, they are divided by this size.
    pub fn set_segment_bytes(&mut self, bytes: u64) {
        self.config.segment_bytes = bytes;
    }
    /// The first offset that is kept. Never falls, also over restarts.
    pub fn start_offset(&self) -> Offset {
        self.start.offset
    }
    /// The offset of the next record to be appended.
    pub fn end_offset(&self) -> Offset {
        self.end().offset
    }
    /// The end of the log, planned writes included; the start of an empty one.
    pub fn end(&self) -> LogPoint {
        self.segments.back().map_or(self.start, Segment::end)
    }
    /// Index of the last entry that was appended, ever; `None` if there was none.
    pub fn end_index(&self) -> Option<LogIndex> {
        Some(self.end().index).filter(|index| index.0 > 0)
    }
    /// Term of the last entry that was appended, ever; `None` if there was none.
    pub fn end_term(&self) -> Option<Term> {
        self.end_index().map(|_| self.end().term)
    }
    /// The offset up to which the log can be read from the files.
    pub fn written_offset(&self) -> Offset {
        self.written.offset
    }
    /// Everything before is in sealed segments or durably removed: journal records of these entries may go.
    pub fn synced_end(&self) -> LogPoint {
        self.synced
    }
    /// Bytes of all logs, planned writes included.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
    /// Number of segments.
    pub fn count(&self) -> usize {
        self.segments.len()
    }
    /// The latest append time of what is kept.
    pub fn max_append_time(&self) -> Option<WallMs> {
        self.segments.iter().map(|segment| segment.max_append_time).max()
    }
    /// The greatest record timestamp of what is kept.
    pub fn max_timestamp(&self) -> Option<i64> {
        self.segments.iter().map(|segment| segment.max_timestamp).max()
    }
}

/// The path of a segment's frames.
fn log_path(directory: &str, base: Offset) -> Path {
    format!("{directory}/{base:020}.log").into()
}

/// The path of a segment's seal and index.
fn index_path(directory: &str, base: Offset) -> Path {
    format!("{directory}/{base:020}.index").into()
}
