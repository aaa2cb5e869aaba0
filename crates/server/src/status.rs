//! What other threads may know of a node and its shards: written by their owners, read by the admin thread and by the
//! acceptor, never waited for.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use lockgate_engine::ShardMetrics;
use lockgate_wire::ShardId;

/// A node's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Shards recover; clients are not accepted.
    Starting,
    /// Serving.
    Ready,
    /// Stopping.
    Draining,
}

#[derive(Debug)]
pub(crate) struct NodeStatus {
    phase: AtomicU8,
    /// One per shard, by number.
    pub(crate) shards: Vec<ShardStatus>,
    /// Connections closed at once because every shard had its number.
    pub(crate) connections_refused: AtomicU64,
    /// Times that accepting failed for want of descriptors or memory.
    pub(crate) accept_failures: AtomicU64,
}

#[derive(Default, Debug)]
pub(crate) struct ShardStatus {
    /// Its journals are read.
    pub(crate) recovered: AtomicBool,
    /// Its partitions serve.
    pub(crate) ready: AtomicBool,
    /// Connections that it has or that are on their way to it.
    pub(crate) connections: AtomicUsize,
    /// Its newest numbers.
    pub(crate) published: ArcSwap<Published>,
    /// How long writes of its synced journal took.
    pub(crate) synced_writes: Latencies,
}

/// A shard's numbers, as of a moment.
#[derive(Default, Debug)]
pub(crate) struct Published {
    pub(crate) engine: ShardMetrics,
    pub(crate) io: LoopMetrics,
    /// What it cannot do at the moment although it serves.
    pub(crate) impairments: Vec<String>,
}

/// What the shard's loop counts itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct LoopMetrics {
    /// Rounds of the loop.
    pub(crate) rounds: u64,
    /// Gauge: mesh frames for which the target's inbox had no room yet.
    pub(crate) mesh_frames_waiting: u64,
    /// Gauge: file operations for which a lane had no room yet.
    pub(crate) file_ops_waiting: u64,
}

impl NodeStatus {
    pub(crate) fn new(shards: u16) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Starting as u8),
            shards: (0..shards).map(|_| ShardStatus::default()).collect(),
            connections_refused: AtomicU64::new(0),
            accept_failures: AtomicU64::new(0),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    /// A node's life goes forward only.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    pub(crate) fn shard(&self, shard: ShardId) -> &ShardStatus {
        &self.shards[usize::from(shard.0)]
    }
}

/// Upper bounds of the latency buckets, in microseconds; one more bucket holds the rest.
pub(crate) const LATENCY_BOUNDS_US: [u64; 14] =
    [25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 102_400, 409_600, 1_638_400];

/// A histogram that one thread writes and others read.
#[derive(Default, Debug)]
pub(crate) struct Latencies {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latencies {
    pub(crate) fn record(&self, took: Duration) {
        let us = took.as_micros() as u64;
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Counts per bucket (not cumulative), and the sum in microseconds.
    pub(crate) fn snapshot(&self) -> ([u64; LATENCY_BOUNDS_US.len() + 1], u64) {
        (std::array::from_fn(|n| self.buckets[n].load(Ordering::Relaxed)), self.sum_us.load(Ordering::Relaxed))
    }
}
