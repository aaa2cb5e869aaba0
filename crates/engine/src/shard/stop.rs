//! The orderly stop: refuse what is new, answer what was taken, write down what makes the next start short, end.

use lockgate_storage::journal::JournalWriter;
use lockgate_wire::MonoTime;

use super::Shard;
use crate::output::{Level, Output};
use crate::partition::Partition;

/// How often a stop looks whether it can go on.
const LOOK_EVERY_MS: u64 = 5;

/// A stop under way.
pub(super) struct Stopping {
    deadline: MonoTime,
    next_look: MonoTime,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Requests are answered, segments and checkpoints are written.
    Draining,
    /// The journals' end marks are written.
    Ending,
    /// Nothing is left.
    Stopped,
}

impl Stopping {
    pub(super) fn deadline(&self) -> MonoTime {
        match self.step {
            Step::Stopped => MonoTime(u64::MAX),
            _ => self.next_look,
        }
    }
}

/// Whether a journal got anything in this life. One that did not ends as it ended the last time.
fn is_used(journal: &JournalWriter) -> bool {
    journal.counters().files > 0 || journal.pending_bytes() > 0
}

impl Shard {
    pub(super) fn stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let now = self.core.now.mono;
        let deadline = now.plus_ms(self.core.node.limits.drain_ms);
        self.stopping = Some(Stopping { deadline, next_look: now, step: Step::Draining });
        self.sessions.go_away(&mut self.core);
        self.dirty.extend(self.partitions.keys());
    }

    pub(super) fn go_on_stopping(&mut self) {
        let Some(stopping) = &mut self.stopping else { return };
        let now = self.core.now.mono;
        stopping.next_look = now.plus_ms(LOOK_EVERY_MS);
        let (step, late) = (stopping.step, stopping.deadline <= now);
        let next = match step {
            Step::Draining => {
                if !self.buffered_is_synced() {
                    self.sync_buffered();
                }
                self.dirty.extend(self.partitions.iter().filter(|(_, p)| !p.is_settled()).map(|(id, _)| *id));
                if !late && !self.is_settled() {
                    return;
                }
                if late {
                    self.core.log(Level::Warn, "the drain took too long; what was not answered is cut off");
                }
                // Whatever is asked from now on, by a shard that is not as far, is refused before it reaches a journal.
                self.partitions.values_mut().for_each(Partition::shut);
                self.core.host.poison();
                self.advance_groups();
                self.pass_on_replies();
                self.sessions.end_all(&mut self.core);
                for journal in [&mut self.core.journals.synced, &mut self.core.journals.buffered] {
                    if is_used(journal) {
                        journal.end();
                    }
                }
                Step::Ending
            }
            Step::Ending => {
                let journals = &self.core.journals;
                let ended = [&journals.synced, &journals.buffered]
                    .iter()
                    .all(|j| j.is_ended() || !is_used(j) || j.poison().is_some());
                if !ended && !late {
                    return;
                }
                self.core.out.push(Output::Stopped);
                Step::Stopped
            }
            Step::Stopped => return,
        };
        if let Some(stopping) = &mut self.stopping {
            stopping.step = next;
        }
        if next == Step::Ending {
            self.start_journal_writes();
        }
    }

    fn is_settled(&self) -> bool {
        let controller = self.controller.as_ref().is_none_or(crate::controller::Controller::is_settled);
        let partitions = self.partitions.values().all(Partition::is_settled);
        let journals = self.core.writing == [false; 2] && self.buffered_is_synced();
        controller && partitions && journals && self.sessions.are_settled() && self.core.files.is_empty()
    }
}
