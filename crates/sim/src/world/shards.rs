//! The loop of each shard: take what is ready, bounded; handle it; finish the round; carry the outputs out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use lockgate_engine::{Input, Lane, MeshFrame, Output, Shard};
use lockgate_storage::journal::{JournalKind, JournalWrite};
use lockgate_wire::{ConnectionId, Frame, ShardId};

use super::World;
use super::queue::{Happening, LinkNo};
use super::storage::FileTask;
use crate::invariants::{bounds_hold, scrubs_find_damage_only};
use crate::telling;
use crate::time::{SECOND, Time, US};
use crate::trace::{Trace, Who};

/// Inputs and frames that a round takes at most.
const ROUND_MAX: u64 = 64;
/// Frames of one connection that a round takes at most.
const FRAMES_MAX: u64 = 16;
/// A deadline that stays in the past is a loop; so many ticks for one deadline are enough to tell.
const TICKS_PER_DEADLINE_MAX: u32 = 1000;

/// A shard of the running process and what is around it.
pub(super) struct Slot {
    pub(super) shard: Shard,
    pub(super) inbox: VecDeque<Input>,
    /// Connections with bytes that the shard may want.
    pub(super) readable: BTreeSet<LinkNo>,
    /// Connections whose bytes went out since the last round.
    pub(super) written: BTreeSet<LinkNo>,
    pub(super) journal_writes: BTreeMap<JournalKind, JournalWrite>,
    pub(super) lanes: BTreeMap<Lane, VecDeque<FileTask>>,
    pub(super) reads: BTreeMap<u64, FileTask>,
    /// Frames from each other shard, in their order.
    pub(super) mesh: BTreeMap<usize, (Time, VecDeque<MeshFrame>)>,
    pub(super) views: (Time, VecDeque<Arc<lockgate_engine::ClusterView>>),
    pub(super) is_ready: bool,
    pub(super) is_stopped: bool,
    round_is_planned: bool,
    busy_until: Time,
    tick_at: Time,
    /// The last deadline that a tick was for, and how many were.
    ticks: (Time, u32),
    gone: bounds_hold::Gone,
}

impl Slot {
    pub(super) fn new(shard: Shard) -> Self {
        Self {
            shard,
            inbox: VecDeque::new(),
            readable: BTreeSet::new(),
            written: BTreeSet::new(),
            journal_writes: BTreeMap::new(),
            lanes: BTreeMap::new(),
            reads: BTreeMap::new(),
            mesh: BTreeMap::new(),
            views: (0, VecDeque::new()),
            is_ready: false,
            is_stopped: false,
            round_is_planned: false,
            busy_until: 0,
            tick_at: Time::MAX,
            ticks: (0, 0),
            gone: bounds_hold::Gone::default(),
        }
    }
}

impl World {
    /// Puts an input into a shard's inbox and wakes it.
    pub(super) fn give(&mut self, shard: usize, input: Input) {
        self.node.shards[shard].inbox.push_back(input);
        self.plan_round(shard);
    }

    pub(super) fn plan_round(&mut self, shard: usize) {
        let slot = &mut self.node.shards[shard];
        if !std::mem::replace(&mut slot.round_is_planned, true) {
            let at = slot.busy_until.max(self.now + self.rng.below(20 * US));
            self.queue.push(at, Happening::Round { process: self.node.life.process, shard });
        }
    }

