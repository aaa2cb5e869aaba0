//! Records into the pieces of one write: headers and padding are built here, bodies go by reference.

use std::ops::Range;

use bytes::Bytes;

use super::Draft;
use super::format::{BLOCK_BYTES, RECORD_HEADER_BYTES, RecordHeader, WRITE_HEADER_BYTES, WriteHeader, record_bytes};

/// A record that was taken and numbered, and waits for a write.
#[derive(Debug)]
pub(super) struct Pending {
    header: RecordHeader,
    body: Vec<Bytes>,
}

impl Pending {
    pub(super) fn new(draft: Draft, body_bytes: u32, sequence: u64, counter: u64) -> Self {
        let body_crc = draft.body.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece));
        let header = RecordHeader {
            body_crc,
            body_bytes,
            kind: draft.kind as u8,
            sequence,
            group: draft.group,
            replica: draft.replica,
            counter,
        };
        Self { header, body: draft.body }
    }

    /// What it takes in a write.
    pub(super) fn bytes(&self) -> usize {
        record_bytes(self.header.body_bytes as usize)
    }
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
