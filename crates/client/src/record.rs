//! Records as callers give and get them.

use bytes::Bytes;
use lockgate_wire::batch;
use lockgate_wire::{Offset, WallMs};

pub use lockgate_wire::batch::RecordHeader;

/// A record to be published.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Chooses the partition: records of one key keep their order. Without a key batches are spread over the partitions.
    pub key: Option<Bytes>,
    /// The content; null is not empty.
    pub value: Option<Bytes>,
    /// Named values, in order; names may repeat.
    pub headers: Vec<RecordHeader>,
    /// Milliseconds since 1970; `None` is the time of the send.
    pub timestamp_ms: Option<i64>,
}

impl Record {
    /// A record with this content.
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// The same with a key.
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same with one more header.
    pub fn with_header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push(RecordHeader { name: name.into(), value: Some(value.into()) });
        self
    }

    pub(crate) fn into_wire(self, now: impl FnOnce() -> WallMs) -> batch::Record {
        let timestamp_ms = self.timestamp_ms.unwrap_or_else(|| now().0);
        batch::Record { key: self.key, value: self.value, headers: self.headers, timestamp_ms }
    }
}

/// A record that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedRecord {
    /// Its partition.
    pub partition: u32,
    /// Its place in the partition.
    pub offset: Offset,
    /// Milliseconds since 1970: the producer's time, or the append time of topics that are set so; -1 is none.
    pub timestamp_ms: i64,
    /// When the leader appended it, milliseconds since 1970.
    pub append_time_ms: i64,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its content; null is not empty.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<RecordHeader>,
}

/// Where a record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Its partition.
    pub partition: u32,
    /// Its offset; `None` with [`Ack::None`](crate::Ack::None), where nobody answers. For a whole batch: of its first record.
    pub offset: Option<Offset>,
    /// When the leader appended it, milliseconds since 1970; `None` as above.
    pub append_time_ms: Option<i64>,
    /// The batch had been appended by an earlier attempt; this is that attempt's answer.
    pub duplicate: bool,
}
