//! A producer's batch on its way: being filled, closed and waiting, sent and unresolved.

use bytes::Bytes;
use lockgate_wire::batch::{BatchBuilder, Producer, restamp};
use lockgate_wire::{Error, MonoTime, OutFrame, ProducerId};

use crate::core::ids::BatchId;
use crate::core::retry::ATTEMPT_MIN_MS;
use crate::error::ClientError;
use crate::record::Receipt;

/// What every stage of a batch knows.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    pub(super) records: u32,
    /// What it takes of the producer's buffer.
    pub(super) cost: usize,
    pub(super) created: MonoTime,
    /// When it fails unless it was resolved.
    pub(super) deadline: MonoTime,
}

/// A batch that takes records.
#[derive(Debug)]
pub(super) struct OpenBatch {
    pub(super) batch: Batch,
    pub(super) builder: BatchBuilder,
    /// When it stops to wait for more records.
    pub(super) close_at: MonoTime,
}

/// A closed batch without a number.
#[derive(Debug)]
pub(super) struct ReadyBatch {
    pub(super) batch: Batch,
    pub(super) contents: Contents,
}

#[derive(Debug)]
pub(super) enum Contents {
    Records(BatchBuilder),
    /// Encoded before, under a number that was given up.
    Encoded(Bytes),
}

impl Contents {
    pub(super) fn encode(self, producer: Option<Producer>) -> Bytes {
        match (self, producer) {
            (Self::Records(builder), producer) => builder.build(producer),
            (Self::Encoded(bytes), Some(producer)) => restamp(bytes, producer),
            (Self::Encoded(bytes), None) => bytes,
        }
    }
}

/// A batch with its number (when idempotent) that has no final answer yet. Whatever happens, it is these bytes.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) batch: Batch,
    pub(super) request: u64,
    pub(super) frame: OutFrame,
    pub(super) state: Flight,
    /// An attempt's outcome is unknown: only a receipt can tell that it was applied, and nothing that it was not.
    pub(super) maybe_applied: bool,
    pub(super) first_sent: MonoTime,
    /// What the last attempt met.
    pub(super) last: Option<Error>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flight {
    Sent,
    /// To be sent again once the partition's pause is over.
    ToSend,
    /// Was refused because an earlier one is missing: goes out right behind that, or when that is resolved.
    Behind,
}

impl InFlight {
    /// The batch's deadline; later only for a first attempt that is under way.
    pub(super) fn give_up_at(&self) -> MonoTime {
        let first = self.state == Flight::Sent && !self.maybe_applied && self.last.is_none();
        let answer_by = if first { self.first_sent.plus_ms(ATTEMPT_MIN_MS) } else { MonoTime(0) };
        self.batch.deadline.max(answer_by)
    }
}

/// An idempotent producer's id and epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) id: ProducerId,
    pub(super) epoch: i16,
}

/// A batch that came to its end.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) batch: Batch,
    /// Of the batch's first record.
    pub(super) result: Result<Receipt, ClientError>,
    /// Encoded size, for the counters.
    pub(super) bytes: usize,
}
