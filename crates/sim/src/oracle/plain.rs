//! A producer without numbers, at every level: each batch is sent once, and an answer that never comes leaves it in
//! doubt for ever. Some of its batches are wrong on purpose.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use lockgate_wire::batch::Codec;
use lockgate_wire::proto::Ack;
use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::passes;
use super::idempotent::publish;
use super::payload::{self, Shape};
use crate::history::{BatchNo, Placed, What};
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};

const IN_FLIGHT_MAX: usize = 16;
/// In a rush: more than any bound lets through, and how soon it sends again.
const RUSH_IN_FLIGHT_MAX: usize = 400;
const RUSH_PACE: Time = 5 * MS;
/// Batches sent in one go, and in one go of a rush.
const BURST_MAX: u64 = 8;
const RUSH_BURST_MAX: u64 = 40;
/// Chains of plain connections are told apart from those of producer ids by this bit.
const CONNECTION_CHAIN: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
struct Asked {
    partition: PartitionId,
    batch: BatchNo,
    records: u32,
    /// The batch is wrong, and this is what the broker has to say.
    fault: Option<ErrorKind>,
}

pub(super) struct Plain {
    asked: BTreeMap<u64, Asked>,
    pace: Time,
}

impl Plain {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { asked: BTreeMap::new(), pace: rng.magnitude(500 * MS..=8 * SECOND) }
    }

    fn send(&mut self, io: &mut Io<'_>, partition: PartitionId, ack: Ack) {
        let max_batch_bytes = io.board.topic(partition.topic).map_or(0, |topic| topic.max_batch_bytes);
        let fault = io.rng.per_mille(40).then(|| *io.rng.pick(&[ErrorKind::BatchTooLarge, ErrorKind::BadBatch]));
        let shape = match fault {
            Some(ErrorKind::BatchTooLarge) => {
                Shape { records: 2, filler_bytes: max_batch_bytes as usize / 2 + 1, codec: Codec::None }
            }
            _ => Shape::draw(io.rng, max_batch_bytes),
        };
        let (batch, mut bytes) = payload::make(io.board, shape, io.wall_ms, None);
        if fault == Some(ErrorKind::BadBatch) {
            bytes = damage(&bytes, io.rng);
        }
        let chain = io.connection() | CONNECTION_CHAIN;
        io.saw(What::Sent { batch, partition, chain });
        let body = publish(io, partition, ack);
        if ack == Ack::None {
            return io.tell(&body, vec![bytes]);
        }
        let request = io.ask_with(&body, vec![bytes]);
        self.asked.insert(request, Asked { partition, batch, records: shape.records, fault });
    }
}

/// One bit is turned behind the checksum.
fn damage(bytes: &Bytes, rng: &mut Rng) -> Bytes {
    let mut damaged = BytesMut::from(&bytes[..]);
    let at = 21 + rng.below(bytes.len() as u64 - 21) as usize;
    damaged[at] ^= 1 << rng.below(8);
    damaged.freeze()
}

impl Role for Plain {
    fn act(&mut self, io: &mut Io<'_>) {
        let (pace, burst_max, in_flight_max) = match io.is_rush {
            true => (RUSH_PACE, RUSH_BURST_MAX, RUSH_IN_FLIGHT_MAX),
            false => (self.pace, BURST_MAX, IN_FLIGHT_MAX),
        };
        io.act_within(pace / 50..=2 * pace);
        if io.board.topics.is_empty() || io.phase == Phase::Settle {
            return;
        }
        let partition = io.board.pick(io.rng).1;
        let ack = *io.rng.pick(&[Ack::Quorum, Ack::Quorum, Ack::Leader, Ack::None]);
        for _ in 0..io.rng.magnitude(1..=burst_max) {
            if self.asked.len() < in_flight_max {
                self.send(io, partition, ack);
            }
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, request: u64, answer: Result<Frame, Error>) {
        let Some(asked) = self.asked.remove(&request) else { return };
        let Asked { partition, batch, records, fault } = asked;
        match answer.and_then(|frame| frame.message::<proto::PublishOk>()) {
            Ok(answer) => {
                if let Some(fault) = fault {
                    io.unexpected(format!("batch {batch} was taken and should have been refused as {fault:?}"));
                }
                let placed = Placed { offset: answer.base_offset, records, batch };
                io.board.placed(partition, placed, io.life());
                io.saw(What::Acknowledged { placed, partition, duplicate: answer.duplicate });
                let (offset, append_time_ms) = (answer.base_offset, answer.append_time_ms);
                io.saw(What::Stamped { partition, offset, append_time_ms });
            }
            Err(error) => {
                if error.advice() != proto::Advice::Unknown {
                    io.saw(What::Refused { batch, kind: error.kind });
                }
                if !passes(&error) && fault != Some(error.kind) {
                    io.unexpected(format!(
                        "batch {batch} to partition {partition} (made wrong: {fault:?}) was refused: {error}"
                    ));
                }
            }
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked.clear();
    }

    fn waits_for(&self) -> Option<String> {
        (!self.asked.is_empty()).then(|| format!("{:?}", self.asked))
    }
}
