//! The Rust client of Lockgate: one [`Client`], which finds the cluster from any of its addresses and keeps itself
//! connected; from it [`Producer`]s, [`Reader`]s, [`Cursors`] and [`Admin`].
//!
//! The library's decisions – connecting, retries, batching and numbering, positions and credit – are the pure state
//! machine in [`core`]; everything else is a thin shell of tasks around it.

mod config;
pub mod core;
mod error;
mod record;
mod shell;

pub use lockgate_wire::HostPort;
pub use lockgate_wire::batch::Codec;

pub use crate::config::{
    Ack, ClientConfig, DEFAULT_ADDRESS, MAX_BATCH_RECORDS, MAX_IDEMPOTENT_IN_FLIGHT, MAX_IN_FLIGHT, OnUnknown,
    ProducerConfig, ReaderConfig, Start, TIMEOUT_RANGE,
};
pub use crate::core::{CloseReport, Stats, Topic};
pub use crate::error::{ClientError, ConnectAttempt};
pub use crate::record::{Receipt, ReceivedRecord, Record, RecordHeader};
pub use crate::shell::{Admin, Client, Cursors, Delivery, Fetched, Item, Offsets, Producer, Reader, TopicSpec};
