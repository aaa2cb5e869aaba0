//! The batch header, field by field, and what follows from its fields.

use super::{BatchError, Codec, HEADER_BYTES, LENGTH_END, PREFIX_BYTES};
use crate::ids::{Offset, ProducerId};

/// The one version of the layout that is served.
pub(super) const MAGIC: i8 = 2;
/// Where the CRC stands.
pub(super) const CRC_AT: usize = 17;
/// First byte that the CRC covers: the attributes.
pub(super) const CRC_FROM: usize = 21;
/// Where the greatest timestamp stands.
pub(super) const MAX_TIMESTAMP_AT: usize = 35;
/// Where the producer's three fields begin.
pub(super) const PRODUCER_AT: usize = 43;
/// Attribute bits of the codec.
pub(super) const CODEC_MASK: i16 = 0b111;
/// Attribute bit: the records' time is the max timestamp, which the broker set on append.
pub(super) const APPEND_TIME_BIT: i16 = 1 << 3;

/// What stands before the records, magic aside (it is checked).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record; the broker's.
    pub base_offset: i64,
    /// Bytes after this field; at least a header's.
    pub batch_length: i32,
    /// Term of the leader that appended the batch; the broker's.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: i16,
    /// Offset of the last record minus that of the first.
    pub last_offset_delta: i32,
    /// The first record's timestamp, ms.
    pub base_timestamp: i64,
    /// The greatest timestamp, ms; the append time if the attributes say so.
    pub max_timestamp: i64,
    /// The idempotent producer, or -1.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Its number for the first record.
    pub base_sequence: i32,
    /// Records in the batch.
    pub count: i32,
}

/// An idempotent producer and its number for a batch's first record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// The producer.
    pub id: ProducerId,
    /// Its epoch, 0 or more.
    pub epoch: i16,
    /// The first record's number, 0 or more.
    pub base_sequence: i32,
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, which may go on. The magic and a plausible length are checked, nothing
    /// else is.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(h) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Truncated { bytes: bytes.len(), needed: HEADER_BYTES });
        };
        let magic = h[PREFIX_BYTES] as i8;
        if magic != MAGIC {
            return Err(BatchError::Magic(magic));
        }
        let batch_length = i32::from_be_bytes(field(h, 8));
        if batch_length < (HEADER_BYTES - LENGTH_END) as i32 {
            return Err(BatchError::Length(batch_length));
        }
        Ok(Self {
            base_offset: i64::from_be_bytes(field(h, 0)),
            batch_length,
            leader_epoch: i32::from_be_bytes(field(h, 12)),
            crc: u32::from_be_bytes(field(h, CRC_AT)),
            attributes: i16::from_be_bytes(field(h, CRC_FROM)),
            last_offset_delta: i32::from_be_bytes(field(h, 23)),
            base_timestamp: i64::from_be_bytes(field(h, 27)),
            max_timestamp: i64::from_be_bytes(field(h, MAX_TIMESTAMP_AT)),
            producer_id: i64::from_be_bytes(field(h, PRODUCER_AT)),
            producer_epoch: i16::from_be_bytes(field(h, 51)),
            base_sequence: i32::from_be_bytes(field(h, 53)),
            count: i32::from_be_bytes(field(h, 57)),
        })
    }

    /// Bytes of the whole batch.
    pub fn size(&self) -> usize {
        self.batch_length as usize + LENGTH_END
    }

    /// How the records are compressed.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        Codec::from_bits((self.attributes & CODEC_MASK) as u8)
    }

    /// Whether the records' time is the append time, in `max_timestamp`.
    pub fn is_append_time(&self) -> bool {
        self.attributes & APPEND_TIME_BIT != 0
    }

    /// The idempotent producer, if one numbered the batch.
    pub fn producer(&self) -> Option<Producer> {
        (self.producer_id != -1).then_some(Producer {
            id: ProducerId(self.producer_id),
            epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
        })
    }

    /// The producer's number for the last record; meaningful with a [`producer`](Self::producer).
    pub fn last_sequence(&self) -> i32 {
        sequence_after(self.base_sequence, self.last_offset_delta)
    }

    /// Writes the header over the front of a batch, magic included.
    pub(super) fn write(&self, h: &mut [u8; HEADER_BYTES]) {
        h[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        h[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        h[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        h[16] = MAGIC as u8;
        h[17..21].copy_from_slice(&self.crc.to_be_bytes());
        h[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        h[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        h[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        h[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        h[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        h[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        h[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        h[57..61].copy_from_slice(&self.count.to_be_bytes());
    }
}

/// `N` bytes of the header. Callers pass constants within it.
fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&header[at..at + N]);
    value
}

/// The producer's number `records` later. Numbers go from 0 to `i32::MAX` and then start again at 0.
pub fn sequence_after(sequence: i32, records: i32) -> i32 {
    (i64::from(sequence) + i64::from(records)).rem_euclid(1 << 31) as i32
}

/// The first [`PREFIX_BYTES`] of a batch as it is delivered: where it begins, its size, the term it was appended in.
/// `batch_bytes` is the whole batch's size, prefix included.
pub fn delivery_prefix(base_offset: Offset, batch_bytes: usize, leader_epoch: i32) -> [u8; PREFIX_BYTES] {
    let length = batch_bytes.checked_sub(LENGTH_END).and_then(|length| i32::try_from(length).ok());
    let length = length.expect("a stored batch has a header and was bounded at the door");
    let mut prefix = [0; PREFIX_BYTES];
    prefix[0..8].copy_from_slice(&base_offset.0.to_be_bytes());
    prefix[8..12].copy_from_slice(&length.to_be_bytes());
    prefix[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    prefix
}
