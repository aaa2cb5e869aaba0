//! Every bound of a shard, by name, with what happens at it.

use lockgate_wire::frame;

/// The bounds of one node. The server fills them from its settings; the defaults are those of the documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections of a shard. One more is answered `limit_reached` and closed.
    pub connections_per_shard: u32,
    /// Subscriptions of a session. One more is answered `limit_reached`.
    pub subscriptions_per_session: u32,
    /// Requests of a connection that wait for their answer. At the bound the connection is not read.
    pub unanswered_requests: u32,
    /// Bytes of a connection in requests that wait, in room reserved for their answers, and in frames not yet handed to
    /// the kernel. At the bound the connection is not read.
    pub unanswered_bytes: u64,
    /// Bytes of publishes of a shard's connections that wait for their answer. At the bound connections that have
    /// published are not read.
    pub publish_bytes_per_shard: u64,
    /// Largest frame after Hello. A larger one closes the connection with `frame_too_large`.
    pub max_frame_bytes: u32,
    /// Largest frame before Hello.
    pub max_frame_bytes_before_hello: u32,
    /// Topics that one request may name. More are refused with `invalid_request`.
    pub topics_per_request: u32,
    /// Requests in the mesh from one shard to another. At the bound a connection's next one waits and it is not read.
    pub mesh_requests: u32,
    /// How long a connection may take to say Hello. Then it is closed.
    pub hello_timeout_ms: u64,
    /// Heartbeat interval unless the client proposes another.
    pub heartbeat_ms: u32,
    /// A connection that takes none of the bytes sent to it for this long is closed.
    pub send_stall_ms: u64,
    /// Cursors of a partition. A commit under a new name is refused with `limit_reached`.
    pub cursors_per_partition: u32,
    /// Idempotent producers that a partition remembers. A new one is refused with `limit_reached`.
    pub producers_per_partition: u32,
    /// An idempotent producer that published nothing for this long is forgotten.
    pub producer_expiry_ms: u64,
    /// Batches a partition's log has applied and not yet written to segments. At the bound publishes wait.
    pub unflushed_bytes_per_partition: u64,
    /// Memory that a shard's partitions keep for readers at the end of the log, shared evenly among them.
    pub tail_bytes_per_shard: u64,
    /// A rolled segment is synced and sealed after this long, when the kernel has written most of it back by itself.
    pub seal_after_ms: u64,
    /// Payload of one delivery; one batch is always delivered whole.
    pub delivery_bytes: u32,
    /// Longest wait of a fetch.
    pub fetch_wait_ms: u32,
    /// How long a stop waits for what was taken.
    pub drain_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_per_shard: 10_000,
            subscriptions_per_session: 1_000,
            unanswered_requests: 1_000,
            unanswered_bytes: 64 << 20,
            publish_bytes_per_shard: 512 << 20,
            max_frame_bytes: frame::DEFAULT_MAX_FRAME_BYTES,
            max_frame_bytes_before_hello: frame::MAX_FRAME_BYTES_BEFORE_HELLO,
            topics_per_request: 1_000,
            mesh_requests: 1_024,
            hello_timeout_ms: 10_000,
            heartbeat_ms: 5_000,
            send_stall_ms: 30_000,
            cursors_per_partition: 10_000,
            producers_per_partition: 10_000,
            producer_expiry_ms: 24 * 3_600_000,
            unflushed_bytes_per_partition: 64 << 20,
            tail_bytes_per_shard: 64 << 20,
            seal_after_ms: 30_000,
            delivery_bytes: 1 << 20,
            fetch_wait_ms: 30_000,
            drain_ms: 10_000,
        }
    }
}

