//! What a shard is told. Every fact from the world enters here, with the time at which it was taken.

use std::sync::Arc;

use bytes::Bytes;
use lockgate_catalog::view::ClusterView;
use lockgate_storage::disk::DiskResult;
use lockgate_storage::journal::JournalKind;
use lockgate_wire::frame::FrameError;
use lockgate_wire::{ConnectionId, Frame, ShardId};

use crate::mesh::MeshFrame;
use crate::output::FileToken;

/// One fact from the world.
#[derive(Debug)]
pub enum Input {
    /// A connection was given to this shard; no byte of it has been read. `peer` is its address, for logs.
    ConnectionOpened {
        /// Chosen by the server, never reused.
        connection: ConnectionId,
        /// `host:port` of the other side.
        peer: Arc<str>,
    },
    /// A whole frame of a connection that [`may_read`](crate::Shard::may_read).
    FrameReceived {
        /// The connection.
        connection: ConnectionId,
        /// The frame.
        frame: Frame,
    },
    /// Bytes of a frame that is not whole yet came in: a sign of life.
    BytesReceived {
        /// The connection.
        connection: ConnectionId,
    },
    /// A frame has begun and got no further for [`FRAME_STALL_MS`](crate::limits::FRAME_STALL_MS), in which it was read.
    FrameStalled {
        /// The connection.
        connection: ConnectionId,
    },
    /// The other side sends no more and may still listen: what it asked for before is answered, then the connection ends.
    PeerEnded {
        /// The connection.
        connection: ConnectionId,
    },
    /// What a connection sent is no frame; the server reads it no further.
    BadBytes {
        /// The connection.
        connection: ConnectionId,
        /// What was wrong.
        error: FrameError,
    },
    /// Bytes of earlier [`Send`](crate::Output::Send)s were handed to the kernel.
    Written {
        /// The connection.
        connection: ConnectionId,
        /// How many bytes, since the last such input.
        bytes: usize,
    },
    /// The connection is gone, by the peer, the network or a [`Close`](crate::Output::Close).
    ConnectionClosed {
        /// The connection.
        connection: ConnectionId,
    },
    /// A frame of another shard of this node. In order per sending shard, never lost.
    Mesh {
        /// The sending shard.
        from: ShardId,
        /// The frame.
        frame: MeshFrame,
    },
    /// The journal write in flight ended: durable (synced journal) or with the operating system (buffered journal).
    JournalWritten {
        /// Which journal.
        journal: JournalKind,
        /// An error poisons the journal for good.
        result: DiskResult<()>,
    },
    /// A file operation ended.
    FileDone {
        /// The token of its output.
        token: FileToken,
        /// A read's bytes, nothing for everything else.
        result: DiskResult<Bytes>,
    },
    /// A newer view of the cluster, from the shard that follows the metadata.
    View(Arc<ClusterView>),
    /// Time passed: [`next_deadline`](crate::Shard::next_deadline) was reached.
    Tick,
    /// Stop in order: refuse what is new, finish what was taken, write down what makes the next start short, then say
    /// [`Stopped`](crate::Output::Stopped).
    Stop,
}
