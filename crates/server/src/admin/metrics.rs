//! The one table of metrics: name, kind, label, help, and where the number comes from. `/metrics` and its documentation
//! are made from it. Shards are merged: a number is their sum.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::process::Process;
use crate::status::{LATENCY_BOUNDS_US, NodeStatus, Published};

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// One metric.
pub struct Metric {
    /// Its name as it is shown.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// Its label, if it has one.
    pub label: Option<&'static str>,
    /// One sentence.
    pub help: &'static str,
    source: Source,
}

/// Takes one number out of a shard's.
type Read = fn(&Published) -> u64;

/// Where a metric's numbers come from.
enum Source {
    /// A number of each shard, summed.
    Shards(Read),
    /// The least over the shards.
    Least(Read),
    /// A number per value of the label, summed over shards.
    Labelled(&'static [(&'static str, Read)]),
    /// A number of the node.
    Node(fn(&Snapshot) -> u64),
    /// Seconds of the node.
    Seconds(fn(&Snapshot) -> Duration),
    /// How long writes of the synced journals took.
    SyncedWrites,
}

/// All numbers, as of one scrape.
struct Snapshot {
    status: Arc<NodeStatus>,
    shards: Vec<Arc<Published>>,
    process: Process,
}

const fn counter(name: &'static str, help: &'static str, read: Read) -> Metric {
    Metric { name, kind: MetricKind::Counter, label: None, help, source: Source::Shards(read) }
}

const fn gauge(name: &'static str, help: &'static str, read: Read) -> Metric {
    Metric { name, kind: MetricKind::Gauge, label: None, help, source: Source::Shards(read) }
}

const fn node(kind: MetricKind, name: &'static str, help: &'static str, read: fn(&Snapshot) -> u64) -> Metric {
    Metric { name, kind, label: None, help, source: Source::Node(read) }
}

const fn journal(name: &'static str, help: &'static str, values: &'static [(&'static str, Read)]) -> Metric {
    Metric { name, kind: MetricKind::Counter, label: Some("journal"), help, source: Source::Labelled(values) }
}

const fn journal_gauge(name: &'static str, help: &'static str, values: &'static [(&'static str, Read)]) -> Metric {
    Metric { kind: MetricKind::Gauge, ..journal(name, help, values) }
}