    pub(super) fn round(&mut self, shard: usize) {
        let now = self.node.clock(self.now);
        let mut outputs = Vec::new();
        self.node.shards[shard].round_is_planned = false;
        for _ in 0..self.rng.within(1..=ROUND_MAX) {
            let slot = &mut self.node.shards[shard];
            let Some(input) = slot.inbox.pop_front() else { break };
            trace_input(&mut self.trace, self.now, shard, &input);
            slot.shard.handle(now, input, &mut outputs);
        }
        for number in std::mem::take(&mut self.node.shards[shard].written) {
            let Some(link) = self.links.get_mut(&number).filter(|link| !link.node_is_gone) else { continue };
            let input = Input::Written { connection: ConnectionId(number), bytes: std::mem::take(&mut link.written) };
            trace_input(&mut self.trace, self.now, shard, &input);
            self.node.shards[shard].shard.handle(now, input, &mut outputs);
        }
        let readable: Vec<_> = self.node.shards[shard].readable.iter().copied().collect();
        let turn = if readable.is_empty() { 0 } else { self.rng.below(readable.len() as u64) as usize };
        for number in readable[turn..].iter().chain(&readable[..turn]) {
            self.read_frames(shard, *number, &mut outputs);
        }
        let slot = &mut self.node.shards[shard];
        slot.shard.finish_round(now, &mut outputs);
        slot.busy_until = self.now + 1 + self.rng.below(2 * self.plan.round);
        self.carry_out(shard, outputs);
        if !self.node.is_running() {
            return;
        }
        self.plan_tick(shard);
        self.look_at_bounds(shard);
        let slot = &self.node.shards[shard];
        if !slot.inbox.is_empty() || !slot.readable.is_empty() {
            self.plan_round(shard);
        }
    }

    /// Decodes frames of a connection while the shard wants them.
    fn read_frames(&mut self, shard: usize, number: LinkNo, outputs: &mut Vec<Output>) {
        let now = self.node.clock(self.now);
        let slot = &mut self.node.shards[shard];
        let connection = ConnectionId(number);
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.node_is_gone) else {
            slot.readable.remove(&number);
            return;
        };
        for _ in 0..self.rng.within(1..=FRAMES_MAX) {
            if link.unreadable {
                link.unread.clear();
                break;
            }
            if !slot.shard.may_read(connection) {
                link.paused = true;
                break;
            }
            let input = match Frame::decode(&mut link.unread, slot.shard.frame_limit(connection)) {
                Ok(Some(frame)) => Input::FrameReceived { connection, frame },
                Ok(None) => break,
                Err(error) => {
                    link.unreadable = true;
                    Input::BadBytes { connection, error }
                }
            };
            trace_input(&mut self.trace, self.now, shard, &input);
            slot.shard.handle(now, input, outputs);
        }
        let wants_more = !link.paused
            && !link.unreadable
            && Frame::missing(&link.unread, slot.shard.frame_limit(connection)).map_or(true, |missing| missing == 0);
        let is_at_end = link.ended && !wants_more && !link.paused;
        if !wants_more {
            slot.readable.remove(&number);
        }
        if is_at_end {
            self.node_loses(number);
        }
    }

    fn plan_tick(&mut self, shard: usize) {
        let slot = &mut self.node.shards[shard];
        let Some(deadline) = slot.shard.next_deadline() else { return };
        let at = self.node.time_of(deadline).max(self.now);
        let slot = &mut self.node.shards[shard];
        if at < slot.tick_at {
            slot.tick_at = at;
            self.queue.push(at, Happening::Tick { process: self.node.life.process, shard });
        }
    }

    pub(super) fn tick(&mut self, shard: usize) {
        let slot = &mut self.node.shards[shard];
        if slot.tick_at != self.now {
            return;
        }
        slot.tick_at = Time::MAX;
        let Some(deadline) = slot.shard.next_deadline().map(|deadline| self.node.time_of(deadline)) else { return };
        if deadline > self.now {
            return self.plan_tick(shard);
        }
        let slot = &mut self.node.shards[shard];
        slot.ticks = if slot.ticks.0 == deadline { (deadline, slot.ticks.1 + 1) } else { (deadline, 1) };
        if slot.ticks.1 > TICKS_PER_DEADLINE_MAX {
            let text = format!("shard {shard} asks for a tick at {:.6} ms again and again", deadline as f64 / 1e6);
            return self.report("the_run_moves_on", text);
        }
        self.give(shard, Input::Tick);
    }

    pub(super) fn mesh_arrives(&mut self, from: usize, to: usize) {
        let frame = self.node.shards[to].mesh.get_mut(&from).and_then(|(_, frames)| frames.pop_front());
        if let Some(frame) = frame {
            self.give(to, Input::Mesh { from: ShardId(from as u16), frame });
        }
    }

    pub(super) fn view_arrives(&mut self, to: usize) {
        if let Some(view) = self.node.shards[to].views.1.pop_front() {
            self.give(to, Input::View(view));
        }
    }

    fn look_at_bounds(&mut self, shard: usize) {
        let slot = &mut self.node.shards[shard];
        let connections: Vec<_> = slot.shard.connections().collect();
        let metrics = slot.shard.metrics();
        let bounds = bounds_hold::check(&metrics, &connections, &mut slot.gone, &self.node.config);
        let scrub = scrubs_find_damage_only::check(&metrics);
        for (name, verdict) in [(bounds_hold::NAME, bounds), (scrubs_find_damage_only::NAME, scrub)] {
            if let Err(text) = verdict {
                self.report(name, format!("shard {shard}: {text}"));
            }
        }
    }

    /// How long a mesh frame or a view takes, never overtaking the one before.
    pub(super) fn mesh_delay(&mut self, last: Time) -> Time {
        let usual = self.rng.below(self.plan.mesh + 1);
        let late = if self.rng.per_mille(2) { self.rng.below(SECOND / 5) } else { 0 };
        (self.now + usual + late).max(last)
    }
}

