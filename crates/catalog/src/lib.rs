//! What exists in the cluster: nodes, topics with their settings, and where each partition's replicas are.
//!
//! A deterministic state machine. An ordered log of [`Command`]s goes into a [`Catalog`]; an immutable [`ClusterView`]
//! comes out, which every node keeps and every shard reads without a lock. Commands carry their time and all that was
//! decided before them; applying reads no clock and draws no random number, so the same log gives the same bytes.
//!
//! Pure: no I/O. It may call `wire` and nothing else of ours.

mod apply;
mod catalog;
mod command;
mod error;
mod id_ranges;
mod ids;
pub mod limits;
pub mod placement;
pub mod plan;
pub mod settings;
mod snapshot;
pub mod view;

pub use catalog::{Catalog, Outcome};
pub use command::Command;
pub use error::CatalogError;
pub use id_ranges::IdRanges;
pub use settings::{Fsync, TopicConfig, TopicLimits};
pub use view::{Assignment, ClusterView, NodeView, ReplicaPlacement, TopicView};

/// What a topic is; fixed at its creation.
pub use lockgate_wire::proto::TopicKind;
