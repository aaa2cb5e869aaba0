//! The world around one node: its clock, its disk, its network and its clients, moved by one queue of happenings.
//!
//! A run has a phase in which oracles work while faults strike, a phase in which everything must heal and settle within
//! a bound, and an audit that reads everything back, twice: before and after an orderly restart.

mod clients;
mod conditions;
mod counts;
mod faults;
mod healing;
mod life;
mod link;
mod moving;
mod network;
mod outputs;
mod plan;
mod queue;
mod shards;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use lockgate_storage::disk::Path;

use crate::disk::SimDisk;
use crate::history::{Event, WORLD, What};
use crate::invariants::{Judge, NOTHING_PANICS, Violation};
use crate::oracle::{Actor, Board, Phase, cast};
use crate::reduction::{Reduction, Source};
use crate::rng::Rng;
use crate::telling;
use crate::time::{MS, SECOND, Time};
use crate::trace::{Trace, Who};

use conditions::{CONDITIONS, Condition, Slow};
pub use counts::Counts;
use healing::{STIR_MAX, Stage};
use life::Node;
use link::Link;
use plan::Plan;
use queue::{Happening, LinkNo, Queue};

/// More than any seed takes that moves on: a run that needs more goes in circles.
const HAPPENINGS_MAX: u64 = 20_000_000;
/// Wall clock at the beginning of every run.
const WALL_START_MS: i64 = 1_700_000_000_000;

/// What came of a seed.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was broken, if anything was.
    pub violation: Option<Violation>,
    /// Equal for equal runs.
    pub hash: u64,
    /// Simulated time.
    pub time: Time,
    /// Requests of the oracles.
    pub operations: u64,
    /// Batches acknowledged.
    pub acknowledged: u64,
    /// Inputs and outputs of the shards.
    pub steps: u64,
    /// Processes that began.
    pub processes: u32,
    /// Faults that struck, by kind.
    pub faults: Counts,
    /// Oracles, without those that audit.
    pub clients: u32,
    /// How long they worked, or were to work.
    pub stir: Time,
    /// Occasions for a fault that there were, taken or not.
    pub struck: BTreeMap<Source, u32>,
}

/// Runs a seed; `prints`: every step as a line on the standard output.
pub fn run(seed: u64, prints: bool) -> Outcome {
    run_reduced(seed, &Reduction::default(), prints)
}

/// Runs what a reduction leaves of a seed.
pub fn run_reduced(seed: u64, reduction: &Reduction, prints: bool) -> Outcome {
    to_the_end(World::new(seed, reduction.clone(), prints))
}

fn to_the_end(mut world: World) -> Outcome {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| go(&mut world))) {
        let text = panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|text| (*text).into()));
        world.report(NOTHING_PANICS, text.unwrap_or_default());
    }
    world.outcome()
}

fn go(world: &mut World) {
    world.begin();
    while world.judge.violation().is_none() && world.stage != Stage::Over {
        let Some((at, happening)) = world.queue.pop() else {
            world.report("the_run_moves_on", "nothing is left to happen".to_owned());
            break;
        };
        world.now = at;
        world.happened += 1;
        if world.happened > HAPPENINGS_MAX {
            world.report("the_run_moves_on", format!("more than {HAPPENINGS_MAX} happenings"));
        }
        world.happen(happening);
        world.judge_events();
    }
    if world.judge.violation().is_none() {
        world.judge.finish(world.now);
    }
    if let Some(violation) = world.judge.violation() {
        world.trace.step(world.now, Who::World, "BROKEN", &[], format_args!("{violation}"));
    }
}

struct World {
    seed: u64,
    reduction: Reduction,
    now: Time,
    happened: u64,
    queue: Queue,
    trace: Trace,
    plan: Plan,
    disk: SimDisk,
    node: Node,
    links: BTreeMap<LinkNo, Link>,
    next_link: LinkNo,
    clients: Vec<Box<dyn Actor>>,
    /// Clients of the beginning; auditors come after them.
    cast: u32,
    client_links: Vec<Option<LinkNo>>,
    /// Until then a client does not read.
    client_pauses: Vec<Time>,
    /// The wake-up that is planned for a client.
    client_wakes: Vec<Time>,
    board: Board,
    events: Vec<Event>,
    judge: Judge,
    stage: Stage,
    stage_began: Time,
    /// When the work ended, once it has.
    stirred: Option<Time>,
    /// Files that are left of those that a move made for a journal, by directory: several shards' records may be more than
    /// one shard's bound.
    moved_files: BTreeMap<Path, u64>,
    /// Steps until the node fails, while that is the plan.
    steps_to_fault: Option<u64>,
    /// Of all that is not drawn by somebody of its own.
    rng: Rng,
    /// Of the faults: when and how they strike depends on nothing else.
    fault_rng: Rng,
    /// What is not as it should be at the moment.
    conditions: BTreeSet<Condition>,
    slow: Option<Slow>,
    faults: Counts,
    struck: BTreeMap<Source, u32>,
}

