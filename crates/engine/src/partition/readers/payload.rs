//! Batches on their way out: the stored bytes by reference, base offset and leader epoch put in front.

use bytes::{BufMut, Bytes, BytesMut};
use lockgate_storage::segment::StoredBatch;
use lockgate_wire::batch::{PREFIX_BYTES, delivery_prefix};

use crate::core::Core;

/// Batches below this size are copied together: two pieces each would cost more than the copy.
const COPY_BELOW: usize = 1024;

/// The pieces of a payload, and the append time of each batch.
pub(crate) struct Payload {
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) append_times: Vec<i64>,
    pub(crate) bytes: usize,
}

/// Makes the payload of a delivery or a fetch, and counts it.
pub(crate) fn payload(core: &mut Core, batches: &[StoredBatch]) -> Payload {
    let copied: usize = batches.iter().map(|b| b.batch.len()).filter(|len| *len < COPY_BELOW).sum();
    let mut collected = BytesMut::with_capacity(copied + batches.len() * PREFIX_BYTES);
    let mut pieces = Vec::new();
    let mut bytes = 0;
    for stored in batches {
        let epoch = stored.term.leader_epoch().expect("a leader checks that its term fits before it appends");
        let prefix = delivery_prefix(stored.base_offset, stored.batch.len(), epoch);
        collected.put_slice(&prefix);
        bytes += stored.batch.len();
        core.metrics.delivered_records += u64::from(stored.count);
        if stored.batch.len() < COPY_BELOW {
            collected.put_slice(&stored.batch[PREFIX_BYTES..]);
        } else {
            pieces.push(collected.split().freeze());
            pieces.push(stored.batch.slice(PREFIX_BYTES..));
        }
    }
    if !collected.is_empty() {
        pieces.push(collected.freeze());
    }
    core.metrics.delivered_bytes += bytes as u64;
    Payload { pieces, append_times: batches.iter().map(|b| b.append_time.0).collect(), bytes }
}
