//! What goes into the core and what comes out of it.

use lockgate_wire::{Frame, HostPort, OutFrame, TopicId};

use super::ids::{BatchId, CallId, FlushId, LinkId, ProducerKey, ReaderKey};
use crate::error::ClientError;
use crate::record::Receipt;

/// One fact from the world.
#[derive(Debug)]
pub enum Input {
    /// The transport of a [`Output::Dial`] is open.
    Connected {
        /// The dial's link.
        link: LinkId,
    },
    /// A [`Output::Dial`] came to nothing.
    DialFailed {
        /// The dial's link.
        link: LinkId,
        /// Why, for people.
        reason: String,
    },
    /// A whole frame came in.
    Received {
        /// On this link.
        link: LinkId,
        /// The frame.
        frame: Frame,
    },
    /// Bytes of a frame that is not whole yet came in: a sign of life.
    BytesReceived {
        /// On this link.
        link: LinkId,
    },
    /// A link broke, by the network, by the peer, or because its bytes are no frames.
    Disconnected {
        /// The link.
        link: LinkId,
        /// Why, for people.
        reason: String,
    },
    /// Bytes of [`Output::Send`]s were handed to the kernel.
    Written {
        /// The link.
        link: LinkId,
        /// How many, since the last such input.
        bytes: usize,
    },
    /// Time passed.
    Tick,
}

/// One thing to be done in the world, or to be told to the application.
#[derive(Debug)]
pub enum Output {
    /// Resolve this address and open a transport to it.
    Dial {
        /// The new link.
        link: LinkId,
        /// Where to.
        address: HostPort,
    },
    /// Send a frame, behind everything that was sent on this link before.
    Send {
        /// The link.
        link: LinkId,
        /// The frame.
        frame: OutFrame,
    },
    /// Close the link, after what was sent before, if that can be written at once. Nothing of it is listened to any more.
    Close {
        /// The link.
        link: LinkId,
    },
    /// The first connection is there, or all seeds were tried once in vain. Once in a core's life.
    Connected(Result<(), ClientError>),
    /// A call came to its end.
    CallDone {
        /// The call.
        call: CallId,
        /// The answer, of the call's operation; its body is not decoded yet.
        result: Result<Frame, ClientError>,
    },
    /// All records of a batch have their answer.
    BatchDone {
        /// The batch, as in the records' tickets.
        batch: BatchId,
        /// Of the batch's first record.
        result: Result<Receipt, ClientError>,
    },
    /// A producer that refused a record for want of space has some again.
    BufferFreed {
        /// The producer.
        producer: ProducerKey,
    },
    /// Everything that was sent before the flush has its answer.
    Flushed {
        /// The flush.
        flush: FlushId,
    },
    /// A reader covers all its partitions, or could not be opened and is gone.
    ReaderOpened {
        /// The reader.
        reader: ReaderKey,
        /// Why it was not.
        result: Result<(), ClientError>,
    },
    /// There is something to take from a reader whose queue was found empty.
    ReaderReady {
        /// The reader.
        reader: ReaderKey,
    },
}

/// A topic as producers and readers need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    /// Full name.
    pub name: String,
    /// Its id.
    pub id: TopicId,
    /// How many partitions it has, 1 or more.
    pub partitions: u32,
    /// The version of the partitioning that this count belongs to.
    pub partitioning_version: u32,
    /// The largest batch it takes.
    pub max_batch_bytes: u32,
}

/// Most partitions of a topic.
pub const MAX_PARTITIONS: u32 = 1024;

impl Topic {
    pub(super) fn checked(self) -> Result<Self, ClientError> {
        if (1..=MAX_PARTITIONS).contains(&self.partitions) && self.max_batch_bytes > 0 {
            return Ok(self);
        }
        let (partitions, bytes) = (self.partitions, self.max_batch_bytes);
        Err(ClientError::Protocol(format!(
            "topic {} with {partitions} partitions, batches up to {bytes} bytes",
            self.name
        )))
    }
}

/// Where a record that was taken will be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Its partition.
    pub partition: u32,
    /// Its batch; all its records are answered at once by [`Output::BatchDone`].
    pub batch: BatchId,
    /// Its place in the batch: its offset is the batch's plus this.
    pub index: u32,
}
