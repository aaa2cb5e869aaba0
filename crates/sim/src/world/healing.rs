//! After the faults: everything heals and settles within a bound, then everything is read back, the node stops in order
//! and starts again, and everything is read back once more.

use super::World;
use super::queue::Happening;
use crate::history::ClientNo;
use crate::invariants::bounds_hold;
use crate::oracle::audit;
use crate::reduction::Reduction;
use crate::time::{SECOND, Time};
use crate::trace::Who;

/// How long the node may take to be ready and the oracles to have their answers once no fault strikes.
const SETTLE_BOUND: Time = 90 * SECOND;
/// Operations of a seed, at least…
const OPERATIONS_MIN: u64 = 500;
/// …unless they take longer than this.
pub(super) const STIR_MAX: Time = 300 * SECOND;
/// How often it is looked whether a stage is over.
const LOOK_EVERY: Time = SECOND / 2;

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Oracles work, faults strike.
    Stirring,
    /// No new work, no faults; what was begun ends.
    Settling,
    /// Everything is read back.
    Auditing,
    /// The node stops in order and starts again.
    Restarting,
    /// Everything is read back once more.
    AuditingAgain,
    /// Done.
    Over,
}

impl World {
    /// A stage is over, or it is time to look whether it is.
    pub(super) fn phase_ends(&mut self) {
        let is_done = match self.stage {
            Stage::Stirring => self.has_worked_enough(),
            Stage::Settling => {
                let answered = self.clients.iter().all(|client| client.waits_for().is_none());
                self.node.is_ready() && answered && !self.storage_has_failed() && !self.journals_are_at_bound()
            }
            Stage::Auditing | Stage::AuditingAgain => {
                self.clients.last().is_some_and(|auditor| auditor.waits_for().is_none())
                    && self.find_leftover().is_none()
            }
            Stage::Restarting => self.node.is_ready(),
            Stage::Over => return,
        };
        if !is_done {
            if self.stage != Stage::Stirring && self.now > self.stage_began + SETTLE_BOUND {
                return self.report_stuck();
            }
            return self.queue.push(self.now + LOOK_EVERY, Happening::PhaseEnds);
        }
        self.stage = match self.stage {
            Stage::Stirring => Stage::Settling,
            Stage::Settling => Stage::Auditing,
            Stage::Auditing => Stage::Restarting,
            Stage::Restarting => Stage::AuditingAgain,
            Stage::AuditingAgain | Stage::Over => Stage::Over,
        };
        self.trace.step(self.now, Who::World, "STAGE", &[self.stage as u64], format_args!("{:?}", self.stage));
        self.stage_began = self.now;
        match self.stage {
            Stage::Settling => {
                self.stirred = Some(self.now);
                self.end_conditions();
            }
            Stage::Auditing | Stage::AuditingAgain => self.add_auditor(),
            Stage::Restarting => self.stop(),
            _ => {}
        }
        self.queue.push(self.now + LOOK_EVERY, Happening::PhaseEnds);
    }

    /// A hostile world leaves little to be done in its time: then it takes longer.
    fn has_worked_enough(&self) -> bool {
        let is_reduced = self.reduction != Reduction::default();
        is_reduced || self.board.operations >= OPERATIONS_MIN || self.now >= STIR_MAX
    }

    fn add_auditor(&mut self) {
        let number = self.clients.len();
        self.clients.push(audit(number as ClientNo, &self.board, self.rng.fork(), self.now));
        self.client_links.push(None);
        self.client_pauses.push(0);
        self.client_wakes.push(Time::MAX);
        self.plan_wake(number);
    }

    /// Whether a shard waits for somebody to end the process, because its journal failed, or a partition's files when it started.
    fn storage_has_failed(&mut self) -> bool {
        self.node.shards.iter_mut().any(|slot| {
            let metrics = slot.shard.metrics();
            metrics.journal_poisoned + metrics.partitions_unsynced + metrics.partitions_failed > 0
        })
    }

    /// Whether a shard refuses publishes because its journal cannot let go of its files.
    fn journals_are_at_bound(&mut self) -> bool {
        self.node.shards.iter_mut().any(|slot| slot.shard.metrics().journal_at_bound > 0)
    }

    /// What some shard still holds with nothing to do. Connections that died in silence take their time.
    fn find_leftover(&mut self) -> Option<String> {
        let mut verdicts = self.node.shards.iter_mut().map(|slot| bounds_hold::check_drained(&slot.shard.metrics()));
        verdicts.find_map(Result::err)
    }

    fn report_stuck(&mut self) {
        if let Some(text) = self.find_leftover() {
            self.report(bounds_hold::NAME, format!("with nothing to do: {text}"));
        }
        let waiting: Vec<_> = self.clients.iter().filter_map(|client| client.waits_for()).collect();
        let (stage, since, is_ready) = (self.stage, self.stage_began as f64 / 1e9, self.node.is_ready());
        let text = format!("{stage:?} since {since:.1} s, node ready: {is_ready}, {waiting:?}");
        self.report("everything_heals_in_time", text);
    }
}
