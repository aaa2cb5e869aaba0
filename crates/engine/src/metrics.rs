//! A shard's counters and gauges: plain numbers, copied out whole. The server gives them names and merges shards.

use lockgate_storage::journal::JournalCounters;
use lockgate_wire::ErrorKind;

/// A snapshot of what a shard has counted. Fields without another word count since the start.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ShardMetrics {
    /// Publishes taken.
    pub publish_requests: u64,
    /// Records answered as appended.
    pub publish_records: u64,
    /// Bytes of batches answered as appended.
    pub publish_bytes: u64,
    /// Publishes answered with an earlier answer.
    pub publish_duplicates: u64,
    /// Publishes refused.
    pub publish_refused: u64,
    /// Of these, publishes that wanted no answer (level `none`): nobody else will know.
    pub publish_lost: u64,
    /// Gauge: bytes of publishes that wait for their answer.
    pub publish_in_flight_bytes: u64,
    /// Requests refused, whatever they were.
    pub refused: u64,
    /// Refusals that are bugs (`internal`).
    pub internal_errors: u64,
    /// Records delivered or fetched.
    pub delivered_records: u64,
    /// Bytes of batches delivered or fetched.
    pub delivered_bytes: u64,
    /// Reads from segments.
    pub cold_reads: u64,
    /// Times a reader had data and no credit.
    pub credit_waits: u64,
    /// Gauge: connections.
    pub connections: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections closed because of silence.
    pub connections_dead: u64,
    /// Connections closed because they took nothing.
    pub connections_stalled: u64,
    /// Connections closed because they did not go on with a frame.
    pub connections_half_frame: u64,
    /// Gauge: connections that are not read at the moment.
    pub connections_paused: u64,
    /// Gauge: subscriptions of this shard's connections.
    pub subscriptions: u64,
    /// Gauge: bytes in frames not yet handed to the kernel.
    pub outgoing_bytes: u64,
    /// Gauge: bytes charged to connections for requests that wait.
    pub charged_bytes: u64,
    /// Gauge: requests that wait for their answer.
    pub unanswered_requests: u64,
    /// Frames sent to other shards.
    pub mesh_frames: u64,
    /// Gauge: requests under way to other shards.
    pub mesh_requests: u64,
    /// Gauge: requests that wait for a slot of the mesh.
    pub mesh_parked: u64,
    /// Frames of the mesh for a partition that is not here, which is a bug.
    pub mesh_misrouted: u64,
    /// Gauge: partitions with a replica here.
    pub partitions: u64,
    /// Gauge: of these, serving as leader.
    pub partitions_serving: u64,
    /// Gauge: of these, failed.
    pub partitions_failed: u64,
    /// Gauge: bytes kept in memory at the ends of the logs.
    pub tail_bytes: u64,
    /// Gauge: of these, not yet in segments.
    pub unflushed_bytes: u64,
    /// Entries applied.
    pub entries_applied: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Segments removed by retention.
    pub segments_expired: u64,
    /// Bytes of sealed segments that were read again.
    pub scrub_bytes: u64,
    /// Gauge: places in sealed segments that are known to be damaged.
    pub damaged_places: u64,
    /// File operations that failed.
    pub file_failures: u64,
    /// Gauge: the version of the view.
    pub view_version: u64,
    /// The synced journal.
    pub journal: JournalCounters,
    /// The buffered journal.
    pub buffered_journal: JournalCounters,
    /// Gauge: files of the synced journal.
    pub journal_files: u64,
    /// Gauge: files of the buffered journal.
    pub buffered_journal_files: u64,
    /// Records that were carried forward in the journals so that older files could go.
    pub journal_carried: u64,
    /// Gauge: 1 when a journal is at its bound, so that publishes are refused.
    pub journal_at_bound: u64,
    /// Gauge: partitions whose segments' sync failed, so that the journal keeps its files until a restart.
    pub partitions_unsynced: u64,
    /// Gauge: 1 when files wait for room on the disk.
    pub disk_full: u64,
    /// Gauge: 1 when a journal is poisoned.
    pub journal_poisoned: u64,
}

impl ShardMetrics {
    pub(crate) fn refused(&mut self, kind: ErrorKind, publish: bool) {
        self.refused += 1;
        self.publish_refused += u64::from(publish);
        self.internal_errors += u64::from(kind == ErrorKind::Internal);
    }
}
