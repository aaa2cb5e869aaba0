//! From what somebody asked for to a command that can be written to the log.
//!
//! Here everything is decided that applying must not decide: defaults that depend on the brokers at hand, the placement,
//! what this broker's limits allow. A request that cannot succeed is refused here, before it costs a log entry; what may
//! change until the command is applied (does the name exist?) is left to the catalog.

use std::collections::BTreeMap;

use lockgate_wire::name::TopicName;
use lockgate_wire::{Error, ErrorKind, WallMs};

use crate::apply::find;
use crate::limits::DEFAULT_REPLICATION_FACTOR;
use crate::placement::place;
use crate::settings::{self, TopicLimits};
use crate::{ClusterView, Command, TopicKind};

/// A topic that somebody wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTopic {
    /// Its name, in any form.
    pub name: String,
    /// What it is.
    pub kind: TopicKind,
    /// How many partitions; 0: one.
    pub partitions: u32,
    /// How many replicas; 0: three, or as many as there are brokers.
    pub replication_factor: u32,
    /// What differs from the defaults.
    pub settings: BTreeMap<String, String>,
}

/// The command that creates the topic.
pub fn create_topic(view: &ClusterView, limits: &TopicLimits, topic: NewTopic, time: WallMs) -> Result<Command, Error> {
    let NewTopic { name, kind, partitions, replication_factor, settings } = topic;
    let name = users_topic(&name)?;
    let partitions = if partitions == 0 { 1 } else { partitions };
    let replication_factor =
        if replication_factor == 0 { default_replication_factor(view) } else { replication_factor };
    let placement = place(view, name.as_str(), kind, partitions, replication_factor)?;
    settings::parse(kind, &settings, limits)?;
    let name = name.to_string();
    Ok(Command::CreateTopic { name, kind, partitions, replication_factor, settings, placement, time })
}

/// The command that changes the topic's settings.
pub fn alter_topic(
    view: &ClusterView,
    limits: &TopicLimits,
    name: &str,
    set: BTreeMap<String, String>,
    if_version: Option<u64>,
    time: WallMs,
) -> Result<Command, Error> {
    let name = users_topic(name)?;
    let topic = find(view, &name)?;
    settings::alter(topic.kind, &topic.config, &set, limits)?;
    Ok(Command::AlterTopic { name: name.to_string(), set, if_version, time })
}

/// The command that deletes the topic.
pub fn delete_topic(name: &str, time: WallMs) -> Result<Command, Error> {
    Ok(Command::DeleteTopic { name: users_topic(name)?.to_string(), time })
}

/// The full name of a topic that a user may change.
fn users_topic(name: &str) -> Result<TopicName, Error> {
    let name = TopicName::parse(name)?;
    if name.is_system() {
        let message = format!("{name}: names that start with __ belong to the system");
        return Err(Error::new(ErrorKind::InvalidName, message));
    }
    Ok(name)
}

fn default_replication_factor(view: &ClusterView) -> u32 {
    // At least 1: without any broker the placement says so.
    let live = u32::try_from(view.nodes.len()).unwrap_or(u32::MAX).max(1);
    live.min(DEFAULT_REPLICATION_FACTOR)
}
