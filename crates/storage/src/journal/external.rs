//! Records whose data goes elsewhere: which ones the next write takes, and what becomes of a write whose data found no room.
//!
//! The journal does not know what the data is. It keeps the order: data, durable, then the record that refers to it. When
//! the device has no room for the data, nothing of the write was begun in the journal's own files, which have their room
//! since they were made: the records take their data with them after all.

use bytes::Bytes;

use super::layout::{DueRecord, Pending};
use super::writer::JournalWriter;
use super::{DataWrite, OpenFile, Sequence};
use crate::disk::{DiskError, DiskResult};

/// A write that is taken back if there is no room for its data.
#[derive(Debug)]
pub(super) struct Retractable {
    /// Its records as they were appended.
    records: Vec<Pending>,
    data: Vec<DataWrite>,
    /// Where it begins in its file, and the chain's value there.
    place: (u64, u32),
    open: Option<OpenFile>,
}

impl Retractable {
    /// Bytes that go elsewhere.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data.iter().map(|data| data.bytes as u64).sum()
    }
}

/// What the next write takes elsewhere.
#[derive(Default, Debug)]
pub(super) struct External {
    /// Records of that write as they were appended, first to last; empty: it takes all its data along.
    inside: Vec<Pending>,
    data: Vec<DataWrite>,
}

impl External {
    /// Passes on what is needed to take the write back.
    pub(super) fn start(
        &mut self,
        place: (u64, u32),
        open: Option<&OpenFile>,
    ) -> (Vec<DataWrite>, Option<Retractable>) {
        let Self { inside: records, data } = std::mem::take(self);
        if data.is_empty() {
            return (data, None);
        }
        (data.clone(), Some(Retractable { records, data, place, open: open.cloned() }))
    }
}

impl JournalWriter {
    /// The records that the next write takes; none while it cannot be started. All of them go into one write, whatever is
    /// put elsewhere.
    pub fn due(&self) -> impl Iterator<Item = DueRecord<'_>> {
        let count = if self.can_write() { self.due_records().0 } else { 0 };
        self.pending.iter().take(count).map(Pending::look)
    }

    /// Has data of records that are [`due`](Self::due) written elsewhere: `bodies` refer to it, by sequence. The next
    /// write begins with `data`.
    ///
    /// # Panics
    /// If a record is not due, or was put elsewhere before.
    pub fn put_elsewhere(&mut self, bodies: Vec<(Sequence, Vec<Bytes>)>, data: Vec<DataWrite>) {
        let (count, _) = self.due_records();
        if self.external.data.is_empty() {
            self.external.inside = self.pending.range(..count).cloned().collect();
        }
        let first = self.pending.front().map(|record| record.look().sequence.0);
        for (sequence, body) in bodies {
            let at = first.and_then(|first| sequence.0.checked_sub(first)).filter(|at| *at < count as u64);
            let record = &mut self.pending[at.expect("only what is due is put elsewhere") as usize];
            assert!(record.look().is_entry, "record {sequence} has no data to be put elsewhere");
            *record = record.clone().external(body);
        }
        self.external.data.extend(data);
    }

    /// Whether this is how a write ended whose data found no room: nothing was begun in the journal's own files.
    pub fn is_without_room(&self, result: &DiskResult<()>) -> bool {
        let Err(error) = result else { return false };
        let write = self.in_flight.as_ref().and_then(|write| write.retractable.as_ref());
        let is_of_data =
            |error: &DiskError| write.is_some_and(|write| write.data.iter().any(|data| data.path == error.path));
        error.is_full() && !error.is_sync() && is_of_data(error)
    }

    /// Takes a write back that was not begun: its records wait again, with their data.
    pub(super) fn retract(&mut self, write: Retractable) {
        let file = self.file.as_mut().expect("a write has a file");
        (file.offset, file.chain) = write.place;
        self.unopened = write.open;
        self.files.grew(self.written);
        self.pending_bytes += write.records.iter().map(Pending::weight).sum::<usize>();
        for record in write.records.into_iter().rev() {
            self.pending.push_front(record);
        }
    }
}
