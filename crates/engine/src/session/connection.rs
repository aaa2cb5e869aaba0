//! One client connection: its phase, its charges, its heartbeats, its subscriptions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lockgate_wire::{MonoTime, PartitionId, ShardId, SubscriptionId};

use crate::limits::{HEARTBEATS_MISSED, Limits};
use crate::mesh::Message;

/// Where a connection stands in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Hello has not come.
    Greeting,
    /// Requests are taken.
    Open,
    /// Close was asked for under this request id: what was asked before is answered first.
    Closing(u64),
    /// The last frame was given; nothing more is taken or sent.
    Closed,
}

/// Why a connection is ended by the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Silence {
    NoHello,
    Dead,
    /// It takes nothing.
    Stalled,
    /// It does not go on with a frame.
    HalfFrame,
}

/// A client connection of this shard.
pub(crate) struct Connection {
    pub(crate) peer: Arc<str>,
    pub(crate) phase: Phase,
    pub(crate) client_id: String,
    opened: MonoTime,
    pub(crate) heartbeat_ms: u32,
    last_received: MonoTime,
    pub(crate) last_sent: MonoTime,
    /// Bytes given to be sent and not yet handed to the kernel.
    pub(crate) outgoing_bytes: usize,
    /// When the kernel last took bytes, or when there were none waiting.
    outgoing_moved: MonoTime,
    /// Requests taken and not answered.
    pub(crate) unanswered: u32,
    /// Bytes charged for them.
    pub(crate) charged: u64,
    /// Whether it has published: only then node-wide publish memory concerns it.
    pub(crate) publishes: bool,
    /// A request that waits for a slot of the mesh, and its target.
    pub(crate) parked: Option<(ShardId, Message)>,
    /// Whether it is not read at the moment.
    pub(crate) is_paused: bool,
    pub(crate) subscriptions: BTreeMap<SubscriptionId, PartitionId>,
    /// Ids whose beginning or end their partition has not answered yet: what it still says is about the old ones.
    /// An id stands here once for each such answer.
    pub(crate) unsettled: Vec<SubscriptionId>,
    /// Subscriptions by partition.
    pub(crate) by_partition: BTreeMap<PartitionId, SubscriptionId>,
    /// Subscriptions whose last delivery is not taken yet, because too much waits to be sent.
    pub(crate) held: VecDeque<SubscriptionId>,
}

impl Connection {
    pub(crate) fn new(peer: Arc<str>, now: MonoTime, limits: &Limits) -> Self {
        Self {
            peer,
            phase: Phase::Greeting,
            client_id: String::new(),
            opened: now,
            heartbeat_ms: limits.heartbeat_ms,
            last_received: now,
            last_sent: now,
            outgoing_bytes: 0,
            outgoing_moved: now,
            unanswered: 0,
            charged: 0,
            publishes: false,
            parked: None,
            is_paused: false,
            subscriptions: BTreeMap::new(),
            unsettled: Vec::new(),
            by_partition: BTreeMap::new(),
            held: VecDeque::new(),
        }
    }

    /// Whether its next frame may be taken, as far as the connection itself is concerned.
    pub(crate) fn has_room(&self, limits: &Limits) -> bool {
        matches!(self.phase, Phase::Greeting | Phase::Open)
            && self.parked.is_none()
            && self.unanswered < limits.unanswered_requests
            && self.charged + self.outgoing_bytes as u64 <= limits.unanswered_bytes
    }

    pub(crate) fn received(&mut self, now: MonoTime) {
        self.last_received = now;
    }

    pub(crate) fn sent(&mut self, now: MonoTime, bytes: usize) {
        if self.outgoing_bytes == 0 {
            self.outgoing_moved = now;
        }
        self.outgoing_bytes += bytes;
        self.last_sent = now;
    }

    pub(crate) fn written(&mut self, now: MonoTime, bytes: usize) {
        self.outgoing_bytes = self.outgoing_bytes.saturating_sub(bytes);
        self.outgoing_moved = now;
    }

    /// Whether it is time for a frame that shows life.
    pub(crate) fn wants_heartbeat(&self, now: MonoTime) -> bool {
        let idle = self.phase == Phase::Open && self.outgoing_bytes == 0;
        idle && now.ms_since(self.last_sent) >= u64::from(self.heartbeat_ms)
    }

    /// Whether the broker has to give it up. While it is not read, its silence means nothing.
    pub(crate) fn silence(&mut self, now: MonoTime, limits: &Limits) -> Option<Silence> {
        if self.phase == Phase::Closed {
            return None;
        }
        if self.is_paused {
            self.last_received = now;
        }
        let dead_after = u64::from(self.heartbeat_ms) * HEARTBEATS_MISSED;
        if self.phase == Phase::Greeting && now.ms_since(self.opened) >= limits.hello_timeout_ms {
            Some(Silence::NoHello)
        } else if self.outgoing_bytes > 0 && now.ms_since(self.outgoing_moved) >= limits.send_stall_ms {
            Some(Silence::Stalled)
        } else if self.phase == Phase::Open && now.ms_since(self.last_received) >= dead_after {
            Some(Silence::Dead)
        } else {
            None
        }
    }

    /// Ends a subscription here. False: there was none.
    pub(crate) fn forget(&mut self, subscription: SubscriptionId) -> bool {
        self.held.retain(|held| *held != subscription);
        match self.subscriptions.remove(&subscription) {
            Some(partition) => {
                if self.by_partition.get(&partition) == Some(&subscription) {
                    self.by_partition.remove(&partition);
                }
                true
            }
            None => false,
        }
    }
}
