//! Every target over its seeds, over what fuzzing has found, and over some thousand mutations that are always the same.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use lockgate_fuzz::mutate::{Random, mutated};
use lockgate_fuzz::{TARGETS, Target, target};

/// Mutations of each target in an ordinary run; `LOCKGATE_FUZZ_MUTATIONS` and `LOCKGATE_FUZZ_SEED` try others.
const MUTATIONS: u64 = 3_000;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn run(target: Target, bytes: &[u8], what: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
    assert!(outcome.is_ok(), "{}, {what}: broken by {bytes:?}", target.name);
}

fn hold(name: &str) {
    let target = target(name).unwrap();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    for (number, seed) in seeds.iter().enumerate() {
        run(target, seed, &format!("seed {number}"));
    }
    run(target, &[], "nothing");
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("findings").join(name);
    if corpus.is_dir() {
        for entry in std::fs::read_dir(corpus).unwrap() {
            let path = entry.unwrap().path();
            run(target, &std::fs::read(&path).unwrap(), &path.display().to_string());
        }
    }
    let mut random = Random(number("LOCKGATE_FUZZ_SEED", 1));
    for number in 0..number("LOCKGATE_FUZZ_MUTATIONS", MUTATIONS) {
        run(target, &mutated(&seeds, &mut random), &format!("mutation {number}"));
    }
}

#[test]
fn mutations_are_the_same_in_every_run() {
    let seeds = (target("frames").unwrap().seeds)();
    let some = || {
        let mut random = Random(7);
        (0..100).map(|_| mutated(&seeds, &mut random)).collect::<Vec<_>>()
    };
    assert_eq!(some(), some());
}

#[test]
fn every_target_has_its_test_and_its_fuzzer() {
    let here = include_str!("seeded.rs");
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        assert!(here.contains(&format!("hold(\"{}\")", target.name)), "{}", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        assert!(fuzz.join(format!("targets/{}.rs", target.name)).exists(), "{}", target.name);
    }
}

#[test]
fn frames_hold() {
    hold("frames");
}

#[test]
fn bodies_of_operations_hold() {
    hold("operations");
}

#[test]
fn batches_hold() {
    hold("batches");
}

#[test]
fn codecs_hold() {
    hold("codecs");
}

#[test]
fn journals_hold() {
    hold("journal");
}

#[test]
fn segments_hold() {
    hold("segments");
}

#[test]
fn indexes_hold() {
    hold("indexes");
}

#[test]
fn checkpoints_hold() {
    hold("checkpoints");
}

#[test]
fn the_catalog_holds() {
    hold("catalog");
}

#[test]
fn configuration_holds() {
    hold("configuration");
}

#[test]
fn identities_hold() {
    hold("identity");
}
