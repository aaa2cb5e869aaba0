//! The catalog's replica and what it is asked: topics and producer ids. Lives on shard 0.
//!
//! A change is planned against the newest view, proposed, and answered when it is applied and every shard has opened
//! what it brings, so that whoever was told of a topic finds it served.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use lockgate_catalog::plan::{self, NewTopic};
use lockgate_catalog::view::ClusterView;
use lockgate_catalog::{Catalog, Command, Outcome};
use lockgate_consensus::{Base, Entry, EntryKind};
use lockgate_storage::checkpoint::{self, CheckpointHeader};
use lockgate_storage::disk::{DiskResult, FileOp, Path};
use lockgate_storage::journal::{JournalKind, Purpose};
use lockgate_wire::{
    Error, ErrorKind, GroupId, LogIndex, MonoTime, Offset, OutFrame, ReplicaId, ShardId, Term, TopicId, proto,
};

use crate::background::Background;
use crate::config::METADATA_DIRECTORY;
use crate::core::{Core, FileOwner, Reply};
use crate::limits::{CHECKPOINT_ENTRIES, PRODUCER_ID_BLOCK, VIEW_WAIT_MS};
use crate::mesh::Origin;
use crate::output::Level;
use crate::request::ControllerRequest;

/// Where the controller lives.
pub(crate) const METADATA_SHARD: ShardId = ShardId(0);
/// The metadata's Raft group.
pub(crate) const METADATA_GROUP: GroupId = GroupId(0);
/// Its only replica on a single node.
pub(crate) const METADATA_REPLICA: ReplicaId = ReplicaId(1);

/// What a proposed command is for.
enum Wanted {
    Cluster,
    Request(Origin),
    ProducerIds,
}

/// An answer that waits for all shards to take a view.
struct Waiting {
    version: u64,
    origin: Origin,
    frame: Option<OutFrame>,
    deadline: MonoTime,
}

enum Done {
    Made,
    Checkpointed(Base),
    Removed,
}

/// The controller of a node.
pub(crate) struct Controller {
    catalog: Catalog,
    /// The last committed entry, which the catalog has if it was for it.
    applied: (LogIndex, Term),
    serving: bool,
    /// Whether the newest view was given out.
    view_is_out: bool,
    proposed: VecDeque<(LogIndex, Wanted)>,
    waiting: Vec<Waiting>,
    /// The newest view that each shard has taken.
    taken: Vec<u64>,
    /// Producer ids of the last block that are not given out yet.
    producer_ids: std::ops::Range<i64>,
    /// Who waits for the next block.
    producers: VecDeque<Origin>,
    background: Background<Done>,
    checkpoints: Vec<LogIndex>,
    entries_since_checkpoint: u64,
    checkpointing: bool,
    /// The journal asks for a checkpoint, so that its files can go.
    is_written_down: bool,
    /// The newest checkpoint is older than the journal's base: until there is a new one, the journal has to keep what is
    /// below its base.
    is_behind_base: bool,
}

impl Controller {
    /// A controller over the catalog of a checkpoint, or an empty one.
    pub(crate) fn new(shards: u16, catalog: Catalog, applied: (LogIndex, Term), checkpoints: Vec<LogIndex>) -> Self {
        Self {
            catalog,
            applied,
            serving: false,
            view_is_out: false,
            proposed: VecDeque::new(),
            waiting: Vec::new(),
            taken: vec![0; usize::from(shards)],
            producer_ids: 0..0,
            producers: VecDeque::new(),
            background: Background::new(FileOwner::Catalog),
            checkpoints,
            entries_since_checkpoint: 0,
            checkpointing: false,
            is_written_down: true,
            is_behind_base: false,
        }
    }

    /// The catalog's directory is not on the disk yet.
    pub(crate) fn make_directory(&mut self, core: &mut Core) {
        self.background.plan(vec![FileOp::CreateDirectory { path: METADATA_DIRECTORY.into() }], Done::Made);
        self.background.run(core);
    }

