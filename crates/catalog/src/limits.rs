//! The bounds of the catalog, each with its name. What happens at a bound is the same on every replica: the command is
//! refused and nothing changes.

/// Topics of a cluster.
pub const MAX_TOPICS: usize = 100_000;
/// Partitions of all topics together.
pub const MAX_PARTITIONS: usize = 100_000;
/// Partitions of one topic.
pub const MAX_PARTITIONS_PER_TOPIC: u32 = 1024;
/// Replicas of one partition.
pub const MAX_REPLICATION_FACTOR: u32 = 7;
/// Replicas of a partition when nobody says otherwise and there are brokers enough.
pub const DEFAULT_REPLICATION_FACTOR: u32 = 3;
/// Settings in one request.
pub const MAX_SETTINGS_PER_REQUEST: usize = 64;
/// Bytes of one setting's value: the longest topic name (three parts and two slashes) fits.
pub const MAX_SETTING_VALUE_BYTES: usize = 1024;
/// Producer ids in one block.
pub const MAX_PRODUCER_IDS_PER_BLOCK: u32 = 65_536;
/// No counter of ids goes above this, so that adding to one never overflows, signed or not.
pub const MAX_ID: u64 = 1 << 62;
/// Room that a batch's frame and journal record need beside the batch itself.
pub const BATCH_HEADROOM_BYTES: u64 = 64 * 1024;

const _: () = assert!(MAX_SETTING_VALUE_BYTES >= 3 * 249 + 2);
const _: () = assert!(DEFAULT_REPLICATION_FACTOR <= MAX_REPLICATION_FACTOR);
const _: () = assert!(MAX_ID < i64::MAX as u64 - MAX_PARTITIONS_PER_TOPIC as u64 * MAX_REPLICATION_FACTOR as u64);
