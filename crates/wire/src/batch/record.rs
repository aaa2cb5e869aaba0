//! Records within a batch: reading and writing them, one by one.
//!
//! ```text
//! length varint | attributes i8 | timestamp delta varlong | offset delta varint
//! | key length varint, key | value length varint, value | header count varint
//! | per header: name length varint, name | value length varint, value
//! ```
//! Varints are zigzag coded; a length of -1 is null. The validation at the door and [`decode`] read with the same
//! [`Reader`], so that both mean the same by "well formed".

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use super::validate::{check_count, check_whole};
use super::{BatchError, BatchHeader, HEADER_BYTES, TIMESTAMP_MS_RANGE};
use crate::ids::Offset;

/// The smallest record: a length, attributes, two deltas, null key, null value, no headers.
pub const MIN_RECORD_BYTES: usize = 7;
/// The smallest header of a record: an empty name and a null value.
const MIN_HEADER_BYTES: usize = 2;

/// A record as people and programs see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Chooses the partition; optional.
    pub key: Option<Bytes>,
    /// The content; null is not empty.
    pub value: Option<Bytes>,
    /// Named values, in order; names may repeat.
    pub headers: Vec<RecordHeader>,
    /// The producer's time, or the append time of topics that are set so; -1 is none.
    pub timestamp_ms: i64,
}

/// One named value of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordHeader {
    /// UTF-8 by convention, which nobody enforces.
    pub name: Bytes,
    /// Bytes or null.
    pub value: Option<Bytes>,
}

/// A batch taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodedBatch {
    /// The batch's header.
    pub header: BatchHeader,
    /// The records with their offsets.
    pub records: Vec<(Offset, Record)>,
}

/// Takes one batch apart, as it was delivered or stored. Checks it as a reader must: exactly one batch, its CRC, and
/// records that are well formed and in order, of at most `max_decompressed` bytes together.
///
/// The records of an uncompressed batch are slices of `bytes`, those of a compressed one share one buffer.
pub fn decode(bytes: Bytes, max_decompressed: usize) -> Result<DecodedBatch, BatchError> {
    let header = check_whole(&bytes)?;
    if header.base_offset.checked_add(i64::from(header.last_offset_delta)).is_none() || header.base_offset < 0 {
        return Err(BatchError::BaseOffset(header.base_offset));
    }
    let bytes = header.codec()?.decompress(bytes.slice(HEADER_BYTES..), max_decompressed)?;
    check_count(&header, bytes.len())?;
    let mut records = Vec::with_capacity(header.count as usize);
    let mut reader = Reader::new(&bytes);
    for index in 0..header.count as u32 {
        let layout = reader.record(index)?;
        let offset = Offset(header.base_offset as u64 + u64::from(index));
        records.push((offset, layout.to_record(&header, &bytes)));
    }
    reader.finish()?;
    Ok(DecodedBatch { header, records })
}

/// Where a record's parts are within the records' bytes.
pub(super) struct RecordLayout {
    pub(super) timestamp_delta: i64,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    /// From the first header's name length to the record's end; walked once already.
    headers: Range<usize>,
    header_count: usize,
}

impl RecordLayout {
    fn to_record(&self, header: &BatchHeader, bytes: &Bytes) -> Record {
        let cut = |range: &Option<Range<usize>>| range.clone().map(|range| bytes.slice(range));
        let mut reader = Reader { bytes, at: self.headers.start, end: self.headers.end };
        let mut headers = Vec::with_capacity(self.header_count);
        while let Ok((name, value)) = reader.header() {
            headers.push(RecordHeader { name: bytes.slice(name), value: cut(&value) });
        }
        let timestamp_ms = match header.is_append_time() {
            true => header.max_timestamp,
            false => header.base_timestamp.saturating_add(self.timestamp_delta),
        };
        Record { key: cut(&self.key), value: cut(&self.value), headers, timestamp_ms }
    }
}

/// What is wrong with a record, before it is known which one.
type Fault = &'static str;

