//! What every part of a shard needs to act: the time, the Raft host, the journals, and the ways out.
//!
//! Lives on its shard's thread, for the life of the shard. Parts never reach each other through it: they leave replies
//! and outputs here, and the shard passes them on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lockgate_consensus::Host;
use lockgate_storage::disk::FileOp;
use lockgate_storage::journal::{JournalKind, Journals, Purpose};
use lockgate_wire::{ConnectionId, Error, ErrorKind, Now, OutFrame, PartitionId, ShardId, SubscriptionId};

use crate::config::NodeConfig;
use crate::mesh::Origin;
use crate::metrics::ShardMetrics;
use crate::output::{FileToken, Lane, Level, Output};

/// The shared means of one shard.
pub(crate) struct Core {
    pub(crate) node: Arc<NodeConfig>,
    pub(crate) shard: ShardId,
    /// Read before the input that is being handled.
    pub(crate) now: Now,
    pub(crate) host: Host,
    pub(crate) journals: Journals,
    /// Whether a write of the (synced, buffered) journal is in flight.
    pub(crate) writing: [bool; 2],
    /// Bytes that were proposed in this round and are not in the (synced, buffered) journal yet.
    pub(crate) proposed_bytes: [u64; 2],
    /// File operations under way and whose they are.
    pub(crate) files: BTreeMap<FileToken, FileOwner>,
    next_token: u64,
    /// What parts have to say to connections, wherever those live.
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) out: Vec<Output>,
    pub(crate) metrics: ShardMetrics,
    /// Bytes of its log's end that each partition may keep in memory.
    pub(crate) tail_share_bytes: u64,
}

/// Who waits for a file operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileOwner {
    /// A journal's next file.
    Prepare(JournalKind),
    /// A journal's oldest file, which nobody needs.
    Remove(JournalKind),
    /// The buffered journal's sync.
    SyncBuffered,
    /// The background work of a partition.
    Background(PartitionId),
    /// A read for a reader of a partition.
    Read(PartitionId, crate::partition::ReaderId),
    /// The shard's scrub.
    Scrub,
    /// The background work of the catalog.
    Catalog,
    /// A deleted partition's directory.
    Deletion,
}

/// What a part has to say to a connection.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The answer to a request; none is sent if none was wanted.
    Answer { origin: Origin, frame: Option<OutFrame> },
    /// A delivery in a subscription's slot.
    Deliver { shard: ShardId, connection: ConnectionId, subscription: SubscriptionId, frame: OutFrame },
    /// A subscription ended.
    Ended { shard: ShardId, connection: ConnectionId, subscription: SubscriptionId, frame: OutFrame },
}

impl Core {
    pub(crate) fn new(node: Arc<NodeConfig>, shard: ShardId, now: Now, host: Host, journals: Journals) -> Self {
        let tail_share_bytes = node.limits.tail_bytes_per_shard;
        Self {
            node,
            shard,
            now,
            host,
            journals,
            writing: [false; 2],
            proposed_bytes: [0; 2],
            files: BTreeMap::new(),
            next_token: 0,
            replies: VecDeque::new(),
            out: Vec::new(),
            metrics: ShardMetrics::default(),
            tail_share_bytes,
        }
    }

    /// Answers a request with its message.
    pub(crate) fn answer<B: lockgate_wire::op::Body>(&mut self, origin: Origin, body: &B) {
        let frame = (origin.request_id != 0).then(|| OutFrame::response(origin.request_id, body));
        self.replies.push_back(Reply::Answer { origin, frame });
    }

    /// Answers a request with its message and a payload.
    pub(crate) fn answer_with<B: lockgate_wire::op::Body>(
        &mut self,
        origin: Origin,
        body: &B,
        payload: Vec<bytes::Bytes>,
    ) {
        let kind = lockgate_wire::FrameKind::Response;
        let frame = (origin.request_id != 0).then(|| OutFrame::new(kind, origin.request_id, body, payload));
        self.replies.push_back(Reply::Answer { origin, frame });
    }

    /// Refuses a request.
    pub(crate) fn refuse(&mut self, origin: Origin, error: &Error) {
        self.metrics.refused(error.kind, origin.publish);
        self.metrics.publish_lost += u64::from(origin.publish && origin.request_id == 0);
        let frame = (origin.request_id != 0).then(|| OutFrame::error(origin.op, origin.request_id, error));
        self.replies.push_back(Reply::Answer { origin, frame });
    }

    /// Ends a request that wants no answer: only its charge goes back.
    pub(crate) fn done(&mut self, origin: Origin) {
        self.replies.push_back(Reply::Answer { origin, frame: None });
    }

    /// Starts a file operation.
    pub(crate) fn file(&mut self, lane: Lane, owner: FileOwner, op: FileOp) -> FileToken {
        self.next_token += 1;
        let token = FileToken(self.next_token);
        self.files.insert(token, owner);
        self.out.push(Output::File { lane, token, op });
        token
    }

    /// Leaves a line for the log.
    pub(crate) fn log(&mut self, level: Level, message: impl Into<String>) {
        self.out.push(Output::Log { level, message: message.into() });
    }

    /// Why a journal takes nothing more of this kind, if so.
    pub(crate) fn room_refusal(&self, kind: JournalKind, purpose: Purpose) -> Option<Error> {
        let journal = self.journals.get(kind);
        let proposed = self.proposed_bytes[journal_slot(kind)];
        if journal.room_for(purpose).is_some_and(|room| room > proposed) {
            return None;
        }
        if journal.is_full() {
            let message = "the disk has no room for the journal's next file; free some, publishes resume by themselves";
            return Some(Error::new(ErrorKind::StorageFull, message));
        }
        let (shard, max) = (self.shard, self.node.journal.max_bytes);
        let message = format!(
            "the {kind} journal of shard {shard} is at its bound, journal.max_bytes = {max}; it waits for partitions to be \
             written down, publishes resume by themselves; if that takes long, look for failed partitions or raise the bound"
        );
        Some(Error::new(ErrorKind::StorageFull, message).with_limit(max))
    }

    /// Whether a write of this journal is in flight.
    pub(crate) fn is_writing(&self, journal: JournalKind) -> bool {
        self.writing[journal_slot(journal)]
    }
}

/// Where a journal's flag stands in [`Core::writing`].
pub(crate) fn journal_slot(journal: JournalKind) -> usize {
    match journal {
        JournalKind::Synced => 0,
        JournalKind::Buffered => 1,
    }
}
