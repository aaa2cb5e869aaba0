//! The one door of a shard, and the round that it works in.
//!
//! Inputs are handled one by one; what they have in common is done once, when the round is finished: publishes become
//! proposals, all groups that are ready share one journal write, readers get what there is.

mod buffered_sync;
mod external;
mod files;
mod groups;
mod requests;
mod room;
mod scrub;
mod stop;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use lockgate_catalog::view::ClusterView;
use lockgate_consensus::{Event, Host};
use lockgate_storage::journal::{Doubts, JournalKind, JournalWriter, Journals};
use lockgate_wire::{ConnectionId, ErrorKind, GroupId, MonoTime, Now, PartitionId, ShardId};
use rustc_hash::FxHashMap;

use self::buffered_sync::BufferedSync;
use self::external::WrittenAhead;
use self::groups::JOURNALS;
use self::requests::Gather;
use self::room::Room;
use self::scrub::Scrubbing;
use self::stop::Stopping;
use crate::config::NodeConfig;
use crate::controller::Controller;
use crate::core::{Core, Reply};
use crate::input::Input;
use crate::mesh::{MeshFrame, Message};
use crate::metrics::ShardMetrics;
use crate::output::Output;
use crate::partition::Partition;
use crate::recovery::RecoveredShard;
use crate::session::{ConnectionUse, Sessions};

/// Partitions that are named one by one where a shard says what it cannot do.
const NAMED_MAX: usize = 8;

/// One shard: the partitions, connections and journals of one thread.
pub struct Shard {
    core: Core,
    view: Arc<ClusterView>,
    sessions: Sessions,
    partitions: BTreeMap<PartitionId, Partition>,
    groups: FxHashMap<GroupId, PartitionId>,
    /// On shard 0 only.
    controller: Option<Controller>,
    /// Partitions with something to do in this round.
    dirty: BTreeSet<PartitionId>,
    /// When partitions have to be looked at again, both ways.
    due: BTreeSet<(MonoTime, PartitionId)>,
    due_of: FxHashMap<PartitionId, MonoTime>,
    /// Requests under way to each other shard, and connections whose next request waits for a slot, first come first
    /// served.
    slots: Vec<u32>,
    parked: Vec<VecDeque<ConnectionId>>,
    /// Descriptions of topics that are being collected.
    gathers: BTreeMap<u64, Gather>,
    next_gather: u64,
    /// The version of the view that was taken and is not reported yet.
    unreported_view: Option<u64>,
    /// Partition directories of this shard that no replica belongs to, and whether they have data.
    leftover: BTreeMap<PartitionId, bool>,
    /// What the journal lost, until the first view has said who is missing.
    doubts: Option<Doubts>,
    was_ready: bool,
    /// The shortest `fsync = interval` of a topic here, if there is one.
    sync_interval_ms: Option<u64>,
    buffered_sync: BufferedSync,
    written_ahead: WrittenAhead,
    room: Room,
    scrubbing: Scrubbing,
    stopping: Option<Stopping>,
    events: Vec<Event>,
}

