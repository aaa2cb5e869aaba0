//! What callers choose: one struct a handle, with units, bounds and defaults beside each field.

use std::collections::BTreeMap;
use std::time::Duration;

use lockgate_wire::batch::Codec;
use lockgate_wire::frame::{DEFAULT_MAX_FRAME_BYTES, HARD_MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_HELLO};
use lockgate_wire::name::{check_client_id, check_cursor_name};
use lockgate_wire::{HostPort, Offset, proto};

use crate::error::ClientError;

/// Where a broker listens unless said otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7400";
/// Most unresolved batches an idempotent producer may have in a partition: what brokers remember.
pub const MAX_IDEMPOTENT_IN_FLIGHT: usize = 5;
/// Most unanswered batches any producer may have in a partition.
pub const MAX_IN_FLIGHT: usize = 1000;
/// Most records of one batch.
pub const MAX_BATCH_RECORDS: usize = 1_000_000;
/// Shortest and longest timeout that can be set.
pub const TIMEOUT_RANGE: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3600);

/// What [`Client::connect`](crate::Client::connect) needs.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where to begin; one is enough, at least one. All stay candidates for ever, and their names are resolved again at
    /// every attempt. Default: [`DEFAULT_ADDRESS`].
    pub seeds: Vec<HostPort>,
    /// For the broker's logs, at most 249 bytes. Default: `lockgate-client`.
    pub client_id: String,
    /// How long a call is retried, 0 to 24 h. One attempt is made however short this is, and gets at least a second to
    /// be answered once it was sent. Default: 30 s.
    pub call_timeout: Duration,
    /// How long `connect` takes at most: each seed is tried once, within its share of this time. Default: 2 s.
    pub connect_timeout: Duration,
    /// Largest frame that is accepted, 64 KiB to 64 MiB. Default: 8 MiB.
    pub max_frame_bytes: u32,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            seeds: vec![HostPort { host: "127.0.0.1".into(), port: 7400 }],
            client_id: "lockgate-client".into(),
            call_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            max_frame_bytes: DEFAULT_MAX_FRAME_BYTES,
        }
    }
}

impl ClientConfig {
    /// The defaults with these seeds, each `host:port`.
    pub fn with_seeds<S: AsRef<str>>(seeds: impl IntoIterator<Item = S>) -> Result<Self, ClientError> {
        let seeds = seeds.into_iter().map(|seed| HostPort::parse(seed.as_ref())).collect::<Result<_, _>>();
        let seeds = seeds.map_err(|error| ClientError::InvalidArgument(error.message))?;
        Ok(Self { seeds, ..Self::default() })
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        require(!self.seeds.is_empty(), || "no address to connect to: seeds is empty".into())?;
        check_client_id(&self.client_id).map_err(|error| ClientError::InvalidArgument(error.message))?;
        check_timeout("call_timeout", self.call_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        let frames = MAX_FRAME_BYTES_BEFORE_HELLO..=HARD_MAX_FRAME_BYTES;
        require(frames.contains(&self.max_frame_bytes), || {
            format!("max_frame_bytes is {}, it must be {} to {}", self.max_frame_bytes, frames.start(), frames.end())
        })
    }
}

/// When a publish counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ack {
    /// A majority of the replicas holds the batch as durably as the topic's `fsync` says.
    #[default]
    Quorum,
    /// The leader holds it as durably as the topic's `fsync` says.
    Leader,
    /// Nothing is answered: done when it was handed to the connection. What is lost is not reported.
    None,
}

impl Ack {
    pub(crate) fn to_proto(self) -> proto::Ack {
        match self {
            Self::Quorum => proto::Ack::Quorum,
            Self::Leader => proto::Ack::Leader,
            Self::None => proto::Ack::None,
        }
    }
}

/// What a producer without idempotence does about a batch whose outcome is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnUnknown {
    /// The sends get [`ClientError::OutcomeUnknown`].
    #[default]
    Return,
    /// Send it again: at least once, so records may be there twice.
    Resend,
}

/// How a [`Producer`](crate::Producer) works.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// How long a batch waits for more records. With 0 a batch leaves at once while fewer than `in_flight` are unanswered
    /// in its partition; behind that bound records gather by themselves. Default: 0.
    pub linger: Duration,
    /// A batch is closed before it grows above this, 1 to the topic's `max_batch_bytes` (which bounds it too). A record that
    /// is larger travels alone. Default: 64 KiB.
    pub batch_bytes: usize,
    /// Most records of a batch, 1 to 1 000 000. Default: 10 000.
    pub batch_records: usize,
    /// How batches are compressed. Default: not.
    pub compression: Codec,
    /// When a publish counts as done. Default: [`Ack::Quorum`].
    pub ack: Ack,
    /// Number the batches, so that one is appended once however often it is sent. Needs [`Ack::Quorum`]. Default: true.
    pub idempotent: bool,
    /// Most unanswered batches in a partition: 1 to 5 when idempotent, else 1 to 1000. Default: 5.
    pub in_flight: usize,
    /// Most bytes of records that are not answered yet, 1 or more; `send` waits above it. A record that is larger is taken
    /// when nothing else is buffered. Default: 32 MiB.
    pub buffer_bytes: usize,
    /// Without idempotence: what to do when an outcome is unknown. Default: [`OnUnknown::Return`].
    pub on_unknown: OnUnknown,
    /// How long a record may take from `send` to its answer before it fails, up to 24 h, more than `linger`.
    /// Default: 30 s.
    pub timeout: Duration,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            linger: Duration::ZERO,
            batch_bytes: 64 * 1024,
            batch_records: 10_000,
            compression: Codec::None,
            ack: Ack::Quorum,
            idempotent: true,
            in_flight: MAX_IDEMPOTENT_IN_FLIGHT,
            buffer_bytes: 32 * 1024 * 1024,
            on_unknown: OnUnknown::Return,
            timeout: Duration::from_secs(30),
        }
    }
}

