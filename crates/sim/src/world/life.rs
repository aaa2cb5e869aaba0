//! The node's life: it reads its disk, starts its shards, runs, and ends: killed, without power, or in order.

use std::sync::Arc;

use lockgate_engine::{Input, NodeConfig, RecoveredShard, Shard, recover};
use lockgate_storage::disk::DiskError;
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_wire::{MonoTime, Now, ShardId, WallMs};

use super::healing::Stage;
use super::plan::SHARDS_MAX;
use super::queue::Happening;
use super::shards::Slot;
use super::{WALL_START_MS, World};
use crate::history::{Life, What};
use crate::reduction::Source;
use crate::rng::Rng;
use crate::rot;
use crate::time::{MS, SECOND, Time};
use crate::trace::Who;

/// How much later than its own bound an orderly stop may be done: the disk takes its time.
const STOP_SLACK: Time = 10 * SECOND;
/// How many nanoseconds a monotonic clock loses or wins in a millisecond at most.
const DRIFT_MAX: u64 = MS / 100;
/// By then after it became ready, every partition of a process has looked at the clock.
const CLOCK_TAKEN_WITHIN: Time = 3 * SECOND;
/// Calls to the disk that reading it takes at most, about.
const RECOVERY_CALLS_MAX: u64 = 2000;

/// What the node is doing.
enum State {
    /// No process runs.
    Down,
    /// The disk has been read; the shards start soon.
    Recovering(Vec<RecoveredShard>),
    /// The shards run.
    Running,
    /// The shards run and finish what they took.
    Stopping,
}

/// Why a process ended before its shards ran.
pub(super) struct StartError {
    pub(super) text: String,
    /// The disk failed or was full: nothing is wrong with what it holds.
    pub(super) is_of_the_disk: bool,
}

impl From<DiskError> for StartError {
    fn from(error: DiskError) -> Self {
        Self { text: error.to_string(), is_of_the_disk: true }
    }
}

/// The one node.
pub(super) struct Node {
    pub(super) config: Arc<NodeConfig>,
    pub(super) life: Life,
    pub(super) shards: Vec<Slot>,
    state: State,
    /// This process's monotonic clock at the beginning of the run.
    mono_base: u64,
    /// How fast it goes: this many of its nanoseconds in a millisecond of the run.
    mono_rate: u64,
    /// How far this process's wall clock is ahead of the clients' from its beginning…
    wall_skew_ms: i64,
    /// …and how far the machine's has jumped.
    wall_jump_ms: i64,
    /// When the process became ready.
    ready_at: Option<Time>,
    /// What its disk had when copies of it were hurt the last time.
    older: Option<MemoryDisk>,
}

impl Node {
    pub(super) fn new(config: NodeConfig) -> Self {
        let config = Arc::new(config);
        Self {
            config,
            life: Life::default(),
            shards: Vec::new(),
            state: State::Down,
            mono_base: 0,
            mono_rate: MS,
            wall_skew_ms: 0,
            wall_jump_ms: 0,
            ready_at: None,
            older: None,
        }
    }

    /// A process is there, if only reading its disk.
    pub(super) fn is_running(&self) -> bool {
        !matches!(self.state, State::Down)
    }

    /// All shards serve: only then does a node listen.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state, State::Running) && self.shards.iter().all(|slot| slot.is_ready)
    }

    /// Both clocks as the process reads them.
    pub(super) fn clock(&self, now: Time) -> Now {
        let wall = WALL_START_MS + (now / MS) as i64 + self.wall_skew_ms + self.wall_jump_ms;
        let mono = u128::from(now) * u128::from(self.mono_rate) / u128::from(MS);
        Now { mono: MonoTime(self.mono_base + mono as u64), wall: WallMs(wall) }
    }

    /// When the process's clock will show this.
    pub(super) fn time_of(&self, mono: MonoTime) -> Time {
        let since = u128::from(mono.0.saturating_sub(self.mono_base));
        let time = (since * u128::from(MS)).div_ceil(u128::from(self.mono_rate));
        Time::try_from(time).unwrap_or(Time::MAX)
    }
}

