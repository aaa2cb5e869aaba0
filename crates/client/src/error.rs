//! What can go wrong for a caller of the library: one variant a cause, with the values that explain it.

use std::fmt;
use std::time::Duration;

use lockgate_wire::batch::BatchError;
use lockgate_wire::{Error, ErrorKind, HostPort, Offset};

/// Why an operation of the library failed.
///
/// [`kind`](Self::kind) is a stable name for programs; [`outcome_unknown`](Self::outcome_unknown) tells whether what was
/// asked for may have been applied all the same. Everything else was **not** applied.
#[derive(Clone, PartialEq, Debug)]
pub enum ClientError {
    /// There is no such topic or partition. Create it; not retried.
    NotFound(Error),
    /// No answer in time, and nothing was applied. Wait, or raise the timeout.
    Unavailable {
        /// How long the library tried.
        after: Duration,
        /// What the last attempt met.
        last: String,
    },
    /// It may or may not have been applied: resend only if doing it twice is harmless.
    OutcomeUnknown {
        /// What happened to the answer.
        last: String,
    },
    /// The offset is not within what is retained and committed. Choose another start.
    OffsetOutOfRange {
        /// The partition.
        partition: u32,
        /// The first offset that can be read.
        earliest: Offset,
        /// The offset after the last that can be read.
        high_watermark: Offset,
    },
    /// The broker refused the request, and would refuse it again.
    Refused(Error),
    /// No broker could be reached.
    Connect {
        /// Every address that was tried, and why it failed.
        attempts: Vec<ConnectAttempt>,
    },
    /// An argument is out of its bounds; nothing was sent.
    InvalidArgument(String),
    /// The record does not fit into the topic's largest batch; nothing was sent.
    RecordTooLarge {
        /// What a batch of this record alone takes.
        bytes: usize,
        /// The topic's `max_batch_bytes`.
        limit: usize,
    },
    /// `try_send` found the producer's buffer full, or too much waits to be written to the connection.
    BufferFull {
        /// The buffer's bound.
        buffer_bytes: usize,
    },
    /// Too many calls wait for their answers at once.
    TooManyCalls {
        /// The bound.
        limit: usize,
    },
    /// A delivered batch is damaged. The partition is read no further by this reader.
    Corrupt {
        /// The partition.
        partition: u32,
        /// The first offset that was not handed out.
        offset: Offset,
        /// What is wrong with the batch.
        error: BatchError,
    },
    /// The broker's answer is not what the protocol says.
    Protocol(String),
    /// The client, producer or reader was closed.
    Closed,
}

/// One failed attempt to reach a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectAttempt {
    /// Where.
    pub address: HostPort,
    /// Why it failed.
    pub reason: String,
}

impl ClientError {
    /// A stable name of the cause: the broker's kind where the broker spoke, else this library's.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound(error) | Self::Refused(error) => error.kind.name(),
            Self::Unavailable { .. } => "unavailable",
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown.name(),
            Self::OffsetOutOfRange { .. } => ErrorKind::OffsetOutOfRange.name(),
            Self::Connect { .. } => "connect",
            Self::InvalidArgument(_) => "invalid_argument",
            Self::RecordTooLarge { .. } => "record_too_large",
            Self::BufferFull { .. } => "buffer_full",
            Self::TooManyCalls { .. } => "too_many_calls",
            Self::Corrupt { .. } => ErrorKind::BadBatch.name(),
            Self::Protocol(_) => "protocol",
            Self::Closed => "closed",
        }
    }

    /// Whether what was asked for may have been applied although this error came back.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// A broker's terminal error as the caller sees it.
    pub(crate) fn from_terminal(error: Error) -> Self {
        match error.kind {
            ErrorKind::TopicNotFound | ErrorKind::PartitionNotFound => Self::NotFound(error),
            _ => Self::Refused(error),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(error) | Self::Refused(error) => error.fmt(f),
            Self::Unavailable { after, last } => {
                write!(f, "not done within {} ms, and not applied: {last}", after.as_millis())
            }
            Self::OutcomeUnknown { last } => write!(f, "it may or may not have been applied: {last}"),
            Self::OffsetOutOfRange { partition, earliest, high_watermark } => write!(
                f,
                "the offset is out of range: partition {partition} can be read from {earliest} up to {high_watermark}"
            ),
            Self::Connect { attempts } => {
                f.write_str("no broker could be reached")?;
                let mut separator = ": ";
                for attempt in attempts {
                    write!(f, "{separator}{}: {}", attempt.address, attempt.reason)?;
                    separator = "; ";
                }
                Ok(())
            }
            Self::InvalidArgument(what) => f.write_str(what),
            Self::RecordTooLarge { bytes, limit } => write!(
                f,
                "the record takes {bytes} bytes as a batch, the topic's max_batch_bytes is {limit}; send less or raise the setting"
            ),
            Self::BufferFull { buffer_bytes } => {
                write!(
                    f,
                    "the buffer of {buffer_bytes} bytes is full; wait for answers or, in a producer, raise buffer_bytes"
                )
            }
            Self::TooManyCalls { limit } => {
                write!(f, "{limit} calls wait for their answers already; wait for some of them")
            }
            Self::Corrupt { partition, offset, error } => {
                write!(f, "partition {partition} delivered a damaged batch at offset {offset}: {error}")
            }
            Self::Protocol(what) => write!(f, "the broker broke the protocol: {what}"),
            Self::Closed => f.write_str("it was closed"),
        }
    }
}

impl std::error::Error for ClientError {}
