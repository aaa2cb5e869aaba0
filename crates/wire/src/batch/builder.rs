//! Builds batches as producers do: base offset 0, leader epoch -1, times relative to the first record's.

use bytes::{Bytes, BytesMut};

use super::header::Producer;
use super::record::{body_size, clamp_timestamp, put_record, record_size};
use super::rewrite::seal;
use super::{BatchError, BatchHeader, Codec, HEADER_BYTES, LENGTH_END, MAX_DECOMPRESSED_BYTES, Record};

/// Gathers records and makes one batch of them. Lives in one producer, for one batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    codec: Codec,
    /// Room for the header, then the records uncompressed.
    buffer: BytesMut,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty batch whose records will be compressed with `codec`.
    pub fn new(codec: Codec) -> Self {
        Self { codec, buffer: BytesMut::zeroed(HEADER_BYTES), count: 0, base_timestamp: -1, max_timestamp: -1 }
    }

    /// Adds a record. A timestamp outside of [`TIMESTAMP_MS_RANGE`](super::TIMESTAMP_MS_RANGE) becomes its nearest end.
    ///
    /// Refused, with the batch as it was, when the records would take more than [`MAX_DECOMPRESSED_BYTES`] uncompressed:
    /// no reader would take them.
    pub fn push(&mut self, record: &Record) -> Result<(), BatchError> {
        let timestamp = clamp_timestamp(record.timestamp_ms);
        let delta = self.timestamp_delta(timestamp);
        let body = body_size(record, delta, self.count);
        if self.buffer.len() - HEADER_BYTES + record_size(body) > MAX_DECOMPRESSED_BYTES {
            return Err(BatchError::RecordsTooLarge { limit: MAX_DECOMPRESSED_BYTES });
        }
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.buffer.reserve(record_size(body));
        put_record(&mut self.buffer, record, delta, self.count, body);
        self.count += 1;
        Ok(())
    }

    /// The most that the batch will take, whatever its codec: exact for [`Codec::None`].
    pub fn encoded_size(&self) -> usize {
        self.buffer.len()
    }

    /// What [`encoded_size`](Self::encoded_size) would be with this record added.
    pub fn size_with(&self, record: &Record) -> usize {
        let delta = self.timestamp_delta(clamp_timestamp(record.timestamp_ms));
        self.buffer.len() + record_size(body_size(record, delta, self.count))
    }

    /// Records so far.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The batch, numbered if `producer` says so. Records that compression would not make smaller stay as they are.
    ///
    /// # Panics
    /// If the builder [is empty](Self::is_empty): there is no batch without a record.
    pub fn build(mut self, producer: Option<Producer>) -> Bytes {
        assert!(self.count > 0, "a batch has at least one record");
        let codec = self.compress();
        let size_fits = "the records take at most MAX_DECOMPRESSED_BYTES, far below i32::MAX";
        let header = BatchHeader {
            base_offset: 0,
            batch_length: i32::try_from(self.buffer.len() - LENGTH_END).expect(size_fits),
            leader_epoch: -1,
            crc: 0,
            attributes: i16::from(codec.bits()),
            last_offset_delta: self.count as i32 - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: producer.map_or(-1, |p| p.id.0),
            producer_epoch: producer.map_or(-1, |p| p.epoch),
            base_sequence: producer.map_or(-1, |p| p.base_sequence),
            count: self.count as i32,
        };
        let front = self.buffer.first_chunk_mut().expect("the buffer begins with room for a header");
        header.write(front);
        seal(&mut self.buffer);
        self.buffer.freeze()
    }

    /// Compresses the records if that makes them smaller; gives the codec they are in.
    fn compress(&mut self) -> Codec {
        if self.codec == Codec::None {
            return Codec::None;
        }
        let compressed = self.codec.compress(&self.buffer[HEADER_BYTES..]);
        if compressed.len() >= self.buffer.len() - HEADER_BYTES {
            return Codec::None;
        }
        self.buffer.truncate(HEADER_BYTES);
        self.buffer.extend_from_slice(&compressed);
        self.codec
    }

    /// Relative to the first record, which is at 0. Cannot overflow: both times are within `TIMESTAMP_MS_RANGE`.
    fn timestamp_delta(&self, timestamp: i64) -> i64 {
        if self.count == 0 { 0 } else { timestamp - self.base_timestamp }
    }
}

const _: () = assert!(HEADER_BYTES + MAX_DECOMPRESSED_BYTES < i32::MAX as usize);
