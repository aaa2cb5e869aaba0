//! The batches that oracles send: every value says which record of which batch it is, and every other byte of a record
//! follows from that, so that a reader knows what it must have got.

use bytes::{BufMut, Bytes, BytesMut};
use lockgate_wire::Offset;
use lockgate_wire::batch::{self, BatchBuilder, BatchHeader, Codec, Producer, Record, RecordHeader};

use super::board::{BatchInfo, Board};
use crate::history::{BatchNo, Placed};
use crate::rng::Rng;
use crate::trace::fingerprint;

/// Batch number, record number, bytes that follow.
const MARK_BYTES: usize = 12;
/// Far above what an oracle sends.
const MAX_DECOMPRESSED_BYTES: usize = 8 << 20;

/// How a batch is to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) records: u32,
    pub(super) filler_bytes: usize,
    pub(super) codec: Codec,
}

impl Shape {
    /// Some batch, of at most about `max_bytes`: mostly small, now and then large or compressed.
    pub(super) fn draw(rng: &mut Rng, max_bytes: u32) -> Self {
        let records = rng.magnitude(1..=40) as u32;
        let room = (max_bytes as usize / 2) / records as usize;
        let filler_bytes = rng.magnitude(1..=2000) as usize;
        let codec = if rng.per_mille(850) { Codec::None } else { *rng.pick(&Codec::ALL) };
        Self { records, filler_bytes: filler_bytes.min(room.saturating_sub(100)), codec }
    }
}

/// Makes a batch: what is to be known of it, its number, its bytes.
pub(super) fn make(board: &mut Board, shape: Shape, first_ms: i64, producer: Option<Producer>) -> (BatchNo, Bytes) {
    let number = board.new_batch(BatchInfo { records: shape.records, first_ms });
    let mut builder = BatchBuilder::new(shape.codec);
    for index in 0..shape.records {
        let record = record(number, index, shape.filler_bytes, first_ms + i64::from(index));
        builder.push(&record).expect("an oracle's batch is small");
    }
    (number, builder.build(producer))
}

/// Makes a single record, which is a batch of one to whoever judges: its number, and the record.
pub(super) fn make_single(board: &mut Board, filler_bytes: usize, timestamp_ms: i64) -> (BatchNo, Record) {
    let number = board.new_batch(BatchInfo { records: 1, first_ms: timestamp_ms });
    (number, record(number, 0, filler_bytes, timestamp_ms))
}

fn record(batch: BatchNo, index: u32, filler_bytes: usize, timestamp_ms: i64) -> Record {
    let mut value = BytesMut::with_capacity(MARK_BYTES + filler_bytes);
    value.put_u32(batch);
    value.put_u32(index);
    value.put_u32(filler_bytes as u32);
    value.put_bytes(filler(batch, index), filler_bytes);
    let key = (index % 3 == 1).then(|| Bytes::from(format!("key {}", batch % 7)));
    let headers = if index % 5 == 2 {
        vec![RecordHeader { name: Bytes::from_static(b"mark"), value: Some(value.clone().freeze().slice(..8)) }]
    } else {
        Vec::new()
    };
    Record { key, value: Some(value.freeze()), headers, timestamp_ms }
}

fn filler(batch: BatchNo, index: u32) -> u8 {
    (batch.wrapping_mul(31) ^ index.wrapping_mul(7)) as u8
}

/// The batches of a payload in their places, or what is wrong with it. Every record is compared with what its oracle made.
///
/// What ends before `from` is left out, as long as it came in one piece with what begins there: that piece is never cut.
pub fn read_batches(board: &mut Board, payload: &Bytes, from: u64, append_time: bool) -> Result<Vec<Placed>, String> {
    let mut places: Vec<Placed> = Vec::new();
    for bytes in batch::split(payload.clone()) {
        let bytes = bytes.map_err(|error| error.to_string())?;
        let header = BatchHeader::parse(&bytes).map_err(|error| error.to_string())?;
        if header.leader_epoch < 1 {
            return Err(format!("leader epoch {} in a delivered batch", header.leader_epoch));
        }
        let base = header.base_offset as u64;
        // Bytes that were looked into once need not be again; the prefix is not among them.
        let fingerprint = fingerprint(&bytes[batch::PREFIX_BYTES..]);
        if !board.looked_into.contains_key(&fingerprint) {
            let found = look_into(board, bytes, append_time)?;
            board.looked_into.insert(fingerprint, found);
        }
        let found = board.looked_into[&fingerprint].iter();
        places.extend(found.map(|placed| Placed { offset: base + placed.offset, ..*placed }));
        places.retain(|placed| placed.end() > from);
        if places.is_empty() {
            return Err(format!("a batch that ends before offset {from}, where the reader stands"));
        }
    }
    Ok(places)
}

