//! What the engine promises, through its one door: real shards, a disk in memory, time that tests move.

#![allow(clippy::unwrap_used, missing_docs)]

mod cursors;
mod external;
mod idempotence;
mod journal_failure;
mod limits;
mod mesh;
mod models;
mod moving;
mod publish;
mod readers;
mod recovery;
mod repairs;
mod room;
mod scenarios;
mod scrub;
mod sessions;
mod stop;
mod streams;
mod support;
mod suspects;
mod topics;
