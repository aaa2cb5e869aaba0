//! What a shard wants done. The server carries outputs out in order and decides nothing about them.

use std::sync::Arc;

use lockgate_catalog::view::ClusterView;
use lockgate_storage::disk::FileOp;
use lockgate_storage::journal::JournalWrite;
use lockgate_wire::{ConnectionId, OutFrame, ShardId};

use crate::mesh::MeshFrame;

/// Ties a [`FileDone`](crate::Input::FileDone) to its operation; never reused while the process lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileToken(pub u64);

/// Which queue a file operation takes. The queues work side by side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Reads for clients; any order, several at a time.
    Read,
    /// What the journals need (the next file, a sync of the buffered one): one at a time, in the order given.
    Journal,
    /// Everything else: one at a time, in the order given.
    Background,
}

/// How loud a log line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Somebody has to act.
    Error,
    /// Worth a look.
    Warn,
    /// The node's life.
    Info,
    /// For whoever follows one thing.
    Debug,
}

/// One thing to be done.
#[derive(Debug)]
pub enum Output {
    /// Send a frame. In order per connection; the bytes come back as [`Written`](crate::Input::Written).
    Send {
        /// The connection; one that is gone by now is no error.
        connection: ConnectionId,
        /// The frame.
        frame: OutFrame,
    },
    /// The connection [may be read](crate::Shard::may_read) again: go on with what is buffered, then with the socket.
    ResumeReading {
        /// The connection.
        connection: ConnectionId,
    },
    /// Send what was given so far, then close. Not flushed within `flush_ms`: close anyway.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// How long the flush may take.
        flush_ms: u32,
    },
    /// A frame for another shard of this node: in order per pair of shards, never dropped. Their number in flight is
    /// bounded by the engine.
    Mesh {
        /// The target.
        to: ShardId,
        /// The frame.
        frame: MeshFrame,
    },
    /// Carry out a journal write; at most one per journal is in flight. Answered by
    /// [`JournalWritten`](crate::Input::JournalWritten).
    Journal(JournalWrite),
    /// Carry out a file operation. Answered by [`FileDone`](crate::Input::FileDone).
    File {
        /// The queue.
        lane: Lane,
        /// Comes back with the answer.
        token: FileToken,
        /// The operation.
        op: FileOp,
    },
    /// A newer view of the cluster for all other shards (only from shard 0).
    View(Arc<ClusterView>),
    /// All replicas that this shard has are open and serve (once, or after a failed one was said in a log line).
    Ready,
    /// The stop is complete; nothing follows.
    Stopped,
    /// A line for the log.
    Log {
        /// How loud.
        level: Level,
        /// The text, with its values.
        message: String,
    },
}