/// Every metric of a node.
pub const METRICS: &[Metric] = &[
    counter("lockgate_publish_requests_total", "Publishes taken.", |p| p.engine.publish_requests),
    counter("lockgate_publish_records_total", "Records answered as appended.", |p| p.engine.publish_records),
    counter("lockgate_publish_bytes_total", "Bytes of batches answered as appended.", |p| p.engine.publish_bytes),
    counter("lockgate_publish_duplicates_total", "Publishes answered with their earlier answer.", |p| {
        p.engine.publish_duplicates
    }),
    counter("lockgate_publish_refused_total", "Publishes refused.", |p| p.engine.publish_refused),
    counter("lockgate_publish_lost_total", "Publishes that wanted no answer and were lost.", |p| p.engine.publish_lost),
    gauge("lockgate_publish_in_flight_bytes", "Bytes of publishes that wait for their answer.", |p| {
        p.engine.publish_in_flight_bytes
    }),
    counter("lockgate_delivery_records_total", "Records delivered or fetched.", |p| p.engine.delivered_records),
    counter("lockgate_delivery_bytes_total", "Bytes of batches delivered or fetched.", |p| p.engine.delivered_bytes),
    counter("lockgate_delivery_cold_reads_total", "Reads from segments.", |p| p.engine.cold_reads),
    counter("lockgate_delivery_credit_waits_total", "Times a reader had data and no credit.", |p| {
        p.engine.credit_waits
    }),
    journal(
        "lockgate_journal_writes_total",
        "Finished writes.",
        &[("synced", |p| p.engine.journal.writes), ("buffered", |p| p.engine.buffered_journal.writes)],
    ),
    journal(
        "lockgate_journal_records_total",
        "Records in finished writes.",
        &[("synced", |p| p.engine.journal.records), ("buffered", |p| p.engine.buffered_journal.records)],
    ),
    journal(
        "lockgate_journal_bytes_total",
        "Bytes of finished writes, padding included.",
        &[("synced", |p| p.engine.journal.bytes), ("buffered", |p| p.engine.buffered_journal.bytes)],
    ),
    counter("lockgate_journal_external_records_total", "Records whose data went straight into the segments.", |p| {
        p.engine.journal.external_records
    }),
    counter(
        "lockgate_journal_external_bytes_total",
        "Bytes that went straight into the segments, with padding.",
        |p| p.engine.journal.external_bytes,
    ),
    journal(
        "lockgate_journal_syncs_total",
        "Syncs, with a write or on their own.",
        &[("synced", |p| p.engine.journal.syncs), ("buffered", |p| p.engine.buffered_journal.syncs)],
    ),
    journal(
        "lockgate_journal_files_opened_total",
        "Files opened.",
        &[("synced", |p| p.engine.journal.files), ("buffered", |p| p.engine.buffered_journal.files)],
    ),
    journal(
        "lockgate_journal_files_freed_total",
        "Files that were removed, as nobody needed them any more.",
        &[("synced", |p| p.engine.journal.files_freed), ("buffered", |p| p.engine.buffered_journal.files_freed)],
    ),
    journal_gauge(
        "lockgate_journal_files",
        "Files that hold the journals.",
        &[("synced", |p| p.engine.journal_files), ("buffered", |p| p.engine.buffered_journal_files)],
    ),
    counter("lockgate_journal_carried_total", "Records written once more so that older files could go.", |p| {
        p.engine.journal_carried
    }),
    gauge("lockgate_journal_at_bound", "Shards that refuse publishes, as a journal is at its bound.", |p| {
        p.engine.journal_at_bound
    }),
    gauge(
        "lockgate_partitions_unsynced",
        "Partitions whose segments failed to be synced, so that journal files stay until a restart.",
        |p| p.engine.partitions_unsynced,
    ),
    Metric {
        name: "lockgate_journal_synced_write_seconds",
        kind: MetricKind::Histogram,
        label: None,
        help: "Time until a write of the synced journal was durable.",
        source: Source::SyncedWrites,
    },
    gauge("lockgate_disk_full", "Shards whose files wait for room on the disk.", |p| p.engine.disk_full),
    gauge("lockgate_journal_poisoned", "Journals that failed and take nothing more until a restart.", |p| {
        p.engine.journal_poisoned
    }),
    gauge("lockgate_partitions", "Partitions with a replica here.", |p| p.engine.partitions),
    gauge("lockgate_partitions_serving", "Of these, serving as leader.", |p| p.engine.partitions_serving),
    gauge("lockgate_partitions_failed", "Of these, failed.", |p| p.engine.partitions_failed),
    gauge("lockgate_tail_bytes", "Bytes kept in memory at the ends of the logs.", |p| p.engine.tail_bytes),
    gauge("lockgate_unflushed_bytes", "Of these, not yet in segments.", |p| p.engine.unflushed_bytes),
    counter("lockgate_entries_applied_total", "Log entries applied.", |p| p.engine.entries_applied),
    counter("lockgate_checkpoints_total", "Checkpoints written.", |p| p.engine.checkpoints),
    counter("lockgate_segments_expired_total", "Segments removed by retention.", |p| p.engine.segments_expired),
    counter("lockgate_scrub_bytes_total", "Bytes of sealed segments that were read again.", |p| p.engine.scrub_bytes),
    gauge("lockgate_scrub_damaged_places", "Places in sealed segments that are known to be damaged.", |p| {
        p.engine.damaged_places
    }),
    counter("lockgate_file_failures_total", "File operations that failed.", |p| p.engine.file_failures),
    gauge("lockgate_file_ops_waiting", "File operations that wait for room in a lane.", |p| p.io.file_ops_waiting),
    counter("lockgate_mesh_frames_total", "Frames sent to other shards.", |p| p.engine.mesh_frames),
    gauge("lockgate_mesh_requests", "Requests under way to other shards.", |p| p.engine.mesh_requests),
    gauge("lockgate_mesh_requests_parked", "Requests that wait for a slot of the mesh.", |p| p.engine.mesh_parked),
    gauge("lockgate_mesh_frames_waiting", "Frames that wait for room in another shard's inbox.", |p| {
        p.io.mesh_frames_waiting
    }),
    counter("lockgate_mesh_misrouted_total", "Frames for a partition that is not here, which is a bug.", |p| {
        p.engine.mesh_misrouted
    }),
    gauge("lockgate_connections", "Client connections.", |p| p.engine.connections),
    gauge("lockgate_connections_paused", "Connections that are not read at the moment.", |p| {
        p.engine.connections_paused
    }),
    counter("lockgate_connections_opened_total", "Connections opened.", |p| p.engine.connections_opened),
    Metric {
        name: "lockgate_connections_closed_total",
        kind: MetricKind::Counter,
        label: Some("reason"),
        help: "Connections closed by the broker.",
        source: Source::Labelled(&[
            ("silent", |p| p.engine.connections_dead),
            ("stalled", |p| p.engine.connections_stalled),
            ("half_frame", |p| p.engine.connections_half_frame),
        ]),
    },
    node(MetricKind::Counter, "lockgate_connections_refused_total", "Connections closed at once at the limit.", |s| {
        s.status.connections_refused.load(Ordering::Relaxed)
    }),
    node(
        MetricKind::Counter,
        "lockgate_accept_failures_total",
        "Failed accepts for want of descriptors or memory.",
        |s| s.status.accept_failures.load(Ordering::Relaxed),
    ),
    gauge("lockgate_subscriptions", "Subscriptions.", |p| p.engine.subscriptions),
    gauge("lockgate_requests_unanswered", "Requests that wait for their answer.", |p| p.engine.unanswered_requests),
    gauge("lockgate_outgoing_bytes", "Bytes in frames not yet handed to the kernel.", |p| p.engine.outgoing_bytes),
    gauge("lockgate_charged_bytes", "Bytes charged to connections for requests that wait.", |p| p.engine.charged_bytes),
    counter("lockgate_requests_refused_total", "Requests refused, whatever they were.", |p| p.engine.refused),
    counter("lockgate_internal_errors_total", "Refusals that are bugs.", |p| p.engine.internal_errors),
    Metric {
        name: "lockgate_view_version",
        kind: MetricKind::Gauge,
        label: None,
        help: "The version of the cluster's view that every shard has.",
        source: Source::Least(|p| p.engine.view_version),
    },
    node(MetricKind::Gauge, "lockgate_shards", "Shards of the node.", |s| s.status.shards.len() as u64),
    node(MetricKind::Gauge, "lockgate_shards_recovered", "Of these, with their journals read.", |s| {
        s.status.shards.iter().filter(|shard| shard.recovered.load(Ordering::Relaxed)).count() as u64
    }),
    node(MetricKind::Gauge, "lockgate_shards_ready", "Of these, with their partitions open.", |s| {
        s.status.shards.iter().filter(|shard| shard.ready.load(Ordering::Relaxed)).count() as u64
    }),
    counter("lockgate_shard_rounds_total", "Rounds of the shards' loops.", |p| p.io.rounds),
    Metric {
        name: "process_cpu_seconds_total",
        kind: MetricKind::Counter,
        label: None,
        help: "Processor time used.",
        source: Source::Seconds(|s| s.process.cpu),
    },
    node(MetricKind::Gauge, "process_resident_memory_bytes", "Memory in use.", |s| s.process.resident_bytes),
    node(MetricKind::Gauge, "process_open_fds", "Open descriptors.", |s| s.process.open_descriptors),
    node(MetricKind::Gauge, "process_max_fds", "Descriptors that may be open.", |s| s.process.descriptors_max),
];

