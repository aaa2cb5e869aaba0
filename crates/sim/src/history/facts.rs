//! What is known of topics and of the node's life, kept beside the history for all invariants alike.

use std::collections::BTreeMap;

use lockgate_engine::shard_of;
use lockgate_wire::{PartitionId, ShardId, TopicId};

use super::{Event, Life, What};
use crate::time::Time;

/// What to expect of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicFacts {
    /// Its partitions.
    pub partitions: u32,
    /// With `fsync = interval`: how long a power loss may reach back.
    pub interval: Option<Time>,
    /// Retention may take away what is old.
    pub trims: bool,
    /// It takes only what is older than this.
    pub keeps_ms: Option<i64>,
}

/// The run as every invariant sees it.
#[derive(Default, Debug)]
pub struct Facts {
    topics: BTreeMap<TopicId, (TopicFacts, bool)>,
    power_losses: Vec<Time>,
    journal_stops: Vec<JournalStop>,
    /// Processes that were killed, and when.
    kills: Vec<(Time, u32)>,
    recoveries: Vec<Time>,
    /// Times in which the disk was slow, in their order.
    slow: Vec<(Time, Time)>,
}

/// A buffered journal that failed.
#[derive(Debug)]
struct JournalStop {
    at: Time,
    process: u32,
    shard: ShardId,
    shards: u16,
}

impl Facts {
    /// Takes note of an event, before the invariants see it.
    pub fn observe(&mut self, event: &Event) {
        match &event.what {
            What::TopicMade { topic, facts } => drop(self.topics.insert(*topic, (*facts, false))),
            What::TopicDoomed { topic } => {
                if let Some((_, is_doomed)) = self.topics.get_mut(topic) {
                    *is_doomed = true;
                }
            }
            What::PowerLost => self.power_losses.push(event.at),
            What::JournalStopped { shard, shards } => {
                let (at, process, shard, shards) = (event.at, event.life.process, *shard, *shards);
                self.journal_stops.push(JournalStop { at, process, shard, shards });
            }
            What::Crashed => self.kills.push((event.at, event.life.process)),
            What::Recovered => self.recoveries.push(event.at),
            What::DiskIsSlow { until } => self.slow.push((event.at, *until)),
            _ => {}
        }
    }

    /// What to expect of a topic; of one that nobody announced, the most.
    pub fn topic(&self, topic: TopicId) -> TopicFacts {
        self.topics
            .get(&topic)
            .map_or(TopicFacts { partitions: 1, interval: None, trims: false, keeps_ms: None }, |(facts, _)| *facts)
    }

    /// Whether somebody asked for the topic's deletion.
    pub fn is_doomed(&self, topic: TopicId) -> bool {
        self.topics.get(&topic).is_some_and(|(_, is_doomed)| *is_doomed)
    }

    /// Within one era of a partition nothing that was seen is taken back. A topic that syncs later begins a new one with
    /// every power loss.
    pub fn era(&self, partition: PartitionId, life: Life) -> u32 {
        self.topic(partition.topic).interval.map_or(0, |_| life.power)
    }

    /// When something is done at the latest that was begun then and takes at most so long on a disk that is not slow: the
    /// time in which the disk was slow does not count.
    pub fn done_by(&self, begun: Time, takes_max: Time) -> Time {
        let mut due = begun + takes_max;
        for (from, until) in self.slow.iter().filter(|(_, until)| *until > begun) {
            if *from < due {
                due += until - begun.max(*from);
            }
        }
        due
    }

    /// When what this process wrote to the buffered journal, and should have synced by `due`, is durable: then, or if the
    /// journal failed or the process was killed before, once a start has recovered it.
    pub fn durable_at(&self, partition: PartitionId, life: Life, due: Time) -> Time {
        let concerns = |stop: &&JournalStop| {
            stop.process == life.process && stop.at < due && shard_of(partition, stop.shards) == stop.shard
        };
        let stops = self.journal_stops.iter().filter(concerns).map(|stop| stop.at);
        let kills = self.kills.iter().filter(|(at, process)| *process == life.process && *at < due).map(|(at, _)| *at);
        let Some(ended) = stops.chain(kills).min() else { return due };
        self.recoveries.iter().copied().find(|recovered| *recovered > ended).unwrap_or(Time::MAX)
    }

    /// The first power loss that a process with this many before it was hit by.
    pub fn power_loss_after(&self, life: Life) -> Option<Time> {
        self.power_losses.get(life.power as usize).copied()
    }
}