/// The batches that oracles made in one batch of the wire, by their place in it.
fn look_into(board: &Board, bytes: Bytes, append_time: bool) -> Result<Vec<Placed>, String> {
    let decoded = batch::decode(bytes, MAX_DECOMPRESSED_BYTES).map_err(|error| error.to_string())?;
    let mut places = Vec::new();
    let mut records = &decoded.records[..];
    while let Some((offset, first)) = records.first() {
        let mark = first.value.as_ref().and_then(|value| value.first_chunk::<4>());
        let batch = mark.map(|mark| u32::from_be_bytes(*mark)).ok_or("a record without a mark")?;
        let info = board.batch(batch).ok_or_else(|| format!("a record of batch {batch}, which nobody made"))?;
        let Some((whole, rest)) = records.split_at_checked(info.records as usize) else {
            return Err(format!("{} records of batch {batch}, it was made with {}", records.len(), info.records));
        };
        check_records(batch, info, whole, append_time)?;
        let offset = offset.0 - decoded.header.base_offset as u64;
        places.push(Placed { offset, records: info.records, batch });
        records = rest;
    }
    Ok(places)
}

fn check_records(
    batch: BatchNo,
    info: BatchInfo,
    records: &[(Offset, Record)],
    append_time: bool,
) -> Result<(), String> {
    for (index, (_, got)) in records.iter().enumerate() {
        let filler_bytes = got.value.as_ref().map_or(0, |value| value.len().saturating_sub(MARK_BYTES));
        let mut made = record(batch, index as u32, filler_bytes, info.first_ms + index as i64);
        if append_time {
            made.timestamp_ms = got.timestamp_ms;
        }
        if *got != made {
            return Err(format!("record {index} of batch {batch} is not what was sent: {got:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(batch: &Bytes, offset: u64) -> Bytes {
        let prefix = batch::delivery_prefix(offset.into(), batch.len(), 1);
        Bytes::from([&prefix[..], &batch[batch::PREFIX_BYTES..]].concat())
    }

    #[test]
    fn what_was_made_is_recognised_in_its_place() {
        let mut board = Board::default();
        for codec in Codec::ALL {
            let shape = Shape { records: 7, filler_bytes: 300, codec };
            let (number, bytes) = make(&mut board, shape, 1000, None);
            let places = read_batches(&mut board, &stored(&bytes, 40), 43, false);
            assert_eq!(places, Ok(vec![Placed { offset: 40, records: 7, batch: number }]));
            assert!(read_batches(&mut board, &stored(&bytes, 40), 47, false).is_err());
        }
    }

    #[test]
    fn a_record_of_another_batch_is_not_taken() {
        let (mut ours, mut other) = (Board::default(), Board::default());
        let shape = Shape { records: 3, filler_bytes: 10, codec: Codec::None };
        make(&mut ours, shape, 1000, None);
        let (_, bytes) = make(&mut other, Shape { records: 4, ..shape }, 1000, None);
        assert!(read_batches(&mut ours, &stored(&bytes, 0), 0, false).is_err());
        let (_, bytes) = make(&mut other, shape, 1000, None);
        assert!(read_batches(&mut ours, &stored(&bytes, 0), 0, false).is_err());
        let (_, late) = make(&mut Board::default(), shape, 2000, None);
        assert!(read_batches(&mut ours, &stored(&late, 0), 0, false).is_err());
        assert!(read_batches(&mut ours, &stored(&late, 0), 0, true).is_ok());
    }
}
