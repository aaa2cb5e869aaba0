//! `cargo sim`: replays a seed, runs a range of seeds, or searches fresh ones.
//!
//! The only part of the simulator that knows threads and the real clock: seeds run side by side, each by itself.

mod options;
mod search;

use std::process::ExitCode;

use lockgate_sim::{Outcome, run};
use options::Command;

fn main() -> ExitCode {
    let succeeded = match options::parse(std::env::args().skip(1)) {
        Ok(Command::Replay { seed, trace }) => report(&run(seed, trace)),
        Ok(Command::Range { seeds, jobs }) => search::range(seeds, jobs),
        Ok(Command::Search { minutes, jobs }) => search::fresh(minutes, jobs),
        Err(text) => {
            eprintln!("{text}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what came of a seed. True: nothing was broken.
fn report(outcome: &Outcome) -> bool {
    println!(
        "seed {}: {:.1} simulated seconds, {} operations, {} batches acknowledged, {} processes, {} power losses, {} steps, hash {:016x}",
        outcome.seed,
        outcome.time as f64 / 1e9,
        outcome.operations,
        outcome.acknowledged,
        outcome.processes,
        outcome.power_losses,
        outcome.steps,
        outcome.hash
    );
    if let Some(violation) = &outcome.violation {
        println!("seed {} FAILED: {violation}\n  replay: cargo sim --seed {} --trace", outcome.seed, outcome.seed);
    }
    outcome.violation.is_none()
}