/// Reads records from the front; never beyond `end`, never panics.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// At most `bytes.len()`; the record's end while one is read.
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, end: bytes.len() }
    }

    /// The next record, which must be the batch's `index`th.
    pub(super) fn record(&mut self, index: u32) -> Result<RecordLayout, BatchError> {
        self.bounded_record(index).map_err(|fault| BatchError::Record { index, fault })
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), BatchError> {
        match self.end - self.at {
            0 => Ok(()),
            left => Err(BatchError::BytesAfterRecords(left)),
        }
    }

    fn bounded_record(&mut self, index: u32) -> Result<RecordLayout, Fault> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        if length > self.end - self.at {
            return Err("its length is beyond the batch's end");
        }
        let batch_end = std::mem::replace(&mut self.end, self.at + length);
        let layout = self.record_body(index)?;
        if self.at != self.end {
            return Err("its length is beyond its last header");
        }
        self.end = batch_end;
        Ok(layout)
    }

    fn record_body(&mut self, index: u32) -> Result<RecordLayout, Fault> {
        self.byte()?; // Attributes: no bit of them has a meaning.
        let timestamp_delta = self.varlong()?;
        if i64::from(self.varint()?) != i64::from(index) {
            return Err("its offset delta is not its place in the batch");
        }
        let key = self.nullable()?;
        let value = self.nullable()?;
        let header_count = usize::try_from(self.varint()?).map_err(|_| "its header count is negative")?;
        if header_count > (self.end - self.at) / MIN_HEADER_BYTES {
            return Err("it has more headers than its bytes can hold");
        }
        let start = self.at;
        for _ in 0..header_count {
            self.header()?;
        }
        Ok(RecordLayout { timestamp_delta, key, value, headers: start..self.at, header_count })
    }

    fn header(&mut self) -> Result<(Range<usize>, Option<Range<usize>>), Fault> {
        let name = self.nullable()?.ok_or("a header has no name")?;
        Ok((name, self.nullable()?))
    }

    /// A length and that many bytes; `None` for a length of -1.
    fn nullable(&mut self) -> Result<Option<Range<usize>>, Fault> {
        let length = self.varint()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| "a length is below -1")?;
        if length > self.end - self.at {
            return Err("a length is beyond the record's end");
        }
        let start = self.at;
        self.at += length;
        Ok(Some(start..self.at))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        if self.at == self.end {
            return Err("it ends too early");
        }
        let byte = self.bytes[self.at];
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<i32, Fault> {
        let raw = u32::try_from(self.unsigned(5)?).map_err(|_| "a number is above 32 bits")?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    fn varlong(&mut self) -> Result<i64, Fault> {
        let raw = self.unsigned(10)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    #[inline]
    fn unsigned(&mut self, max_bytes: u32) -> Result<u64, Fault> {
        let mut value = 0u64;
        for index in 0..max_bytes {
            let byte = self.byte()?;
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number has too many bytes")
    }
}

/// Appends a record that takes `body` bytes after its length ([`body_size`]).
pub(super) fn put_record(out: &mut BytesMut, record: &Record, timestamp_delta: i64, index: u32, body: usize) {
    put_length(out, body);
    out.put_u8(0);
    put_unsigned(out, zigzag(timestamp_delta));
    put_length(out, index as usize);
    put_nullable(out, record.key.as_ref());
    put_nullable(out, record.value.as_ref());
    put_length(out, record.headers.len());
    for header in &record.headers {
        put_nullable(out, Some(&header.name));
        put_nullable(out, header.value.as_ref());
    }
}

/// Bytes of a record after its length.
pub(super) fn body_size(record: &Record, timestamp_delta: i64, index: u32) -> usize {
    let headers = record.headers.iter();
    1 + unsigned_size(zigzag(timestamp_delta))
        + length_size(index as usize)
        + nullable_size(record.key.as_ref())
        + nullable_size(record.value.as_ref())
        + length_size(record.headers.len())
        + headers.map(|h| nullable_size(Some(&h.name)) + nullable_size(h.value.as_ref())).sum::<usize>()
}

/// Bytes of a record, with the length in front, whose body takes `body`.
pub(super) fn record_size(body: usize) -> usize {
    length_size(body) + body
}

/// A time as a batch can carry it.
pub(super) fn clamp_timestamp(timestamp_ms: i64) -> i64 {
    timestamp_ms.clamp(*TIMESTAMP_MS_RANGE.start(), *TIMESTAMP_MS_RANGE.end())
}

fn put_nullable(out: &mut BytesMut, bytes: Option<&Bytes>) {
    match bytes {
        Some(bytes) => {
            put_length(out, bytes.len());
            out.put_slice(bytes);
        }
        None => put_unsigned(out, zigzag(-1)),
    }
}

fn nullable_size(bytes: Option<&Bytes>) -> usize {
    bytes.map_or(1, |bytes| length_size(bytes.len()) + bytes.len())
}

fn put_length(out: &mut BytesMut, length: usize) {
    put_unsigned(out, zigzag(length as i64));
}

fn length_size(length: usize) -> usize {
    unsigned_size(zigzag(length as i64))
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn put_unsigned(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn unsigned_size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}
