//! What a reader takes in, and how a batch becomes records.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_wire::Offset;
use lockgate_wire::batch::{DecodedBatch, MAX_DECOMPRESSED_BYTES, Record, decode};

use crate::error::ClientError;
use crate::record::ReceivedRecord;

/// One thing out of a reader's queue.
#[derive(Clone, PartialEq, Debug)]
pub enum Taken {
    /// A batch of records. Its bytes count as consumed.
    Chunk(Chunk),
    /// Everything that was committed when this was found out was handed out. Once a partition.
    EndOfPartition {
        /// The partition.
        partition: u32,
        /// The offset after the last record.
        offset: Offset,
    },
    /// The partition delivers nothing for now; it is asked for again by itself.
    Lost {
        /// The partition.
        partition: u32,
        /// Why.
        reason: String,
    },
    /// The partition delivers again, from where it was.
    Recovered {
        /// The partition.
        partition: u32,
    },
    /// The partition is read no further.
    Failed {
        /// The partition.
        partition: u32,
        /// Why.
        error: ClientError,
    },
}

/// A delivered batch, and which of its records are wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    /// The partition.
    pub partition: u32,
    /// The encoded batch.
    pub batch: Bytes,
    /// The first offset that is wanted.
    pub from: Offset,
    /// The first offset that is not wanted any more.
    pub until: Option<Offset>,
    /// When the leader appended it.
    pub append_time_ms: i64,
}

/// Takes batches apart, record by record, and knows the positions after the records that it gave. Pure, and outside of
/// the core, so that decoding holds nobody up.
#[derive(Debug)]
pub struct Unpacker {
    chunk: Option<Chunk>,
    records: std::vec::IntoIter<(Offset, Record)>,
    positions: BTreeMap<u32, Offset>,
}

impl Unpacker {
    /// Begins at these positions, one a partition.
    pub fn new(positions: BTreeMap<u32, Offset>) -> Self {
        Self { chunk: None, records: Vec::new().into_iter(), positions }
    }

    /// The offset after the last record given, for every partition.
    pub fn positions(&self) -> &BTreeMap<u32, Offset> {
        &self.positions
    }

    /// Decodes the next chunk. The one before was given to the end.
    pub fn load(&mut self, chunk: Chunk) -> Result<(), ClientError> {
        let decoded = decode(chunk.batch.clone(), MAX_DECOMPRESSED_BYTES);
        let DecodedBatch { records, .. } =
            decoded.map_err(|error| ClientError::Corrupt { partition: chunk.partition, offset: chunk.from, error })?;
        self.records = records.into_iter();
        self.chunk = Some(chunk);
        Ok(())
    }
}

impl Iterator for Unpacker {
    type Item = ReceivedRecord;

    fn next(&mut self) -> Option<ReceivedRecord> {
        let chunk = self.chunk.as_ref()?;
        let wanted = |offset: Offset| offset >= chunk.from && chunk.until.is_none_or(|until| offset < until);
        let Some((offset, record)) = self.records.find(|(offset, _)| wanted(*offset)) else {
            self.chunk = None;
            return None;
        };
        self.positions.insert(chunk.partition, offset.plus(1));
        Some(ReceivedRecord {
            partition: chunk.partition,
            offset,
            timestamp_ms: record.timestamp_ms,
            append_time_ms: chunk.append_time_ms,
            key: record.key,
            value: record.value,
            headers: record.headers,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.records.size_hint().1)
    }
}
