//! Every decoder of bytes from outside as a function that takes any bytes and panics if a promise is broken: one file a
//! target, with the seeds that lead a fuzzer to its insides.
//!
//! Run twice: by the ordinary tests over the seeds, the kept findings and some thousand seeded mutations
//! (`tests/seeded.rs`), and by a coverage-guided fuzzer (`fuzz/`), which this crate knows nothing of.

#![allow(clippy::unwrap_used, reason = "a target ends at the first thing that is not as it must be")]

mod batches;
mod catalog;
mod checkpoints;
mod codecs;
mod configuration;
pub mod damage;
mod frames;
mod identity;
mod indexes;
mod journal;
pub mod mutate;
mod operations;
mod segments;

/// A decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its corpus and of the fuzzer's binary.
    pub name: &'static str,
    /// Takes any bytes; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Bytes that are worth changing.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "frames", run: frames::run, seeds: frames::seeds },
    Target { name: "operations", run: operations::run, seeds: operations::seeds },
    Target { name: "batches", run: batches::run, seeds: batches::seeds },
    Target { name: "codecs", run: codecs::run, seeds: codecs::seeds },
    Target { name: "journal", run: journal::run, seeds: damage::seeds },
    Target { name: "segments", run: segments::run, seeds: damage::seeds },
    Target { name: "indexes", run: indexes::run, seeds: indexes::seeds },
    Target { name: "checkpoints", run: checkpoints::run, seeds: checkpoints::seeds },
    Target { name: "catalog", run: catalog::run, seeds: catalog::seeds },
    Target { name: "configuration", run: configuration::run, seeds: configuration::seeds },
    Target { name: "identity", run: identity::run, seeds: identity::seeds },
];

/// The target with this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|target| target.name == name).copied()
}