    /// The view, if it changed since it was asked for the last time. None before the log is replayed.
    pub(crate) fn new_view(&mut self) -> Option<Arc<ClusterView>> {
        if !self.serving || self.view_is_out || !self.catalog.view().is_initialised() {
            return None;
        }
        self.view_is_out = true;
        Some(Arc::new(self.catalog.view()))
    }

    pub(crate) fn serving(&mut self, core: &mut Core) {
        self.serving = true;
        self.view_is_out = false;
        if !self.catalog.view().is_initialised() {
            let (cluster_id, node, time) = (core.node.cluster, core.node.node, core.now.wall);
            let command = Command::InitCluster { cluster_id, node, time };
            if self.propose(core, &command, Wanted::Cluster).is_err() {
                core.log(Level::Error, "the cluster's first command was not taken");
            }
        }
    }

    pub(crate) fn stepped_down(&mut self, core: &mut Core) {
        self.serving = false;
        let unknown = Error::new(ErrorKind::OutcomeUnknown, "the controller stopped before the change was committed");
        for (_, purpose) in self.proposed.drain(..) {
            if let Wanted::Request(origin) = purpose {
                core.refuse(origin, &unknown);
            }
        }
        let refusal = self.refusal();
        self.producers.drain(..).for_each(|origin| core.refuse(origin, &refusal));
    }

    fn refusal(&self) -> Error {
        Error::new(ErrorKind::Recovering, "the controller is not serving yet, or its journal failed; try again soon")
    }

    pub(crate) fn handle(&mut self, core: &mut Core, origin: Origin, request: ControllerRequest) {
        // Before the cluster's first command is applied there is no broker to place anything on: that passes.
        if !self.serving || !self.catalog.view().is_initialised() {
            return core.refuse(origin, &self.refusal());
        }
        let time = core.now.wall;
        let limits = core.node.topic_limits();
        let view = self.catalog.view();
        let command = match request {
            ControllerRequest::InitProducer => {
                self.producers.push_back(origin);
                return self.give_producer_ids(core);
            }
            ControllerRequest::CreateTopic(topic) => {
                let kind = topic.kind();
                let proto::CreateTopic { name, partitions, replication_factor, settings, .. } = topic;
                plan::create_topic(
                    &view,
                    &limits,
                    NewTopic { name, kind, partitions, replication_factor, settings },
                    time,
                )
            }
            ControllerRequest::AlterTopic { name, set, if_version } => {
                plan::alter_topic(&view, &limits, &name, set, if_version, time)
            }
            ControllerRequest::DeleteTopic { name } => plan::delete_topic(&name, time),
        };
        let result = command.and_then(|command| self.propose(core, &command, Wanted::Request(origin)));
        if let Err(error) = result {
            core.refuse(origin, &error);
        }
    }

    fn propose(&mut self, core: &mut Core, command: &Command, purpose: Wanted) -> Result<(), Error> {
        let room = match command {
            // It takes room, as publishes do.
            Command::CreateTopic { .. } => Purpose::Publish,
            Command::DeleteTopic { .. } => Purpose::Deletion,
            _ => Purpose::Change,
        };
        if let Some(error) = core.room_refusal(JournalKind::Synced, room) {
            return Err(error);
        }
        let proposed = core.host.propose(METADATA_GROUP, Bytes::new(), command.encode());
        let proposed = proposed
            .map_err(|error| Error::new(ErrorKind::Overloaded, format!("the controller cannot take it: {error}")))?;
        self.proposed.push_back((proposed.index, purpose));
        Ok(())
    }

