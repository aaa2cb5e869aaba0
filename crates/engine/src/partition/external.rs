//! Large batches that go straight into the segments, ahead of the journal, which then only refers to them.
//!
//! The entries of one journal write: those before them are applied, so the log knows where they go. What waits for a flush
//! goes with them. Nobody else may sync the logs meanwhile: a sync that failed would take along what this write relies on.

use bytes::Bytes;
use lockgate_consensus::{entry_of, external_body};
use lockgate_storage::journal::{DataWrite, JournalKind, Sequence};
use lockgate_storage::segment::StoredBatch;
use lockgate_wire::{LogIndex, Term};

use super::Partition;
use super::entry::{self, Content, External, Stamp};
use crate::core::Core;

/// So many journal writes may wait for a flush and go along with what is written ahead: more than a partition has waiting
/// at its bound, unless that was raised.
const MAY_WAIT_WRITES: u64 = 20;

/// Entries of one journal write whose data goes ahead of it.
pub(crate) struct Ahead {
    /// What their records hold instead.
    pub(crate) bodies: Vec<(Sequence, Vec<Bytes>)>,
    pub(crate) data: Vec<DataWrite>,
}

/// An entry with batches, taken apart.
struct Large {
    sequence: Sequence,
    body: Vec<Bytes>,
    index: LogIndex,
    term: Term,
    batches: Vec<(Stamp, Bytes)>,
}

impl Large {
    /// `None`: it has no batches.
    fn of(sequence: Sequence, body: Vec<Bytes>) -> Option<Self> {
        let entry = entry_of(&body)?;
        match entry::decode(entry.context, entry.data) {
            Ok(Content::Batches(batches)) => {
                Some(Self { sequence, body, index: entry.index, term: entry.term, batches })
            }
            _ => None,
        }
    }

    fn stored(&self) -> impl Iterator<Item = StoredBatch> {
        let (index, term) = (self.index, self.term);
        self.batches.iter().map(move |(stamp, batch)| {
            let Stamp { base_offset, append_time, count, .. } = *stamp;
            StoredBatch { index, term, append_time, base_offset, count, batch: batch.clone() }
        })
    }
}

impl Partition {
    /// Has the batches of these entries, which the next journal write brings, written ahead of it. `None`: they go into
    /// the journal.
    pub(crate) fn write_ahead(&mut self, core: &Core, entries: Vec<(Sequence, Vec<Bytes>)>) -> Option<Ahead> {
        if !self.may_write_ahead(core) {
            return None;
        }
        let mut end = self.log.end();
        // Entries that are carried forward may be among them: the log has those already.
        let continues = |entry: &Large| match entry.batches.first().zip(entry.batches.last()) {
            Some(((first, _), (last, _))) if first.base_offset == end => {
                end = last.base_offset.plus(u64::from(last.count));
                true
            }
            _ => false,
        };
        let entries = entries.into_iter().filter_map(|(sequence, body)| Large::of(sequence, body));
        let entries: Vec<Large> = entries.filter(continues).collect();
        if entries.is_empty() {
            return None;
        }
        let batches: Vec<StoredBatch> = entries.iter().flat_map(Large::stored).collect();
        let ahead = self.log.plan_ahead(&batches);
        let mut places = ahead.places.into_iter();
        let refer = |entry: Large| {
            let external = entry.batches.into_iter().zip(places.by_ref());
            let external: Vec<External> =
                external.map(|((stamp, batch), place)| External { stamp, place, header: batch }).collect();
            let (context, data) = entry::external(&external);
            Some((entry.sequence, external_body(&entry.body, context, data)?))
        };
        let bodies = entries.into_iter().filter_map(refer).collect();
        Some(Ahead { bodies, data: ahead.writes })
    }

    /// What was written ahead is durable, or there was no room for it and the journal has it after all.
    pub(crate) fn ahead_done(&mut self, has_room: bool) {
        self.log.ahead_done(has_room);
    }

    fn may_write_ahead(&self, core: &Core) -> bool {
        self.is_serving()
            && self.journal() == JournalKind::Synced
            && self.upkeep.leaves_logs_alone()
            && !self.log.is_written_ahead()
            && self.log.unflushed_bytes() <= MAY_WAIT_WRITES * u64::from(core.node.journal.max_write_bytes)
            && !self.log.segments.has_failed_sync()
            && !self.log.segments.moves_start_over_what_is_not_durable()
    }

    /// Whether what waits for a flush goes with what is written ahead next.
    pub(super) fn rides_along(&self, core: &Core) -> bool {
        let journal = &core.node.journal;
        self.is_serving()
            && self.journal() == JournalKind::Synced
            && self.upkeep.leaves_logs_alone()
            && self.log.unflushed_bytes() <= MAY_WAIT_WRITES * u64::from(journal.max_write_bytes)
            && self.pipeline.proposed_bytes() >= journal.external_min_bytes
    }

    /// Whether segments that take no more frames may be synced or removed: nothing written ahead relies on their sync.
    pub(super) fn may_seal(&self, core: &Core) -> bool {
        // What is written ahead next syncs them first, and does not wait for somebody else to do it.
        self.may_let_go() && (self.log.segments.closed_are_durable() || !self.rides_along(core))
    }

    /// The same for their removal.
    pub(super) fn may_let_go(&self) -> bool {
        !self.log.is_written_ahead() || self.log.segments.closed_are_durable()
    }
}
