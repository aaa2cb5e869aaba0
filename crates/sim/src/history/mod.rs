//! What the oracles saw, as a list of events in the order in which they saw it. The invariants know nothing else.
//!
//! An answer that never came leaves its request *unknown*: never failed, never done.

mod facts;

use lockgate_wire::error::ErrorKind;
use lockgate_wire::{PartitionId, ShardId, TopicId};

use crate::time::Time;

pub use facts::{Facts, TopicFacts};

/// An oracle client of the run.
pub type ClientNo = u32;
/// A batch that some oracle made; its values exist nowhere else.
pub type BatchNo = u32;
/// One read from a position on: a subscription, or a chain of fetches.
pub type ReaderNo = u32;
/// An operation on a cursor or on a topic.
pub type OperationNo = u32;

/// Which process of the node an event is about: that of the connection on which it was seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Life {
    /// Processes before it.
    pub process: u32,
    /// Power losses before it.
    pub power: u32,
}

/// Something an oracle saw or did.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: Time,
    /// Which oracle; [`WORLD`] for what happened to the node.
    pub client: ClientNo,
    /// The process it concerns.
    pub life: Life,
    /// What.
    pub what: What,
}

/// The client number of events that the world itself reports.
pub const WORLD: ClientNo = u32::MAX;

/// A batch in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Offset of its first record.
    pub offset: u64,
    /// Its records.
    pub records: u32,
    /// Which batch.
    pub batch: BatchNo,
}

impl Placed {
    /// The offset after its last record.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.records)
    }
}

/// Where a reader wanted to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the first retained record.
    Earliest,
    /// At the high watermark.
    Latest,
    /// Here.
    Offset(u64),
    /// At the first record of this time or later.
    Time(i64),
    /// So many before the high watermark.
    Last(u64),
    /// At a cursor that stands here or later.
    Cursor(u64),
}

/// The kinds of events.
#[derive(Clone, Debug)]
pub enum What {
    /// A topic exists.
    TopicMade {
        /// Its id.
        topic: TopicId,
        /// What to expect of it.
        facts: TopicFacts,
    },
    /// Somebody asked for the topic's deletion: from here on nothing of it is promised.
    TopicDoomed {
        /// Its id.
        topic: TopicId,
    },
    /// A batch was sent, for the first time or again.
    Sent {
        /// The batch.
        batch: BatchNo,
        /// Where to.
        partition: PartitionId,
        /// Batches of one chain to one partition keep their order: an idempotent producer, or a plain connection.
        chain: u64,
    },
    /// It was acknowledged.
    Acknowledged {
        /// The batch and the place that the answer gave it.
        placed: Placed,
        /// Where.
        partition: PartitionId,
        /// The answer called it one that had been appended before.
        duplicate: bool,
    },
    /// The answer named the time at which it was appended.
    Stamped {
        /// Where.
        partition: PartitionId,
        /// The offset of its first record.
        offset: u64,
        /// The time.
        append_time_ms: i64,
    },
    /// An attempt was refused: by the answer it was not applied and will not be.
    Refused {
        /// The batch.
        batch: BatchNo,
        /// The answer.
        kind: ErrorKind,
    },
    /// A reader got its start position.
    Opened {
        /// The reader.
        reader: ReaderNo,
        /// What it reads.
        partition: PartitionId,
        /// What it asked for.
        start: Start,
        /// Where it begins.
        next: u64,
        /// First retained offset.
        earliest: u64,
        /// End of what can be read.
        high_watermark: u64,
    },
    /// A reader got batches.
    Read {
        /// The reader.
        reader: ReaderNo,
        /// What it reads.
        partition: PartitionId,
        /// In the order given.
        batches: Vec<Placed>,
        /// Where it goes on.
        next: u64,
        /// End of what can be read.
        high_watermark: u64,
    },
    /// An answer told a partition's bounds.
    Bounds {
        /// Which.
        partition: PartitionId,
        /// When the question was asked.
        asked: Time,
        /// First retained offset.
        earliest: u64,
        /// End of what can be read.
        high_watermark: u64,
    },
    /// Something about a cursor.
    Cursor {
        /// Which cursor, of all of the run.
        cursor: u32,
        /// What.
        what: CursorEvent,
    },
    /// Something about a topic name.
    Topic {
        /// The name; its owner alone changes it.
        name: String,
        /// What.
        what: TopicEvent,
    },
    /// A partition read from end to end after everything healed.
    Audited {
        /// Which.
        partition: PartitionId,
        /// First retained offset.
        earliest: u64,
        /// End of what can be read.
        high_watermark: u64,
        /// All of it.
        batches: Vec<Placed>,
    },
    /// The process of the node ended without being asked.
    Crashed,
    /// The machine lost its power.
    PowerLost,
    /// A shard's buffered journal failed: until a start has recovered it, nothing more of it becomes durable.
    JournalStopped {
        /// The shard.
        shard: ShardId,
        /// Of so many.
        shards: u16,
    },
    /// A process took the wall clock as it is: it began, or the clock jumped before it had looked at it everywhere.
    ClockTaken {
        /// What it showed.
        wall_ms: i64,
    },
    /// The disk is slow until then, and may finish nothing before.
    DiskIsSlow {
        /// When that is over.
        until: Time,
    },
    /// A process has recovered its journals: all that is in them is durable now.
    Recovered,
    /// An answer, a push or a state that no rule allows; the text says which.
    Unexpected(String),
}

/// What happened to a cursor. One client at a time changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CursorEvent {
    /// A commit was sent; `None` is a deletion.
    Sent {
        /// Which operation.
        operation: OperationNo,
        /// The partition, for its durability.
        partition: PartitionId,
        /// The new position.
        to: Option<u64>,
        /// It may go back.
        force: bool,
    },
    /// It is durable.
    Done {
        /// Which operation.
        operation: OperationNo,
    },
    /// It was refused.
    Refused {
        /// Which operation.
        operation: OperationNo,
        /// For going back without force.
        backwards: bool,
    },
    /// A question that was asked then was answered now.
    Seen {
        /// When it was asked.
        asked: Time,
        /// The answer.
        position: Option<u64>,
    },
}

/// What happened to a topic name. One client at a time changes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicEvent {
    /// A change was sent.
    Sent {
        /// Which operation.
        operation: OperationNo,
        /// The state that it leads to.
        to: TopicState,
    },
    /// It is durable.
    Done {
        /// Which operation.
        operation: OperationNo,
        /// The topic, as far as the answer told it.
        topic: Option<TopicId>,
    },
    /// It was refused.
    Refused {
        /// Which operation.
        operation: OperationNo,
    },
    /// A question that was asked then was answered now.
    Seen {
        /// When it was asked.
        asked: Time,
        /// The answer.
        state: TopicState,
        /// The topic, if there is one.
        topic: Option<TopicId>,
    },
}

/// A topic name's state as far as its owner varies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TopicState {
    /// No topic of that name.
    Absent,
    /// One with this `max_batch_bytes`.
    Present {
        /// The setting that is varied.
        max_batch_bytes: u32,
    },
}

impl Event {
    /// The places of batches that this event claims.
    pub fn claims(&self) -> (Option<PartitionId>, &[Placed]) {
        match &self.what {
            What::Acknowledged { placed, partition, .. } => (Some(*partition), std::slice::from_ref(placed)),
            What::Read { partition, batches, .. } | What::Audited { partition, batches, .. } => {
                (Some(*partition), batches)
            }
            _ => (None, &[]),
        }
    }
}