fn trace_input(trace: &mut Trace, at: Time, shard: usize, input: &Input) {
    let who = Who::Shard(shard);
    match input {
        Input::FrameReceived { connection, frame } => {
            let numbers = [connection.0, frame.request_id, u64::from(frame.op)];
            trace.step(at, who, "< frame", &numbers, format_args!("c{connection} {}", telling::Frame(frame)));
            trace.bytes(&frame.body);
            trace.bytes(&frame.payload);
        }
        Input::ConnectionOpened { connection, peer } => {
            trace.step(at, who, "< opened", &[connection.0], format_args!("c{connection} by {peer}"));
        }
        Input::ConnectionClosed { connection } => {
            trace.step(at, who, "< closed", &[connection.0], format_args!("c{connection}"));
        }
        Input::BytesReceived { connection } => {
            trace.step(
                at,
                who,
                "< part",
                &[connection.0],
                format_args!("c{connection}: a frame that is not whole yet"),
            );
        }
        Input::FrameStalled { connection } => {
            trace.step(at, who, "< half", &[connection.0], format_args!("c{connection}: a frame stands still"));
        }
        Input::PeerEnded { connection } => {
            trace.step(at, who, "< ended", &[connection.0], format_args!("c{connection}: the client sends no more"));
        }
        Input::BadBytes { connection, error } => {
            trace.step(at, who, "< bad", &[connection.0], format_args!("c{connection}: {error:?}"));
        }
        Input::Written { connection, bytes } => {
            let numbers = [connection.0, *bytes as u64];
            trace.step(at, who, "< written", &numbers, format_args!("c{connection}: {bytes} bytes"));
        }
        Input::Mesh { from, frame } => {
            trace.step(at, who, "< mesh", &[u64::from(from.0)], format_args!("of shard {from}: {frame:?}"));
        }
        Input::JournalWritten { journal, result } => {
            let numbers = [*journal as u64, u64::from(result.is_ok())];
            trace.step(at, who, "< journal", &numbers, format_args!("{journal:?}: {}", telling::Done(result)));
        }
        Input::FileDone { token, result } => {
            let numbers = [token.0, u64::from(result.is_ok())];
            let bytes = result.as_ref().map_or(0, |bytes| bytes.len());
            trace.step(
                at,
                who,
                "< file",
                &numbers,
                format_args!("f{}: {}, {bytes} bytes", token.0, telling::Done(result)),
            );
            result.iter().for_each(|bytes| trace.bytes(bytes));
        }
        Input::View(view) => trace.step(at, who, "< view", &[view.version], format_args!("version {}", view.version)),
        Input::Tick => trace.step(at, who, "< tick", &[], format_args!("")),
        Input::Stop => trace.step(at, who, "< STOP", &[], format_args!("in order")),
    }
}
