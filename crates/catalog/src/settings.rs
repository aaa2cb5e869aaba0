//! Topic settings: text as people write it, checked against the one table, becomes a typed [`TopicConfig`], and back.
//!
//! All that is wrong with a request is reported at once. What a broker's own limits allow is checked before a command is
//! written to the log ([`TopicLimits`] of that broker); while applying, only what holds for every broker
//! ([`TopicLimits::WIDEST`]), so that replicas with different configurations agree.

use std::collections::BTreeMap;

use lockgate_wire::proto::SettingOrigin;
use lockgate_wire::{Error, ErrorKind};

use crate::TopicKind;
use crate::limits::{BATCH_HEADROOM_BYTES, MAX_SETTING_VALUE_BYTES, MAX_SETTINGS_PER_REQUEST};

mod config;
mod durability;
mod field;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use config::{Eviction, Fsync, Overflow, Timestamps, TopicConfig};
pub use durability::durability_words;
pub use table::{SEGMENT_BYTES_DEFAULT, SETTINGS, Setting};
use value::Unit;

/// Limits of a broker that a topic's settings must fit into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicLimits {
    /// The largest frame that the broker takes.
    pub max_frame_bytes: u64,
    /// The largest single write to the journal (`journal.max_write_bytes`).
    pub journal_max_write_bytes: u64,
}

impl TopicLimits {
    /// What no broker exceeds.
    pub const WIDEST: Self = Self {
        max_frame_bytes: lockgate_wire::frame::HARD_MAX_FRAME_BYTES as u64,
        journal_max_write_bytes: lockgate_wire::frame::HARD_MAX_FRAME_BYTES as u64,
    };

    /// The largest `max_batch_bytes` that fits.
    pub fn max_batch_bytes(&self) -> u64 {
        self.max_frame_bytes.min(self.journal_max_write_bytes).saturating_sub(BATCH_HEADROOM_BYTES)
    }
}

/// A setting as `topic describe` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingView {
    /// Its name.
    pub name: &'static str,
    /// Its value in canonical form.
    pub value: String,
    /// Whether the topic says so or the default.
    pub origin: SettingOrigin,
    /// What is allowed.
    pub bounds: String,
    /// What it does.
    pub description: &'static str,
}

/// The settings of a new topic: the defaults with `set` over them; an empty value is the default.
pub fn parse(kind: TopicKind, set: &BTreeMap<String, String>, limits: &TopicLimits) -> Result<TopicConfig, Error> {
    let mut defaults = TopicConfig::BLANK;
    for setting in SETTINGS {
        setting.field.read(setting.default, &mut defaults).expect("a test reads every default");
    }
    alter(kind, &defaults, set, limits)
}

/// The settings of a topic with `set` over what it has; an empty value is the default again.
pub fn alter(
    kind: TopicKind,
    config: &TopicConfig,
    set: &BTreeMap<String, String>,
    limits: &TopicLimits,
) -> Result<TopicConfig, Error> {
    if set.len() > MAX_SETTINGS_PER_REQUEST {
        let message = format!("{} settings in one request; at most {MAX_SETTINGS_PER_REQUEST}", set.len());
        return Err(Error::new(ErrorKind::InvalidSetting, message).with_limit(MAX_SETTINGS_PER_REQUEST as u64));
    }
    let mut config = config.clone();
    let mut problems: Vec<String> =
        set.iter().filter_map(|(name, value)| apply_one(kind, &mut config, name, value).err()).collect();
    // Once, and only if the value itself is in its bounds: then `config` has it.
    if config.max_batch_bytes > limits.max_batch_bytes() {
        problems.push(batch_problem(&config, limits));
    }
    if problems.is_empty() {
        return Ok(config);
    }
    Err(Error::new(ErrorKind::InvalidSetting, problems.join("; ")))
}

/// Changes one setting, or says what is wrong with it.
fn apply_one(kind: TopicKind, config: &mut TopicConfig, name: &str, value: &str) -> Result<(), String> {
    let Some(setting) = settings_of(kind).find(|setting| setting.name == name) else {
        let allowed: Vec<_> = settings_of(kind).map(|setting| setting.name).collect();
        let (name, kind) = (shortened(name), kind_word(kind));
        return Err(format!("{name}: a {kind} has no such setting; it has {}", allowed.join(", ")));
    };
    let complain = |problem: &str| format!("{name} = {}: {problem}; allowed: {}", shortened(value), setting.bounds());
    if value.len() > MAX_SETTING_VALUE_BYTES {
        return Err(complain(&format!("{} bytes long, at most {MAX_SETTING_VALUE_BYTES}", value.len())));
    }
    if value.is_empty() {
        config.own.remove(setting.name);
        return setting.field.read(setting.default, config);
    }
    setting.field.read(value, config).map_err(|problem| complain(&problem))?;
    config.own.insert(setting.name);
    Ok(())
}

fn batch_problem(config: &TopicConfig, limits: &TopicLimits) -> String {
    let size = |bytes| Unit::Size.show(bytes);
    format!(
        "max_batch_bytes = {}: too large for this broker; at most {}, that is {} below its frame limit ({}) and below \
         journal.max_write_bytes ({})",
        size(config.max_batch_bytes),
        size(limits.max_batch_bytes()),
        size(BATCH_HEADROOM_BYTES),
        size(limits.max_frame_bytes),
        size(limits.journal_max_write_bytes),
    )
}

impl TopicConfig {
    /// The settings that the topic gives itself, in canonical form: [`parse`] makes the same config of them.
    pub fn own_settings(&self) -> BTreeMap<String, String> {
        let own = SETTINGS.iter().filter(|setting| self.own.contains(setting.name));
        own.map(|setting| (setting.name.to_string(), setting.field.show(self))).collect()
    }
}

/// Every setting that a topic of this kind has, with its value and where the value comes from.
pub fn describe(kind: TopicKind, config: &TopicConfig) -> Vec<SettingView> {
    settings_of(kind)
        .map(|setting| SettingView {
            name: setting.name,
            value: setting.field.show(config),
            origin: if config.own.contains(setting.name) { SettingOrigin::Topic } else { SettingOrigin::Default },
            bounds: setting.bounds(),
            description: setting.description,
        })
        .collect()
}

fn settings_of(kind: TopicKind) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.kinds.contains(&kind))
}

/// The word for a kind of topic.
pub fn kind_word(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::Stream => "stream",
        TopicKind::Queue => "queue",
        TopicKind::Cache => "cache",
    }
}

/// What somebody wrote, quoted, and cut so that an error stays readable.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 64;
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
