//! Configuration: defaults < `lockgate.toml` < `LOCKGATE_*` < flags, checked as a whole, all errors at once.
//!
//! Everything comes from the one table in [`table`]. Reading is apart from deciding: [`Sources::gather`] looks at the
//! machine, [`Config::load`] is a function of what it found.

mod file;
mod relations;
pub mod table;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use lockgate_engine::{JournalSettings, Limits, NodeConfig, ScrubSettings};
use lockgate_wire::NodeId;

use crate::data_dir::Identity;

pub use table::{Applies, Preset, SETTINGS, Setting};
pub use value::{Kind, Value};

/// The configuration file that is read when it is there and none is named.
pub const DEFAULT_FILE: &str = "lockgate.toml";
/// Largest configuration file that is read.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Everything a configuration is made of.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file's name as the user knows it, and its text.
    pub file: Option<(String, String)>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// (setting, value) of the flags that were given.
    pub flags: Vec<(&'static str, String)>,
    /// What defaults depend on.
    pub machine: Machine,
}

/// Facts of the machine that defaults depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl Default for Machine {
    fn default() -> Self {
        Self { cores: 1, memory_bytes: 1 << 30 }
    }
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The table's default.
    Default,
    /// A line of the file.
    File {
        /// The file.
        path: String,
        /// The line, from 1; 0 for the file as a whole.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

/// What is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Where the value stands.
    pub place: Place,
    /// The setting, if it is about one.
    pub setting: Option<String>,
    /// What is wrong and what is allowed.
    pub problem: String,
}

/// A checked configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// The data directory.
    pub data_dir: PathBuf,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where probes and metrics are served.
    pub admin_listen: SocketAddr,
    /// Addresses told to clients; empty: where the node listens.
    pub advertise: Vec<String>,
    /// Shard threads.
    pub shards: u16,
    /// Journal sizes.
    pub journal: JournalSettings,
    /// How segments are read again.
    pub scrub: ScrubSettings,
    /// The engine's bounds.
    pub limits: Limits,
    /// How long a stop waits for what was taken, in milliseconds.
    pub drain_timeout_ms: u64,
    /// `error`, `warn`, `info` or `debug`.
    pub log_level: &'static str,
    /// `text` or `json`.
    pub log_format: &'static str,
    /// Every setting's value with its origin, in the table's order, for `config show`.
    pub origins: Vec<(&'static str, Value, Place)>,
}

impl Sources {
    /// Looks at the file, the environment and the machine. A named file must exist; the default one need not.
    pub fn gather(file: Option<&str>, flags: Vec<(&'static str, String)>) -> Result<Self, ConfigError> {
        let path = file.unwrap_or(DEFAULT_FILE);
        let problem =
            |problem: String| ConfigError { place: Place::File { path: path.into(), line: 0 }, setting: None, problem };
        let text = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_none() => None,
            Ok(found) if found.len() > MAX_FILE_BYTES => {
                return Err(problem(format!("{} bytes are no configuration: at most {MAX_FILE_BYTES}", found.len())));
            }
            _ => Some(std::fs::read_to_string(path).map_err(|error| problem(format!("cannot be read: {error}")))?),
        };
        Ok(Self {
            file: text.map(|text| (path.to_owned(), text)),
            environment: std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
            flags,
            machine: Machine::here(),
        })
    }
}

impl Machine {
    /// This machine; where it does not tell, a small one is assumed.
    pub fn here() -> Self {
        let assumed = Self::default();
        let cores = std::thread::available_parallelism().map_or(assumed.cores, |n| n.get() as u64);
        let physical = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        });
        let group =
            std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
        let memory_bytes = physical.into_iter().chain(group).min().unwrap_or(assumed.memory_bytes);
        Self { cores, memory_bytes }
    }
}

