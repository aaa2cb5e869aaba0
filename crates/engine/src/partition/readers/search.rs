//! Searches for the first record with a timestamp, through segments and memory.

use lockgate_storage::disk::FileOp;
use lockgate_storage::segment::StoredBatch;
use lockgate_wire::batch::{self, BatchHeader};
use lockgate_wire::{Offset, WallMs};

use super::Subscribe;
use super::scan::{Found, Scan};
use crate::limits::{MAX_DECOMPRESSED_BYTES, READ_AHEAD_BYTES};
use crate::mesh::Origin;
use crate::partition::log::Log;

/// What the search is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// A subscription that starts there.
    Subscribe(Subscribe),
    /// An answer to ListOffsets.
    Offsets(Origin),
}

impl Goal {
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Subscribe(subscribe) => subscribe.origin,
            Self::Offsets(origin) => *origin,
        }
    }
}

/// A search under way.
pub(crate) struct Search {
    pub(crate) goal: Goal,
    time: WallMs,
    pub(super) scan: Scan,
}

/// How far a search came.
pub(super) enum Searched {
    Read(FileOp),
    Reading,
    /// The first record with this timestamp or a later one, and its timestamp.
    Ended(Option<(Offset, i64)>),
}

impl Search {
    pub(crate) fn new(log: &Log, time: WallMs, goal: Goal) -> Self {
        let scan = match log.segments.locate_time(time.0) {
            Some(position) if position.offset <= log.end() => Scan::at(position),
            // Nothing that a segment has is late enough: what is left is in memory. What is written ahead does not count yet.
            _ => Scan::new(log.tail_start()),
        };
        Self { goal, time, scan }
    }

    pub(super) fn run(&mut self, log: &Log) -> Searched {
        let mut is_moved = false;
        loop {
            match self.scan.look(log) {
                Found::Read(op) => return Searched::Read(op),
                Found::Reading => return Searched::Reading,
                Found::End => return Searched::Ended(None),
                // Retention passed the place: everything that is left is at or after the new start. Not there either,
                // it is nowhere.
                Found::OutOfRange if is_moved => return Searched::Ended(None),
                Found::OutOfRange => {
                    is_moved = true;
                    self.scan = Scan::new(log.start());
                }
                Found::Batches => {
                    if let Some(found) = self.scan.take(log, READ_AHEAD_BYTES).iter().find_map(|b| self.find_in(b)) {
                        return Searched::Ended(Some(found));
                    }
                }
            }
        }
    }

    /// The first record in the batch that is late enough. A batch whose records cannot be read counts by its header.
    fn find_in(&self, stored: &StoredBatch) -> Option<(Offset, i64)> {
        let header = BatchHeader::parse(&stored.batch).ok()?;
        if header.max_timestamp < self.time.0 {
            return None;
        }
        let first = (stored.base_offset, header.max_timestamp);
        let Ok(decoded) = batch::decode(stored.batch.clone(), MAX_DECOMPRESSED_BYTES) else { return Some(first) };
        let late = decoded.records.iter().enumerate().find(|(_, (_, record))| record.timestamp_ms >= self.time.0);
        Some(late.map_or(first, |(at, (_, record))| (stored.base_offset.plus(at as u64), record.timestamp_ms)))
    }
}
