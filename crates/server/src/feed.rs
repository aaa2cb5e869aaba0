//! A shard that is fed without sockets, to measure what everything behind them allows: the production loop, engine, journal
//! thread and files, with one client in the shard's own thread.

use std::fmt;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::bounded;
use lockgate_wire::{ConnectionId, NodeId, ShardId};

use crate::clock::Clock;
use crate::config::Config;
use crate::data_dir::{DataDir, random};
use crate::driver::Driver;
use crate::driver::fed::FedDriver;
use crate::run::ServerError;
use crate::shard_loop::inbox::{InboxSender, Message, inbox};
use crate::shard_loop::journal_thread::probe;
use crate::shard_loop::{self, ShardSetup};
use crate::status::NodeStatus;

/// What the client does.
#[derive(Clone, Debug)]
pub struct Feed {
    /// A whole record batch.
    pub batch: Bytes,
    /// Publishes without an answer.
    pub in_flight: u32,
    /// For how long.
    pub duration: Duration,
    /// Of the topic, which has one partition.
    pub settings: Vec<(String, String)>,
}

/// What came of it.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Fed {
    /// Batches acknowledged.
    pub batches: u64,
    /// Publishes that were refused for the moment, and sent again.
    pub refused: u64,
    /// From the first publish to the last answer.
    pub took: Duration,
}

/// Why nothing came of it.
#[derive(Debug)]
pub enum FeedError {
    /// The node did not start, or ended.
    Server(ServerError),
    /// A request was refused.
    Refused(lockgate_wire::Error),
    /// The shard ended by itself.
    Shard(String),
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Refused(error) => write!(f, "a request was refused: {error}"),
            Self::Shard(what) => write!(f, "the shard ended: {what}"),
        }
    }
}
impl std::error::Error for FeedError {}

/// Runs one shard over a new data directory with this configuration, and feeds it.
pub fn run(config: &Config, directory: &Path, feed: Feed) -> Result<Fed, FeedError> {
    let server = FeedError::Server;
    let thread = |error| FeedError::Server(ServerError::Thread(error));
    let data = DataDir::open(directory, NodeId(1), 1).map_err(|error| server(ServerError::DataDir(error)))?;
    let synced_mode = probe(&data.disk).map_err(|error| server(ServerError::Disk(error)))?;
    let (ended, result) = bounded(1);
    let driver = FedDriver::new(feed, ended).map_err(thread)?;
    let (sender, receiver) = inbox(driver.wake_handle());
    let inboxes: Arc<[InboxSender]> = Arc::new([sender]);
    let stream = stand_in().map_err(thread)?;
    let (told, ready) = bounded(1);
    let setup = ShardSetup {
        id: ShardId(0),
        node: Arc::new(config.for_node(&data.identity)),
        disk: data.disk.clone(),
        synced_mode,
        clock: Clock::start(),
        seed: u64::from_le_bytes(random().map_err(|errno| server(ServerError::Entropy { errno }))?),
        driver,
        inbox: receiver,
        inboxes: inboxes.clone(),
        status: Arc::new(NodeStatus::new(1)),
        on_ready: Box::new(move || {
            told.send(()).ok();
        }),
    };
    let shard = std::thread::Builder::new().name("shard-0".into()).spawn(move || shard_loop::run(setup));
    let shard = shard.map_err(thread)?;
    // Both fail only when the shard has ended, which its own result tells.
    let mut fed = None;
    if ready.recv().is_ok() {
        inboxes[0].send(Message::Accepted { connection: ConnectionId(1), stream, peer: "fed".into() });
        fed = result.recv().ok();
        inboxes[0].send(Message::Stop);
    }
    let end = shard.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    end.map_err(|error| FeedError::Shard(error.to_string()))?;
    fed.unwrap_or_else(|| Err(FeedError::Shard("before it had served".into())))
}

/// A connection to nobody.
fn stand_in() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    TcpStream::connect(listener.local_addr()?)
}