    fn give_producer_ids(&mut self, core: &mut Core) {
        while let Some(origin) = self.producers.front().copied() {
            let Some(id) = self.producer_ids.next() else { break };
            self.producers.pop_front();
            core.answer(origin, &proto::InitProducerOk { producer_id: id, producer_epoch: 0 });
        }
        let allocating = self.proposed.iter().any(|(_, purpose)| matches!(purpose, Wanted::ProducerIds));
        if self.producers.is_empty() || allocating {
            return;
        }
        let command = Command::AllocateProducerIds { count: PRODUCER_ID_BLOCK, time: core.now.wall };
        if let Err(error) = self.propose(core, &command, Wanted::ProducerIds) {
            self.producers.drain(..).for_each(|origin| core.refuse(origin, &error));
        }
    }

    /// Applies committed entries. An error: the catalog cannot go on.
    pub(crate) fn committed(&mut self, core: &mut Core, entries: Vec<Entry>) -> Result<(), String> {
        let Some(last) = entries.last().map(|entry| (entry.index, entry.term)) else { return Ok(()) };
        for entry in entries {
            // A checkpoint may be ahead of what the host has replayed.
            if entry.kind == EntryKind::Normal && entry.index > self.catalog.applied() {
                let command =
                    Command::decode(&entry.data).map_err(|error| format!("entry {}: {error}", entry.index))?;
                self.apply(core, entry.index, &command);
            }
        }
        self.applied = self.applied.max(last);
        core.host.applied(METADATA_GROUP, last.0);
        Ok(())
    }

    fn apply(&mut self, core: &mut Core, index: LogIndex, command: &Command) {
        let version = self.catalog.version();
        let result = self.catalog.apply(index, command);
        self.entries_since_checkpoint += 1;
        self.view_is_out &= self.catalog.version() == version;
        let purpose = match self.proposed.front() {
            Some((at, _)) if *at == index => self.proposed.pop_front().map(|(_, purpose)| purpose),
            _ => None,
        };
        match (purpose, result) {
            (Some(Wanted::Request(origin)), Ok(outcome)) => self.answer_when_taken(core, origin, outcome, command),
            (Some(Wanted::Request(origin)), Err(error)) => core.refuse(origin, &error),
            (Some(Wanted::ProducerIds), Ok(Outcome::ProducerIds { first, count })) => {
                self.producer_ids = first.0..first.0 + i64::from(count);
                self.give_producer_ids(core);
            }
            (Some(Wanted::ProducerIds), Err(error)) => {
                self.producers.drain(..).for_each(|origin| core.refuse(origin, &error));
            }
            (Some(Wanted::Cluster), Err(error)) => {
                core.log(Level::Error, format!("the cluster was not initialised: {error}"))
            }
            (None, _) | (Some(_), Ok(_)) => {}
        }
    }

    fn answer_when_taken(&mut self, core: &mut Core, origin: Origin, outcome: Outcome, command: &Command) {
        let id = origin.request_id;
        let frame = match (outcome, command) {
            (Outcome::TopicCreated { topic }, _) => OutFrame::response(id, &self.created(topic)),
            (Outcome::TopicAltered { version }, _) => OutFrame::response(id, &proto::AlterTopicOk { version }),
            (Outcome::TopicDeleted { .. }, _) => OutFrame::response(id, &proto::DeleteTopicOk {}),
            (Outcome::ClusterInitialised | Outcome::ProducerIds { .. }, command) => {
                unreachable!("no client asks for {command:?}")
            }
        };
        let deadline = core.now.mono.plus_ms(VIEW_WAIT_MS);
        let frame = (id != 0).then_some(frame);
        self.waiting.push(Waiting { version: self.catalog.version(), origin, frame, deadline });
    }

    fn created(&self, topic: TopicId) -> proto::CreateTopicOk {
        let name = self.catalog.view().topic(topic).map(|topic| topic.name.clone()).unwrap_or_default();
        proto::CreateTopicOk { topic_id: topic.0, name }
    }

    /// A shard has opened what this version of the view gives it.
    pub(crate) fn view_taken(&mut self, shard: usize, version: u64) {
        if let Some(taken) = self.taken.get_mut(shard) {
            *taken = version.max(*taken);
        }
    }

