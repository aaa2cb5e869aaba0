//! A fixed set of seeds, and the proof that a seed is the whole run.

use std::process::Command;

use lockgate_sim::run;

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
