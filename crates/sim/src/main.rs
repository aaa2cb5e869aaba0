//! `cargo sim`: replays a seed, makes a failing one smaller, runs a range of seeds, or searches fresh ones.
//!
//! The only part of the simulator that knows threads and the real clock: seeds run side by side, each by itself.

mod options;
mod search;

use std::process::ExitCode;

use lockgate_sim::reduction::Reduction;
use lockgate_sim::shrink::{self, RUNS_MAX};
use lockgate_sim::{Outcome, run, run_reduced};
use options::Command;

fn main() -> ExitCode {
    let succeeded = match options::parse(std::env::args().skip(1)) {
        Ok(Command::Replay { seed, reduction, trace }) => report(&run_reduced(seed, &reduction, trace), &reduction),
        Ok(Command::Shrink { seed }) => {
            let outcome = run(seed, false);
            let succeeded = report(&outcome, &Reduction::default());
            if !succeeded {
                report_shrunk(&outcome);
            }
            succeeded
        }
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
fn report(outcome: &Outcome, reduction: &Reduction) -> bool {
    println!(
        "seed {}: {:.1} simulated seconds, {} operations, {} batches acknowledged, {} processes, {}, {} steps, hash {:016x}",
        outcome.seed,
        outcome.time as f64 / 1e9,
        outcome.operations,
        outcome.acknowledged,
        outcome.processes,
        outcome.faults,
        outcome.steps,
        outcome.hash
    );
    if let Some(violation) = &outcome.violation {
        let (seed, arguments) = (outcome.seed, reduction.arguments());
        println!("seed {seed} FAILED: {violation}\n  replay: cargo sim --seed {seed}{arguments} --trace");
    }
    outcome.violation.is_none()
}

/// Makes a failed run smaller and prints what is left of it.
fn report_shrunk(failed: &Outcome) {
    println!("making seed {} smaller, in {RUNS_MAX} runs at most", failed.seed);
    // A panic that is provoked again and again has been told.
    std::panic::set_hook(Box::new(|_| {}));
    let shrunk = shrink::shrink(failed, &mut |reduction| run_reduced(failed.seed, reduction, false));
    drop(std::panic::take_hook());
    match shrunk {
        Some(shrunk) => {
            println!("after {} runs: {}", shrunk.runs, shrink::comparison(failed, &shrunk.outcome));
            report(&shrunk.outcome, &shrunk.reduction);
        }
        None => println!("it does not fail a second time, which a seed must"),
    }
}