impl Shard {
    /// Brings a recovered shard to life. `seed` makes its choices; the same seed and inputs give the same outputs.
    pub fn start(
        node: Arc<NodeConfig>,
        shard: ShardId,
        recovered: RecoveredShard,
        seed: u64,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Shard {
        let shards = usize::from(node.shards);
        let journals = Journals {
            synced: JournalWriter::new(node.journal(shard, JournalKind::Synced), recovered.synced),
            buffered: JournalWriter::new(node.journal(shard, JournalKind::Buffered), recovered.buffered),
        };
        let mut shard = Shard {
            core: Core::new(node, shard, now, Host::new(seed), journals),
            view: Arc::new(ClusterView::default()),
            sessions: Sessions::new(),
            partitions: BTreeMap::new(),
            groups: FxHashMap::default(),
            controller: None,
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            due_of: FxHashMap::default(),
            slots: vec![0; shards],
            parked: vec![VecDeque::new(); shards],
            gathers: BTreeMap::new(),
            next_gather: 0,
            unreported_view: None,
            leftover: recovered.leftover,
            doubts: Some(recovered.doubts).filter(Doubts::has_gap),
            was_ready: false,
            sync_interval_ms: None,
            buffered_sync: BufferedSync::default(),
            written_ahead: WrittenAhead::default(),
            room: Room::default(),
            scrubbing: Scrubbing::default(),
            stopping: None,
            events: Vec::new(),
        };
        shard.open(recovered.metadata, recovered.partitions, recovered.suspects);
        shard.finish_round(now, out);
        shard
    }

    /// Handles one fact. What it causes at once is in `out`; what a round has in common comes with
    /// [`Shard::finish_round`].
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.core.now = now;
        match input {
            Input::ConnectionOpened { connection, peer } => self.sessions.opened(&mut self.core, connection, peer),
            Input::FrameReceived { connection, frame } => self.frame(connection, frame),
            Input::BytesReceived { connection } => self.sessions.progressed(&self.core, connection),
            Input::FrameStalled { connection } => self.sessions.frame_stalled(&mut self.core, connection),
            Input::PeerEnded { connection } => self.sessions.peer_ended(&mut self.core, connection),
            Input::BadBytes { connection, error } => {
                self.sessions.close_with(&mut self.core, connection, &error.to_error())
            }
            Input::Written { connection, bytes } => {
                for (partition, subscription) in self.sessions.written(&mut self.core, connection, bytes) {
                    self.delivery_taken(partition, connection, subscription);
                }
            }
            Input::ConnectionClosed { connection } => self.connection_gone(connection),
            Input::Mesh { from, frame } => self.mesh(from, frame.0),
            Input::JournalWritten { journal, result } => self.journal_written(journal, result),
            Input::FileDone { token, result } => self.file_done(token, result),
            Input::View(view) => self.take_view(view),
            Input::Tick => {}
            Input::Stop => self.stop(),
        }
        self.pass_on_replies();
        out.append(&mut self.core.out);
    }

    /// Ends a round of inputs: proposals, one write per journal, deliveries, and whatever time has made due.
    pub fn finish_round(&mut self, now: Now, out: &mut Vec<Output>) {
        self.core.now = now;
        self.sessions.sweep(&mut self.core);
        self.collect_due();
        self.each_dirty(Partition::propose);
        self.advance_groups();
        self.publish_view();
        self.make_room();
        self.start_journal_writes();
        let stopping = self.stopping.is_some();
        self.each_dirty(|partition, core| {
            partition.run_readers(core);
            partition.look_after(core, stopping);
        });
        if let Some(controller) = &mut self.controller {
            controller.look_after(&mut self.core, stopping);
        }
        self.report_view();
        self.go_on_scrubbing();
        self.pass_on_replies();
        self.sessions.resume(&mut self.core);
        self.settle_dirty();
        self.go_on_stopping();
        out.append(&mut self.core.out);
    }

    /// Whether the connection's next frame may be decoded. Ask before each; when it may not, leave the bytes where they
    /// are until [`Output::ResumeReading`] comes.
    pub fn may_read(&mut self, connection: ConnectionId) -> bool {
        self.sessions.may_read(&self.core, connection)
    }

    /// The largest frame that the connection may send now.
    pub fn frame_limit(&self, connection: ConnectionId) -> u32 {
        self.sessions.frame_limit(&self.core, connection)
    }

