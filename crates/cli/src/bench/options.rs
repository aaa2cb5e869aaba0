//! What a benchmark is asked for.

use std::time::Duration;

use clap::{Args, ValueEnum};
use lockgate_client::Ack;
use serde_json::{Value, json};

use crate::args::AckArg;
use crate::failure::Failure;

/// How long to publish when neither records nor seconds are given.
const DEFAULT_SECONDS: u64 = 10;
/// What a batch may take beside its records' values: generous, so that what passes here passes the topic's limit, too.
const RECORD_OVERHEAD_BYTES: u64 = 32;

/// The load.
#[derive(Clone, Debug, Args)]
pub(super) struct Load {
    /// A topic that is there already; by default one of its own, deleted at the end
    #[arg(long, value_name = "T")]
    pub(super) topic: Option<String>,
    /// Bytes of a record's value
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    pub(super) size: u32,
    /// Stop after this many records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) records: Option<u64>,
    /// Stop after this long; 10 unless records are given
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seconds: Option<u64>,
    /// Unanswered requests of each producer; an idempotent one sends at most 5 per partition of them
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) in_flight: u32,
    /// Records of a request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) batch_records: u32,
    /// Producers, each with a connection and a thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) producers: u32,
    /// Partitions of the topic that is made
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) partitions: u32,
    /// When a record counts as acknowledged
    #[arg(long, value_enum, default_value_t)]
    pub(super) ack: AckArg,
    /// Number the batches, so that none is appended twice or, sent again, behind later ones; off with --ack leader and none
    #[arg(long, value_enum)]
    pub(super) idempotent: Option<Switch>,
    /// The fsync setting of the topic that is made: always or interval:MS
    #[arg(long, value_name = "F", default_value = "always")]
    pub(super) fsync: String,
    /// Publish this long before measuring
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(super) warmup: u64,
    /// Records per second of all producers together; by default as many as go
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rate: Option<u64>,
    /// More settings of the topic that is made.
    #[arg(skip)]
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// Start a broker for this alone, with its data in the directory for temporary files
    #[arg(long)]
    pub(super) own: bool,
}

/// `on` or `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
}

impl Load {
    /// Whether the options fit together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.idempotent == Some(Switch::On) && self.ack != AckArg::Quorum {
            let what = "--idempotent on needs --ack quorum; leave one of them out";
            return Err(Failure::Usage(what.into()));
        }
        let batch = (u64::from(self.size) + RECORD_OVERHEAD_BYTES) * u64::from(self.batch_records);
        let limit = u64::from(lockgate_wire::frame::DEFAULT_MAX_FRAME_BYTES) - 64 * 1024;
        if batch > limit {
            let what = format!(
                "{} records of {} bytes are more than a batch of {limit} bytes; lower --size or --batch-records",
                self.batch_records, self.size
            );
            return Err(Failure::Usage(what));
        }
        Ok(())
    }

    pub(super) fn is_idempotent(&self) -> bool {
        self.ack.level() == Ack::Quorum && self.idempotent != Some(Switch::Off)
    }

    /// What a topic must allow for these batches.
    pub(super) fn max_batch_bytes(&self) -> u64 {
        let batch = (u64::from(self.size) + RECORD_OVERHEAD_BYTES) * u64::from(self.batch_records);
        batch.max(1024 * 1024)
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        match (self.seconds, self.records) {
            (None, Some(_)) => None,
            (seconds, _) => Some(Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS))),
        }
    }

    pub(super) fn asked(&self) -> Value {
        json!({
            "topic": self.topic,
            "size": self.size,
            "records": self.records,
            "seconds": self.duration().map(|duration| duration.as_secs()),
            "in_flight": self.in_flight,
            "batch_records": self.batch_records,
            "producers": self.producers,
            "partitions": self.partitions,
            "ack": format!("{:?}", self.ack).to_lowercase(),
            "idempotent": self.is_idempotent(),
            "fsync": self.fsync,
            "warmup_seconds": self.warmup,
            "rate": self.rate,
            "own": self.own,
        })
    }
}
