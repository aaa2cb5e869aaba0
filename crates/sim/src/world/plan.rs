//! What a seed chooses before anything happens: the node, its limits, the topics, how fast and how hostile the world is.

use std::collections::BTreeMap;

use lockgate_engine::limits::Limits;
use lockgate_engine::{JournalSettings, NodeConfig, ScrubSettings};
use lockgate_storage::journal::BLOCK_BYTES;
use lockgate_wire::{NodeId, Uid};

use super::conditions::{CONDITIONS, Condition};
use super::link::LinkSpeed;
use crate::disk::DiskSpeed;
use crate::history::TopicFacts;
use crate::oracle::TopicPlan;
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};

/// How long oracles work while faults strike.
pub(super) const STIR: Time = 60 * SECOND;
/// Shards of a node at most.
pub(super) const SHARDS_MAX: u64 = 4;
/// What a frame limit leaves beside a delivery.
const FRAME_HEADROOM_BYTES: u32 = 128 << 10;
/// What a topic with a retention by age keeps: longer than any run, shorter than the jumps of a wall clock.
const KEEPS_MS: i64 = 3_600_000;
/// What the journal and frame limits must leave beside a batch.
const BATCH_HEADROOM_BYTES: u32 = 64 << 10;

/// Everything that a seed fixes.
pub(super) struct Plan {
    pub(super) node: NodeConfig,
    pub(super) topics: Vec<TopicPlan>,
    pub(super) disk: DiskSpeed,
    /// Drawn for each connection anew, or one for all.
    pub(super) link: Option<LinkSpeed>,
    pub(super) faults: Faults,
    /// How long a round of a shard takes, besides what it waits for.
    pub(super) round: Time,
    /// How long a frame of the mesh takes.
    pub(super) mesh: Time,
}

/// How hostile the world is.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// Mean time between faults of the node; none: it lives undisturbed.
    pub(super) node_every: Option<Time>,
    /// Of a thousand faults of the node, how many are power losses…
    pub(super) power_per_mille: u64,
    /// …and how many are orderly stops…
    pub(super) stop_per_mille: u64,
    /// …and how many are failing writes…
    pub(super) write_error_per_mille: u64,
    /// …and how many are syncs that fail once, of the running process or of the next start.
    pub(super) sync_error_per_mille: u64,
    /// Mean time between beginnings of what lasts; without one it never begins.
    pub(super) conditions_every: BTreeMap<Condition, Time>,
    /// Of a thousand starts, how many are cut off while the disk is read.
    pub(super) cut_recovery_per_mille: u64,
    /// Of a thousand starts, how many are with another number of shards, perhaps.
    pub(super) move_per_mille: u64,
    /// Of a thousand starts, before how many copies of the disk are hurt.
    pub(super) rot_per_mille: u64,
    /// Mean time between faults of connections.
    pub(super) network_every: Option<Time>,
    /// Now and then the node fails a counted number of steps after its start instead of after a time.
    pub(super) by_steps_per_mille: u64,
}

impl Plan {
    pub(super) fn draw(seed: u64, rng: &mut Rng) -> Self {
        let max_write_bytes = *rng.pick(&[72 << 10, 96 << 10, 128 << 10]);
        let file_bytes = u64::from(max_write_bytes) + BLOCK_BYTES as u64 * rng.magnitude(1..=32);
        let max_batch_bytes = (max_write_bytes - BATCH_HEADROOM_BYTES).min(64 << 10);
        let mut cluster = [0; 16];
        cluster[..8].copy_from_slice(&seed.to_le_bytes());
        cluster[8..].copy_from_slice(&rng.draw().to_le_bytes());
        let node = NodeConfig {
            node: NodeId(1),
            cluster: Uid(cluster),
            shards: rng.within(1..=SHARDS_MAX) as u16,
            journals: 0,
            incarnation: 0,
            journal: JournalSettings {
                file_bytes,
                max_write_bytes,
                max_bytes: draw_max_bytes(file_bytes, rng),
                external_min_bytes: draw_external_min_bytes(rng),
            },
            scrub: draw_scrub(rng),
            limits: Limits { seal_after_ms: rng.magnitude(100..=30_000), ..draw_limits(rng) },
            advertise: Vec::new(),
            version: "sim".to_owned(),
        };
        let topics = (0..rng.within(2..=4)).map(|number| draw_topic(number, max_batch_bytes, rng)).collect();
        Self {
            node,
            topics,
            disk: DiskSpeed::draw(rng),
            link: rng.coin().then(|| LinkSpeed::draw(rng)),
            faults: Faults::draw(rng),
            round: rng.magnitude(1_000..=MS / 2),
            mesh: rng.magnitude(1_000..=2 * MS),
        }
    }
}