impl Config {
    /// The configuration that the sources give, or everything that is wrong with them.
    pub fn load(sources: &Sources) -> Result<Config, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let values = Values::collect(sources, &mut errors);
        relations::check(&values, &mut errors);
        if !errors.is_empty() {
            errors.sort_by(|a, b| a.place.cmp(&b.place));
            return Err(errors);
        }
        Ok(Config::from_values(values))
    }

    /// What all shards of this start are told.
    pub(crate) fn for_node(&self, identity: &Identity) -> NodeConfig {
        NodeConfig {
            node: identity.node,
            cluster: identity.cluster,
            shards: identity.shards,
            journals: identity.journals,
            incarnation: identity.incarnation,
            journal: self.journal,
            scrub: self.scrub,
            limits: self.limits.clone(),
            advertise: self.advertise.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn from_values(values: Values) -> Config {
        let shards = values.number("shards.count");
        let drain_timeout_ms = values.number("shutdown.drain_timeout");
        Config {
            node: NodeId(values.number("node.id") as u32),
            data_dir: match values.get("data_dir") {
                Value::Directory(path) => path.clone(),
                other => unreachable!("data_dir is a directory, not {other}"),
            },
            listen: values.address("listen"),
            admin_listen: values.address("admin.listen"),
            advertise: match values.get("broker.advertise") {
                Value::Hosts(hosts) => hosts.clone(),
                other => unreachable!("broker.advertise is a list, not {other}"),
            },
            shards: shards as u16,
            journal: JournalSettings {
                file_bytes: values.number("journal.file_bytes"),
                max_write_bytes: values.number("journal.max_write_bytes") as u32,
                max_bytes: values.number("journal.max_bytes"),
                external_min_bytes: values.number("journal.external_min_bytes"),
            },
            scrub: ScrubSettings {
                bytes_per_second: values.number("scrub.bytes_per_second"),
                every_ms: values.number("scrub.every"),
            },
            limits: Limits {
                connections_per_shard: values.number("limits.connections_per_shard") as u32,
                subscriptions_per_session: values.number("limits.subscriptions_per_session") as u32,
                unanswered_requests: values.number("limits.unanswered_requests") as u32,
                unanswered_bytes: values.number("limits.unanswered_bytes"),
                publish_bytes_per_shard: values.number("limits.publish_bytes") / shards,
                max_frame_bytes: values.number("limits.frame_bytes") as u32,
                topics_per_request: values.number("limits.topics_per_request") as u32,
                cursors_per_partition: values.number("limits.cursors_per_partition") as u32,
                producers_per_partition: values.number("limits.producers_per_partition") as u32,
                tail_bytes_per_shard: values.number("limits.tail_bytes_per_shard"),
                hello_timeout_ms: values.number("sessions.hello_timeout"),
                heartbeat_ms: values.number("sessions.heartbeat") as u32,
                send_stall_ms: values.number("sessions.send_stall_timeout"),
                drain_ms: drain_timeout_ms,
                ..Limits::default()
            },
            drain_timeout_ms,
            log_level: values.word("log.level"),
            log_format: values.word("log.format"),
            origins: SETTINGS
                .iter()
                .map(|s| (s.name, values.get(s.name).clone(), values.place(s.name).clone()))
                .collect(),
        }
    }
}

/// Every setting with its value and where it comes from. Always complete: what could not be read keeps its default, so
/// that the checks after it can run.
pub(crate) struct Values(BTreeMap<&'static str, (Value, Place)>);

impl Values {
    fn collect(sources: &Sources, errors: &mut Vec<ConfigError>) -> Values {
        let mut values =
            Values(SETTINGS.iter().map(|s| (s.name, (preset(s, sources.machine), Place::Default))).collect());
        if let Some((path, text)) = &sources.file {
            for item in file::items(path, text, errors) {
                values.set(Place::File { path: path.clone(), line: item.line }, &item.name, &item.text, errors);
            }
        }
        for setting in SETTINGS {
            let variable = setting.variable();
            if let Some(text) = sources.environment.get(&variable) {
                values.set(Place::Environment(variable), setting.name, text, errors);
            }
        }
        unknown_variables(&sources.environment, errors);
        for (name, text) in &sources.flags {
            let flag = table::find(name).and_then(|setting| setting.flag).unwrap_or(name);
            values.set(Place::Flag(flag.to_owned()), name, text, errors);
        }
        values
    }

    fn set(&mut self, place: Place, name: &str, text: &str, errors: &mut Vec<ConfigError>) {
        let Some(setting) = table::find(name) else {
            let problem = format!("there is no such setting{}", nearest(name));
            return errors.push(ConfigError { place, setting: Some(name.to_owned()), problem });
        };
        match setting.kind.parse(text) {
            Some(value) => drop(self.0.insert(setting.name, (value, place))),
            None => {
                let problem = format!("{text:?} is not allowed: {}", setting.kind.allowed());
                errors.push(ConfigError { place, setting: Some(name.to_owned()), problem });
            }
        }
    }

    pub(crate) fn get(&self, name: &'static str) -> &Value {
        &self.entry(name).0
    }
    pub(crate) fn place(&self, name: &'static str) -> &Place {
        &self.entry(name).1
    }
    pub(crate) fn number(&self, name: &'static str) -> u64 {
        match self.get(name) {
            Value::Number(number) => *number,
            other => unreachable!("{name} is a number, not {other}"),
        }
    }
    pub(crate) fn address(&self, name: &'static str) -> SocketAddr {
        match self.get(name) {
            Value::Address(address) => *address,
            other => unreachable!("{name} is an address, not {other}"),
        }
    }
    fn word(&self, name: &'static str) -> &'static str {
        match self.get(name) {
            Value::Choice(word) => word,
            other => unreachable!("{name} is a word, not {other}"),
        }
    }
    fn entry(&self, name: &'static str) -> &(Value, Place) {
        self.0.get(name).expect("every name asked for is in the table: a test loads the defaults")
    }
}

fn preset(setting: &Setting, machine: Machine) -> Value {
    let text = match (setting.preset, setting.kind) {
        (Preset::Text(text), _) => text.to_owned(),
        (Preset::Cores, Kind::Count { max, .. }) => machine.cores.clamp(table::MIN_PRESET_SHARDS, max).to_string(),
        (Preset::QuarterOfMemory, Kind::Bytes { min, max, .. }) => {
            (machine.memory_bytes / 4).clamp(min, max).to_string()
        }
        (preset, kind) => unreachable!("{preset:?} is no default for {kind:?}"),
    };
    setting.kind.parse(&text).expect("a test reads every default")
}

/// A variable that looks like a setting of a known section must be one: a slip of the pen is not ignored. Others that
/// begin with `LOCKGATE_` belong to the tools, or to whatever runs the process.
fn unknown_variables(environment: &BTreeMap<String, String>, errors: &mut Vec<ConfigError>) {
    for variable in environment.keys().filter(|name| name.starts_with("LOCKGATE_")) {
        let of_a_section = SETTINGS.iter().filter_map(Setting::section).any(|section| {
            variable
                .strip_prefix("LOCKGATE_")
                .and_then(|rest| rest.strip_prefix(&section.to_uppercase()))
                .is_some_and(|rest| rest.starts_with('_'))
        });
        if of_a_section && !SETTINGS.iter().any(|setting| setting.variable() == *variable) {
            let name = variable.trim_start_matches("LOCKGATE_").to_lowercase().replacen('_', ".", 1);
            let problem = format!("there is no such setting{}", nearest(&name));
            errors.push(ConfigError { place: Place::Environment(variable.clone()), setting: None, problem });
        }
    }
}

/// A setting whose name is close, as advice.
fn nearest(name: &str) -> String {
    let best = SETTINGS.iter().map(|setting| (edits(name, setting.name), setting.name)).min();
    match best {
        Some((distance, close)) if distance <= 1 + name.len() / 3 => format!("; did you mean {close}?"),
        _ => String::new(),
    }
}

/// How many letters must change to make one word of the other.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: 0 } => f.write_str(path),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Environment(variable) => f.write_str(variable),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.setting {
            Some(setting) => write!(f, "{}: {setting}: {}", self.place, self.problem),
            None => write!(f, "{}: {}", self.place, self.problem),
        }
    }
}
impl std::error::Error for ConfigError {}
