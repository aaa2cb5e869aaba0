//! Ids that must not be mixed, each a newtype over its number. They cross every crate, so they live at the bottom.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

id!(
    /// A node's number, 1 or more; 1 when standalone.
    NodeId(u32)
);
id!(
    /// A shard's number within its node, from 0. A shard is a thread, never a log.
    ShardId(u16)
);
id!(
    /// A topic's id from the catalog, 1 or more, never reused.
    TopicId(u64)
);
id!(
    /// A Raft group's id: 0 is the metadata, the others come from the catalog and are never reused.
    GroupId(u64)
);
id!(
    /// A replica's id inside Raft, 1 or more, unique per (partition, generation), never reused.
    ReplicaId(u64)
);
id!(
    /// Grows by every change of a partition's assignment.
    Generation(u64)
);
id!(
    /// A Raft term. It must fit the 32-bit leader epoch of a record batch ([`Term::leader_epoch`]).
    Term(u64)
);
id!(
    /// A Raft log index. Counts entries of a group, not records.
    LogIndex(u64)
);
id!(
    /// A record's position within its partition, from 0, at most `i64::MAX`.
    Offset(u64)
);
id!(
    /// A session's id: the node's number in the upper 32 bits, a counter in the lower.
    SessionId(u64)
);
id!(
    /// A connection of a shard, never reused while the process lives.
    ConnectionId(u64)
);
id!(
    /// A subscription's id, chosen by the client, 1 to 2^48 - 1, unique in its session.
    SubscriptionId(u64)
);
id!(
    /// An idempotent producer's id, from blocks that the catalog hands out; 0 or more.
    ProducerId(i64)
);
id!(
    /// Wall-clock milliseconds since 1970. Never used for deadlines.
    WallMs(i64)
);

/// Monotonic nanoseconds since some start that only this process knows. Used for every deadline, lease and timeout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MonoTime(pub u64);

impl MonoTime {
    /// This moment plus `ms` milliseconds, saturating.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
    /// Milliseconds from `earlier` to this moment, 0 if `earlier` is later.
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000_000
    }
}

/// Both clocks, read once before an input is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For deadlines.
    pub mono: MonoTime,
    /// For what people and records see.
    pub wall: WallMs,
}

/// A partition of a topic: the unit of order, placement and replication.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// The partition's number within the topic, from 0.
    pub partition: u32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// 128 random bits, made once: a cluster's or a disk's identity. Shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(pub [u8; 16]);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Term {
    /// The term as a batch's leader epoch, or `None` when it no longer fits 31 bits.
    pub fn leader_epoch(self) -> Option<i32> {
        i32::try_from(self.0).ok()
    }
}

impl Offset {
    /// The offset `count` records later, saturating at the largest offset a batch can carry.
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count).min(i64::MAX as u64))
    }
}
