//! A fixed set of seeds, and the proof that a seed is the whole run.

use std::process::Command;

use lockgate_sim::reduction::{Reduction, parse_parts};
use lockgate_sim::{run, run_reduced, shrink};

/// Seeds of every ordinary test run.
const SEEDS: std::ops::Range<u64> = 1..21;

#[test]
fn every_seed_of_the_fixed_set_holds_all_invariants() {
    for seed in SEEDS {
        let outcome = run(seed, false);
        assert_eq!(outcome.violation, None, "replay: cargo sim --seed {seed} --trace");
        assert!(outcome.time >= 60_000_000_000, "seed {seed} ran {} ns", outcome.time);
        assert!(outcome.operations >= 500, "seed {seed} had {} operations", outcome.operations);
    }
}

#[test]
fn a_seed_gives_the_same_run_again_here_and_in_another_process() {
    let here = run(3, false);
    assert_eq!(run(3, false).hash, here.hash);
    assert_ne!(run(4, false).hash, here.hash);
    let there = Command::new(env!("CARGO_BIN_EXE_lockgate-sim")).args(["--seed", "3"]).output().unwrap();
    let text = String::from_utf8(there.stdout).unwrap();
    assert!(text.contains(&format!("hash {:016x}", here.hash)), "{text}");
}

#[test]
fn a_reduction_that_leaves_everything_in_is_the_whole_run() {
    for seed in [3, 5, 8] {
        let whole = run(seed, false);
        let reduced = run_reduced(seed, &shrink::whole(&whole), false);
        assert_eq!(reduced.hash, whole.hash, "seed {seed}");
    }
}

#[test]
fn a_reduced_run_is_what_is_left_of_its_seed_and_replays_as_well() {
    let reduction = Reduction { only: parse_parts("client0:0-2,client1:2-4,node:0").ok(), stir_ms: Some(6_000) };
    let (here, whole) = (run_reduced(3, &reduction, false), run(3, false));
    assert_eq!(here.violation, None);
    assert_eq!(run_reduced(3, &reduction, false).hash, here.hash);
    assert!((1..whole.operations / 2).contains(&here.operations), "{} operations", here.operations);
    assert!(here.faults.total() <= 1 && here.time < whole.time, "{}", here.faults);
    let arguments = format!("--seed 3{}", reduction.arguments());
    let command = env!("CARGO_BIN_EXE_lockgate-sim");
    let there = Command::new(command).args(arguments.split_whitespace()).output().unwrap();
    let text = String::from_utf8(there.stdout).unwrap();
    assert!(text.contains(&format!("hash {:016x}", here.hash)), "{text}");
}
