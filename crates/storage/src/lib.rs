//! Journal, segments and checkpoints: their layout, what to write and sync and when, and what recovery decides.
//!
//! Pure: nothing here touches a file. Recovery goes through the synchronous trait [`disk::Disk`]; while a shard runs,
//! storage is planned ([`disk::FileOp`], [`journal::JournalWrite`]) and somebody else carries the plans out.

pub mod checkpoint;
pub mod disk;
mod field;
pub mod journal;
pub mod segment;
