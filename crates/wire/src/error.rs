//! The protocol's errors: for people (what was wrong, the value, the limit) and for programs (code, kind, advice).
//!
//! One kind per cause; code and advice belong to the kind, so that a client may decide by either.

use crate::proto;

/// What a client may do about an error.
pub use crate::proto::Advice;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $code:literal, $advice:ident);+ $(;)?) => {
        /// The cause of an error. Names are stable; code and advice follow from the kind.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorKind { $($(#[$doc])* $variant),+ }

        impl ErrorKind {
            /// Every kind.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$variant),+];
            /// The stable name on the wire.
            pub fn name(self) -> &'static str { match self { $(ErrorKind::$variant => $name),+ } }
            /// The code, with its HTTP meaning.
            pub fn code(self) -> u16 { match self { $(ErrorKind::$variant => $code),+ } }
            /// What a client may do by itself.
            pub fn advice(self) -> Advice { match self { $(ErrorKind::$variant => Advice::$advice),+ } }
            /// The kind with this name, if this build knows it.
            pub fn from_name(name: &str) -> Option<ErrorKind> {
                match name { $($name => Some(ErrorKind::$variant),)+ _ => None }
            }
        }
    };
}

kinds! {
    /// A field of the request is missing, malformed or out of its bounds.
    InvalidRequest = "invalid_request", 400, Terminal;
    /// The operation's number is not known to this broker.
    UnknownOp = "unknown_op", 400, Terminal;
    /// The bytes are not a frame of this protocol.
    BadFrame = "bad_frame", 400, Terminal;
    /// A record batch is malformed: its layout, checksum, counts or codec.
    BadBatch = "bad_batch", 400, Terminal;
    /// A name breaks the rules for names.
    InvalidName = "invalid_name", 400, Terminal;
    /// A setting is unknown or its value out of bounds.
    InvalidSetting = "invalid_setting", 400, Terminal;
    /// This build or cluster cannot serve what was asked for (a kind, a replica count).
    NotSupported = "not_supported", 400, Terminal;
    /// The first frame of a connection was not Hello, or Hello came twice.
    HelloRequired = "hello_required", 400, Terminal;
    /// There is no such topic.
    TopicNotFound = "topic_not_found", 404, Terminal;
    /// The topic has no such partition.
    PartitionNotFound = "partition_not_found", 404, Terminal;
    /// The session has no such subscription.
    SubscriptionNotFound = "subscription_not_found", 404, Terminal;
    /// A topic of this name exists.
    TopicExists = "topic_exists", 409, Terminal;
    /// The publish was partitioned under an older version of the topic's partitioning.
    StalePartitioning = "stale_partitioning", 409, Retry;
    /// The partition is led elsewhere; the address says where.
    NotLeader = "not_leader", 409, Redirect;
    /// The offset is outside of what is retained and committed.
    OffsetOutOfRange = "offset_out_of_range", 410, Terminal;
    /// The thing changed since the version that the request named.
    VersionMismatch = "version_mismatch", 412, Terminal;
    /// A producer's batch came ahead of one that is still missing.
    SequenceAhead = "sequence_ahead", 412, Retry;
    /// A producer's number is not one that can follow, and it is no remembered batch either.
    SequenceInvalid = "sequence_invalid", 412, Terminal;
    /// The producer's state is gone here (expired or never seen): it needs a new id.
    ProducerUnknown = "producer_unknown", 412, Terminal;
    /// A newer epoch of this producer exists.
    ProducerFenced = "producer_fenced", 412, Terminal;
    /// A cursor would move backwards without `force`.
    CursorBackwards = "cursor_backwards", 412, Terminal;
    /// The batch is above the topic's `max_batch_bytes`.
    BatchTooLarge = "batch_too_large", 413, Terminal;
    /// The frame is above the connection's limit; the connection closes.
    FrameTooLarge = "frame_too_large", 413, Terminal;
    /// A limit on a count (connections, subscriptions, cursors, producers, topics) is reached.
    LimitReached = "limit_reached", 429, Retry;
    /// A bug of the broker, reported instead of hidden. What was asked may have been applied.
    Internal = "internal", 500, Unknown;
    /// The log is damaged at this place, which cannot be read again; the node's log says where.
    LogDamaged = "log_damaged", 500, Terminal;
    /// The partition has no leader that can serve right now.
    LeaderUnknown = "leader_unknown", 503, Retry;
    /// The partition is still recovering.
    Recovering = "recovering", 503, Retry;
    /// The node is shutting down.
    ShuttingDown = "shutting_down", 503, Retry;
    /// The partition's storage failed; the node needs a restart and its operator.
    StorageFailed = "storage_failed", 503, Retry;
    /// The broker is at a bound of memory or queue and could not wait longer.
    Overloaded = "overloaded", 503, Retry;
    /// The connection was given up: the peer said nothing, or took nothing, for too long. What is unanswered may have been
    /// applied.
    ConnectionLost = "connection_lost", 504, Unknown;
    /// The request was taken, then its outcome was lost.
    OutcomeUnknown = "outcome_unknown", 504, Unknown;
    /// The disk is below its reserve: no writes until there is room.
    StorageFull = "storage_full", 507, Retry;
}

