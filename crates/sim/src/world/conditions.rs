//! What begins, lasts for a while and ends by itself. The end of the faults ends all of it.

use super::World;
use super::healing::Stage;
use super::queue::Happening;
use crate::history::What;
use crate::oracle::ClientInput;
use crate::reduction::Source;
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};
use crate::trace::Who;

/// How long a condition lasts at most.
const LASTS_MAX: Time = 30 * SECOND;
/// How long producers are in a hurry at most.
const RUSH_MAX: Time = SECOND;
/// Bytes that a full disk has left at most.
const LEFT_MAX: u64 = 4 << 20;
/// How often a process dies at most while the disk is full.
const CRASHES_MAX: u64 = 2;
/// How far a wall clock jumps at most.
const JUMP_MAX_MS: u64 = 6 * 3_600_000;
/// How many times as long a slow disk takes.
const SLOWER_BY: u64 = 100;

/// A disk that is slow at the moment.
#[derive(Clone, Copy)]
pub(super) struct Slow {
    /// It is as fast as ever from then on.
    until: Time,
    /// Of a thousand operations, how many are done only then.
    hangs_per_mille: u64,
}

/// A condition of the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Condition {
    /// Other people's files fill the disk.
    FullDisk,
    /// The disk takes a hundred times as long as else, and some operations for as long as that lasts.
    SlowDisk,
    /// The machine's wall clock is hours ahead or behind.
    WrongClock,
    /// No segment and no checkpoint can be written, journals can. Ends with the process.
    RefusedFiles,
    /// Producers send as fast as they can, without waiting for answers.
    Rush,
}

/// All of them.
pub(super) const CONDITIONS: [Condition; 5] =
    [Condition::FullDisk, Condition::SlowDisk, Condition::WrongClock, Condition::RefusedFiles, Condition::Rush];

impl Condition {
    /// What a reduction calls it.
    fn source(self) -> Source {
        match self {
            Self::FullDisk => Source::FullDisk,
            Self::SlowDisk => Source::SlowDisk,
            Self::WrongClock => Source::WrongClock,
            Self::RefusedFiles => Source::RefusedFiles,
            Self::Rush => Source::Rush,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::FullDisk => "full disks",
            Self::SlowDisk => "slow disks",
            Self::WrongClock => "clock jumps",
            Self::RefusedFiles => "refused files",
            Self::Rush => "rushes",
        }
    }
}

impl World {
    pub(super) fn plan_condition(&mut self, condition: Condition) {
        if let Some(mean) = self.plan.faults.conditions_every.get(&condition).copied() {
            let at = self.now + self.fault_rng.within(1..=2 * mean);
            self.queue.push(at, Happening::ConditionBegins { condition });
        }
    }

    pub(super) fn condition_begins(&mut self, condition: Condition) {
        if self.stage != Stage::Stirring {
            return;
        }
        self.plan_condition(condition);
        let Some(mut rng) = self.strikes(condition.source()) else { return };
        if self.conditions.contains(&condition) {
            return;
        }
        self.conditions.insert(condition);
        self.strike(condition.name());
        let lasts_max = if condition == Condition::Rush { RUSH_MAX } else { LASTS_MAX };
        let lasts = rng.magnitude(200 * MS..=lasts_max);
        self.queue.push(self.now + lasts, Happening::ConditionEnds { condition });
        match condition {
            Condition::FullDisk => self.fill_disk(lasts, &mut rng),
            Condition::SlowDisk => self.slow_disk_down(lasts, &mut rng),
            Condition::RefusedFiles => self.disk.refuse_files(self.node.is_running()),
            Condition::Rush => {
                // Whoever stays away is not called.
                let there = (0..self.cast).filter(|client| self.reduction.has(Source::Client(*client)));
                let there: Vec<u32> = there.collect();
                there.into_iter().for_each(|client| self.tell_client(client as usize, ClientInput::Hurry));
            }
            Condition::WrongClock => {
                let jump = rng.magnitude(SECOND / MS..=JUMP_MAX_MS) as i64;
                self.set_clock(if rng.coin() { jump } else { -jump });
            }
        }
    }

    fn fill_disk(&mut self, lasts: Time, rng: &mut Rng) {
        self.disk.fill(if rng.coin() { 0 } else { rng.magnitude(1..=LEFT_MAX) });
        for _ in 0..rng.within(0..=CRASHES_MAX) {
            let with_power = rng.per_mille(self.plan.faults.power_per_mille);
            self.queue.push(self.now + rng.within(1..=lasts), Happening::Crash { with_power });
        }
    }

    fn slow_disk_down(&mut self, lasts: Time, rng: &mut Rng) {
        let until = self.now + lasts;
        self.slow = Some(Slow { until, hangs_per_mille: *rng.pick(&[0, 20, 200]) });
        self.saw(What::DiskIsSlow { until });
    }

    /// How long an operation of the disk takes that usually takes so long. What is slow now is done when that is over, at
    /// the latest, and takes its usual time from then on.
    pub(super) fn slowed(&mut self, usual: Time) -> Time {
        let Some(slow) = self.slow else { return usual };
        let left = slow.until.saturating_sub(self.now);
        let hangs = self.rng.per_mille(slow.hangs_per_mille);
        usual + if hangs { left } else { (usual * SLOWER_BY).min(left) }
    }

    pub(super) fn condition_ends(&mut self, condition: Condition) {
        if !self.conditions.remove(&condition) {
            return;
        }
        self.trace.step(self.now, Who::World, "ENDS", &[], format_args!("{}", condition.name()));
        match condition {
            Condition::FullDisk => self.disk.make_room(),
            Condition::SlowDisk => self.slow = None,
            Condition::WrongClock => self.set_clock(0),
            Condition::RefusedFiles => self.disk.refuse_files(false),
            Condition::Rush => {}
        }
    }

    /// Whether producers are to send as much as they can.
    pub(super) fn is_rush(&self) -> bool {
        self.conditions.contains(&Condition::Rush)
    }

    /// Whether nothing but journals can be written at the moment.
    pub(super) fn refuses_files(&self) -> bool {
        self.conditions.contains(&Condition::RefusedFiles)
    }

    /// The faults are over.
    pub(super) fn end_conditions(&mut self) {
        CONDITIONS.into_iter().for_each(|condition| self.condition_ends(condition));
    }
}
