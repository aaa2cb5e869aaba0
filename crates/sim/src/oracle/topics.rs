//! Owns a few topic names: makes the topics, changes a setting, deletes them, makes them again, and looks at what is there.

use std::collections::BTreeMap;

use lockgate_wire::{Error, ErrorKind, Frame, TopicId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::{full_name, passes, see_described};
use crate::history::{OperationNo, TopicEvent, TopicState, What};
use crate::rng::Rng;
use crate::time::{SECOND, Time};

#[derive(Clone, Copy, Debug)]
enum Asked {
    Create { name: usize, operation: OperationNo },
    Alter { name: usize, operation: OperationNo },
    Delete { name: usize, operation: OperationNo },
    Describe { name: usize, at: Time },
    List { at: Time },
}

pub(super) struct TopicKeeper {
    names: Vec<String>,
    asked: Option<Asked>,
    pace: Time,
}

impl TopicKeeper {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let names = (0..rng.within(1..=3)).map(|number| format!("passing-{number}")).collect();
        Self { names, asked: None, pace: rng.magnitude(SECOND / 2..=8 * SECOND) }
    }

    fn sent(&self, io: &mut Io<'_>, name: usize, to: TopicState) -> OperationNo {
        let operation = io.board.new_operation();
        io.saw(What::Topic { name: full_name(&self.names[name]), what: TopicEvent::Sent { operation, to } });
        operation
    }

    fn ask(&mut self, io: &mut Io<'_>) {
        let name = io.rng.below(self.names.len() as u64) as usize;
        let text = self.names[name].clone();
        let max_batch_bytes = 1024 * io.rng.within(1..=8) as u32;
        let settings = BTreeMap::from([("max_batch_bytes".to_owned(), max_batch_bytes.to_string())]);
        let to = TopicState::Present { max_batch_bytes };
        self.asked = Some(match io.rng.below(10) {
            0..=2 => {
                let operation = self.sent(io, name, to);
                let partitions = io.rng.within(1..=5) as u32;
                let kind = proto::TopicKind::Stream as i32;
                io.ask(&proto::CreateTopic { name: text, kind, partitions, replication_factor: 0, settings });
                Asked::Create { name, operation }
            }
            3 | 4 => {
                let operation = self.sent(io, name, to);
                io.ask(&proto::AlterTopic { name: text, set: settings, if_version: None });
                Asked::Alter { name, operation }
            }
            5 => {
                let operation = self.sent(io, name, TopicState::Absent);
                io.ask(&proto::DeleteTopic { name: text });
                Asked::Delete { name, operation }
            }
            6..=8 => {
                io.ask(&proto::DescribeTopic { name: text });
                Asked::Describe { name, at: io.now }
            }
            _ => {
                io.ask(&proto::ListTopics { after: String::new(), limit: 0 });
                Asked::List { at: io.now }
            }
        });
    }

    fn done(&self, io: &mut Io<'_>, name: usize, operation: OperationNo, topic: Option<TopicId>) {
        io.saw(What::Topic { name: full_name(&self.names[name]), what: TopicEvent::Done { operation, topic } });
    }

    /// A change was refused, rightly if the topic is there or is not, or the broker is in trouble.
    fn refused(&self, io: &mut Io<'_>, name: usize, operation: OperationNo, error: &Error) {
        let text = full_name(&self.names[name]);
        if error.advice() != proto::Advice::Unknown {
            io.saw(What::Topic { name: text.clone(), what: TopicEvent::Refused { operation } });
        }
        if !passes(error) && !matches!(error.kind, ErrorKind::TopicExists | ErrorKind::TopicNotFound) {
            io.unexpected(format!("a change of topic {text} was refused: {error}"));
        }
    }

    fn listed(&self, io: &mut Io<'_>, asked: Time, answer: &proto::ListTopicsOk) {
        let topics = &answer.topics;
        if answer.more || !topics.is_sorted_by(|a, b| a.name < b.name) {
            io.unexpected(format!("a list of few topics, in no order or with more to come: {answer:?}"));
        }
        for name in self.names.iter().map(|name| full_name(name)) {
            if topics.iter().all(|topic| topic.name != name) {
                io.saw(What::Topic { name, what: TopicEvent::Seen { asked, state: TopicState::Absent, topic: None } });
            }
        }
        let missing: Vec<_> =
            io.board.topics.iter().filter(|topic| topics.iter().all(|t| t.topic_id != topic.id.0)).cloned().collect();
        if !missing.is_empty() {
            io.unexpected(format!("the list of topics lacks {missing:?}"));
        }
    }
}

impl Role for TopicKeeper {
    fn act(&mut self, io: &mut Io<'_>) {
        io.act_within(self.pace / 50..=2 * self.pace);
        if self.asked.is_none() && !io.board.topics.is_empty() && io.phase == Phase::Stir {
            self.ask(io);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        match (self.asked.take(), answer) {
            (None, _) => {}
            (Some(Asked::Create { name, operation }), Ok(frame)) => {
                let topic = frame.message::<proto::CreateTopicOk>().unwrap_or_default().topic_id;
                self.done(io, name, operation, Some(TopicId(topic)));
            }
            (Some(Asked::Alter { name, operation } | Asked::Delete { name, operation }), Ok(_)) => {
                self.done(io, name, operation, None)
            }
            (
                Some(
                    Asked::Create { name, operation }
                    | Asked::Alter { name, operation }
                    | Asked::Delete { name, operation },
                ),
                Err(error),
            ) => {
                self.refused(io, name, operation, &error);
            }
            (Some(Asked::Describe { at, .. }), Ok(frame)) => match frame.message() {
                Ok(answer) => see_described(io, at, &answer),
                Err(error) => io.unexpected(error.to_string()),
            },
            (Some(Asked::Describe { name, at }), Err(error)) if error.kind == ErrorKind::TopicNotFound => {
                let what = TopicEvent::Seen { asked: at, state: TopicState::Absent, topic: None };
                io.saw(What::Topic { name: full_name(&self.names[name]), what });
            }
            (Some(Asked::List { at }), Ok(frame)) => match frame.message() {
                Ok(answer) => self.listed(io, at, &answer),
                Err(error) => io.unexpected(error.to_string()),
            },
            (Some(_), Err(error)) if passes(&error) => {}
            (Some(_), Err(error)) => io.unexpected(format!("a question about topics was refused: {error}")),
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
    }

    fn waits_for(&self) -> Option<String> {
        self.asked.as_ref().map(|asked| format!("{asked:?}"))
    }
}
