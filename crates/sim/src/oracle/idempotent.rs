//! An idempotent producer: numbered batches, up to five unresolved in a partition, sent again under the same number
//! after every doubt, and now and then twice for no reason.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use lockgate_wire::batch::{Producer, sequence_after};
use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, ProducerId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::passes;
use super::payload::{self, Shape};
use crate::history::{BatchNo, Placed, What};
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};

/// Unresolved batches of a producer in a partition; as many are remembered by the broker.
const WINDOW: usize = 5;
const LANES_MAX: u64 = 3;
/// How soon it sends again in a rush.
const RUSH_PACE: Time = 5 * MS;

struct Numbered {
    batch: BatchNo,
    bytes: Bytes,
    records: u32,
    base_sequence: i32,
    in_flight: u32,
    resend_at: Time,
}

/// A partition that the producer writes to.
struct Lane {
    partition: PartitionId,
    next_sequence: i32,
    unresolved: VecDeque<Numbered>,
    /// Resolved batches that the broker must still remember.
    resolved: VecDeque<Numbered>,
}

impl Lane {
    fn all(&mut self) -> impl Iterator<Item = &mut Numbered> {
        self.unresolved.iter_mut().chain(&mut self.resolved)
    }
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Id,
    Publish { lane: usize, batch: BatchNo },
}

pub(super) struct Idempotent {
    id: Option<(i64, i16)>,
    /// Power losses when the id was given.
    id_power: u32,
    chain: u64,
    lanes: Vec<Lane>,
    asked: BTreeMap<u64, Asked>,
    pace: Time,
}

impl Idempotent {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let pace = rng.magnitude(500 * MS..=8 * SECOND);
        Self { id: None, id_power: 0, chain: 0, lanes: Vec::new(), asked: BTreeMap::new(), pace }
    }

    fn choose_lanes(&mut self, io: &mut Io<'_>) {
        for _ in 0..io.rng.within(1..=LANES_MAX) {
            let partition = io.board.pick(io.rng).1;
            if self.lanes.iter().all(|lane| lane.partition != partition) {
                self.lanes.push(Lane {
                    partition,
                    next_sequence: 0,
                    unresolved: VecDeque::new(),
                    resolved: VecDeque::new(),
                });
            }
        }
    }

    /// Sends again what is in doubt, in order: what waits holds up what is behind it.
    fn resend(&mut self, io: &mut Io<'_>) {
        for at in 0..self.lanes.len() {
            for index in 0..self.lanes[at].unresolved.len() {
                let numbered = &self.lanes[at].unresolved[index];
                if numbered.in_flight > 0 {
                    continue;
                }
                if numbered.resend_at > io.now {
                    io.act_in(numbered.resend_at - io.now);
                    break;
                }
                self.send(io, at, index, false);
            }
        }
    }

    fn send_new(&mut self, io: &mut Io<'_>) {
        let at = io.rng.below(self.lanes.len() as u64) as usize;
        let Some((id, epoch)) = self.id else { return };
        for _ in 0..io.rng.magnitude(1..=WINDOW as u64) {
            let lane = &mut self.lanes[at];
            if lane.unresolved.len() == WINDOW {
                return;
            }
            let max_batch_bytes = io.board.topic(lane.partition.topic).map_or(0, |topic| topic.max_batch_bytes);
            let shape = Shape::draw(io.rng, max_batch_bytes);
            let producer = Producer { id: ProducerId(id), epoch, base_sequence: lane.next_sequence };
            let (batch, bytes) = payload::make(io.board, shape, io.wall_ms, Some(producer));
            let base_sequence = lane.next_sequence;
            lane.next_sequence = sequence_after(base_sequence, shape.records as i32);
            lane.unresolved.push_back(Numbered {
                batch,
                bytes,
                records: shape.records,
                base_sequence,
                in_flight: 0,
                resend_at: 0,
            });
            while lane.resolved.len() + lane.unresolved.len() > WINDOW && lane.resolved.pop_front().is_some() {}
            let index = lane.unresolved.len() - 1;
            self.send(io, at, index, false);
            if io.rng.per_mille(80) {
                self.send(io, at, index, false);
            }
        }
        if !self.lanes[at].resolved.is_empty() && io.rng.per_mille(100) {
            let index = io.rng.below(self.lanes[at].resolved.len() as u64) as usize;
            self.send(io, at, index, true);
        }
    }

    fn send(&mut self, io: &mut Io<'_>, at: usize, index: usize, is_resolved: bool) {
        let lane = &mut self.lanes[at];
        let partition = lane.partition;
        let numbered = if is_resolved { &mut lane.resolved[index] } else { &mut lane.unresolved[index] };
        numbered.in_flight += 1;
        let (batch, bytes) = (numbered.batch, numbered.bytes.clone());
        io.saw(What::Sent { batch, partition, chain: self.chain });
        let request = io.ask_with(&publish(io, partition, proto::Ack::Quorum), vec![bytes]);
        self.asked.insert(request, Asked::Publish { lane: at, batch });
    }

    fn acknowledged(&mut self, io: &mut Io<'_>, at: usize, batch: BatchNo, answer: &proto::PublishOk) {
        let lane = &mut self.lanes[at];
        let unresolved = lane.unresolved.iter().position(|numbered| numbered.batch == batch);
        let known = unresolved.map(|index| &lane.unresolved[index]).or(lane.resolved.iter().find(|n| n.batch == batch));
        let Some(numbered) = known else { return };
        let placed = Placed { offset: answer.base_offset, records: numbered.records, batch };
        if let Some(index) = unresolved {
            lane.resolved.extend(lane.unresolved.remove(index));
        }
        let partition = lane.partition;
        io.board.placed(partition, placed, io.life());
        io.saw(What::Acknowledged { placed, partition, duplicate: answer.duplicate });
        let (offset, append_time_ms) = (answer.base_offset, answer.append_time_ms);
        io.saw(What::Stamped { partition, offset, append_time_ms });
    }

    fn refused(&mut self, io: &mut Io<'_>, at: usize, batch: BatchNo, error: &Error) {
        if error.advice() != proto::Advice::Unknown {
            io.saw(What::Refused { batch, kind: error.kind });
        }
        let lane = &mut self.lanes[at];
        let may_have_forgotten = io.board.is_weak(lane.partition) && io.life().power > self.id_power;
        let has_forgotten = match error.kind {
            ErrorKind::SequenceAhead => {
                let first = lane.unresolved.front().map_or(lane.next_sequence, |numbered| numbered.base_sequence);
                error.details.expected_sequence.is_none_or(|expected| expected < first)
            }
            ErrorKind::SequenceInvalid | ErrorKind::ProducerUnknown => true,
            _ => false,
        };
        if has_forgotten && may_have_forgotten {
            return self.start_over();
        }
        if has_forgotten || !(passes(error) || error.kind == ErrorKind::SequenceAhead) {
            return io.unexpected(format!("batch {batch} to partition {} was refused: {error}", lane.partition));
        }
        let pause = io.rng.magnitude(MS..=200 * MS);
        if let Some(numbered) = lane.unresolved.iter_mut().find(|numbered| numbered.batch == batch) {
            numbered.resend_at = io.now + pause;
            io.act_in(pause);
        }
    }

    /// The broker rightly forgot this producer: it gets a new id. What was in doubt stays so.
    fn start_over(&mut self) {
        self.id = None;
        self.lanes.clear();
        self.asked.clear();
    }

    fn given_id(&mut self, io: &mut Io<'_>, answer: &proto::InitProducerOk) {
        if !io.board.is_new_producer(answer.producer_id) {
            io.unexpected(format!("producer id {} was given out before", answer.producer_id));
        }
        self.id = Some((answer.producer_id, answer.producer_epoch as i16));
        self.id_power = io.life().power;
        self.chain = answer.producer_id as u64;
        self.act(io);
    }
}

