//! `lockgate bench limits`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::baseline::{self, Baseline};
use super::machine::Machine;
use super::report::{latency_json, latency_text};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Limits {
    /// Bytes of a write
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024, value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    size: u32,
    /// How long each loop runs
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Where the files are written; by default in the directory for temporary files
    #[arg(long, value_name = "D")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Limits, global: &Global) -> Result<(), Failure> {
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let (size, duration) = (args.size as usize, Duration::from_secs(args.seconds));
    let failed = || Failure::io(format!("a loop in {} failed", directory.display()));
    let append = baseline::append_and_sync(&directory, size, duration).map_err(failed())?;
    let direct = baseline::direct(&directory, size, duration).map_err(failed())?;
    let sink = baseline::tcp_sink(size, duration).map_err(Failure::io("the loopback stream failed"))?;
    let machine = Machine::here(&directory);
    let loops: Vec<(&str, &Baseline)> = [
        Some(("append_and_sync", &append)),
        direct.as_ref().map(|direct| ("direct_and_synced", direct)),
        Some(("tcp_sink", &sink)),
    ]
    .into_iter()
    .flatten()
    .collect();
    output::print(global, || text(&machine, &loops), || as_json(args.size, &machine, &loops))
}

fn text(machine: &Machine, loops: &[(&str, &Baseline)]) -> String {
    let rows = loops.iter().map(|(name, did)| {
        let rate = format!("{}/s", output::bytes(did.bytes_per_second()));
        [name.replace('_', " "), rate, latency_text(&did.latency_us)]
    });
    format!("{machine}\n\n{}", output::table(["LOOP", "RATE", "EACH"], rows))
}

fn as_json(size: u32, machine: &Machine, loops: &[(&str, &Baseline)]) -> Value {
    let loops: Map<String, Value> = loops
        .iter()
        .map(|(name, did)| {
            let figures =
                json!({ "bytes_per_second": did.bytes_per_second(), "latency_us": latency_json(&did.latency_us) });
            ((*name).to_owned(), figures)
        })
        .collect();
    json!({ "bench": "limits", "size": size, "machine": machine.to_string(), "loops": loops })
}