/// Heartbeat intervals that a client may propose.
pub const HEARTBEAT_MS: std::ops::RangeInclusive<u32> = 100..=300_000;
/// Missed heartbeats after which a connection is dead.
pub const HEARTBEATS_MISSED: u64 = 3;
/// Producers' batches remembered per producer and partition; also how many may be unresolved.
pub const REMEMBERED_BATCHES: usize = 5;
/// New producers of a partition that it knows by their refused batches alone. What one more sends behind its refused ones is
/// answered `producer_unknown`.
pub const REFUSED_PRODUCERS: usize = 1_000;
/// Names in one page of a listing.
pub const PAGE: usize = 1_000;
/// Producer ids that the catalog hands out at once.
pub const PRODUCER_ID_BLOCK: u32 = 1_000;
/// Batches below this size are copied together into one entry, so that a small record does not pin a read buffer.
pub const COPY_BELOW_BYTES: usize = 16 * 1024;
/// Bytes of small batches that share an entry.
pub const SHARED_ENTRY_BYTES: usize = 256 * 1024;
/// Publishes that wait for the journal in flight are proposed early once they are this many bytes, so that their
/// checksums are computed while the disk works.
pub const PROPOSE_EARLY_BYTES: usize = 256 * 1024;
/// A partition's applied batches are written to its segment at this size…
pub const FLUSH_BYTES: u64 = 1 << 20;
/// …or this long after the first of them.
pub const FLUSH_AFTER_MS: u64 = 1_000;
/// Different failures of reads that a partition leaves lines about; further ones are answered only.
pub const TOLD_READ_FAILURES: usize = 64;
/// Bytes read at once from a segment for a reader.
pub const READ_AHEAD_BYTES: usize = 1 << 20;
/// Bytes that a scrub reads at once, unless a frame is larger.
pub const SCRUB_READ_BYTES: usize = 256 << 10;
/// A read of a scrub counts as so many bytes at least: devices do not do any number of small ones.
pub const SCRUB_READ_COUNTS_BYTES: u64 = 16 << 10;
/// How soon a scrub that gives way to the journals' or the disk's want of room looks again.
pub const SCRUB_GIVES_WAY_MS: u64 = 250;
/// Damaged places that a scrub remembers of a partition; it says nothing of further ones while these are there.
pub const DAMAGED_PLACES: usize = 64;
/// How often retention is applied.
pub const RETENTION_EVERY_MS: u64 = 1_000;
/// A start whose wall clock is further ahead of the newest append time leaves a line about it.
pub const CLOCK_AHEAD_MS: i64 = 24 * 3_600 * 1_000;
/// A partition's state is checkpointed after this many applied entries.
pub const CHECKPOINT_ENTRIES: u64 = 50_000;
/// …or this many bytes, so that a start never has to hold more of a log than this and an unsealed segment.
pub const CHECKPOINT_BYTES: u64 = 64 << 20;
/// How often it is looked whether the journals can let go of files, while one has to.
pub const ROOM_EVERY_MS: u64 = 20;
/// How often the log says that publishes are refused at a journal's bound, while that lasts.
pub(crate) const BOUND_TOLD_EVERY_MS: u64 = 60_000;
/// Partitions that are written down at a time so that the journals can let go of files.
pub const WRITTEN_DOWN_AT_ONCE: usize = 4;
/// Groups whose living records are carried forward at a time.
pub const CARRIED_AT_ONCE: usize = 64;
/// Topics that a shard describes at a time. One more is refused with `overloaded`.
pub const GATHERS: usize = 64;
/// A connection whose frame has begun and gets no further byte for this long, while it is read, is closed with
/// `connection_lost`.
pub const FRAME_STALL_MS: u64 = 30_000;
/// How often connections are looked over for heartbeats and stalls.
pub const SWEEP_EVERY_MS: u64 = 100;
/// Largest decompressed batch that is looked into to find a time.
pub const MAX_DECOMPRESSED_BYTES: usize = 64 << 20;
/// A retried file operation waits this long.
pub const RETRY_FILE_MS: u64 = 500;
/// How long the answer to a topic change waits for all shards to take it.
pub const VIEW_WAIT_MS: u64 = 5_000;
/// Bytes not yet handed to the kernel, above which a connection gets no further deliveries.
pub const DELIVER_BELOW_BYTES: usize = 1 << 20;
/// How long the last frames of a connection may take to be sent before it is closed.
pub const CLOSE_FLUSH_MS: u32 = 5_000;
