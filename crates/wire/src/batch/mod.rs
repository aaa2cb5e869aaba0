//! The record batch: what producers send, logs hold, replicas exchange and readers get, in one layout (Kafka's v2).
//!
//! ```text
//!   0  base offset i64 ┐                    27  base timestamp i64
//!   8  batch length i32├ the broker's own   35  max timestamp i64
//!  12  leader epoch i32┘                    43  producer id i64
//!  16  magic i8 = 2                         51  producer epoch i16
//!  17  CRC-32C u32, over 21 to the end      53  base sequence i32
//!  21  attributes i16                       57  count i32
//!  23  last offset delta i32                61  records, compressed as a whole if the attributes say so
//! ```
//! Big endian; `batch length` counts everything after itself. A batch is checked once, at the door ([`validate()`]); its
//! bytes then stay as they are. On delivery only the first [`PREFIX_BYTES`] are replaced ([`delivery_prefix`]).

mod builder;
mod codec;
mod error;
mod header;
mod record;
mod rewrite;
pub mod validate;

pub use builder::BatchBuilder;
pub use codec::{Codec, MAX_DECOMPRESSED_BYTES, MAX_ZSTD_WINDOW_LOG};
pub use error::BatchError;
pub use header::{BatchHeader, Producer, delivery_prefix, sequence_after};
pub use record::{DecodedBatch, MIN_RECORD_BYTES, Record, RecordHeader, decode};
pub use rewrite::{restamp, rewrite_append_time};
pub use validate::{split, validate};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;
/// Base offset, batch length and leader epoch: what the CRC does not cover and the broker replaces on delivery.
pub const PREFIX_BYTES: usize = 16;
/// Base offset and batch length: what the batch length does not count.
pub const LENGTH_END: usize = 12;
/// The least and the greatest timestamp of a record; -1 says "none". The bounds keep every difference in an `i64`.
pub const TIMESTAMP_MS_RANGE: std::ops::RangeInclusive<i64> = -1..=i64::MAX - 1;

const _: () = assert!(LENGTH_END < PREFIX_BYTES && PREFIX_BYTES < HEADER_BYTES);

#[cfg(test)]
mod tests;
