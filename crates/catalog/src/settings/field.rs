//! How one setting is read, checked, shown, and where in the config it lives.

use lockgate_wire::name::TopicName;

use super::config::{Fsync, TopicConfig};
use super::value::Unit;

/// Shortest and longest interval of `fsync = interval(…)`, in milliseconds.
pub(super) const FSYNC_INTERVAL_MS: (u64, u64) = (1, 60_000);

/// A field of the config.
pub(super) struct At<T: 'static> {
    pub(super) get: fn(&TopicConfig) -> T,
    pub(super) set: fn(&mut TopicConfig, T),
}

/// The sorts of settings.
pub(super) enum Field {
    /// `always` or `interval(50ms)`.
    Fsync(At<Fsync>),
    /// A number within bounds, both allowed.
    Number { unit: Unit, min: u64, max: u64, at: At<u64> },
    /// A number within bounds, or `none`.
    Optional { unit: Unit, min: u64, max: u64, at: At<Option<u64>> },
    /// One of a few words; `set` says whether it knows the word.
    Choice {
        words: &'static [&'static str],
        get: fn(&TopicConfig) -> &'static str,
        set: fn(&mut TopicConfig, &str) -> bool,
    },
    /// A topic's name, or `none`.
    Topic(At<Option<String>>),
}

impl Field {
    /// Writes the value into the config, or says what is wrong with it.
    pub(super) fn read(&self, text: &str, config: &mut TopicConfig) -> Result<(), String> {
        match self {
            Self::Fsync(at) => (at.set)(config, fsync(text)?),
            Self::Number { unit, min, max, at } => (at.set)(config, number(*unit, text, *min, *max)?),
            Self::Optional { at, .. } if is_none(text) => (at.set)(config, None),
            Self::Optional { unit, min, max, at } => (at.set)(config, Some(number(*unit, text, *min, *max)?)),
            Self::Choice { set, .. } => {
                if !set(config, text) {
                    return Err("not one of the allowed words".into());
                }
            }
            Self::Topic(at) if is_none(text) => (at.set)(config, None),
            Self::Topic(at) => {
                let name = TopicName::parse(text).map_err(|error| error.message)?;
                (at.set)(config, Some(name.to_string()));
            }
        }
        Ok(())
    }

    /// The value in its one canonical form, which [`Field::read`] reads back.
    pub(super) fn show(&self, config: &TopicConfig) -> String {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".into());
        match self {
            Self::Fsync(at) => match (at.get)(config) {
                Fsync::Always => "always".into(),
                Fsync::Interval { ms } => format!("interval({})", Unit::Duration.show(ms.into())),
            },
            Self::Number { unit, at, .. } => unit.show((at.get)(config)),
            Self::Optional { unit, at, .. } => or_none((at.get)(config).map(|number| unit.show(number))),
            Self::Choice { get, .. } => get(config).into(),
            Self::Topic(at) => or_none((at.get)(config)),
        }
    }

    /// What is allowed.
    pub(super) fn bounds(&self) -> String {
        match self {
            Self::Fsync(_) => {
                let (min, max) = FSYNC_INTERVAL_MS;
                let show = |ms| Unit::Duration.show(ms);
                format!("always, or interval({}) to interval({})", show(min), show(max))
            }
            Self::Number { unit, min, max, .. } => format!("{} to {}", unit.show(*min), unit.show(*max)),
            Self::Optional { unit, min, max, .. } => format!("{} to {}, or none", unit.show(*min), unit.show(*max)),
            Self::Choice { words, .. } => words.join(", "),
            Self::Topic(_) => "a topic of the same tenant, or none".into(),
        }
    }
}

fn is_none(text: &str) -> bool {
    matches!(text, "none" | "unlimited")
}

fn number(unit: Unit, text: &str, min: u64, max: u64) -> Result<u64, String> {
    let number = unit.parse(text).ok_or_else(|| format!("not {}", unit.form()))?;
    if number < min {
        return Err("too small".into());
    }
    if number > max {
        return Err("too large".into());
    }
    Ok(number)
}

fn fsync(text: &str) -> Result<Fsync, String> {
    if text == "always" {
        return Ok(Fsync::Always);
    }
    let interval = text.strip_prefix("interval:").or_else(|| text.strip_prefix("interval(")?.strip_suffix(')'));
    let interval = interval.ok_or("neither always nor an interval such as interval(50ms)")?;
    let (min, max) = FSYNC_INTERVAL_MS;
    let ms = number(Unit::Duration, interval, min, max)?;
    Ok(Fsync::Interval { ms: u32::try_from(ms).expect("within the bounds just checked") })
}