/// An error as it crosses the wire.
#[derive(Clone, PartialEq, Debug)]
pub struct Error {
    /// The cause.
    pub kind: ErrorKind,
    /// What was wrong, with the value and the limit, and what to do.
    pub message: String,
    /// What programs may want. Boxed, so that a `Result` stays small.
    pub details: Box<Details>,
}

/// Optional values that go with an error.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Details {
    /// The bound that was exceeded.
    pub limit: Option<u64>,
    /// The first offset that can be read.
    pub earliest_offset: Option<u64>,
    /// The end of what can be read.
    pub high_watermark: Option<u64>,
    /// Do not come back sooner.
    pub retry_after_ms: Option<u32>,
    /// The producer number that would be taken.
    pub expected_sequence: Option<i32>,
    /// Where the leader is.
    pub leader_address: Option<String>,
    /// The version that is there now.
    pub version: Option<u64>,
}

impl Error {
    /// An error of this kind with a message and no details.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), details: Box::default() }
    }
    /// Adds the bound that was exceeded.
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.details.limit = Some(limit);
        self
    }
    /// What a client may do by itself.
    pub fn advice(&self) -> Advice {
        self.kind.advice()
    }
    /// The error as a message.
    pub fn to_proto(&self) -> proto::Error {
        let d = &self.details;
        proto::Error {
            code: self.kind.code().into(),
            kind: self.kind.name().into(),
            advice: self.kind.advice() as i32,
            message: self.message.clone(),
            limit: d.limit,
            earliest_offset: d.earliest_offset,
            high_watermark: d.high_watermark,
            retry_after_ms: d.retry_after_ms,
            expected_sequence: d.expected_sequence,
            leader_address: d.leader_address.clone(),
            version: d.version,
        }
    }
    /// Reads a message. A kind that this build does not know becomes the nearest one that keeps its advice; an advice
    /// that it does not know promises nothing.
    pub fn from_proto(e: proto::Error) -> Self {
        let advice = Advice::try_from(e.advice).unwrap_or(Advice::Unknown);
        let kind = ErrorKind::from_name(&e.kind).unwrap_or(match advice {
            Advice::Retry => ErrorKind::Overloaded,
            Advice::Redirect => ErrorKind::NotLeader,
            Advice::Unknown => ErrorKind::OutcomeUnknown,
            Advice::Terminal => ErrorKind::InvalidRequest,
        });
        Self {
            kind,
            message: e.message,
            details: Box::new(Details {
                limit: e.limit,
                earliest_offset: e.earliest_offset,
                high_watermark: e.high_watermark,
                retry_after_ms: e.retry_after_ms,
                expected_sequence: e.expected_sequence,
                leader_address: e.leader_address,
                version: e.version,
            }),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} {})", self.message, self.kind.code(), self.kind.name())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
