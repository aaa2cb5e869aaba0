//! Every row of the recovery table: files made by a real server, damaged on purpose, and a real server started over them.
//!
//! | found | decision | tests |
//! |---|---|---|
//! | end of the chain, nothing valid beyond | go on | `go_on.rs` |
//! | bad or missing record in the last write | torn tail | `torn_tail.rs` |
//! | bad record that a later write states as synced; anything bad before an end mark | damage | `damage.rs` |
//! | `free-N`, empty or all-zero file | reuse | `go_on.rs` |
//! | bad header in the newest file and no later write anywhere | remove, log | `go_on.rs` |
//! | bad header elsewhere; short file; gap; no journal where there is an identity | damage | `damage.rs` |
//! | damage | refuse whom it may concern: partitions, or with the catalog the start | `damage.rs` |
//! | the same in the buffered journal, of topics with `fsync = interval` | the same, whatever the synced one has | `buffered.rs` |
//! | wrong cluster, node or shard; unknown version | refuse | `refusals.rs` |
//!
//! Before each start `lockgate storage verify` must announce what the start then decides, and leave every byte alone.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

#[path = "../support/mod.rs"]
mod support;

mod buffered;
mod damage;
mod go_on;
mod journal;
mod node;
mod refusals;
mod torn_tail;
