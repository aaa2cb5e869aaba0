//! The rows of the table.

mod restart;
mod sustained;

use super::{Budget, Extent, Row};
use crate::bench::baseline;
use crate::bench::options::{Load, Switch};
use crate::bench::report::Report;
use crate::bench::scrape::Metrics;
use crate::bench::target::Target;
use crate::bench::{consume, e2e, produce};
use crate::failure::Failure;
use crate::output::bytes;

/// Records of 1 KiB that are a batch of 64 KiB.
const BATCH_RECORDS: u32 = 63;
const BATCH_BYTES: usize = 64 * 1024;
const EXTERNAL_BYTES: &str = "lockgate_journal_external_bytes_total";
/// How names of segment files end.
const SEGMENTS: &str = "log";

/// Measures one or more rows.
type Measure = fn(&Extent<'_>) -> Result<Vec<Row>, Failure>;

/// In the order of the table, with the names for `--only`.
pub(super) const ROWS: [(&str, Measure); 8] = [
    ("synced", publish_synced),
    ("interval", publish_interval),
    ("single", single_records),
    ("tailing", tailing_reader),
    ("cold", cold_read),
    ("partitions", many_partitions),
    ("sustained", sustained::measure),
    ("restart", restart::measure),
];

/// Against a loop of writes of the batch's size, and against one of writes as large as the broker's, which holds several
/// batches in one write.
fn publish_synced(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let load = Load { batch_records: BATCH_RECORDS, ..extent.load() };
    let target = extent.target(&load, &[])?;
    let before = metrics(&target)?;
    let published = produce::measure(&load, &target)?;
    let after = metrics(&target)?;
    let grown = |name: &str| after.value(name) - before.value(name);
    // What one write of the journal confirms: its own bytes, and those that went straight into a segment ahead of it.
    let written = grown("lockgate_journal_bytes_total{journal=\"synced\"}") + grown(EXTERNAL_BYTES);
    let write_bytes = (written / grown("lockgate_journal_writes_total{journal=\"synced\"}").max(1.0)) as usize;
    let against = |size: usize, work: &str| -> Result<Row, Failure> {
        let failed = || Failure::io("the loop of writes and syncs failed");
        let device = baseline::append_and_sync(directory(&target), size, extent.duration()).map_err(failed())?;
        let direct = baseline::direct(directory(&target), size, extent.duration()).map_err(failed())?;
        let direct =
            direct.map_or_else(String::new, |d| format!(", O_DIRECT+O_DSYNC: {}/s", bytes(d.bytes_per_second())));
        Ok(Row {
            work: work.into(),
            measured: rate(&published),
            against: format!(
                "loops of {} KiB: append + fdatasync: {}/s{direct}",
                size.div_ceil(1024),
                bytes(device.bytes_per_second())
            ),
            ratio: published.bytes_per_second() / device.bytes_per_second(),
            budget: Budget::AtLeast(0.8),
        })
    };
    Ok(vec![
        against(BATCH_BYTES, "publish, 1 KiB records in 64 KiB batches, 16 in flight, fsync always")?,
        against(write_bytes.max(1), "the same, against writes as large as the broker's")?,
    ])
}

fn publish_interval(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let load = Load { batch_records: BATCH_RECORDS, fsync: "interval:1000".into(), ..extent.load() };
    let target = extent.target(&load, &[])?;
    let sink = baseline::tcp_sink(BATCH_BYTES, extent.duration());
    let sink = sink.map_err(Failure::io("the loopback stream failed"))?;
    let published = produce::measure(&load, &target)?;
    Ok(vec![Row {
        work: "publish, 1 KiB records in 64 KiB batches, 16 in flight, fsync interval (1 s)".into(),
        measured: rate(&published),
        against: format!("TCP sink: {}/s", bytes(sink.bytes_per_second())),
        ratio: published.bytes_per_second() / sink.bytes_per_second(),
        budget: Budget::AtLeast(0.5),
    }])
}

/// One 100-byte record a request; once more with numbers, which allow 5 in flight.
fn single_records(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let works = [
        (Switch::Off, "single 100-byte records, 64 in flight", [Budget::AtMost(1.0 / 16.0), Budget::AtMost(4.0)]),
        (Switch::On, "single 100-byte records, numbered, 5 in flight", [Budget::None, Budget::None]),
    ];
    let mut rows = Vec::new();
    for (idempotent, work, [syncs_budget, cpu_budget]) in works {
        let load = Load { size: 100, in_flight: 64, idempotent: Some(idempotent), warmup: 0, ..extent.load() };
        let target = extent.target(&load, &[])?;
        let before = metrics(&target)?;
        let published = produce::measure(&load, &target)?;
        let after = metrics(&target)?;
        let grown = |name: &str| after.value(name) - before.value(name);
        let records = grown("lockgate_publish_records_total").max(1.0);
        let syncs = grown("lockgate_journal_syncs_total{journal=\"synced\"}");
        let cpu_us = grown("process_cpu_seconds_total") * 1e6;
        rows.push(Row {
            work: format!("{work}: syncs per record"),
            measured: rate(&published),
            against: format!("{records:.0} records, {syncs:.0} syncs"),
            ratio: syncs / records,
            budget: syncs_budget,
        });
        rows.push(Row {
            work: format!("{work}: broker's µs of processor time per record"),
            measured: format!("{:.0} ms of processor time", cpu_us / 1e3),
            against: format!("{records:.0} records"),
            ratio: cpu_us / records,
            budget: cpu_budget,
        });
    }
    Ok(rows)
}

fn tailing_reader(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let load = Load { batch_records: BATCH_RECORDS, ..extent.load() };
    let target = extent.target(&load, &[])?;
    let followed = e2e::measure(&load, &target)?;
    drop(target);
    let p99 = |latency: &hdrhistogram::Histogram<u64>| latency.value_at_quantile(0.99) as f64;
    let delivered = p99(&followed.recorder.latency_us);
    let acknowledged = followed.beside.as_ref().map_or(f64::NAN, |(_, latency)| p99(latency));
    Ok(vec![Row {
        work: "tailing reader, 1 KiB records in 64 KiB batches: p99 until delivered".into(),
        measured: format!("{}, p99 {delivered:.0} µs", rate(&followed)),
        against: format!("p99 until acknowledged: {acknowledged:.0} µs"),
        ratio: delivered / acknowledged,
        budget: Budget::AtMost(2.0),
    }])
}

fn cold_read(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let records = extent.cold_bytes / 1024;
    let load = Load { records: Some(records), seconds: None, fsync: "interval:1000".into(), ..extent.load() };
    // Next to nothing is left in memory: it comes from segments.
    let target = extent.target(&load, &[("LOCKGATE_LIMITS_TAIL_BYTES_PER_SHARD", "1MiB")])?;
    consume::fill(&load, &target)?;
    let failed = || Failure::io("reading the segments failed");
    baseline::forget_files(directory(&target), SEGMENTS).map_err(failed())?;
    let read = consume::measure(&load, &target)?;
    baseline::forget_files(directory(&target), SEGMENTS).map_err(failed())?;
    let plain = baseline::read_files(directory(&target), SEGMENTS).map_err(failed())?;
    Ok(vec![Row {
        work: "cold read from segments".into(),
        measured: rate(&read),
        against: format!(
            "the same files, plainly, not in the page cache either: {}/s",
            bytes(plain.bytes_per_second())
        ),
        ratio: read.bytes_per_second() / plain.bytes_per_second(),
        budget: Budget::AtLeast(0.7),
    }])
}

fn many_partitions(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let measure = |partitions: u32| -> Result<Report, Failure> {
        let load = Load { in_flight: 64, partitions, ..extent.load() };
        let target = extent.target(&load, &[])?;
        produce::measure(&load, &target)
    };
    let (one, many) = (measure(1)?, measure(extent.many_partitions)?);
    let p99 = |report: &Report| report.recorder.latency_us.value_at_quantile(0.99) as f64;
    Ok(vec![
        Row {
            work: format!(
                "{} partitions instead of 1, single 1 KiB records, 64 in flight, fsync always: throughput",
                extent.many_partitions
            ),
            measured: rate(&many),
            against: format!("one partition: {}", rate(&one)),
            ratio: many.bytes_per_second() / one.bytes_per_second(),
            budget: Budget::AtLeast(0.7),
        },
        Row {
            work: "the same: p99".into(),
            measured: format!("{:.0} µs", p99(&many)),
            against: format!("one partition: {:.0} µs", p99(&one)),
            ratio: p99(&many) / p99(&one),
            budget: Budget::AtMost(2.0),
        },
    ])
}

fn rate(report: &Report) -> String {
    format!("{:.0} records/s, {}/s", report.records_per_second(), bytes(report.bytes_per_second()))
}

/// The directory of the row's own broker.
fn directory(target: &Target) -> &std::path::Path {
    target.own.as_ref().expect("every row has its own broker").directory()
}

fn metrics(target: &Target) -> Result<Metrics, Failure> {
    Metrics::get(target.own.as_ref().expect("every row has its own broker").admin)
}
