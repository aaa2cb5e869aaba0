//! The real binary when its machine fails it: stopped and continued, no room, no write, no file, no descriptor, no memory.
//!
//! Some of it needs root, for mounts and other users' files: without that these tests fail and say so.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

#[path = "../support/mod.rs"]
mod support;

mod descriptors;
mod full_disk;
mod memory;
mod mount;
mod other_owner;
mod publisher;
mod read_only;
mod removed_files;
mod retention;
mod starting;
mod stopped;
mod turned_bit;
