//! `lockgate bench produce`.

use clap::Args;

use super::load;
use super::options::Load;
use super::report::{Report, cpu_used};
use super::target::Target;
use crate::args::Global;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct Produce {
    #[command(flatten)]
    load: Load,
}

pub(crate) fn run(args: &Produce, global: &Global) -> Result<(), Failure> {
    let target = Target::prepare(&args.load, global)?;
    let report = measure(&args.load, &target)?;
    report.print(global)?;
    target.clean_up()
}

/// Publishes the load and measures until the acknowledgements.
pub(super) fn measure(load: &Load, target: &Target) -> Result<Report, Failure> {
    let before = cpu_used();
    let recorder = load::run(load, target, None)?;
    Ok(Report {
        bench: "produce",
        asked: load.asked(),
        size: load.size,
        recorder,
        latency_of: "until acknowledged",
        beside: None,
        generator_cpu: cpu_used() - before,
    })
}
