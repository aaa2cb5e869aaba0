//! Types of settings: how a value is written, what is allowed, and the error when it is not.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// A setting's type with its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number.
    Count {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A number of bytes, plain or with a unit: `65536`, `64KiB`, `4 MiB`, `1GiB`.
    Bytes {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
        /// The value is a multiple of this.
        multiple_of: u64,
    },
    /// A time with its unit: `250ms`, `10s`, `5m`, `12h`, `7d`.
    Duration {
        /// Least, in milliseconds.
        min_ms: u64,
        /// Most, in milliseconds.
        max_ms: u64,
    },
    /// Where to listen: `IP:port` or `localhost:port`.
    Address,
    /// A list of `host:port`, separated by commas; may be empty.
    Hosts {
        /// Most entries.
        max: usize,
    },
    /// A directory.
    Directory,
    /// One of a few words.
    Choice(&'static [&'static str]),
}

/// A setting's value, checked against its [`Kind`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A count, bytes, or milliseconds.
    Number(u64),
    /// An address to listen on.
    Address(SocketAddr),
    /// Names and ports, as written.
    Hosts(Vec<String>),
    /// A directory.
    Directory(PathBuf),
    /// The word.
    Choice(&'static str),
}

const DAY_MS: u64 = 24 * 3_600_000;
/// The units of times, in milliseconds.
const TIMES: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", DAY_MS)];

impl Kind {
    /// What is allowed, in words.
    pub fn allowed(&self) -> String {
        match self {
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Bytes { min, max, multiple_of: 1 } => {
                format!("bytes from {} to {}, like 64KiB or 4MiB", size(*min), size(*max))
            }
            Self::Bytes { min, max, multiple_of } => {
                format!(
                    "bytes from {} to {}, a multiple of {}, like 64KiB or 4MiB",
                    size(*min),
                    size(*max),
                    size(*multiple_of)
                )
            }
            Self::Duration { min_ms, max_ms } => {
                format!("a time from {} to {} with its unit, like 250ms, 10s or 5m", time(*min_ms), time(*max_ms))
            }
            Self::Address => "an IP address and a port, like 127.0.0.1:7400 or [::1]:7400".into(),
            Self::Hosts { max } => format!("at most {max} times host:port, separated by commas"),
            Self::Directory => "the path of a directory".into(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// Reads a value; `None` when it is not what is [allowed](Kind::allowed).
    pub fn parse(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match *self {
            Self::Count { min, max } => number(text).filter(|n| (min..=max).contains(n)).map(Value::Number),
            Self::Bytes { min, max, multiple_of } => {
                with_unit(text, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1), ("", 1)])
                    .filter(|n| (min..=max).contains(n) && n % multiple_of == 0)
                    .map(Value::Number)
            }
            Self::Duration { min_ms, max_ms } => {
                with_unit(text, TIMES).filter(|n| (min_ms..=max_ms).contains(n)).map(Value::Number)
            }
            Self::Address => address(text).map(Value::Address),
            Self::Hosts { max } => hosts(text).filter(|hosts| hosts.len() <= max).map(Value::Hosts),
            Self::Directory => (!text.is_empty()).then(|| Value::Directory(text.into())),
            Self::Choice(words) => words.iter().find(|word| **word == text).map(|word| Value::Choice(word)),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Hosts(hosts) => f.write_str(&hosts.join(",")),
            Self::Directory(path) => path.display().fmt(f),
            Self::Choice(word) => f.write_str(word),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

/// A number followed by one of the units; the first unit that ends the text counts.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (unit, factor) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    number(text.strip_suffix(unit)?.trim_end())?.checked_mul(*factor)
}

fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?)),
        None => text.parse().ok(),
    }
}

fn hosts(text: &str) -> Option<Vec<String>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (host, port) = entry.rsplit_once(':')?;
            let port: u16 = port.parse().ok()?;
            (!host.is_empty() && port > 0 && !host.contains(char::is_whitespace)).then(|| entry.to_owned())
        })
        .collect()
}

/// Bytes in the largest unit that keeps them whole.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

fn time(ms: u64) -> String {
    if ms >= DAY_MS && ms.is_multiple_of(DAY_MS) {
        return format!("{}d", ms / DAY_MS);
    }
    if ms >= 1_000 && ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}
