//! The door: what a batch must be before it may enter a log. Runs on every publish, so it allocates nothing and passes
//! over the bytes twice: once for the CRC and once, over the lengths only, for the records.
//!
//! Behind the door a batch is trusted. Compressed records stay opaque to the broker; readers check them in
//! [`decode`](super::decode).

use bytes::Bytes;

use super::header::{CODEC_MASK, CRC_FROM};
use super::record::Reader;
use super::{
    BatchError, BatchHeader, Codec, HEADER_BYTES, MAX_DECOMPRESSED_BYTES, MIN_RECORD_BYTES, TIMESTAMP_MS_RANGE,
};

/// Checks that `bytes` are exactly one batch that a producer may send, of at most `max_batch_bytes`.
///
/// Base offset and leader epoch are the broker's and not looked at.
pub fn validate(bytes: &[u8], max_batch_bytes: u32) -> Result<BatchHeader, BatchError> {
    if bytes.len() > max_batch_bytes as usize {
        return Err(BatchError::TooLarge { bytes: bytes.len(), limit: max_batch_bytes });
    }
    let header = check_whole(bytes)?;
    if header.attributes & !CODEC_MASK != 0 {
        return Err(BatchError::Attributes(header.attributes));
    }
    check_timestamps(&header)?;
    check_producer(&header)?;
    if header.codec()? == Codec::None {
        walk(&header, &bytes[HEADER_BYTES..])?;
    }
    Ok(header)
}

/// Exactly one undamaged batch with a known codec and a possible count: what holds at the door and for readers.
pub(super) fn check_whole(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let size = header.size();
    if bytes.len() < size {
        return Err(BatchError::Truncated { bytes: bytes.len(), needed: size });
    }
    if bytes.len() > size {
        return Err(BatchError::Trailing { bytes: bytes.len(), batch: size });
    }
    let computed = crc32c::crc32c(&bytes[CRC_FROM..]);
    if computed != header.crc {
        return Err(BatchError::Checksum { stored: header.crc, computed });
    }
    let room = match header.codec()? {
        Codec::None => size - HEADER_BYTES,
        _ => MAX_DECOMPRESSED_BYTES,
    };
    check_count(&header, room)?;
    Ok(header)
}

/// At least one record, deltas that agree, and no more records than fit into `room` bytes.
pub(super) fn check_count(header: &BatchHeader, room: usize) -> Result<(), BatchError> {
    let (count, last_offset_delta) = (header.count, header.last_offset_delta);
    if count < 1 || last_offset_delta != count - 1 || count as usize > room / MIN_RECORD_BYTES {
        return Err(BatchError::Count { count, last_offset_delta });
    }
    Ok(())
}

fn check_timestamps(header: &BatchHeader) -> Result<(), BatchError> {
    let (base, max) = (header.base_timestamp, header.max_timestamp);
    if !TIMESTAMP_MS_RANGE.contains(&base) || !TIMESTAMP_MS_RANGE.contains(&max) || base > max {
        return Err(BatchError::Timestamps { base, max });
    }
    Ok(())
}

/// A batch without a producer id must not carry numbers. Two client libraries in use leave 0 instead of -1 in the
/// fields that mean nothing then, so both count as unset.
fn check_producer(header: &BatchHeader) -> Result<(), BatchError> {
    let (id, epoch, sequence) = (header.producer_id, header.producer_epoch, header.base_sequence);
    let unset = id == -1 && matches!(epoch, -1 | 0) && matches!(sequence, -1 | 0);
    let set = id >= 0 && epoch >= 0 && sequence >= 0;
    if unset || set { Ok(()) } else { Err(BatchError::Producer { id, epoch, sequence }) }
}

/// Walks over uncompressed records: their lengths, deltas and times, and that nothing follows them.
fn walk(header: &BatchHeader, records: &[u8]) -> Result<(), BatchError> {
    let mut reader = Reader::new(records);
    for index in 0..header.count as u32 {
        let parts = reader.record(index)?;
        // A lookup by time trusts the batch's greatest timestamp: a record above it would be missed.
        match header.base_timestamp.checked_add(parts.timestamp_delta) {
            Some(time) if time <= header.max_timestamp && TIMESTAMP_MS_RANGE.contains(&time) => {}
            _ => {
                return Err(BatchError::Record {
                    index,
                    fault: "its timestamp is out of range or above the batch's greatest",
                });
            }
        }
    }
    reader.finish()
}

/// Cuts a payload of batches that follow one another into batches, by their length fields alone. Ends after the first
/// error.
pub fn split(payload: Bytes) -> impl Iterator<Item = Result<Bytes, BatchError>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let cut = BatchHeader::parse(&rest).and_then(|header| match header.size() {
            needed if needed > rest.len() => Err(BatchError::Truncated { bytes: rest.len(), needed }),
            size => Ok(rest.split_to(size)),
        });
        if cut.is_err() {
            rest.clear();
        }
        Some(cut)
    })
}
