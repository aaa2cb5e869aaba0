//! Bytes and their meaning: frames, operations, errors, record batches, addresses.
//!
//! Pure: no I/O, no clock, no randomness. Everything that comes from outside is decoded here, checked once, and
//! trusted behind the door. Lives in clients and brokers alike.

pub mod address;
pub mod batch;
pub mod error;
pub mod frame;
pub mod ids;
pub mod name;
pub mod op;
pub mod partitioner;

pub use address::HostPort;
pub use error::{Error, ErrorKind};
pub use frame::{Frame, FrameKind, OutFrame};
pub use ids::*;
pub use name::TopicName;
pub use op::Op;

/// The messages of `proto/lockgate.proto`, generated.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/lockgate.rs"));
}
