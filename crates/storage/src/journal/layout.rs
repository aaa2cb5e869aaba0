//! Records into the pieces of one write: headers and padding are built here, bodies go by reference.

use std::ops::Range;

use bytes::Bytes;

use lockgate_wire::GroupId;

use super::format::{BLOCK_BYTES, RECORD_HEADER_BYTES, RecordHeader, WRITE_HEADER_BYTES, WriteHeader, record_bytes};
use super::{Draft, RecordKind, Sequence};

/// A record that was taken and numbered, and waits for a write.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    header: RecordHeader,
    body: Vec<Bytes>,
    /// What it takes with everything that was appended, wherever that goes.
    weight: usize,
    /// Whether the header has the body's checksum already.
    is_summed: bool,
}

impl Pending {
    pub(super) fn new(draft: Draft, body_bytes: u32, sequence: u64, counter: u64) -> Self {
        Self::unsummed(draft, body_bytes, sequence, counter).summed()
    }

    /// The body's checksum is left until it is known that the body is written here.
    pub(super) fn unsummed(draft: Draft, body_bytes: u32, sequence: u64, counter: u64) -> Self {
        let header = RecordHeader {
            body_crc: 0,
            body_bytes,
            kind: draft.kind as u8,
            sequence,
            group: draft.group,
            replica: draft.replica,
            counter,
        };
        Self { header, body: draft.body, weight: record_bytes(body_bytes as usize), is_summed: false }
    }

    fn summed(mut self) -> Self {
        if !std::mem::replace(&mut self.is_summed, true) {
            self.header.body_crc = self.body.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece));
        }
        self
    }

    /// The same record with a body that refers to where the data went.
    pub(super) fn external(self, body: Vec<Bytes>) -> Self {
        let RecordHeader { sequence, group, replica, counter, .. } = self.header;
        let bytes = body.iter().map(Bytes::len).sum::<usize>();
        let bytes = u32::try_from(bytes).expect("a reference is smaller than what it refers to");
        let draft = Draft { group, replica, kind: RecordKind::ExternalEntry, body };
        Self { weight: self.weight, ..Self::new(draft, bytes, sequence, counter) }
    }

    /// What it is, to whom it belongs and what it holds.
    pub(super) fn look(&self) -> DueRecord<'_> {
        let RecordHeader { sequence, group, kind, .. } = self.header;
        let is_entry = kind == RecordKind::Entry as u8;
        DueRecord { sequence: Sequence(sequence), group, is_entry, body: &self.body }
    }

    /// Whether its data is elsewhere.
    pub(super) fn is_external(&self) -> bool {
        self.header.kind == RecordKind::ExternalEntry as u8
    }

    /// What it counts towards a write's size and the journal's room: also what is written elsewhere.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// What it takes in a write.
    pub(super) fn bytes(&self) -> usize {
        record_bytes(self.header.body_bytes as usize)
    }
}

/// A record that the next write takes.
#[derive(Clone, Copy, Debug)]
pub struct DueRecord<'a> {
    /// Its number.
    pub sequence: Sequence,
    /// The group it belongs to.
    pub group: GroupId,
    /// Whether it is a log entry that has its data with it.
    pub is_entry: bool,
    /// The body, in the pieces in which it was appended.
    pub body: &'a [Bytes],
}

/// A write's bytes.
pub(super) struct Layout {
    pub(super) pieces: Vec<Bytes>,
    /// With padding to the block.
    pub(super) bytes: usize,
    /// The chain's value after the last record.
    pub(super) chain: u32,
}

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Lays out `records` behind `header`, whose length and count are filled in here.
pub(super) fn lay_out(mut header: WriteHeader, salt: u32, records: Vec<Pending>) -> Layout {
    let records: Vec<Pending> = records.into_iter().map(Pending::summed).collect();
    let length = WRITE_HEADER_BYTES + records.iter().map(Pending::bytes).sum::<usize>();
    header.length = u32::try_from(length).expect("a write is at most max_write_bytes, which is 32 bits");
    header.count = records.len() as u32;

    // All headers and the padding before them go into one buffer, cut into slices once it is complete.
    let mut built = Vec::with_capacity(WRITE_HEADER_BYTES + records.len() * (RECORD_HEADER_BYTES + 7));
    let mut slices: Vec<Range<usize>> = Vec::with_capacity(records.len() + 1);
    header.encode(salt, &mut built);
    let mut chain = header.chain;
    let mut from = 0;
    for record in &records {
        chain = record.header.encode(chain, &mut built);
        slices.push(from..built.len());
        from = built.len();
        let body_bytes = record.header.body_bytes as usize;
        built.resize(built.len() + record.bytes() - RECORD_HEADER_BYTES - body_bytes, 0);
    }
    slices.push(from..built.len());

    let built = Bytes::from(built);
    let mut pieces =
        Vec::with_capacity(slices.len() + records.iter().map(|record| record.body.len()).sum::<usize>() + 1);
    let mut slices = slices.into_iter();
    for record in records {
        pieces.extend(slices.next().map(|slice| built.slice(slice)));
        pieces.extend(record.body);
    }
    pieces.extend(slices.map(|slice| built.slice(slice)));
    let bytes = length.next_multiple_of(BLOCK_BYTES);
    pieces.push(Bytes::from_static(&ZEROS[..bytes - length]));
    pieces.retain(|piece| !piece.is_empty());
    Layout { pieces, bytes, chain }
}
