//! The one table of settings. Validation, the environment's names, the flags and the printed documentation come from it.

use super::value::Kind;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const DAY_MS: u64 = 24 * 3_600_000;

/// When a changed value takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applies {
    /// At the next start.
    Restart,
    /// At once.
    Runtime,
}

/// The value that holds when nobody gives one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// Written as a user would write it.
    Text(&'static str),
    /// The number of cores, at least [`MIN_PRESET_SHARDS`].
    Cores,
    /// A quarter of the machine's memory, within the bounds.
    QuarterOfMemory,
}

/// With one shard nothing crosses shards: two are the least that behaves like more.
pub const MIN_PRESET_SHARDS: u64 = 2;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// `section.key`, or a bare key.
    pub name: &'static str,
    /// Type and bounds.
    pub kind: Kind,
    /// The default.
    pub preset: Preset,
    /// When a change takes effect.
    pub applies: Applies,
    /// The command-line flag that sets it, if it has one of its own.
    pub flag: Option<&'static str>,
    /// One sentence.
    pub help: &'static str,
}

impl Setting {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("LOCKGATE_{}", self.name.replace('.', "_").to_uppercase())
    }
    /// The part before the dot, if there is one.
    pub fn section(&self) -> Option<&'static str> {
        self.name.split_once('.').map(|(section, _)| section)
    }
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

const fn setting(name: &'static str, kind: Kind, preset: &'static str, help: &'static str) -> Setting {
    Setting { name, kind, preset: Preset::Text(preset), applies: Applies::Restart, flag: None, help }
}

const fn with_flag(flag: &'static str, setting: Setting) -> Setting {
    Setting { flag: Some(flag), ..setting }
}

const fn with_preset(preset: Preset, setting: Setting) -> Setting {
    Setting { preset, ..setting }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max, multiple_of: 1 }
}

/// Every setting of a node.
pub const SETTINGS: &[Setting] = &[
    with_flag(
        "--data-dir",
        setting("data_dir", Kind::Directory, "./lockgate-data", "Where the node keeps everything."),
    ),
    with_flag(
        "--listen",
        setting("listen", Kind::Address, "127.0.0.1:7400", "Where clients connect; port 0 takes a free one."),
    ),
    with_flag(
        "--admin",
        setting(
            "admin.listen",
            Kind::Address,
            "127.0.0.1:7480",
            "Where probes and metrics are served over HTTP; port 0 takes a free one.",
        ),
    ),
    with_flag(
        "--node-id",
        setting(
            "node.id",
            count(1, u32::MAX as u64),
            "1",
            "The node's number; a data directory belongs to one number for good.",
        ),
    ),
    with_flag(
        "--advertise",
        setting(
            "broker.advertise",
            Kind::Hosts { max: 16 },
            "",
            "The addresses under which clients reach this node, if not where it listens.",
        ),
    ),
    with_preset(
        Preset::Cores,
        setting(
            "shards.count",
            count(1, 256),
            "",
            "Shard threads, each with its journal; with another count, the next start moves partitions to their new shards.",
        ),
    ),
    setting(
        "journal.file_bytes",
        Kind::Bytes { min: 8 * MIB, max: 4 * GIB, multiple_of: 4 * KIB },
        "64MiB",
        "Size of a journal file; files are written through with zeros when made.",
    ),
    setting(
        "journal.max_write_bytes",
        Kind::Bytes { min: 256 * KIB, max: 64 * MIB, multiple_of: 4 * KIB },
        "4MiB",
        "Largest single write to a journal; a batch must fit one.",
    ),
    setting(
        "journal.max_bytes",
        bytes(32 * MIB, 1024 * GIB),
        "1GiB",
        "Most bytes of each of a shard's two journals, at least four files; at the bound publishes are refused until files go.",
    ),
    setting(
        "journal.external_min_bytes",
        bytes(64 * KIB, 64 * MIB),
        "256KiB",
        "With fsync = always, what one journal write brings for one partition goes straight into its segments from this size on.",
    ),
    setting(
        "limits.connections_per_shard",
        count(1, 1_000_000),
        "10000",
        "Client connections of a shard; one more is closed at once.",
    ),
    setting(
        "limits.subscriptions_per_session",
        count(1, 100_000),
        "1000",
        "Subscriptions of a session; one more is refused.",
    ),
    setting(
        "limits.unanswered_requests",
        count(1, 100_000),
        "1000",
        "Requests of a connection that wait for their answer; at the bound the connection is not read.",
    ),
    setting(
        "limits.unanswered_bytes",
        bytes(MIB, 4 * GIB),
        "64MiB",
        "Bytes of a connection in waiting requests and unsent answers; at the bound the connection is not read.",
    ),
    with_preset(
        Preset::QuarterOfMemory,
        setting(
            "limits.publish_bytes",
            bytes(64 * MIB, 1024 * GIB),
            "",
            "Bytes of publishes in memory that wait for their answer, of all shards; at the bound publishers are not read.",
        ),
    ),
    setting(
        "limits.frame_bytes",
        bytes(128 * KIB, 64 * MIB),
        "8MiB",
        "Largest frame after Hello; a larger one closes the connection.",
    ),
    setting(
        "limits.topics_per_request",
        count(1, 100_000),
        "1000",
        "Topics that one request may name; more are refused.",
    ),
    setting(
        "limits.cursors_per_partition",
        count(1, 1_000_000),
        "10000",
        "Cursors of a partition; a commit under a new name is refused at the bound.",
    ),
    setting(
        "limits.producers_per_partition",
        count(1, 1_000_000),
        "10000",
        "Idempotent producers that a partition remembers; a new one is refused at the bound.",
    ),
    setting(
        "limits.tail_bytes_per_shard",
        bytes(MIB, 64 * GIB),
        "64MiB",
        "Memory of a shard for the ends of its partitions' logs, from which tailing readers are served.",
    ),
    setting(
        "scrub.bytes_per_second",
        bytes(0, GIB),
        "4MiB",
        "Most bytes of a shard's sealed segments that are read again in a second, to find damage; 0 turns it off.",
    ),
    setting(
        "scrub.every",
        Kind::Duration { min_ms: 1_000, max_ms: 365 * DAY_MS },
        "7d",
        "How long that rests between the end of a pass over all segments and the next; the first begins with the start.",
    ),
    setting(
        "sessions.hello_timeout",
        Kind::Duration { min_ms: 100, max_ms: 300_000 },
        "10s",
        "How long a connection may take to say Hello before it is closed.",
    ),
    setting(
        "sessions.heartbeat",
        Kind::Duration { min_ms: 100, max_ms: 300_000 },
        "5s",
        "Heartbeat interval of a session unless its client asks for another; three missed ones end the connection.",
    ),
    setting(
        "sessions.send_stall_timeout",
        Kind::Duration { min_ms: 1_000, max_ms: 600_000 },
        "30s",
        "A connection that takes none of the bytes sent to it for this long is closed.",
    ),
    setting(
        "shutdown.drain_timeout",
        Kind::Duration { min_ms: 1, max_ms: 600_000 },
        "10s",
        "How long a stop waits for what was taken; 10 s later the process ends whatever is missing.",
    ),
    setting(
        "log.level",
        Kind::Choice(&["error", "warn", "info", "debug"]),
        "info",
        "The least important lines that are logged.",
    ),
    setting("log.format", Kind::Choice(&["text", "json"]), "text", "How log lines are written to standard error."),
];