    /// Answers what waited for views, does what is due.
    pub(crate) fn look_after(&mut self, core: &mut Core, stopping: bool) {
        let everywhere = self.taken.iter().copied().min().unwrap_or(0);
        let now = core.now.mono;
        let ready = self.waiting.extract_if(.., |waiting| waiting.version <= everywhere || waiting.deadline <= now);
        for Waiting { origin, frame, .. } in ready {
            core.replies.push_back(Reply::Answer { origin, frame });
        }
        let due =
            self.entries_since_checkpoint >= CHECKPOINT_ENTRIES || (stopping && self.entries_since_checkpoint > 0);
        let due = due || (!self.is_written_down && self.serving);
        if due && !self.checkpointing {
            self.checkpoint();
        }
        self.background.run(core);
    }

    /// Recovery found a checkpoint that is older than the journal's base.
    pub(crate) fn found_behind_base(&mut self) {
        self.is_behind_base = true;
    }

    /// Whether the journal has to keep what is below its base.
    pub(crate) fn is_behind_base(&self) -> bool {
        self.is_behind_base
    }

    /// Has the catalog written down, so that the journal need not have it.
    pub(crate) fn write_down(&mut self) {
        self.is_written_down = false;
    }

    fn checkpoint(&mut self) {
        let (index, term) = self.applied;
        let next_offset = Offset(0);
        let header = CheckpointHeader { group: METADATA_GROUP, replica: METADATA_REPLICA, index, term, next_offset };
        let mut snapshot = self.catalog.snapshot();
        let mut chunks = Vec::new();
        while !snapshot.is_empty() {
            chunks.push(snapshot.split_to(snapshot.len().min(checkpoint::MAX_CHUNK_BYTES)));
        }
        let path = checkpoint::path(METADATA_DIRECTORY, index);
        let pieces = checkpoint::encode(&header, &chunks);
        self.entries_since_checkpoint = 0;
        self.checkpointing = true;
        self.is_written_down = true;
        let base = Base { index, term, next_offset };
        self.background.plan(vec![FileOp::Replace { path, pieces }], Done::Checkpointed(base));
    }

    pub(crate) fn file_done(&mut self, core: &mut Core, result: DiskResult<Bytes>) {
        if let Some((Done::Checkpointed(base), _)) = self.background.finished(core, result) {
            core.metrics.checkpoints += 1;
            self.checkpointing = false;
            // What was replayed is in it, as soon as all of it was.
            self.is_behind_base &= !self.serving;
            // A journal that refuses it has failed or ends, and says so itself.
            let _ = core.host.mark_base(METADATA_GROUP, base, &mut core.journals);
            if self.checkpoints.last() != Some(&base.index) {
                self.checkpoints.push(base.index);
            }
            let directory: Path = METADATA_DIRECTORY.into();
            if let Some(op) = checkpoint::obsolete(&directory, &self.checkpoints) {
                self.background.plan(vec![op], Done::Removed);
                let keep = self.checkpoints.len().saturating_sub(checkpoint::KEPT);
                self.checkpoints.drain(..keep);
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<MonoTime> {
        self.waiting.iter().map(|waiting| waiting.deadline).chain(self.background.deadline()).min()
    }

    /// Whether nothing of the catalog is on its way.
    pub(crate) fn is_settled(&self) -> bool {
        let saved = self.background.is_idle() && self.entries_since_checkpoint == 0;
        self.proposed.is_empty()
            && self.waiting.is_empty()
            && (saved || self.background.error().is_some() || !self.serving)
    }
}

/// The catalog of a checkpoint.
pub(crate) fn catalog_of(chunks: &[Bytes]) -> Result<Catalog, String> {
    let snapshot: Vec<u8> = chunks.iter().flatten().copied().collect();
    Catalog::restore(&snapshot).map_err(|error| error.to_string())
}
