//! Why a node could not start, or ended otherwise than it was told to.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use lockgate_engine::MoveError;
use lockgate_storage::disk::DiskError;
use lockgate_wire::ShardId;

use crate::data_dir::DataDirError;

/// One part of a node that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The part.
    pub who: String,
    /// What happened to it.
    pub what: String,
}

/// Why a node did not start or did not end well.
#[derive(Debug)]
pub enum ServerError {
    /// The data directory cannot be used.
    DataDir(DataDirError),
    /// Partitions cannot go to the configured number of shards.
    Move {
        /// The shards that the directory has.
        found: u16,
        /// Why not.
        error: MoveError,
    },
    /// The data directory's disk failed.
    Disk(DiskError),
    /// An address cannot be used.
    Bind {
        /// Whose address.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        error: io::Error,
    },
    /// The admin thread or the signal handlers could not be set up.
    Admin(io::Error),
    /// A thread could not be set up.
    Thread(io::Error),
    /// The machine gave no random bits.
    Entropy {
        /// The operating system's number.
        errno: i32,
    },
    /// A signal or a caller ended the start; nothing failed.
    StoppedWhileStarting,
    /// Parts of the node failed; all of them, in the order in which they were noticed.
    Failed(Vec<Failure>),
    /// Shards had not stopped in time. The process should end now.
    NotStopped {
        /// Which.
        shards: Vec<ShardId>,
        /// How long they were given.
        waited_ms: u64,
        /// What failed beside that.
        failures: Vec<Failure>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.who, self.what)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DataDir(error) => error.fmt(f),
            Self::Move { found, error } => {
                write!(f, "{error}. Nothing was changed; with shards.count = {found} the node starts as before")
            }
            Self::Disk(error) => error.fmt(f),
            Self::Bind { what, address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "the address {address} for {what} is in use; stop what uses it, or choose another one")
            }
            Self::Bind { what, address, error } => {
                write!(f, "the address {address} for {what} cannot be used: {error}")
            }
            Self::Admin(error) => write!(f, "the admin thread with its signal handlers cannot be set up: {error}"),
            Self::Thread(error) => write!(f, "a thread cannot be set up: {error}"),
            Self::Entropy { errno } => write!(f, "the machine gave no random bits (errno {errno})"),
            Self::StoppedWhileStarting => f.write_str("the node was told to stop before it had started"),
            Self::Failed(failures) => list(f, failures),
            Self::NotStopped { shards, waited_ms, failures } => {
                let shards: Vec<String> = shards.iter().map(|shard| format!("shard {shard}")).collect();
                write!(f, "not stopped after {waited_ms} ms: {}", shards.join(", "))?;
                if !failures.is_empty() {
                    f.write_str("; ")?;
                    list(f, failures)?;
                }
                Ok(())
            }
        }
    }
}
impl std::error::Error for ServerError {}

fn list(f: &mut fmt::Formatter<'_>, failures: &[Failure]) -> fmt::Result {
    let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
    f.write_str(&lines.join("; "))
}
