//! Large batches for a while, with retention at work: what the device takes at the end of files that grow, without and with a
//! network.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use lockgate_server::Config;
use lockgate_server::config::Sources;
use lockgate_server::feed::{self, Feed};
use lockgate_wire::batch::{BatchBuilder, Codec, Record};

use super::super::{Budget, Extent, Row};
use super::{directory, rate};
use crate::bench::baseline;
use crate::bench::machine;
use crate::bench::options::Load;
use crate::bench::produce;
use crate::failure::Failure;
use crate::output::bytes;

/// Records of a batch: with their overhead just below 1 MiB.
const RECORDS: u32 = 15;
const RECORD_BYTES: u32 = 64 * 1024;
const BATCH_BYTES: usize = 1024 * 1024;
const IN_FLIGHT: u32 = 16;
/// So that segments are sealed and removed while it goes on.
const SETTINGS: &[(&str, &str)] = &[("retention_bytes", "1GiB"), ("segment_bytes", "256MiB")];
const SEGMENT_BYTES: u64 = 256 << 20;
/// What the broker writes at once, if so much waits: `journal.max_write_bytes`.
const WRITE_BYTES: usize = 4 * 1024 * 1024;
/// What a log, its journal and the loop's own file take at most, about: retention and the journal's bound see to that…
const ROOM_BYTES: u64 = 6 << 30;
/// …and what they may take in a second before that, about.
const ROOM_BYTES_PER_SECOND: u64 = 1 << 29;

pub(super) fn measure(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    let duration = Duration::from_secs(extent.sustained_seconds);
    let scratch = std::env::temp_dir();
    machine::check_room(&scratch, ROOM_BYTES.min((extent.sustained_seconds + 2) * ROOM_BYTES_PER_SECOND))?;
    let (larger, _) = appends(&scratch, WRITE_BYTES, duration / 4)?;
    let overwritten = baseline::direct(&scratch, BATCH_BYTES, duration / 4).map_err(loop_failed())?;
    // Each is measured against the loops right before and after it, for the rate of a device changes from minute to minute.
    // What the broker leaves is removed behind them.
    let (before, writes) = appends(&scratch, BATCH_BYTES, duration)?;
    let fed = scratch.join(format!("lockgate-fed-{}", std::process::id()));
    let in_process = in_process(&fed, duration);
    let (between, _) = appends(&scratch, BATCH_BYTES, duration)?;
    // What cannot be removed is left to whoever cleans temporary files.
    drop(fs::remove_dir_all(&fed));
    let (in_process, refused) = in_process?;
    let load = Load {
        size: RECORD_BYTES,
        batch_records: RECORDS,
        in_flight: IN_FLIGHT,
        seconds: Some(extent.sustained_seconds),
        settings: SETTINGS,
        ..extent.load()
    };
    let mut target = extent.target(&load, &[])?;
    let published = produce::measure(&load, &target)?;
    target.own.as_mut().expect("every row has its own broker").kill().map_err(loop_failed())?;
    let (after, _) = appends(directory(&target), BATCH_BYTES, duration)?;
    drop(target);
    let near_in_process = (before + between) / 2.0;
    let near_published = (between + after) / 2.0;
    let sink = baseline::tcp_sink(BATCH_BYTES, duration).map_err(Failure::io("the loopback stream failed"))?;
    let least = near_published.min(sink.bytes_per_second() / 2.0);
    let against = |before: f64, after: f64| {
        format!("loops of 1 MiB appends, {writes}, before: {}/s, after: {}/s", bytes(before), bytes(after))
    };
    let refused = if refused > 0 { format!(", {refused} publishes refused and sent again") } else { String::new() };
    let mut rows = vec![
        Row {
            work: format!(
                "{} s of 1 MiB batches, {IN_FLIGHT} in flight, fsync always, retention on, fed in process",
                extent.sustained_seconds
            ),
            measured: format!("{}/s{refused}", bytes(in_process)),
            against: against(before, between),
            ratio: in_process / near_in_process,
            budget: Budget::AtLeast(0.8),
        },
        Row {
            work: "the same through TCP, against the smaller of that loop and half the sink".into(),
            measured: rate(&published),
            against: format!(
                "{}; half the TCP sink: {}/s",
                against(between, after),
                bytes(sink.bytes_per_second() / 2.0)
            ),
            ratio: published.bytes_per_second() / least,
            budget: Budget::AtLeast(0.8),
        },
        Row {
            work: "fed in process, against appends as large as the broker's writes".into(),
            measured: format!("{}/s", bytes(in_process)),
            against: format!("a loop of 4 MiB appends, {writes}: {}/s", bytes(larger)),
            ratio: in_process / larger,
            budget: Budget::None,
        },
    ];
    rows.extend(overwritten.map(|overwritten| Row {
        work: "fed in process, against writes to blocks that the file has already".into(),
        measured: format!("{}/s", bytes(in_process)),
        against: format!("a loop of 1 MiB over 64 MiB, O_DIRECT+O_DSYNC: {}/s", bytes(overwritten.bytes_per_second())),
        ratio: in_process / overwritten.bytes_per_second(),
        budget: Budget::None,
    }));
    Ok(rows)
}

fn loop_failed() -> impl FnOnce(std::io::Error) -> Failure {
    Failure::io("the loop of writes and syncs failed")
}

/// Bytes a second of a bare loop of appends to files as large as segments, and how it writes: past the page cache where that
/// can be done.
fn appends(scratch: &Path, size: usize, duration: Duration) -> Result<(f64, &'static str), Failure> {
    let direct = baseline::direct_appends(scratch, (size, SEGMENT_BYTES), duration).map_err(loop_failed())?;
    let (rate, writes) = match direct {
        Some(direct) => (direct, "O_DIRECT+O_DSYNC"),
        None => (baseline::append_and_sync(scratch, size, duration).map_err(loop_failed())?, "append + fdatasync"),
    };
    Ok((rate.bytes_per_second(), writes))
}

/// Bytes a second, and how many publishes were refused for the moment. `data` is left where it is.
fn in_process(data: &Path, duration: Duration) -> Result<(f64, u64), Failure> {
    let batch = batch();
    let settings = SETTINGS.iter().chain(&[("max_batch_bytes", "2MiB")]);
    let size = batch.len() as f64;
    let feed = Feed {
        batch,
        in_flight: IN_FLIGHT,
        duration,
        settings: settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    let sources = Sources { flags: vec![("shards.count", "1".to_owned())], ..Sources::default() };
    let config = Config::load(&sources).map_err(Failure::Config)?;
    let fed = feed::run(&config, data, feed)
        .map_err(|error| Failure::Incomplete { what: error.to_string(), unknown: false })?;
    Ok((fed.batches as f64 * size / fed.took.as_secs_f64().max(1e-9), fed.refused))
}

fn batch() -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = Bytes::from(vec![0x5a; RECORD_BYTES as usize]);
    for _ in 0..RECORDS {
        let record = Record { key: None, value: Some(value.clone()), headers: Vec::new(), timestamp_ms: 0 };
        builder.push(&record).expect("a record that fits a batch");
    }
    builder.build(None)
}