    /// When time alone gives the shard something to do: finish a round then.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        let journals = [&self.core.journals.synced, &self.core.journals.buffered];
        let journals = journals.into_iter().filter_map(JournalWriter::next_deadline);
        journals
            .chain(self.due.first().map(|(at, _)| *at))
            .chain(self.sessions.deadline())
            .chain(self.controller.as_ref().and_then(Controller::deadline))
            .chain(self.buffered_sync.deadline())
            .chain(self.room_deadline())
            .chain(self.scrub_deadline())
            .chain(self.stopping.as_ref().map(Stopping::deadline))
            .min()
    }

    /// Counters and gauges as they are now.
    pub fn metrics(&mut self) -> ShardMetrics {
        self.sessions.gauge(&mut self.core);
        self.core.metrics.journal_poisoned = u64::from(self.is_poisoned());
        self.core.metrics.disk_full = u64::from(self.without_room() != (false, 0));
        let at_bound = self.at_bound().next().is_some();
        self.core.metrics.journal_at_bound = u64::from(at_bound);
        let partitions = self.partitions.values();
        let metrics = &mut self.core.metrics;
        metrics.journal_files = self.core.journals.synced.files() as u64;
        metrics.buffered_journal_files = self.core.journals.buffered.files() as u64;
        metrics.partitions_unsynced = partitions.clone().filter(|p| p.needs_restart()).count() as u64;
        metrics.partitions = partitions.len() as u64;
        metrics.damaged_places = partitions.clone().map(|p| p.damaged_places().0 as u64).sum();
        metrics.partitions_serving = partitions.clone().filter(|p| p.is_serving()).count() as u64;
        metrics.partitions_failed = partitions.clone().filter(|p| p.is_failed()).count() as u64;
        metrics.tail_bytes = partitions.clone().map(Partition::tail_bytes).sum();
        metrics.unflushed_bytes = partitions.map(Partition::unflushed_bytes).sum();
        metrics.mesh_requests = self.slots.iter().map(|slots| u64::from(*slots)).sum();
        metrics.mesh_parked = self.parked.iter().map(|parked| parked.len() as u64).sum();
        metrics.view_version = self.view.version;
        metrics.journal = self.core.journals.synced.counters();
        metrics.buffered_journal = self.core.journals.buffered.counters();
        metrics.clone()
    }

    /// What each of its connections uses at the moment.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionUse> + '_ {
        self.sessions.uses()
    }

    /// What the shard cannot do at the moment although it serves, in words for people.
    pub fn impairments(&self) -> Vec<String> {
        let (journals, shard) = (&self.core.journals, self.core.shard);
        if let Some(poison) = journals.synced.poison().or(journals.buffered.poison()) {
            return vec![format!("shard {shard} takes no writes: {poison}")];
        }
        let (journal, partitions) = self.without_room();
        let journal = journal.then(|| format!("shard {shard}: the disk has no room for the journal's next file"));
        let files =
            format!("shard {shard}: the disk has no room for segments or checkpoints ({partitions} partitions)");
        let at_bound = self.at_bound().map(|kind| self.bound_in_words(kind));
        let unsynced = self.partitions.values().filter(|partition| partition.needs_restart()).map(|partition| {
            let id = partition.id;
            format!("shard {shard}: a sync of the segments of partition {id} failed; restart the broker")
        });
        let damaged = self.partitions.values().filter_map(|partition| match partition.damaged_places() {
            (places, Some(first)) => {
                let id = partition.id;
                Some(format!(
                    "shard {shard}: segments of partition {id} are damaged (places: {places}); the first: {first}"
                ))
            }
            _ => None,
        });
        let failed = self.partitions.values().filter_map(Partition::failure);
        let failed = failed.map(|error| format!("shard {shard}: {}", error.message));
        let full = journal.into_iter().chain((partitions > 0).then_some(files));
        let partitions = unsynced.take(NAMED_MAX).chain(failed.take(NAMED_MAX)).chain(damaged.take(NAMED_MAX));
        full.chain(at_bound).chain(partitions).collect()
    }

    fn bound_in_words(&self, kind: JournalKind) -> String {
        let (shard, max) = (self.core.shard, self.core.node.journal.max_bytes);
        format!(
            "shard {shard} refuses publishes: its {kind} journal is at its bound, journal.max_bytes = {max}, until partitions \
             are written down"
        )
    }

    /// The journals that are at their bound.
    fn at_bound(&self) -> impl Iterator<Item = JournalKind> {
        let journals = &self.core.journals;
        JOURNALS.into_iter().filter(|kind| journals.get(*kind).is_at_bound())
    }

    /// Whether a journal waits for room on the disk, and how many partitions do.
    fn without_room(&self) -> (bool, usize) {
        let journals = [&self.core.journals.synced, &self.core.journals.buffered];
        let partitions = self.partitions.values().filter(|partition| partition.has_no_room());
        (journals.iter().any(|journal| journal.is_full()), partitions.count())
    }

    fn is_poisoned(&self) -> bool {
        self.core.journals.synced.poison().is_some() || self.core.journals.buffered.poison().is_some()
    }

    // ── the round ────────────────────────────────────────────────────────────────────────────────────────────────

    fn collect_due(&mut self) {
        while let Some(&(at, partition)) = self.due.first()
            && at <= self.core.now.mono
        {
            self.due.pop_first();
            self.due_of.remove(&partition);
            self.dirty.insert(partition);
        }
    }

    fn each_dirty(&mut self, mut act: impl FnMut(&mut Partition, &mut Core)) {
        for id in &self.dirty {
            if let Some(partition) = self.partitions.get_mut(id) {
                act(partition, &mut self.core);
            }
        }
    }

    /// Notes when each partition of the round has to be looked at again. What waits for the journal stays in the round.
    fn settle_dirty(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        for id in dirty {
            let Some(partition) = self.partitions.get(&id) else { continue };
            if let Some(old) = self.due_of.remove(&id) {
                self.due.remove(&(old, id));
            }
            if let Some(at) = partition.deadline() {
                self.due.insert((at, id));
                self.due_of.insert(id, at);
            }
            if partition.has_work() {
                self.dirty.insert(id);
            }
        }
    }

    /// Runs a partition's part of something and keeps it in the round.
    fn with_partition(&mut self, id: PartitionId, act: impl FnOnce(&mut Partition, &mut Core)) {
        if let Some(partition) = self.partitions.get_mut(&id) {
            act(partition, &mut self.core);
            self.dirty.insert(id);
        }
    }

    /// Sends replies where they belong: to a connection here, or over the mesh.
    fn pass_on_replies(&mut self) {
        while let Some(reply) = self.core.replies.pop_front() {
            match reply {
                Reply::Answer { origin, frame } if origin.shard == self.core.shard => {
                    self.sessions.answered(&mut self.core, origin, frame);
                }
                Reply::Answer { origin, frame } => self.send_mesh(origin.shard, Message::Answer { origin, frame }),
                Reply::Deliver { shard, connection, subscription, frame } if shard == self.core.shard => {
                    self.deliver(connection, subscription, frame);
                }
                Reply::Deliver { shard, connection, subscription, frame } => {
                    self.send_mesh(shard, Message::Deliver { connection, subscription, frame });
                }
                Reply::Ended { shard, connection, subscription, frame } if shard == self.core.shard => {
                    self.sessions.ended(&mut self.core, connection, subscription, frame);
                }
                Reply::Ended { shard, connection, subscription, frame } => {
                    self.send_mesh(shard, Message::SubscriptionEnded { connection, subscription, frame });
                }
            }
        }
    }

    fn send_mesh(&mut self, to: ShardId, message: Message) {
        self.core.metrics.mesh_frames += 1;
        self.core.out.push(Output::Mesh { to, frame: MeshFrame(message) });
    }

    /// A bug was seen and survived: counted, logged, and fatal in tests.
    fn bug(&mut self, what: &str) {
        debug_assert!(false, "{what}");
        self.core.metrics.refused(ErrorKind::Internal, false);
        self.core.log(crate::output::Level::Error, format!("a bug was survived: {what}"));
    }
}
