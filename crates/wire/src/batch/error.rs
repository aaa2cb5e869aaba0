//! Why bytes are not a batch that may enter a log.

use std::fmt;

use super::{Codec, MAX_DECOMPRESSED_BYTES, MIN_RECORD_BYTES, TIMESTAMP_MS_RANGE};
use crate::error::{Error, ErrorKind};

/// What is wrong with a record batch, with the values that show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BatchError {
    /// The bytes end before the batch does.
    Truncated {
        /// Bytes that are there.
        bytes: usize,
        /// Bytes that the batch needs, as far as they tell.
        needed: usize,
    },
    /// The batch length field is below a header's.
    Length(i32),
    /// More bytes than the one batch that was announced.
    Trailing {
        /// Bytes that are there.
        bytes: usize,
        /// Bytes that the batch takes.
        batch: usize,
    },
    /// The batch is above the topic's bound.
    TooLarge {
        /// The batch's size.
        bytes: usize,
        /// The largest size allowed.
        limit: u32,
    },
    /// Another version of the layout.
    Magic(i8),
    /// The bytes are not those that the producer summed.
    Checksum {
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// No such compression codec.
    Codec(u8),
    /// Attribute bits that a producer must not set here.
    Attributes(i16),
    /// The count is not positive, not that of the offset deltas, or more than the bytes can hold.
    Count {
        /// Records announced.
        count: i32,
        /// Offset delta of the last record, announced.
        last_offset_delta: i32,
    },
    /// The header's times are out of range or in the wrong order.
    Timestamps {
        /// First record's.
        base: i64,
        /// Greatest.
        max: i64,
    },
    /// The producer's fields are neither all set nor all at rest.
    Producer {
        /// Producer id.
        id: i64,
        /// Producer epoch.
        epoch: i16,
        /// Sequence number of the first record.
        sequence: i32,
    },
    /// The base offset is negative, or the last record's offset is beyond the largest.
    BaseOffset(i64),
    /// A record is malformed.
    Record {
        /// Which one, from 0.
        index: u32,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Bytes follow the last record.
    BytesAfterRecords(usize),
    /// The compressed records cannot be read.
    Decompress {
        /// The codec that failed.
        codec: Codec,
        /// In its words.
        reason: String,
    },
    /// The records are above the bound when decompressed (or, while a batch is built, before they are compressed).
    RecordsTooLarge {
        /// The bound.
        limit: usize,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { bytes, needed } => write!(f, "the batch is cut off: {bytes} bytes, it needs {needed}"),
            Self::Length(length) => write!(f, "the batch length {length} is shorter than a header or negative"),
            Self::Trailing { bytes, batch } => {
                write!(f, "one batch is expected: it takes {batch} of the {bytes} bytes, the others belong to nothing")
            }
            Self::TooLarge { bytes, limit } => write!(
                f,
                "a batch of {bytes} bytes is above the topic's max_batch_bytes of {limit}; send smaller batches or raise the setting"
            ),
            Self::Magic(magic) => write!(f, "the batch has magic {magic}, only 2 is served"),
            Self::Checksum { stored, computed } => write!(
                f,
                "the batch's CRC-32C is {computed:#010x}, its header says {stored:#010x}: it was damaged on its way; send it again"
            ),
            Self::Codec(codec) => {
                write!(f, "compression codec {codec} is none of none, gzip, snappy, lz4, zstd (0 to 4)")
            }
            Self::Attributes(bits) => write!(
                f,
                "attributes {bits:#06x}: a producer sets the codec (bits 0 to 2) and nothing else; transactions, control batches and append time are not taken"
            ),
            Self::Count { count, last_offset_delta } => write!(
                f,
                "a batch of {count} records whose last offset delta is {last_offset_delta}: there must be at least one, the delta one less, \
                 {MIN_RECORD_BYTES} bytes a record, and no more records than {MAX_DECOMPRESSED_BYTES} bytes hold"
            ),
            Self::Timestamps { base, max } => write!(
                f,
                "base timestamp {base} and max timestamp {max}: both must be from {} to {} (-1 is none), the base not above the max",
                TIMESTAMP_MS_RANGE.start(),
                TIMESTAMP_MS_RANGE.end()
            ),
            Self::Producer { id, epoch, sequence } => write!(
                f,
                "producer id {id}, epoch {epoch}, sequence {sequence}: either all are 0 or more, or the id is -1 and nothing else is set"
            ),
            Self::BaseOffset(offset) => write!(f, "the base offset {offset} leaves no room for the batch's records"),
            Self::Record { index, fault } => write!(f, "record {index} of the batch: {fault}"),
            Self::BytesAfterRecords(bytes) => write!(f, "{bytes} bytes follow the batch's last record"),
            Self::Decompress { codec, reason } => {
                write!(f, "the batch's records are not readable as {codec}: {reason}")
            }
            Self::RecordsTooLarge { limit } => {
                write!(f, "the batch's records take more than {limit} bytes uncompressed; send smaller batches")
            }
        }
    }
}

impl std::error::Error for BatchError {}

impl BatchError {
    /// The error as the publisher is told it.
    pub fn to_error(&self) -> Error {
        match self {
            Self::TooLarge { limit, .. } => {
                Error::new(ErrorKind::BatchTooLarge, self.to_string()).with_limit(u64::from(*limit))
            }
            _ => Error::new(ErrorKind::BadBatch, self.to_string()),
        }
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        error.to_error()
    }
}
