//! When and how the world is hostile.

use super::World;
use super::healing::Stage;
use super::queue::{Happening, Toward};
use crate::reduction::Source;
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};
use crate::trace::Who;

/// How soon after its storage failed somebody ends the process.
const OPERATOR_DELAY: Time = 3 * SECOND;
/// Syncs that succeed before the one that fails, at most.
const SYNCS_MAX: u64 = 30;

impl World {
    /// The next occasion for a fault of this kind. Gives the fault its own chance, if it is to strike.
    pub(super) fn strikes(&mut self, source: Source) -> Option<Rng> {
        let chance = self.fault_rng.fork();
        let number = self.struck.entry(source).or_default();
        *number += 1;
        self.reduction.keeps((source, *number - 1)).then_some(chance)
    }

    pub(super) fn plan_network_fault(&mut self) {
        if let Some(mean) = self.plan.faults.network_every {
            let at = self.now + self.fault_rng.within(1..=2 * mean);
            self.queue.push(at, Happening::NetworkFault);
        }
    }

    pub(super) fn plan_node_fault(&mut self) {
        if let Some(mean) = self.plan.faults.node_every {
            let at = self.now + self.fault_rng.within(1..=2 * mean);
            self.queue.push(at, Happening::NodeFault);
        }
    }

    /// A connection is cut, deaf or slow, or a client stops reading for a while.
    pub(super) fn network_fault(&mut self) {
        if self.stage != Stage::Stirring {
            return;
        }
        self.plan_network_fault();
        let Some(mut rng) = self.strikes(Source::Link) else { return };
        let links: Vec<_> = self.links.keys().copied().collect();
        if links.is_empty() {
            return;
        }
        let number = *rng.pick(&links);
        let kind = rng.below(6);
        let name = ["cuts", "cuts", "dead links", "deaf links", "link stalls", "client pauses"][kind as usize];
        self.trace.step(self.now, Who::World, "FAULT", &[number, kind], format_args!("{name}: c{number}"));
        self.faults.count(name);
        let (first, second) = (rng.magnitude(MS..=SECOND), rng.magnitude(MS..=SECOND));
        let stall_until = self.now + rng.magnitude(MS..=10 * SECOND);
        let Some(link) = self.links.get_mut(&number) else { return };
        match kind {
            // Cut: both sides learn of it, each in its time.
            0 | 1 => {
                link.to_node.die();
                link.to_client.die();
                self.queue.push(self.now + first, Happening::Notices { link: number, side: Toward::Node });
                self.queue.push(self.now + second, Happening::Notices { link: number, side: Toward::Client });
            }
            // Open and dead: only silence tells, in one direction or in both.
            2 => {
                link.to_node.die();
                link.to_client.die();
            }
            3 => {
                if rng.coin() {
                    link.to_node.die()
                } else {
                    link.to_client.die()
                }
            }
            4 => {
                link.to_node.stall_until(stall_until);
                link.to_client.stall_until(stall_until);
                self.queue.push(stall_until, Happening::Arrives { link: number, toward: Toward::Node });
                self.queue.push(stall_until, Happening::Arrives { link: number, toward: Toward::Client });
            }
            _ => {
                let client = link.client;
                self.pause_client(client);
            }
        }
    }

    pub(super) fn node_fault(&mut self) {
        if self.stage != Stage::Stirring {
            return;
        }
        self.plan_node_fault();
        let Some(mut rng) = self.strikes(Source::Node) else { return };
        if !self.node.is_running() {
            return;
        }
        let faults = &self.plan.faults;
        let parts = [faults.stop_per_mille, faults.write_error_per_mille, faults.sync_error_per_mille];
        let mut draw = rng.below(1000);
        let kind = parts.iter().position(|part| {
            let is_it = draw < *part;
            draw = draw.saturating_sub(*part);
            is_it
        });
        match kind {
            Some(0) => {
                self.faults.count("stops");
                self.stop();
            }
            Some(1) => {
                self.strike("write errors");
                self.disk.fail_next_write();
                self.plan_operator(&mut rng);
            }
            Some(_) => {
                self.strike("sync errors");
                self.disk.fail_sync_after(rng.magnitude(0..=SYNCS_MAX));
                self.plan_operator(&mut rng);
                // What a failed sync left in memory is gone for good with the machine that has it.
                if rng.coin() {
                    let at = self.now + OPERATOR_DELAY + rng.magnitude(MS..=OPERATOR_DELAY);
                    self.queue.push(at, Happening::Crash { with_power: true });
                }
            }
            None => {
                let with_power = rng.per_mille(faults.power_per_mille);
                self.crash(with_power);
            }
        }
    }

    /// A fault is counted and told.
    pub(super) fn strike(&mut self, name: &'static str) {
        self.faults.count(name);
        self.trace.step(self.now, Who::World, "FAULT", &[], format_args!("{name}"));
    }

    /// Somebody sees that the storage failed and ends the process.
    pub(super) fn plan_operator(&mut self, rng: &mut Rng) {
        let at = self.now + rng.magnitude(MS..=OPERATOR_DELAY);
        self.queue.push(at, Happening::NodeIsKilled { process: self.node.life.process });
    }

    /// The process dies, or the machine loses its power with whatever runs on it.
    pub(super) fn machine_fails(&mut self, with_power: bool) {
        if self.stage != Stage::Stirring {
            return;
        }
        match (self.node.is_running(), with_power) {
            (true, _) => self.crash(with_power),
            (false, true) => self.lose_power(),
            (false, false) => {}
        }
    }

    pub(super) fn next_crash_is_power_loss(&mut self) -> bool {
        self.fault_rng.per_mille(self.plan.faults.power_per_mille)
    }

    /// The process that starts now may be one that dies a counted number of steps later: at every step, in the long run.
    pub(super) fn plan_fault_by_steps(&mut self) {
        self.steps_to_fault = None;
        if self.stage == Stage::Stirring
            && self.plan.faults.node_every.is_some()
            && let Some(mut rng) = self.strikes(Source::Steps)
            && rng.per_mille(self.plan.faults.by_steps_per_mille)
        {
            self.steps_to_fault = Some(rng.magnitude(1..=20_000));
        }
    }

    pub(super) fn count_down_to_fault(&mut self) {
        match &mut self.steps_to_fault {
            None => {}
            Some(0) => {
                self.steps_to_fault = None;
                if self.stage == Stage::Stirring && self.node.is_running() {
                    let with_power = self.next_crash_is_power_loss();
                    self.crash(with_power);
                }
            }
            Some(steps) => *steps -= 1,
        }
    }
}