impl ProducerConfig {
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        check_timeout("timeout", self.timeout)?;
        require(self.timeout > self.linger, || {
            format!("timeout {:?} must be longer than linger {:?}", self.timeout, self.linger)
        })?;
        require(self.batch_bytes > 0, || "batch_bytes is 0, it must be 1 or more".into())?;
        require(self.buffer_bytes > 0, || "buffer_bytes is 0, it must be 1 or more".into())?;
        require((1..=MAX_BATCH_RECORDS).contains(&self.batch_records), || {
            format!("batch_records is {}, it must be 1 to {MAX_BATCH_RECORDS}", self.batch_records)
        })?;
        require(!self.idempotent || self.ack == Ack::Quorum, || {
            "an idempotent producer needs ack = quorum; set idempotent = false for leader and none".into()
        })?;
        let most = if self.idempotent { MAX_IDEMPOTENT_IN_FLIGHT } else { MAX_IN_FLIGHT };
        require((1..=most).contains(&self.in_flight), || {
            format!("in_flight is {}, it must be 1 to {most} here (5 when idempotent)", self.in_flight)
        })
    }
}

/// Where a reader begins in each partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// The first record that is retained.
    #[default]
    Earliest,
    /// Only what is committed from now on.
    Latest,
    /// This offset.
    Offset(Offset),
    /// The first record with this timestamp (ms since 1970) or a later one.
    Time(i64),
    /// That many records before the high watermark, at most what is retained.
    Last(u64),
    /// Where this cursor is; where it is not set: the earliest record.
    Cursor(String),
    /// These offsets, as [`Reader::positions`](crate::Reader::positions) gave them; partitions that are not named begin at
    /// the earliest record.
    Positions(BTreeMap<u32, Offset>),
}

impl Start {
    pub(crate) fn for_partition(&self, partition: u32) -> proto::StartPosition {
        use proto::start_position::At;
        let at = match self {
            Self::Earliest => At::Earliest(true),
            Self::Latest => At::Latest(true),
            Self::Offset(offset) => At::Offset(offset.0),
            Self::Time(ms) => At::TimestampMs(*ms),
            Self::Last(records) => At::Last(*records),
            Self::Cursor(name) => At::Cursor(name.clone()),
            Self::Positions(positions) => match positions.get(&partition) {
                Some(offset) => At::Offset(offset.0),
                None => At::Earliest(true),
            },
        };
        proto::StartPosition { at: Some(at) }
    }
}

/// How a [`Reader`](crate::Reader) works.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// Where to begin. Default: [`Start::Earliest`].
    pub from: Start,
    /// Which partitions; `None` is all of them. Default: all.
    pub partitions: Option<Vec<u32>>,
    /// Most bytes that are delivered ahead of the caller, shared evenly by the partitions; every partition gets at least
    /// one largest batch. Default: 8 MiB.
    pub credit_bytes: u64,
    /// Stop at what was committed when the reader was opened, instead of waiting for more. Default: false.
    pub stop_at_end: bool,
}

impl Default for ReaderConfig {
    fn default() -> Self {
        Self { from: Start::Earliest, partitions: None, credit_bytes: 8 * 1024 * 1024, stop_at_end: false }
    }
}

impl ReaderConfig {
    /// Begins where an earlier reader was, by its [`positions`](crate::Reader::positions).
    pub fn resume_from(mut self, positions: BTreeMap<u32, Offset>) -> Self {
        self.from = Start::Positions(positions);
        self
    }

    pub(crate) fn check(&self) -> Result<(), ClientError> {
        let Start::Cursor(name) = &self.from else { return Ok(()) };
        check_cursor_name(name).map_err(|error| ClientError::InvalidArgument(error.message))
    }
}

fn check_timeout(name: &str, value: Duration) -> Result<(), ClientError> {
    require(TIMEOUT_RANGE.contains(&value), || {
        format!("{name} is {value:?}, it must be at most {:?}", TIMEOUT_RANGE.end())
    })
}

pub(crate) fn require(holds: bool, message: impl FnOnce() -> String) -> Result<(), ClientError> {
    if holds { Ok(()) } else { Err(ClientError::InvalidArgument(message())) }
}
