//! What the engine promises, through its one door: real shards, a disk in memory, time that tests move.

#![allow(clippy::unwrap_used, missing_docs)]

mod cursors;
mod idempotence;
mod publish;
mod readers;
mod streams;
mod support;
