//! `lockgate bench consume`.

use std::time::Instant;

use clap::Args;
use lockgate_client::{Client, Item, ReaderConfig};

use super::load;
use super::options::{Load, Switch};
use super::recorder::Recorder;
use super::report::{Report, cpu_used};
use super::stop;
use super::target::{Target, runtime};
use crate::args::Global;
use crate::failure::Failure;

/// Bytes of records that a topic is filled with unless records are given.
const FILL_BYTES: u64 = 512 * 1024 * 1024;
/// Bytes of a batch that it is filled with.
const FILL_BATCH_BYTES: u32 = 64 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Consume {
    #[command(flatten)]
    load: Load,
}

pub(crate) fn run(args: &Consume, global: &Global) -> Result<(), Failure> {
    let target = Target::prepare(&args.load, global)?;
    if args.load.topic.is_none() {
        fill(&args.load, &target)?;
    }
    let report = measure(&args.load, &target)?;
    report.print(global)?;
    target.clean_up()
}

/// Puts into the topic what is to be read.
pub(super) fn fill(load: &Load, target: &Target) -> Result<(), Failure> {
    let records = load.records.unwrap_or(FILL_BYTES / u64::from(load.size));
    let filling = Load {
        records: Some(records),
        seconds: None,
        batch_records: load.batch_records.max(FILL_BATCH_BYTES / load.size).max(1),
        idempotent: Some(Switch::Off),
        warmup: 0,
        rate: None,
        ..load.clone()
    };
    let filled = load::run(&filling, target, None)?;
    match filled.first_error {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}

/// Reads the topic from its beginning to what is its end now, or as long as was asked for.
pub(super) fn measure(load: &Load, target: &Target) -> Result<Report, Failure> {
    let before = cpu_used();
    let recorder = runtime()?.block_on(async {
        let client = Client::connect(target.config.clone()).await?;
        let config = ReaderConfig { stop_at_end: true, ..ReaderConfig::default() };
        let mut reader = client.reader(&target.topic.name, config).await?;
        let begin = Instant::now();
        let mut recorder = Recorder::new(begin);
        let mut asked = begin;
        while let Some(items) = reader.next_batch().await {
            let items = match items {
                Ok(items) => items,
                Err(error) if recorder.failed(error.clone()) => break,
                Err(_) => continue,
            };
            let now = Instant::now();
            let records = items.iter().filter(|item| matches!(item, Item::Record(_))).count() as u64;
            if records > 0 {
                recorder.done(asked, now, records);
            }
            let enough = stop::is_wanted()
                || load.records.is_some_and(|most| recorder.records >= most)
                || load.seconds.is_some_and(|most| begin.elapsed().as_secs() >= most);
            if enough {
                break;
            }
            asked = Instant::now();
        }
        Ok::<_, Failure>(recorder)
    })?;
    Ok(Report {
        bench: "consume",
        asked: load.asked(),
        size: load.size,
        recorder,
        latency_of: "wait for a batch",
        beside: None,
        generator_cpu: cpu_used() - before,
    })
}