impl World {
    /// A process begins: it reads its disk, and may die over that.
    pub(super) fn node_begins(&mut self) {
        if self.node.is_running() {
            return;
        }
        self.node.life.process += 1;
        let process = self.node.life.process;
        self.trace.step(self.now, Who::World, "START", &[], format_args!("of process {process}"));
        self.node.mono_base = self.rng.below(1 << 50);
        self.node.mono_rate = if self.rng.coin() { MS } else { self.rng.within(MS - DRIFT_MAX..=MS + DRIFT_MAX) };
        self.node.wall_skew_ms = if self.rng.per_mille(100) { self.rng.below(20_000) as i64 - 10_000 } else { 0 };
        let mut config = (*self.node.config).clone();
        config.incarnation += 1;
        self.node.config = Arc::new(config);
        let (rot, journals) = (self.plan_rot(), self.node.config.journals);
        let wanted_shards = self.plan_fault_of_start();
        self.node.state = State::Recovering(Vec::new());
        let recovered = match self.read_disk(wanted_shards) {
            Ok(recovered) => recovered,
            Err(_) if self.disk.is_cut() => {
                self.faults.count("cut starts");
                let with_power = self.next_crash_is_power_loss();
                return self.crash(with_power);
            }
            Err(StartError { text, is_of_the_disk: true }) => return self.start_is_refused(&text),
            Err(StartError { text, .. }) => return self.report("recovery_takes_what_a_crash_leaves", text),
        };
        for (shard, recovered) in recovered.iter().enumerate() {
            self.trace.step(self.now, Who::Shard(shard), "recovered", &[], format_args!("{:?}", recovered.report));
        }
        // A partition may be refused while the others serve: that is for an operator to see.
        let ill = recovered.iter().flat_map(RecoveredShard::refused).find(|(_, error)| error.disk().is_none());
        if let Some((partition, error)) = ill {
            return self.report("recovery_takes_what_a_crash_leaves", format!("partition {partition}: {error}"));
        }
        if let Some(damage) = recovered.iter().flat_map(|recovered| &recovered.report.damage).next() {
            return self.report("recovery_takes_what_a_crash_leaves", damage.clone());
        }
        let refused = recovered.iter().flat_map(RecoveredShard::refused).next().is_some();
        self.disk.crash();
        // What was copied has the journals that count only if they were not moved meanwhile.
        if let Some((copy, mut rng)) = rot.filter(|_| !refused && self.node.config.journals == journals) {
            let (now, faults) = (self.node.clock(self.now), &mut self.faults);
            let disks = (&copy, self.node.older.as_ref());
            let result = rot::examine(disks, &self.node.config, now, &mut rng, &mut |what| faults.count(what));
            self.node.older = Some(copy);
            if let Err(text) = result {
                return self.report(rot::NAME, text);
            }
        }
        if refused {
            let at = self.now + self.rng.magnitude(300 * MS..=3 * SECOND);
            self.queue.push(at, Happening::NodeIsKilled { process });
        }
        self.saw(What::Recovered);
        self.node.state = State::Recovering(recovered);
        let at = self.now + self.rng.magnitude(MS..=300 * MS);
        self.queue.push(at, Happening::NodeRecovered { process: self.node.life.process });
    }

    fn read_disk(&mut self, wanted_shards: Option<u16>) -> Result<Vec<RecoveredShard>, StartError> {
        self.follow_shard_count(wanted_shards)?;
        let recovered = (0..self.node.config.shards).map(|shard| {
            let recovered = recover(&self.disk, &self.node.config, ShardId(shard));
            recovered.map_err(|error| StartError {
                text: format!("shard {shard}: {error}"),
                is_of_the_disk: error.disk().is_some(),
            })
        });
        recovered.collect()
    }

    /// The disk as it is before the start that follows, if copies of it are to be hurt.
    fn plan_rot(&mut self) -> Option<(MemoryDisk, Rng)> {
        let mut rng = self.strikes(Source::Rot)?;
        if !rng.per_mille(self.plan.faults.rot_per_mille) {
            return None;
        }
        let copy = rot::copy(&self.disk).expect("nothing fails before the start has begun");
        Some((copy, rng))
    }

    /// The start that follows may die over its disk, or meet a sync that fails, or be one with another number of shards.
    fn plan_fault_of_start(&mut self) -> Option<u16> {
        if self.stage != Stage::Stirring {
            return None;
        }
        let mut rng = self.strikes(Source::Start)?;
        if rng.per_mille(self.plan.faults.cut_recovery_per_mille) {
            self.disk.cut_after(rng.magnitude(0..=RECOVERY_CALLS_MAX));
        } else if rng.per_mille(self.plan.faults.sync_error_per_mille) {
            self.disk.fail_sync_after(rng.magnitude(0..=RECOVERY_CALLS_MAX));
        }
        rng.per_mille(self.plan.faults.move_per_mille).then(|| rng.within(1..=SHARDS_MAX) as u16)
    }

    /// The disk failed while it was read: the process ends and says so. Somebody starts it again, with the machine if its
    /// file system takes no change any more.
    fn start_is_refused(&mut self, why: &str) {
        self.faults.count("refused starts");
        let process = self.node.life.process;
        self.trace.step(self.now, Who::World, "REFUSED", &[], format_args!("start of process {process}: {why}"));
        self.disk.crash();
        self.saw(What::Crashed);
        self.end_process(false);
        if self.disk.is_read_only() {
            self.lose_power();
        }
        let down = self.rng.magnitude(MS..=2 * SECOND);
        self.queue.push(self.now + down, Happening::NodeBegins);
    }

