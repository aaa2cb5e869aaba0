//! A topic that was made is there with its settings, one that was deleted is not, after every crash and power loss; the
//! id of a deleted topic never comes back.

use std::collections::BTreeMap;

use lockgate_wire::TopicId;

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, OperationNo, TopicEvent, TopicState, What};
use crate::time::Time;

struct Operation {
    number: OperationNo,
    to: TopicState,
    done: Option<Time>,
}

#[derive(Default)]
struct Name {
    operations: Vec<Operation>,
    /// The topic that the name stands for, as far as is known.
    topic: Option<TopicId>,
    /// Ids up to here belong to topics that were deleted.
    gone: Option<TopicId>,
}

impl Name {
    fn possible(&self, asked: Time) -> Vec<TopicState> {
        let settled = self.operations.iter().rposition(|op| op.done.is_some_and(|done| done < asked));
        let base = settled.map_or(TopicState::Absent, |at| self.operations[at].to);
        let open =
            self.operations.iter().enumerate().filter(|(at, op)| op.done.is_none() || settled.is_none_or(|s| *at > s));
        open.map(|(_, op)| op.to).chain([base]).collect()
    }

    fn meet(&mut self, topic: Option<TopicId>) -> Verdict {
        let Some(topic) = topic else { return Ok(()) };
        if self.gone.is_some_and(|gone| topic <= gone) {
            return Err(format!("topic {topic} is back after its deletion"));
        }
        if self.topic.is_some_and(|known| topic < known) {
            return Err(format!("topic {topic} stands where the younger {:?} stood", self.topic));
        }
        self.topic = Some(topic);
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct TopicOperationsPersist {
    names: BTreeMap<String, Name>,
}

impl Invariant for TopicOperationsPersist {
    fn name(&self) -> &'static str {
        "topic_operations_persist"
    }

    fn observe(&mut self, event: &Event, _facts: &Facts) -> Verdict {
        let What::Topic { name: text, what } = &event.what else { return Ok(()) };
        let name = self.names.entry(text.clone()).or_default();
        match *what {
            TopicEvent::Sent { operation, to } => name.operations.push(Operation { number: operation, to, done: None }),
            TopicEvent::Done { operation, topic } => {
                name.meet(topic).map_err(|what| format!("{text}: {what}"))?;
                if let Some(op) = name.operations.iter_mut().find(|op| op.number == operation) {
                    op.done = Some(event.at);
                    if op.to == TopicState::Absent {
                        name.gone = name.topic.take().or(name.gone);
                    }
                }
            }
            TopicEvent::Refused { operation } => name.operations.retain(|op| op.number != operation),
            TopicEvent::Seen { asked, state, topic } => {
                let possible = name.possible(asked);
                if !possible.contains(&state) {
                    return Err(format!("{text} is {state:?}, not one of {possible:?}"));
                }
                name.meet(topic).map_err(|what| format!("{text}: {what}"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lockgate_wire::TopicId;

    use super::super::testing::*;
    use super::TopicOperationsPersist as This;
    use crate::history::{Event, TopicEvent, TopicState, What};

    const SMALL: TopicState = TopicState::Present { max_batch_bytes: 1 };
    const LARGE: TopicState = TopicState::Present { max_batch_bytes: 2 };

    fn topic(time: u64, what: TopicEvent) -> Event {
        at(time, plain(What::Topic { name: "a".into(), what }))
    }
    fn sent(time: u64, operation: u32, to: TopicState) -> Event {
        topic(time, TopicEvent::Sent { operation, to })
    }
    fn done(time: u64, operation: u32, id: Option<u64>) -> Event {
        topic(time, TopicEvent::Done { operation, topic: id.map(TopicId) })
    }
    fn seen(time: u64, state: TopicState, id: Option<u64>) -> Event {
        topic(time, TopicEvent::Seen { asked: time - 1, state, topic: id.map(TopicId) })
    }

    #[test]
    fn what_was_answered_stays_and_what_is_unknown_may_be() {
        good::<This>([
            sent(1, 1, SMALL),
            done(2, 1, Some(7)),
            seen(5, SMALL, Some(7)),
            sent(6, 2, LARGE),
            seen(9, SMALL, Some(7)),
            seen(12, LARGE, Some(7)),
        ]);
    }

    #[test]
    fn a_lost_creation_setting_or_deletion_is_found() {
        bad::<This>([sent(1, 1, SMALL), done(2, 1, Some(7)), seen(5, TopicState::Absent, None)]);
        bad::<This>([
            sent(1, 1, SMALL),
            done(2, 1, Some(7)),
            sent(3, 2, LARGE),
            done(4, 2, None),
            seen(9, SMALL, Some(7)),
        ]);
        bad::<This>([
            sent(1, 1, SMALL),
            done(2, 1, Some(7)),
            sent(3, 2, TopicState::Absent),
            done(4, 2, None),
            seen(9, SMALL, Some(7)),
        ]);
    }

    #[test]
    fn the_id_of_a_deleted_topic_never_comes_back() {
        let remade = |id| {
            [
                sent(1, 1, SMALL),
                done(2, 1, Some(7)),
                sent(3, 2, TopicState::Absent),
                done(4, 2, None),
                sent(5, 3, SMALL),
                done(6, 3, Some(id)),
            ]
        };
        good::<This>(remade(8));
        bad::<This>(remade(7));
    }
}
