//! Runs on a device that breaks a rule, so that there is a failure to be made smaller.

use super::{Outcome, World, to_the_end};
use crate::reduction::{Reduction, parse_parts};
use crate::shrink::shrink;

/// A run on a disk that confirms syncs and forgets them.
fn run_forgetful(seed: u64, reduction: &Reduction) -> Outcome {
    let world = World::new(seed, reduction.clone(), false);
    world.disk.forget_syncs();
    to_the_end(world)
}

/// What the arguments of a printed command say.
fn read_back(arguments: &str) -> Reduction {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let ["--only", parts, "--stir", stir] = words[..] else { panic!("{arguments}") };
    Reduction { only: Some(parse_parts(parts).unwrap()), stir_ms: Some(stir.parse().unwrap()) }
}

#[test]
fn the_command_that_is_printed_for_a_smaller_run_replays_it() {
    let runs = (1..100).map(|seed| (seed, run_forgetful(seed, &Reduction::default())));
    let failed: Vec<_> = runs.filter(|(_, run)| run.violation.is_some() && run.time < run.stir).take(2).collect();
    assert_eq!(failed.len(), 2, "two fail while they stir");
    for (seed, failed) in failed {
        let shrunk = shrink(&failed, &mut |reduction| run_forgetful(seed, reduction)).expect("it fails again");
        let reduction = read_back(&shrunk.reduction.arguments());
        assert_eq!(reduction, shrunk.reduction);
        let replayed = run_forgetful(seed, &reduction);
        assert_eq!(replayed.hash, shrunk.outcome.hash, "seed {seed}{}", reduction.arguments());
        assert_eq!(replayed.violation, shrunk.outcome.violation);
    }
}