impl Faults {
    fn draw(rng: &mut Rng) -> Self {
        let conditions_every = CONDITIONS
            .into_iter()
            .filter_map(|condition| Some((condition, (*rng.pick(&[None, None, Some(20), Some(8)]))? * SECOND)))
            .collect();
        Self {
            conditions_every,
            node_every: *rng.pick(&[None, Some(30 * SECOND), Some(15 * SECOND), Some(8 * SECOND), Some(2 * SECOND)]),
            power_per_mille: *rng.pick(&[0, 200, 500, 900]),
            stop_per_mille: *rng.pick(&[0, 50, 200]),
            write_error_per_mille: *rng.pick(&[0, 0, 50, 200]),
            sync_error_per_mille: *rng.pick(&[0, 0, 100, 400]),
            cut_recovery_per_mille: *rng.pick(&[0, 100, 400]),
            network_every: *rng.pick(&[None, Some(10 * SECOND), Some(2 * SECOND), Some(SECOND / 2)]),
            by_steps_per_mille: *rng.pick(&[0, 200, 600]),
            move_per_mille: *rng.pick(&[0, 0, 100, 500]),
            rot_per_mille: *rng.pick(&[0, 0, 100, 300]),
        }
    }
}

/// Mostly so small that the journals are at their bound all the time.
fn draw_max_bytes(file_bytes: u64, rng: &mut Rng) -> u64 {
    if rng.per_mille(200) { JournalSettings::default().max_bytes } else { file_bytes * *rng.pick(&[4, 4, 4, 5, 6, 8]) }
}

/// Mostly so small that a good part of the writes goes ahead of the journal.
fn draw_external_min_bytes(rng: &mut Rng) -> u64 {
    if rng.per_mille(250) { JournalSettings::default().external_min_bytes } else { rng.magnitude(200..=40_000) }
}

/// Mostly so fast that there are several passes in a run, and slower than that too.
fn draw_scrub(rng: &mut Rng) -> ScrubSettings {
    if rng.per_mille(200) {
        return ScrubSettings::default();
    }
    ScrubSettings { bytes_per_second: rng.magnitude(64 << 10..=64 << 20), every_ms: rng.magnitude(10..=10_000) }
}

/// Often the defaults, else so small that the bounds are met all the time.
fn draw_limits(rng: &mut Rng) -> Limits {
    let mut limits = Limits::default();
    if rng.coin() {
        return limits;
    }
    limits.unanswered_requests = rng.magnitude(2..=50) as u32;
    limits.unanswered_bytes = rng.magnitude(100_000..=2_000_000);
    limits.publish_bytes_per_shard = rng.magnitude(200_000..=1_000_000);
    limits.mesh_requests = rng.magnitude(2..=64) as u32;
    limits.tail_bytes_per_shard = rng.magnitude(1_000..=4_000_000);
    limits.unflushed_bytes_per_partition = rng.magnitude(2 << 20..=8 << 20);
    limits.delivery_bytes = rng.magnitude(1_000..=1 << 20) as u32;
    // Small enough for its part in the other bounds to hide nothing, and large enough for every batch and delivery.
    limits.max_frame_bytes =
        (rng.magnitude(192 << 10..=1 << 20) as u32).max(limits.delivery_bytes + FRAME_HEADROOM_BYTES);
    limits
}

fn draw_topic(number: u64, max_batch_bytes: u32, rng: &mut Rng) -> TopicPlan {
    let mut settings = BTreeMap::from([("max_batch_bytes".to_owned(), max_batch_bytes.to_string())]);
    let interval = rng.per_mille(300).then(|| rng.magnitude(1..=3000) * MS);
    if let Some(interval) = interval {
        settings.insert("fsync".to_owned(), format!("interval({}ms)", interval / MS));
    }
    let trims = rng.per_mille(200);
    let keeps_ms = (!trims && rng.per_mille(200)).then_some(KEEPS_MS);
    if keeps_ms.is_some() {
        settings.insert("retention_ms".to_owned(), format!("{KEEPS_MS}ms"));
    }
    if trims {
        settings.insert("retention_bytes".to_owned(), "1MiB".to_owned());
    }
    if rng.per_mille(700) {
        settings.insert("segment_bytes".to_owned(), "1MiB".to_owned());
    }
    let append_time = rng.per_mille(200);
    if append_time {
        settings.insert("timestamps".to_owned(), "append".to_owned());
    }
    let partitions = rng.within(1..=4) as u32;
    TopicPlan {
        name: format!("steady-{number}"),
        facts: TopicFacts { partitions, interval, trims: trims || keeps_ms.is_some(), keeps_ms },
        settings,
        max_batch_bytes,
        append_time,
    }
}
