//! Records within a batch: reading and writing them, one by one.
//!
//! ```text
//! length varint | attributes i8 | timestamp delta varlong | offset delta varint
//! | key length varint, key | value length varint, value | header count varint
//! | per header: name length varint, name | value length varint, value
//! ```
//! Varints are zigzag coded; a length of -1 is null. The validation at the door and [`decode`] read with the same
//! [`Reader`], so that both mean the same by "well formed".

use bytes::{BufMut, Bytes, BytesMut};

use super::validate::{check_count, check_whole};
use super::{BatchError, BatchHeader, HEADER_BYTES, TIMESTAMP_MS_RANGE};
use crate::ids::Offset;

/// The smallest record: a length, attributes, two deltas, null key, null value, no headers.
pub const MIN_RECORD_BYTES: usize = 7;

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
/// The records of an uncompressed batch are slices of `bytes`, those of a compressed one share one buffer. Beside these
/// bytes, the answer takes at most some 30 times `max_decompressed`: that is a batch of empty headers.
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
        let parts = reader.record(index)?;
        let offset = Offset(header.base_offset as u64 + u64::from(index));
        records.push((offset, parts.to_record(&header, &bytes)));
    }
    reader.finish()?;
    Ok(DecodedBatch { header, records })
}

/// A record's parts, as slices of the records' bytes.
pub(super) struct RecordParts<'a> {
    pub(super) timestamp_delta: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    /// All headers, walked over once already.
    headers: &'a [u8],
    /// How many there were, so never more than the bytes hold.
    header_count: usize,
}

impl RecordParts<'_> {
    /// The record, sharing the bytes that the parts are slices of.
    fn to_record(&self, header: &BatchHeader, bytes: &Bytes) -> Record {
        let share = |part: Option<&[u8]>| part.map(|part| bytes.slice_ref(part));
        let mut reader = Reader::new(self.headers);
        let mut headers = Vec::with_capacity(self.header_count);
        while let Ok((name, value)) = reader.header() {
            headers.push(RecordHeader { name: bytes.slice_ref(name), value: share(value) });
        }
        let timestamp_ms = match header.is_append_time() {
            true => header.max_timestamp,
            false => header.base_timestamp.saturating_add(self.timestamp_delta),
        };
        Record { key: share(self.key), value: share(self.value), headers, timestamp_ms }
    }
}

/// What is wrong with a record, before it is known which one.
type Fault = &'static str;

const ENDS_EARLY: Fault = "it ends too early";

/// Reads records from the front of bytes; never panics.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next record, which must be the batch's `index`th.
    #[inline]
    pub(super) fn record(&mut self, index: u32) -> Result<RecordParts<'a>, BatchError> {
        self.bounded_record(index).map_err(|fault| BatchError::Record { index, fault })
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), BatchError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(BatchError::BytesAfterRecords(left)),
        }
    }

    #[inline]
    fn bounded_record(&mut self, index: u32) -> Result<RecordParts<'a>, Fault> {
        let length = usize::try_from(self.varint()?).map_err(|_| "its length is negative")?;
        let body = self.take(length).ok_or("its length is beyond the batch's end")?;
        let mut body = Reader::new(body);
        let parts = body.record_body(index)?;
        if body.rest.is_empty() { Ok(parts) } else { Err("its length is beyond its last header") }
    }

    #[inline]
    fn record_body(&mut self, index: u32) -> Result<RecordParts<'a>, Fault> {
        self.take(1).ok_or(ENDS_EARLY)?; // Attributes: no bit of them has a meaning.
        let timestamp_delta = self.varlong()?;
        if i64::from(self.varint()?) != i64::from(index) {
            return Err("its offset delta is not its place in the batch");
        }
        let key = self.nullable()?;
        let value = self.nullable()?;
        let header_count = usize::try_from(self.varint()?).map_err(|_| "its header count is negative")?;
        let headers = self.rest;
        for _ in 0..header_count {
            self.header()?;
        }
        let headers = &headers[..headers.len() - self.rest.len()];
        Ok(RecordParts { timestamp_delta, key, value, headers, header_count })
    }

    fn header(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), Fault> {
        let name = self.nullable()?.ok_or("a header has no name")?;
        Ok((name, self.nullable()?))
    }

    /// A length and that many bytes; `None` for a length of -1.
    #[inline]
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| "a length is below -1")?;
                self.take(length).map(Some).ok_or("a length is beyond the record's end")
            }
        }
    }

    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<i32, Fault> {
        let raw = u32::try_from(self.unsigned::<5>()?).map_err(|_| "a number is above 32 bits")?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    #[inline]
    fn varlong(&mut self) -> Result<i64, Fault> {
        let raw = self.unsigned::<10>()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// A number of at most `MAX` bytes; most have one or two.
    #[inline]
    fn unsigned<const MAX: usize>(&mut self) -> Result<u64, Fault> {
        let (value, rest) = match self.rest {
            [low, rest @ ..] if *low < 0x80 => (u64::from(*low), rest),
            [low, high, rest @ ..] if *high < 0x80 => (u64::from(low & 0x7f) | u64::from(*high) << 7, rest),
            _ => return self.long_unsigned(MAX),
        };
        self.rest = rest;
        Ok(value)
    }

    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    fn long_unsigned(&mut self, max_bytes: usize) -> Result<u64, Fault> {
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(max_bytes).enumerate() {
            if index == 9 && *byte > 1 {
                return Err("a number is above 64 bits");
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < max_bytes { ENDS_EARLY } else { "a number has too many bytes" })
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