/// All metrics in the text format.
pub(crate) fn render(status: &Arc<NodeStatus>) -> Result<String, std::fmt::Error> {
    let snapshot = Snapshot {
        status: status.clone(),
        shards: status.shards.iter().map(|shard| shard.published.load_full()).collect(),
        process: Process::look(),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The table as documentation, in Markdown.
pub fn documentation() -> String {
    let mut text = String::from("| name | kind | label | meaning |\n|---|---|---|---|\n");
    for Metric { name, kind, label, help, .. } in METRICS {
        let kind = format!("{kind:?}").to_lowercase();
        text.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", label.unwrap_or("")));
    }
    text
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        METRICS.iter().try_for_each(|metric| self.encode_one(metric, &mut encoder))
    }
}

impl Snapshot {
    fn encode_one(&self, metric: &Metric, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kind = match metric.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        // The library's encoder puts the ending back.
        let name = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
        let sum = |read: fn(&Published) -> u64| self.shards.iter().map(|shard| read(shard)).sum::<u64>();
        match &metric.source {
            Source::Shards(read) => number(metric.kind, sum(*read), family),
            Source::Least(read) => {
                number(metric.kind, self.shards.iter().map(|shard| read(shard)).min().unwrap_or(0), family)
            }
            Source::Node(read) => number(metric.kind, read(self), family),
            Source::Seconds(read) => ConstCounter::new(read(self).as_secs_f64()).encode(family),
            Source::Labelled(values) => values.iter().try_for_each(|(value, read)| {
                let labels = [(metric.label.unwrap_or_default(), *value)];
                number(metric.kind, sum(*read), family.encode_family(&labels)?)
            }),
            Source::SyncedWrites => self.encode_synced_writes(family),
        }
    }

    fn encode_synced_writes(&self, mut family: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut counts = [0; LATENCY_BOUNDS_US.len() + 1];
        let mut sum_us = 0;
        for shard in &self.status.shards {
            let (shard_counts, shard_sum_us) = shard.synced_writes.snapshot();
            counts.iter_mut().zip(shard_counts).for_each(|(total, count)| *total += count);
            sum_us += shard_sum_us;
        }
        let bounds = LATENCY_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        family.encode_histogram::<[(&str, &str); 0]>(sum_us as f64 / 1e6, counts.iter().sum(), &buckets, None)
    }
}

fn number(kind: MetricKind, value: u64, encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
    match kind {
        MetricKind::Counter => ConstCounter::new(value).encode(encoder),
        MetricKind::Gauge | MetricKind::Histogram => {
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)
        }
    }
}
