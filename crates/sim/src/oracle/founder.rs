//! Makes the topics that the other oracles use, and looks at them again and again: they and their settings stay.

use std::collections::BTreeMap;

use lockgate_wire::op::Op;
use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, TopicId, proto};

use super::client::{Io, Phase};
use super::{Role, TopicInfo};
use crate::history::{OperationNo, TopicEvent, TopicFacts, TopicState, What};
use crate::time::{MS, SECOND, Time};

/// A topic to be made.
#[derive(Clone, Debug)]
pub struct TopicPlan {
    /// Its short name.
    pub name: String,
    /// What to expect of it.
    pub facts: TopicFacts,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Largest batch; among the settings too.
    pub max_batch_bytes: u32,
    /// Whether the broker sets the records' times.
    pub append_time: bool,
}

impl TopicPlan {
    fn state(&self) -> TopicState {
        TopicState::Present { max_batch_bytes: self.max_batch_bytes }
    }
}

pub(super) struct Founder {
    plans: Vec<TopicPlan>,
    made: Vec<TopicInfo>,
    asked: Option<(u64, OperationNo, Time)>,
}

impl Founder {
    pub(super) fn new(plans: Vec<TopicPlan>) -> Self {
        Self { plans, made: Vec::new(), asked: None }
    }

    fn create(&mut self, io: &mut Io<'_>) {
        let plan = &self.plans[self.made.len()];
        let operation = io.board.new_operation();
        io.saw(What::Topic { name: full_name(&plan.name), what: TopicEvent::Sent { operation, to: plan.state() } });
        let request = io.ask(&proto::CreateTopic {
            name: plan.name.clone(),
            kind: proto::TopicKind::Stream as i32,
            partitions: plan.facts.partitions,
            replication_factor: 0,
            settings: plan.settings.clone(),
        });
        self.asked = Some((request, operation, io.now));
    }

    fn describe(&mut self, io: &mut Io<'_>, name: String) {
        let request = io.ask(&proto::DescribeTopic { name });
        self.asked = Some((request, 0, io.now));
    }

    fn described(&mut self, io: &mut Io<'_>, asked: Time, answer: proto::DescribeTopicOk) {
        see_described(io, asked, &answer);
        let next = self.plans.get(self.made.len()).filter(|plan| full_name(&plan.name) == answer.name);
        let Some(plan) = next else { return };
        let topic = TopicId(answer.topic_id);
        io.saw(What::TopicMade { topic, facts: plan.facts });
        self.made.push(TopicInfo {
            id: topic,
            name: answer.name,
            facts: plan.facts,
            max_batch_bytes: plan.max_batch_bytes,
            partitioning_version: answer.partitioning_version,
            append_time: plan.append_time,
        });
        if self.made.len() == self.plans.len() {
            io.board.topics = self.made.clone();
        }
    }

    fn refused(&mut self, io: &mut Io<'_>, operation: OperationNo, error: Error) {
        let is_create = operation > 0;
        let name = self.plans.get(self.made.len()).map(|plan| plan.name.clone());
        if is_create && error.advice() != proto::Advice::Unknown {
            let name = full_name(name.as_deref().unwrap_or_default());
            io.saw(What::Topic { name, what: TopicEvent::Refused { operation } });
        }
        match (error.kind, name) {
            (ErrorKind::TopicExists, Some(name)) if is_create => self.describe(io, name),
            _ if passes(&error) => {}
            _ => io.unexpected(format!("a founder was told: {error}")),
        }
    }
}

impl Role for Founder {
    fn act(&mut self, io: &mut Io<'_>) {
        io.act_within(20 * MS..=8 * SECOND);
        if self.asked.is_some() || io.phase == Phase::Settle {
            return;
        }
        if self.made.len() < self.plans.len() {
            self.create(io);
        } else {
            let name = io.rng.pick(&self.made).name.clone();
            self.describe(io, name);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        let Some((_, operation, asked)) = self.asked.take() else { return };
        match answer {
            Err(error) => self.refused(io, operation, error),
            Ok(frame) if frame.op() == Some(Op::CreateTopic) => {
                let created = frame.message::<proto::CreateTopicOk>().unwrap_or_default();
                let topic = Some(TopicId(created.topic_id));
                io.saw(What::Topic { name: created.name.clone(), what: TopicEvent::Done { operation, topic } });
                self.describe(io, created.name);
            }
            Ok(frame) => match frame.message() {
                Ok(described) => self.described(io, asked, described),
                Err(error) => io.unexpected(error.to_string()),
            },
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
    }

    fn waits_for(&self) -> Option<String> {
        self.asked.as_ref().map(|asked| format!("{asked:?}"))
    }
}

/// The full form of a short name.
pub(super) fn full_name(name: &str) -> String {
    format!("default/default/{name}")
}

/// Whether an error is one that a broker in trouble may give to any request: not applied, come back later; or unknown.
pub(super) fn passes(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::LeaderUnknown
            | ErrorKind::Recovering
            | ErrorKind::ShuttingDown
            | ErrorKind::StorageFailed
            | ErrorKind::StorageFull
            | ErrorKind::Overloaded
            | ErrorKind::OutcomeUnknown
    )
}

/// Writes down what a description tells: the topic's state and its partitions' bounds.
pub(super) fn see_described(io: &mut Io<'_>, asked: Time, answer: &proto::DescribeTopicOk) {
    let setting = answer.settings.iter().find(|setting| setting.name == "max_batch_bytes");
    let Some(max_batch_bytes) = setting.and_then(|setting| size_of(&setting.value)) else {
        return io.unexpected(format!("a description without a readable max_batch_bytes: {setting:?}"));
    };
    let topic = TopicId(answer.topic_id);
    let state = TopicState::Present { max_batch_bytes };
    io.saw(What::Topic { name: answer.name.clone(), what: TopicEvent::Seen { asked, state, topic: Some(topic) } });
    for description in answer.partitions.iter().filter(|description| description.error.is_none()) {
        io.saw(What::Bounds {
            partition: PartitionId { topic, partition: description.partition },
            asked,
            earliest: description.earliest_offset,
            high_watermark: description.high_watermark,
        });
    }
}

/// A size as settings show it: `2048`, `2KiB`, `1MiB`.
fn size_of(text: &str) -> Option<u32> {
    let (number, factor) = match text.strip_suffix("KiB") {
        Some(number) => (number, 1 << 10),
        None => text.strip_suffix("MiB").map_or((text, 1), |number| (number, 1 << 20)),
    };
    number.trim().parse::<u32>().ok()?.checked_mul(factor)
}
