//! The one table of topic settings. Reading, checking, defaults, `topic describe` and the documentation come from it.

use super::config::{Eviction, Overflow, Timestamps, TopicConfig};
use super::field::{At, Field};
use super::value::Unit;
use crate::TopicKind::{self, Cache, Queue, Stream};
use crate::limits::BATCH_HEADROOM_BYTES;

/// A setting of a topic.
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The kinds of topic that have it.
    pub kinds: &'static [TopicKind],
    /// Its value when the topic does not say.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub description: &'static str,
    pub(super) field: Field,
}

impl Setting {
    /// What is allowed, in words.
    pub fn bounds(&self) -> String {
        self.field.bounds()
    }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const PIB: u64 = 1024 * 1024 * GIB;
const SECOND: u64 = 1000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// Smallest `max_batch_bytes`.
pub(super) const MIN_MAX_BATCH_BYTES: u64 = KIB;
/// Largest `max_batch_bytes` of any broker; a broker's own frame and journal limits may allow less.
pub(super) const MAX_MAX_BATCH_BYTES: u64 = lockgate_wire::frame::HARD_MAX_FRAME_BYTES as u64 - BATCH_HEADROOM_BYTES;

/// The default of `segment_bytes`, for who opens a partition before its topic is known. A test holds it to the table.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * MIB;

macro_rules! at {
    ($field:ident) => {
        At { get: |config: &TopicConfig| config.$field.clone(), set: |config, value| config.$field = value }
    };
}
macro_rules! number {
    ($unit:ident, $min:expr, $max:expr, $field:ident) => {
        Field::Number { unit: Unit::$unit, min: $min, max: $max, at: at!($field) }
    };
}
macro_rules! optional {
    ($unit:ident, $min:expr, $max:expr, $field:ident) => {
        Field::Optional { unit: Unit::$unit, min: $min, max: $max, at: at!($field) }
    };
}
macro_rules! choice {
    ($choice:ident, $field:ident) => {
        Field::Choice {
            words: $choice::WORDS,
            get: |config| config.$field.word(),
            set: |config, word| $choice::from_word(word).map(|choice| config.$field = choice).is_some(),
        }
    };
}
const fn setting(
    name: &'static str,
    kinds: &'static [TopicKind],
    default: &'static str,
    field: Field,
    description: &'static str,
) -> Setting {
    Setting { name, kinds, default, description, field }
}

const ALL: &[TopicKind] = &[Stream, Queue, Cache];
const LOGS: &[TopicKind] = &[Stream, Queue];
const STREAMS: &[TopicKind] = &[Stream];
const QUEUES: &[TopicKind] = &[Queue];
const CACHES: &[TopicKind] = &[Cache];
const BOUNDED: &[TopicKind] = &[Queue, Cache];

/// Every setting, in the order in which people see them.
pub static SETTINGS: &[Setting] = &[
    setting(
        "fsync",
        ALL,
        "always",
        Field::Fsync(at!(fsync)),
        "when a replica counts a batch as durable: synced to the device, or held by the operating system and synced within the interval",
    ),
    setting(
        "max_batch_bytes",
        ALL,
        "1MiB",
        number!(Size, MIN_MAX_BATCH_BYTES, MAX_MAX_BATCH_BYTES, max_batch_bytes),
        "largest batch that is taken; the broker's frame and journal write limits must leave 64KiB beside it",
    ),
    setting(
        "retention_ms",
        STREAMS,
        "7d",
        optional!(Duration, SECOND, 36_500 * DAY, retention_ms),
        "how long a record is kept; whole segments are removed",
    ),
    setting(
        "retention_bytes",
        STREAMS,
        "none",
        optional!(Size, MIB, PIB, retention_bytes),
        "how much a partition keeps; whole segments are removed, the oldest first",
    ),
    setting(
        "segment_bytes",
        LOGS,
        "64MiB",
        number!(Size, MIB, GIB, segment_bytes),
        "size at which a partition begins its next segment",
    ),
    setting(
        "timestamps",
        LOGS,
        "create",
        choice!(Timestamps, timestamps),
        "whose time a record carries: the producer's, or the leader's at the append",
    ),
    setting(
        "lease_ms",
        QUEUES,
        "30s",
        number!(Duration, SECOND, 12 * HOUR, lease_ms),
        "how long a delivered message may stay unsettled before it is delivered again",
    ),
    setting(
        "max_attempts",
        QUEUES,
        "20",
        number!(Count, 0, 65_535, max_attempts),
        "failures after which a message is dead; 0 is never",
    ),
    setting(
        "dead_letter",
        QUEUES,
        "none",
        Field::Topic(at!(dead_letter)),
        "the topic that takes dead messages; without one they are dropped and counted",
    ),
    setting(
        "message_ttl_ms",
        QUEUES,
        "none",
        optional!(Duration, SECOND, 365 * DAY, message_ttl_ms),
        "how long a message waits before it expires",
    ),
    setting("max_bytes", BOUNDED, "none", optional!(Size, MIB, PIB, max_bytes), "how much a partition holds"),
    setting(
        "max_messages",
        QUEUES,
        "none",
        optional!(Count, 1, 1_000_000_000_000, max_messages),
        "how many messages a partition holds",
    ),
    setting(
        "overflow",
        QUEUES,
        "reject",
        choice!(Overflow, overflow),
        "what a full partition does: refuse what comes, or drop what is oldest",
    ),
    setting(
        "ttl_ms",
        CACHES,
        "none",
        optional!(Duration, 1, 365 * DAY, ttl_ms),
        "how long a key lives that says nothing itself",
    ),
    setting(
        "eviction",
        CACHES,
        "reject",
        choice!(Eviction, eviction),
        "what a full partition does: refuse what comes, or drop what was not used for longest",
    ),
];
