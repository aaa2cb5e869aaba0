//! Changes to a finished batch's header, each of which makes a new CRC.

use bytes::{Bytes, BytesMut};

use super::header::{APPEND_TIME_BIT, CRC_AT, CRC_FROM, MAX_TIMESTAMP_AT, PRODUCER_AT, Producer};
use super::{HEADER_BYTES, TIMESTAMP_MS_RANGE};

/// The batch of a topic with `timestamps = append`: every record's time becomes `now_ms`. For a validated batch.
///
/// # Panics
/// If `batch` is shorter than a header, so was never validated.
pub fn rewrite_append_time(batch: Bytes, now_ms: i64) -> Bytes {
    let mut batch = own(batch);
    let now_ms = now_ms.clamp(*TIMESTAMP_MS_RANGE.start(), *TIMESTAMP_MS_RANGE.end());
    let attributes = i16::from_be_bytes([batch[CRC_FROM], batch[CRC_FROM + 1]]) | APPEND_TIME_BIT;
    batch[CRC_FROM..CRC_FROM + 2].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&now_ms.to_be_bytes());
    seal(&mut batch);
    batch.freeze()
}

/// The batch numbered anew: for a producer whose id or epoch changed while the batch waited.
///
/// # Panics
/// If `batch` is shorter than a header, so was never built.
pub fn restamp(batch: Bytes, producer: Producer) -> Bytes {
    let mut batch = own(batch);
    let fields = &mut batch[PRODUCER_AT..PRODUCER_AT + 14];
    fields[0..8].copy_from_slice(&producer.id.0.to_be_bytes());
    fields[8..10].copy_from_slice(&producer.epoch.to_be_bytes());
    fields[10..14].copy_from_slice(&producer.base_sequence.to_be_bytes());
    seal(&mut batch);
    batch.freeze()
}

/// Writes the CRC of everything that it covers.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[CRC_FROM..]);
    batch[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
}

/// The batch to write on: itself if nobody else holds its bytes, else a copy.
fn own(batch: Bytes) -> BytesMut {
    assert!(batch.len() >= HEADER_BYTES, "a batch of {} bytes has no header", batch.len());
    batch.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]))
}
