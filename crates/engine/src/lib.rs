//! One shard of Lockgate as a pure state machine: inputs and a time go in, outputs come out.
//!
//! [`recover`] reads what a disk has, [`Shard::start`] brings it to life, [`Shard::handle`] is the one door. Nothing in
//! here reads a clock, a file, a socket or a random number, so the same inputs always give the same outputs: in
//! production they come from a server, in the simulator from a seed.

mod background;
mod config;
mod controller;
mod core;
mod input;
pub mod limits;
mod mesh;
mod metrics;
mod moving;
mod offline;
mod output;
mod partition;
mod recovery;
mod repair;
mod request;
mod route;
mod session;
mod shard;

pub use config::{JournalSettings, NodeConfig, ScrubSettings};
pub use input::Input;
pub use limits::Limits;
/// The table of topic settings, for help texts and documentation.
pub use lockgate_catalog::settings as topic_settings;
/// What storage plans, for whoever carries it out.
pub use lockgate_catalog::view::ClusterView;
pub use mesh::MeshFrame;
pub use metrics::ShardMetrics;
pub use moving::{FollowError, MoveError, Moved, follow_shard_count};
pub use output::{FileToken, Lane, Level, Output};
pub use recovery::{RecoveredShard, RecoveryError, RecoveryReport, recover};
pub use repair::{Cut, Kept, Repair, RepairError, Repairs, Subject, repair};
pub use route::shard_of;
pub use session::ConnectionUse;
pub use shard::Shard;
