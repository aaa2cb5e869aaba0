//! `lockgate bench`: what a broker does, and what this machine allows.
//!
//! Latency counts from when a request was due, not from when it was sent: in a closed loop a request is due when the one
//! before it in its slot was answered, at a fixed rate when the clock says so, however late the generator is.

mod baseline;
mod consume;
mod e2e;
mod limits;
mod load;
mod machine;
mod options;
mod own;
mod produce;
mod recorder;
mod report;
mod scrape;
mod stop;
mod table;
mod target;

use clap::Subcommand;

use crate::args::Global;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Publish, and measure until the acknowledgement
    Produce(produce::Produce),
    /// Read a topic from its beginning
    Consume(consume::Consume),
    /// Publish while reading the end, and measure until the delivery
    E2e(e2e::EndToEnd),
    /// What this machine allows without a broker: bare writes and syncs, a bare TCP stream
    Limits(limits::Limits),
    /// The whole table of budgets, each against what this machine allows, with brokers of its own
    All(table::All),
}

pub(crate) fn run(command: BenchCommand, global: &Global) -> Result<(), Failure> {
    stop::listen()?;
    let done = match command {
        BenchCommand::Produce(args) => produce::run(&args, global),
        BenchCommand::Consume(args) => consume::run(&args, global),
        BenchCommand::E2e(args) => e2e::run(&args, global),
        BenchCommand::Limits(args) => limits::run(&args, global),
        BenchCommand::All(args) => table::run(&args, global),
    };
    match done {
        Ok(()) if stop::is_wanted() => Err(Failure::Incomplete {
            what: "interrupted: the figures are of what was done by then".into(),
            unknown: false,
        }),
        done => done,
    }
}