/// The body of a publish.
pub(super) fn publish(io: &Io<'_>, partition: PartitionId, ack: proto::Ack) -> proto::Publish {
    let partitioning_version = io.board.topic(partition.topic).map_or(0, |topic| topic.partitioning_version);
    proto::Publish {
        topic_id: partition.topic.0,
        partition: partition.partition,
        ack: ack as i32,
        partitioning_version,
    }
}

impl Role for Idempotent {
    fn act(&mut self, io: &mut Io<'_>) {
        let pace = if io.is_rush { RUSH_PACE } else { self.pace };
        io.act_within(pace / 50..=2 * pace);
        if io.board.topics.is_empty() {
            return;
        }
        if self.id.is_none() {
            if self.asked.is_empty() && io.phase == Phase::Stir {
                let request = io.ask(&proto::InitProducer {});
                self.asked.insert(request, Asked::Id);
            }
            return;
        }
        if self.lanes.is_empty() {
            self.choose_lanes(io);
        }
        self.resend(io);
        if io.phase == Phase::Stir {
            self.send_new(io);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, request: u64, answer: Result<Frame, Error>) {
        match (self.asked.remove(&request), answer) {
            // Of a producer that started over.
            (None, _) => {}
            (Some(Asked::Id), Ok(frame)) => match frame.message() {
                Ok(answer) => self.given_id(io, &answer),
                Err(error) => io.unexpected(error.to_string()),
            },
            (Some(Asked::Id), Err(error)) if passes(&error) => {}
            (Some(Asked::Id), Err(error)) => io.unexpected(format!("no producer id: {error}")),
            (Some(Asked::Publish { lane, batch }), answer) => {
                let all = self.lanes[lane].all();
                all.filter(|numbered| numbered.batch == batch).for_each(|numbered| numbered.in_flight -= 1);
                match answer.and_then(|frame| frame.message::<proto::PublishOk>()) {
                    Ok(answer) => self.acknowledged(io, lane, batch, &answer),
                    Err(error) => self.refused(io, lane, batch, &error),
                }
            }
        }
    }

    fn lost(&mut self, io: &mut Io<'_>) {
        self.asked.clear();
        for lane in &mut self.lanes {
            for numbered in lane.all() {
                numbered.in_flight = 0;
                numbered.resend_at = io.now;
            }
        }
    }

    fn waits_for(&self) -> Option<String> {
        let unresolved: Vec<_> =
            self.lanes.iter().flat_map(|lane| lane.unresolved.iter().map(|numbered| numbered.batch)).collect();
        (!self.asked.is_empty() || !unresolved.is_empty())
            .then(|| format!("{:?} and batches {unresolved:?}", self.asked))
    }
}
