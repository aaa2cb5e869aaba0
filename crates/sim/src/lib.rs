//! The other world: a simulated machine, network and clock around real shards, oracle clients that use them, and the
//! invariants that must hold whatever happens. One seed makes everything; there is no thread, no wall clock, no entropy.

pub mod disk;
pub mod history;
pub mod invariants;
pub mod oracle;
pub mod reduction;
pub mod rng;
pub mod rot;
pub mod shrink;
mod telling;
pub mod time;
mod trace;
mod world;

pub use world::{Counts, Outcome, run, run_reduced};
