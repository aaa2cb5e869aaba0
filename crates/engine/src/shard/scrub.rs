//! The scrub: the shard's sealed segments are read again, partition after partition, at a bounded rate, with one read at a
//! time under way. After a pass it rests. It gives way to everything that somebody waits for.

use std::collections::btree_map::Range;

use bytes::Bytes;
use lockgate_storage::disk::{DiskResult, FileOp};
use lockgate_storage::segment::Scrub;
use lockgate_wire::{MonoTime, PartitionId};

use super::Shard;
use crate::core::FileOwner;
use crate::limits::{SCRUB_GIVES_WAY_MS, SCRUB_READ_COUNTS_BYTES};
use crate::output::Lane;
use crate::partition::Partition;

const NANOS: u64 = 1_000_000_000;

/// How far the shard's scrub is.
#[derive(Default, Debug)]
pub(super) struct Scrubbing {
    /// The partition that is being read, and where in it. None: the next read begins a pass.
    at: Option<(PartitionId, Scrub)>,
    is_reading: bool,
    /// When the next read may begin.
    next: MonoTime,
}

impl Shard {
    /// Starts the scrub's next read, if one is due.
    pub(super) fn go_on_scrubbing(&mut self) {
        let now = self.core.now.mono;
        if self.scrub_deadline().is_none_or(|at| at > now) {
            return;
        }
        if self.wants_room() || self.without_room() != (false, 0) {
            self.scrubbing.next = now.plus_ms(SCRUB_GIVES_WAY_MS);
            return;
        }
        let settings = self.core.node.scrub;
        let place = self.scrubbing.at.take();
        let from = place.as_ref().map_or_else(PartitionId::default, |(id, _)| *id);
        let Some((id, scrub, op)) = next_read(self.partitions.range(from..), place) else {
            self.scrubbing.next = now.plus_ms(settings.every_ms);
            return;
        };
        let FileOp::Reread { len, .. } = op else { unreachable!("a scrub only reads") };
        let counts = (len as u64).max(SCRUB_READ_COUNTS_BYTES);
        self.scrubbing.next = MonoTime(now.0.saturating_add(counts.saturating_mul(NANOS) / settings.bytes_per_second));
        self.scrubbing.at = Some((id, scrub));
        self.scrubbing.is_reading = true;
        self.core.file(Lane::Background, FileOwner::Scrub, op);
    }

    /// When the next read is due, if one will be.
    pub(super) fn scrub_deadline(&self) -> Option<MonoTime> {
        let is_on = self.core.node.scrub.bytes_per_second > 0 && self.was_ready && self.stopping.is_none();
        (is_on && !self.scrubbing.is_reading).then_some(self.scrubbing.next)
    }

    /// The read under way ended.
    pub(super) fn scrub_read(&mut self, result: DiskResult<Bytes>) {
        self.scrubbing.is_reading = false;
        self.core.metrics.scrub_bytes += result.as_ref().map_or(0, Bytes::len) as u64;
        // A partition that is gone was deleted meanwhile.
        if let Some((id, scrub)) = &mut self.scrubbing.at
            && let Some(partition) = self.partitions.get_mut(id)
        {
            partition.scrubbed(&mut self.core, scrub, result);
        }
    }
}

/// The next read from this place on, in the first partition that has one.
fn next_read(
    partitions: Range<'_, PartitionId, Partition>,
    place: Option<(PartitionId, Scrub)>,
) -> Option<(PartitionId, Scrub, FileOp)> {
    let (at, mut place) = place.unzip();
    partitions.into_iter().find_map(|(id, partition)| {
        let mut scrub = place.take().filter(|_| at == Some(*id)).unwrap_or_default();
        partition.scrub(&mut scrub).map(|op| (*id, scrub, op))
    })
}
