//! What is left of a seed's run: the seconds in which each client works, the faults that strike. A seed with a reduction is
//! a run as good as any other: it replays bit for bit.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Where something comes from that a run can do without.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// An oracle, by its number: it works in the seconds that are kept, and with none of them stays away.
    Client(u32),
    /// Faults of connections, in their order.
    Link,
    /// Faults of the node, in their order.
    Node,
    /// Starts that are cut off, by the number of the process.
    Start,
    /// Processes that die after a counted number of steps, by the number of the process.
    Steps,
    /// Times in which the disk is full, in their order.
    FullDisk,
    /// Times in which the disk is slow, in their order.
    SlowDisk,
    /// Times in which the wall clock is wrong, in their order.
    WrongClock,
    /// Times in which no segment and no checkpoint can be written, in their order.
    RefusedFiles,
    /// Times in which producers send as much as they can, in their order.
    Rush,
    /// Starts before which copies of the disk are hurt, by the number of the process.
    Rot,
}

/// The faults by their names in a reduction.
const FAULTS: [(&str, Source); 10] = [
    ("link", Source::Link),
    ("node", Source::Node),
    ("start", Source::Start),
    ("steps", Source::Steps),
    ("full", Source::FullDisk),
    ("slow", Source::SlowDisk),
    ("clock", Source::WrongClock),
    ("refused", Source::RefusedFiles),
    ("rush", Source::Rush),
    ("rot", Source::Rot),
];
/// No run has more of anything; what is written larger is refused.
const NUMBER_MAX: u32 = 1_000_000;

/// A second of a client, or a fault.
pub type Part = (Source, u32);

/// What a run is reduced to.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// These parts and no others; none given: all.
    pub only: Option<BTreeSet<Part>>,
    /// Work and faults end after so many milliseconds.
    pub stir_ms: Option<u64>,
}

impl Reduction {
    /// Whether a part is left.
    pub fn keeps(&self, part: Part) -> bool {
        self.only.as_ref().is_none_or(|parts| parts.contains(&part))
    }

    /// Whether anything is left of a source.
    pub fn has(&self, source: Source) -> bool {
        self.only.as_ref().is_none_or(|parts| parts.range((source, 0)..=(source, u32::MAX)).next().is_some())
    }

    /// The arguments of the command line that say the same.
    pub fn arguments(&self) -> String {
        let only = self.only.as_ref().map(|parts| format!(" --only {}", Listed(parts))).unwrap_or_default();
        let stir = self.stir_ms.map(|stir| format!(" --stir {stir}")).unwrap_or_default();
        only + &stir
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Client(number) => write!(f, "client{number}"),
            other => f.write_str(FAULTS.iter().find(|(_, source)| source == other).map_or("", |(name, _)| name)),
        }
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, source)) = FAULTS.iter().find(|(name, _)| *name == text) {
            return Ok(*source);
        }
        let number = text.strip_prefix("client").and_then(|number| number.parse().ok());
        let names = FAULTS.map(|(name, _)| name).join(", ");
        number.map(Source::Client).ok_or_else(|| format!("`{text}` is none of {names}, client0, client1, …"))
    }
}

/// Parts as `client0:0-3,client0:7,node:2`; nothing at all is `none`.
struct Listed<'a>(&'a BTreeSet<Part>);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let mut ranges: Vec<(Source, u32, u32)> = Vec::new();
        for (source, number) in self.0 {
            match ranges.last_mut() {
                Some((last, _, end)) if last == source && *end + 1 == *number => *end = *number,
                _ => ranges.push((*source, *number, *number)),
            }
        }
        for (index, (source, start, end)) in ranges.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match start == end {
                true => write!(f, "{comma}{source}:{start}")?,
                false => write!(f, "{comma}{source}:{start}-{end}")?,
            }
        }
        Ok(())
    }
}

/// Reads a list of parts.
pub fn parse_parts(text: &str) -> Result<BTreeSet<Part>, String> {
    let mut parts = BTreeSet::new();
    for item in text.split(',').filter(|_| text != "none") {
        let (source, numbers) = item.split_once(':').ok_or_else(|| format!("`{item}` is not NAME:FROM-TO"))?;
        let source: Source = source.parse()?;
        let (start, end) = numbers.split_once('-').unwrap_or((numbers, numbers));
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| *number <= NUMBER_MAX);
            number.ok_or_else(|| format!("`{text}` in `{item}` is no number up to {NUMBER_MAX}"))
        };
        parts.extend((number(start)?..=number(end)?).map(|number| (source, number)));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_parts_is_written_short_and_read_back() {
        for text in ["none", "client0:0-3", "client0:0-3,client0:7,client12:1,link:4,node:2-3,start:1,steps:0"] {
            let parts = parse_parts(text).unwrap();
            assert_eq!(Listed(&parts).to_string(), text);
        }
        for wrong in ["", "client0", "client:1", "moon:1", "node:x", "node:1-", "node:9999999"] {
            assert!(parse_parts(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_listed_parts_are_left() {
        let reduction = Reduction { only: Some(parse_parts("client2:5,node:1").unwrap()), stir_ms: None };
        assert!(reduction.keeps((Source::Node, 1)) && !reduction.keeps((Source::Node, 0)));
        assert!(reduction.has(Source::Client(2)) && !reduction.has(Source::Client(1)) && !reduction.has(Source::Link));
        assert!(Reduction::default().keeps((Source::Link, 9)) && Reduction::default().has(Source::Steps));
    }
}
