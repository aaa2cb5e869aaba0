//! Sealing: making a segment durable, ahead of the freeing of journal files, one at a time.

use super::summary::Segment;
use super::{Maintenance, Segments, index, index_path, log_path};
use crate::disk::{DiskError, FileOp};

impl Segments {
    /// Plans to seal the oldest unsealed segment that takes no more frames: sync its log, then put the seal beside it. To
    /// be answered by [`Segments::sealed`], with the error if one of them fails: the plan is not to be repeated as it is.
    /// `None` when there is none, or while another seal or removal is in flight.
    pub fn next_seal(&mut self) -> Option<Vec<FileOp>> {
        if self.in_flight.is_some() || self.sync_failed {
            return None;
        }
        let segment = self.oldest_unsealed()?;
        if self.written_bytes(segment) < segment.bytes {
            return None;
        }
        let path = log_path(&self.config.directory, segment.base);
        let seal = FileOp::Replace {
            path: index_path(&self.config.directory, segment.base),
            pieces: vec![index::encode(segment)],
        };
        self.in_flight = Some(Maintenance::Seal(segment.base));
        Some(vec![FileOp::Sync { path }, seal])
    }

    /// Whether a segment that takes no more frames is not sealed yet.
    pub fn has_rolled(&self) -> bool {
        self.oldest_unsealed().is_some()
    }

    fn oldest_unsealed(&self) -> Option<&Segment> {
        let closed = self.segments.len().saturating_sub(1);
        self.segments.iter().take(closed).find(|segment| !segment.sealed)
    }

    /// Plans to sync the logs that no seal covers, ahead of the freeing of journal files. What was planned to be appended
    /// before is durable afterwards, if it was carried out in that order. A failure has to be told by
    /// [`Segments::sync_failed`].
    pub fn sync_unsealed(&self) -> Vec<FileOp> {
        let unsealed = self.segments.iter().filter(|segment| !segment.sealed);
        unsealed.map(|segment| FileOp::Sync { path: log_path(&self.config.directory, segment.base) }).collect()
    }

    /// A sync of a log failed: a later one that succeeds would prove nothing, so nothing is durable from here on until the
    /// segments are opened again.
    pub fn sync_failed(&mut self) {
        self.sync_failed = true;
    }

    /// Whether a sync of a log has failed since the segments were opened.
    pub fn has_failed_sync(&self) -> bool {
        self.sync_failed
    }

    /// Says how the seal ended. It may be planned again unless a sync of the log failed, or of its directory.
    ///
    /// # Panics
    /// If no seal is in flight.
    pub fn sealed(&mut self, result: Result<(), &DiskError>) {
        let Some(Maintenance::Seal(base)) = self.in_flight.take() else { panic!("no seal is in flight") };
        let at = self.segments.binary_search_by_key(&base, |segment| segment.base);
        let at = at.expect("nothing is removed while a seal is in flight");
        match result {
            Ok(()) => {
                self.segments[at].sealed = true;
                self.segments[at].durable_bytes = self.segments[at].bytes;
                self.advance_synced();
            }
            Err(error) => {
                // The seal itself is written anew each time.
                let beside = format!("{}.new", index_path(&self.config.directory, base));
                self.sync_failed |= error.is_sync() && *error.path != *beside;
            }
        }
    }

    /// Moves the synced end over the sealed segments at the front.
    pub(super) fn advance_synced(&mut self) {
        if let Some(last) = self.segments.iter().take_while(|segment| segment.sealed).last() {
            self.synced = last.end();
        }
    }
}
