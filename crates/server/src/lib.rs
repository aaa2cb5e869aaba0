//! The world of a Lockgate node: threads, sockets, files. It does I/O and decides nothing: the engine decides.
//!
//! [`run()`] is a node from start to stop; [`Server`] is the same as a handle, for tests and for embedding.

mod admin;
mod clock;
pub mod config;
pub mod data_dir;
pub mod disk;
mod driver;
pub mod feed;
mod listen;
pub mod log;
pub mod rehearsal;
mod run;
mod shard_loop;
mod status;

pub use admin::metrics;
pub use config::{Config, ConfigError, Sources};
pub use disk::RealDisk;
pub use run::{Addresses, Failure, Server, ServerError, run};