impl World {
    fn new(seed: u64, reduction: Reduction, prints: bool) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(seed, &mut rng.fork());
        let disk = SimDisk::new(rng.fork());
        let clients = cast(plan.topics.clone(), &mut rng.fork());
        let count = clients.len();
        Self {
            seed,
            reduction,
            now: 0,
            happened: 0,
            queue: Queue::default(),
            trace: Trace::new(prints),
            node: Node::new(plan.node.clone()),
            plan,
            disk,
            links: BTreeMap::new(),
            next_link: 1,
            clients,
            cast: count as u32,
            client_links: vec![None; count],
            client_pauses: vec![0; count],
            client_wakes: vec![Time::MAX; count],
            board: Board::default(),
            events: Vec::new(),
            judge: Judge::default(),
            stage: Stage::Stirring,
            stage_began: 0,
            stirred: None,
            moved_files: BTreeMap::new(),
            steps_to_fault: None,
            fault_rng: rng.fork(),
            rng,
            conditions: BTreeSet::new(),
            slow: None,
            faults: Counts::default(),
            struck: BTreeMap::new(),
        }
    }

    fn begin(&mut self) {
        let (node, topics) = (self.plan.node.clone(), self.plan.topics.clone());
        let faults = self.plan.faults.clone();
        let disk = &self.plan.disk;
        self.trace.step(0, Who::World, "SEED", &[self.seed], format_args!("{}: {faults:?} {disk:?}", self.seed));
        self.trace.step(0, Who::World, "NODE", &[], format_args!("{node:?}"));
        topics.iter().for_each(|topic| self.trace.step(0, Who::World, "TOPIC", &[], format_args!("{topic:?}")));
        self.queue.push(0, Happening::NodeBegins);
        for client in 0..self.clients.len() {
            if self.reduction.has(Source::Client(client as u32)) {
                self.plan_wake(client);
            }
        }
        self.plan_network_fault();
        self.plan_node_fault();
        CONDITIONS.into_iter().for_each(|condition| self.plan_condition(condition));
        self.queue.push(self.stir(), Happening::PhaseEnds);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ClientWakes { client } => self.client_wakes(client),
            Happening::Connects { link } => self.connects(link),
            Happening::Connected { link } => self.connected(link),
            Happening::Arrives { link, toward } => self.arrives(link, toward),
            Happening::Notices { link, side } => self.notices(link, side),
            Happening::FlushEnds { link } => self.flush_ends(link),
            Happening::Round { process, shard } => self.if_alive(process, |world| world.round(shard)),
            Happening::Tick { process, shard } => self.if_alive(process, |world| world.tick(shard)),
            Happening::Mesh { process, from, to } => self.if_alive(process, |world| world.mesh_arrives(from, to)),
            Happening::View { process, to } => self.if_alive(process, |world| world.view_arrives(to)),
            Happening::JournalEnds { process, shard, journal } => {
                self.if_alive(process, |w| w.journal_ends(shard, journal))
            }
            Happening::FileEnds { process, shard, lane } => {
                self.if_alive(process, |world| world.file_ends(shard, lane))
            }
            Happening::ReadEnds { process, shard, token } => {
                self.if_alive(process, |world| world.read_ends(shard, token))
            }
            Happening::NodeBegins => self.node_begins(),
            Happening::NodeRecovered { process } => self.if_alive(process, Self::node_recovered),
            Happening::NodeIsKilled { process } => self.if_alive(process, |world| world.crash(false)),
            Happening::Crash { with_power } => self.machine_fails(with_power),
            Happening::ConditionBegins { condition } => self.condition_begins(condition),
            Happening::ConditionEnds { condition } => self.condition_ends(condition),
            Happening::StopIsOverdue { process } => self.if_alive(process, Self::stop_is_overdue),
            Happening::NetworkFault => self.network_fault(),
            Happening::NodeFault => self.node_fault(),
            // How often it is looked for an end is no step of the run.
            Happening::PhaseEnds => return self.phase_ends(),
        }
        self.count_down_to_fault();
    }

    /// What belongs to a process that has ended no longer happens.
    fn if_alive(&mut self, process: u32, happen: impl FnOnce(&mut Self)) {
        if self.node.is_running() && self.node.life.process == process {
            happen(self);
        }
    }

    fn judge_events(&mut self) {
        for event in std::mem::take(&mut self.events) {
            let Event { at, client, .. } = &event;
            let (who, text) = (Who::Client(*client), telling::Event(&event.what));
            self.trace.step(*at, who, "", &[u64::from(*client)], format_args!("{text}"));
            self.judge.observe(&event);
        }
    }

    fn saw(&mut self, what: What) {
        self.events.push(Event { at: self.now, client: WORLD, life: self.node.life, what });
    }

    fn report(&mut self, invariant: &'static str, text: String) {
        self.judge.report(invariant, self.now, text);
    }

    /// The clients' wall clock; the node's own may differ.
    fn wall_ms(&self) -> i64 {
        WALL_START_MS + (self.now / (SECOND / 1000)) as i64
    }

    /// How long oracles work while faults strike; longer if too little is done by then.
    fn stir(&self) -> Time {
        self.reduction.stir_ms.map_or(plan::STIR, |stir| (stir * MS).min(STIR_MAX))
    }

    fn oracle_phase(&self, client: usize) -> Phase {
        let second = (self.now / SECOND) as u32;
        let works = self.stage == Stage::Stirring && self.reduction.keeps((Source::Client(client as u32), second));
        if works { Phase::Stir } else { Phase::Settle }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            seed: self.seed,
            violation: self.judge.violation().cloned(),
            hash: self.trace.hash(),
            time: self.now,
            operations: self.board.operations,
            acknowledged: self.board.acknowledged,
            steps: self.trace.steps(),
            processes: self.node.life.process,
            faults: self.faults.clone(),
            clients: self.cast,
            stir: self.stirred.unwrap_or(self.stir().max(self.now)),
            struck: self.struck.clone(),
        }
    }
}
