//! The core among sockets and clocks, on tokio: thin, and without decisions of its own.

mod admin;
mod client;
mod connection;
mod cursors;
mod delivery;
mod producer;
mod reader;
mod shared;

pub use self::admin::{Admin, TopicSpec};
pub use self::client::{Client, Fetched, Offsets};
pub use self::cursors::Cursors;
pub use self::delivery::Delivery;
pub use self::producer::Producer;
pub use self::reader::{Item, Reader};
