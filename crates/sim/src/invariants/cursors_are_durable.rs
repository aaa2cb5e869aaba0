//! A cursor stands where its last answered commit put it, or where one that is still unknown may have put it; it never
//! goes back without force. A power loss may take commits only of a topic that syncs later.

use std::collections::BTreeMap;

use super::{Invariant, Verdict};
use crate::history::{CursorEvent, Event, Facts, OperationNo, What};
use crate::time::Time;

#[derive(Clone, Copy)]
struct Operation {
    number: OperationNo,
    to: Option<u64>,
    force: bool,
    /// When its answer came.
    done: Option<Time>,
    era: u32,
}

impl Operation {
    /// It can put a cursor lower than it stands.
    fn lowers(&self) -> bool {
        self.force || self.to.is_none()
    }
}

/// The operations of one cursor that may still matter, in the order in which they were sent.
#[derive(Default)]
struct Cursor {
    operations: Vec<Operation>,
}

impl Cursor {
    /// Where the cursor may stand for a question asked then.
    fn possible(&self, asked: Time, era: u32) -> Vec<Option<u64>> {
        let settled = self.operations.iter().rposition(|op| op.done.is_some_and(|done| done < asked));
        let base = settled.map(|at| self.operations[at]);
        if base.is_some_and(|op| op.era < era) || (base.is_none() && era > 0) {
            return self.operations.iter().map(|op| op.to).chain([None]).collect();
        }
        let open = |at: usize| self.operations[at].done.is_none() || settled.is_none_or(|settled| at > settled);
        let can_fall = (0..self.operations.len()).any(|at| open(at) && self.operations[at].lowers());
        let position = base.and_then(|op| op.to);
        let others = (0..self.operations.len()).filter(|at| open(*at)).map(|at| self.operations[at].to);
        let others = others.filter(|to| can_fall || *to >= position);
        others.chain([position]).collect()
    }

    /// An answer that shows an open operation's position proves that it is done.
    fn settle(&mut self, at: Time, position: Option<u64>) {
        let settled = self.operations.iter().rposition(|op| op.done.is_some()).map_or(0, |at| at + 1);
        if let Some(op) = self.operations[settled..].iter_mut().rfind(|op| op.to == position) {
            op.done = Some(at);
        }
    }
}

#[derive(Default)]
pub(super) struct CursorsAreDurable {
    cursors: BTreeMap<u32, Cursor>,
    partitions: BTreeMap<u32, lockgate_wire::PartitionId>,
}

impl Invariant for CursorsAreDurable {
    fn name(&self) -> &'static str {
        "cursors_are_durable"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        let What::Cursor { cursor: number, what } = &event.what else { return Ok(()) };
        if let CursorEvent::Sent { partition, .. } = what {
            self.partitions.insert(*number, *partition);
        }
        let cursor = self.cursors.entry(*number).or_default();
        let Some(partition) = self.partitions.get(number) else {
            return match what {
                CursorEvent::Seen { position: Some(at), .. } => {
                    Err(format!("cursor {number} stands at {at} and was never committed"))
                }
                _ => Ok(()),
            };
        };
        let era = facts.era(*partition, event.life);
        match *what {
            CursorEvent::Sent { operation, to, force, .. } => {
                cursor.operations.push(Operation { number: operation, to, force, done: None, era });
            }
            CursorEvent::Done { operation } => {
                if let Some(op) = cursor.operations.iter_mut().find(|op| op.number == operation) {
                    op.done.get_or_insert(event.at);
                }
            }
            CursorEvent::Refused { operation, backwards } => {
                let refused = cursor.operations.iter().position(|op| op.number == operation);
                let to = refused.map(|at| cursor.operations.remove(at)).and_then(|op| op.to);
                if backwards && !cursor.possible(event.at, era).iter().any(|position| *position > to) {
                    return Err(format!(
                        "a commit of cursor {number} to {to:?} was refused as a step back, which it was not"
                    ));
                }
            }
            CursorEvent::Seen { asked, position } => {
                let possible = cursor.possible(asked, era);
                if !possible.contains(&position) {
                    return Err(format!(
                        "cursor {number} of partition {partition} stands at {position:?}, not at one of {possible:?}"
                    ));
                }
                cursor.settle(event.at, position);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lockgate_wire::PartitionId;

    use super::super::testing::*;
    use super::CursorsAreDurable as This;
    use crate::history::{CursorEvent, Event, What};

    fn cursor(time: u64, what: CursorEvent) -> Event {
        at(time, plain(What::Cursor { cursor: 1, what }))
    }
    fn commit(time: u64, operation: u32, to: u64, force: bool) -> Event {
        let partition = PartitionId { topic: TOPIC, partition: 0 };
        cursor(time, CursorEvent::Sent { operation, partition, to: Some(to), force })
    }
    fn done(time: u64, operation: u32) -> Event {
        cursor(time, CursorEvent::Done { operation })
    }
    fn seen(time: u64, position: u64) -> Event {
        cursor(time, CursorEvent::Seen { asked: time - 1, position: Some(position) })
    }

    #[test]
    fn an_answered_commit_is_seen_and_an_unknown_one_may_be() {
        good::<This>([commit(1, 1, 5, false), done(2, 1), seen(9, 5)]);
        good::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 8, false), seen(9, 5)]);
        good::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 8, false), seen(9, 8), seen(20, 8)]);
    }

    #[test]
    fn a_lost_or_invented_commit_is_found() {
        bad::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 8, false), done(4, 2), seen(9, 5)]);
        bad::<This>([commit(1, 1, 5, false), seen(9, 6)]);
        bad::<This>([commit(1, 1, 5, false), done(2, 1), cursor(9, CursorEvent::Seen { asked: 8, position: None })]);
    }

    #[test]
    fn going_back_takes_force() {
        good::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 3, true), seen(9, 3)]);
        bad::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 3, false), seen(9, 3)]);
        bad::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 8, false), seen(9, 8), seen(20, 5)]);
    }

    #[test]
    fn a_refusal_for_going_back_must_be_one() {
        let refused = |operation| cursor(4, CursorEvent::Refused { operation, backwards: true });
        good::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 3, false), refused(2)]);
        bad::<This>([commit(1, 1, 5, false), done(2, 1), commit(3, 2, 8, false), refused(2)]);
    }

    #[test]
    fn a_power_loss_takes_commits_only_where_that_is_allowed() {
        let lost = [
            commit(1, 1, 5, false),
            done(2, 1),
            commit(3, 2, 8, false),
            done(4, 2),
            power_lost(),
            in_power(1, seen(9, 5)),
        ];
        bad::<This>(lost.clone());
        good::<This>([weak_topic()].into_iter().chain(lost));
    }
}