    /// The machine goes off while no process runs.
    pub(super) fn lose_power(&mut self) {
        self.node.life.power += 1;
        self.faults.count("power losses");
        self.disk.power_loss();
        self.board.power_lost();
        self.saw(What::PowerLost);
    }

    pub(super) fn node_recovered(&mut self) {
        let State::Recovering(recovered) = std::mem::replace(&mut self.node.state, State::Running) else { return };
        let now = self.node.clock(self.now);
        self.saw(What::ClockTaken { wall_ms: now.wall.0 });
        let mut started = Vec::new();
        for (number, recovered) in recovered.into_iter().enumerate() {
            let mut outputs = Vec::new();
            let config = self.node.config.clone();
            let shard = Shard::start(config, ShardId(number as u16), recovered, self.rng.draw(), now, &mut outputs);
            self.node.shards.push(Slot::new(shard));
            started.push(outputs);
        }
        for (number, outputs) in started.into_iter().enumerate() {
            self.carry_out(number, outputs);
            self.plan_round(number);
        }
        self.plan_fault_by_steps();
    }

    /// The machine's wall clock jumps: it is so far ahead of the true time now. Soon after its start a process may take it as
    /// it is.
    pub(super) fn set_clock(&mut self, ahead_ms: i64) {
        self.node.wall_jump_ms = ahead_ms;
        if self.node.ready_at.is_none_or(|ready| self.now < ready + CLOCK_TAKEN_WITHIN) {
            let wall_ms = self.node.clock(self.now).wall.0;
            self.saw(What::ClockTaken { wall_ms });
        }
    }

    /// The process dies; with its machine, if that loses its power.
    pub(super) fn crash(&mut self, with_power: bool) {
        self.faults.count(if with_power { "power losses" } else { "kills" });
        self.tear_what_is_under_way();
        if with_power {
            self.disk.power_loss()
        } else {
            self.disk.crash()
        }
        self.saw(if with_power { What::PowerLost } else { What::Crashed });
        if with_power {
            self.board.power_lost();
        }
        let (what, process) = (if with_power { "POWER LOSS" } else { "KILL" }, self.node.life.process);
        self.trace.step(self.now, Who::World, what, &[], format_args!("of process {process}"));
        self.end_process(with_power);
        let down = self.rng.magnitude(MS..=2 * SECOND);
        self.queue.push(self.now + down, Happening::NodeBegins);
    }

    /// No process runs any more. Peers learn of it soon, or after a power loss maybe only by silence.
    fn end_process(&mut self, in_silence: bool) {
        self.node.state = State::Down;
        self.node.ready_at = None;
        self.node.shards.clear();
        self.steps_to_fault = None;
        self.node.life.power += u32::from(in_silence);
        let links: Vec<_> =
            self.links.iter().filter(|(_, link)| !link.node_is_gone && link.process > 0).map(|(n, _)| *n).collect();
        for number in links {
            let is_told = !in_silence || self.rng.coin();
            let Some(link) = self.links.get_mut(&number) else { continue };
            link.node_is_gone = true;
            link.to_node.die();
            if is_told {
                let at = link.to_client.end(self.now, &mut self.rng);
                self.queue.push(at, Happening::Arrives { link: number, toward: super::queue::Toward::Client });
            }
            self.forget_if_gone(number);
        }
    }

    /// The node is asked to stop in order.
    pub(super) fn stop(&mut self) {
        if !matches!(self.node.state, State::Running) {
            return;
        }
        self.node.state = State::Stopping;
        (0..self.node.shards.len()).for_each(|shard| self.give(shard, Input::Stop));
        let at = self.now + self.node.config.limits.drain_ms * MS + STOP_SLACK;
        self.queue.push(at, Happening::StopIsOverdue { process: self.node.life.process });
    }

    pub(super) fn shard_has_stopped(&mut self, shard: usize) {
        self.node.shards[shard].is_stopped = true;
        if !self.node.shards.iter().all(|slot| slot.is_stopped) {
            return;
        }
        let process = self.node.life.process;
        self.trace.step(self.now, Who::World, "STOPPED", &[], format_args!("process {process}, in order"));
        self.end_process(false);
        if self.stage == Stage::Stirring && self.next_crash_is_power_loss() {
            self.lose_power();
        }
        let down = self.rng.magnitude(MS..=2 * SECOND);
        self.queue.push(self.now + down, Happening::NodeBegins);
    }

    pub(super) fn stop_is_overdue(&mut self) {
        let late: Vec<_> = (0..self.node.shards.len()).filter(|shard| !self.node.shards[*shard].is_stopped).collect();
        self.report("an_orderly_stop_ends_in_time", format!("shards {late:?} have not stopped"));
    }

    pub(super) fn shard_is_ready(&mut self, shard: usize) {
        self.node.shards[shard].is_ready = true;
        if self.node.is_ready() {
            self.node.ready_at = Some(self.now);
            let process = self.node.life.process;
            self.trace.step(self.now, Who::World, "READY", &[], format_args!("process {process}"));
        }
    }
}
