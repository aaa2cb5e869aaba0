//! Asks small questions all the time: a partition's bounds, the offset of a time, the topology, what does not exist.

use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::passes;
use crate::history::{Placed, What};
use crate::time::{MS, SECOND, Time};

#[derive(Debug)]
enum Asked {
    Bounds {
        partition: PartitionId,
    },
    /// With the first batch known then that reaches the time.
    AtTime {
        partition: PartitionId,
        time: i64,
        first_known: Option<Placed>,
    },
    Topology,
    /// Something that is not there, and what the broker has to say.
    Nothing(ErrorKind),
}

#[derive(Default)]
pub(super) struct Prober {
    asked: Option<(Time, Asked)>,
}

impl Prober {
    fn ask(&mut self, io: &mut Io<'_>) {
        let (topic, partition) = io.board.pick(io.rng);
        let (name, append_time, partitions) = (topic.name.clone(), topic.append_time, topic.facts.partitions);
        let list = |timestamp_ms| proto::ListOffsets {
            topic_id: partition.topic.0,
            partition: partition.partition,
            timestamp_ms,
        };
        let asked = match io.rng.below(8) {
            0..=2 => {
                io.ask(&list(None));
                Asked::Bounds { partition }
            }
            3..=5 if !append_time => {
                let time = draw_time(io, partition);
                let first_known = io.board.places(partition).find(|placed| last_ms(io, placed) >= time).copied();
                io.ask(&list(Some(time)));
                Asked::AtTime { partition, time, first_known }
            }
            6 => {
                let nothing = PartitionId { partition: partitions, ..partition };
                io.ask(&proto::ListOffsets {
                    topic_id: nothing.topic.0,
                    partition: nothing.partition,
                    timestamp_ms: None,
                });
                Asked::Nothing(ErrorKind::PartitionNotFound)
            }
            7 => {
                io.ask(&proto::Fetch { topic_id: u64::from(u32::MAX), ..proto::Fetch::default() });
                Asked::Nothing(ErrorKind::TopicNotFound)
            }
            _ => {
                io.ask(&proto::Topology { topics: vec![name] });
                Asked::Topology
            }
        };
        self.asked = Some((io.now, asked));
    }
}

fn draw_time(io: &mut Io<'_>, partition: PartitionId) -> i64 {
    let places: Vec<Placed> = io.board.places(partition).rev().take(50).copied().collect();
    if places.is_empty() {
        return io.wall_ms;
    }
    let placed = *io.rng.pick(&places);
    last_ms(io, &placed) + io.rng.below(5) as i64 - 3
}

fn last_ms(io: &Io<'_>, placed: &Placed) -> i64 {
    io.board.batch(placed.batch).map_or(0, |info| info.last_ms())
}

fn check_time(
    io: &mut Io<'_>,
    partition: PartitionId,
    time: i64,
    first_known: Option<Placed>,
    answer: &proto::ListOffsetsOk,
) {
    let known = first_known.filter(|placed| placed.end() > answer.earliest_offset);
    let text = match (answer.offset, known) {
        (Some(found), Some(known)) if found >= known.end() => format!("{known:?} reaches it before"),
        (None, Some(known)) => format!("{known:?} reaches it"),
        (Some(found), _) => {
            match io.board.places(partition).find(|placed| (placed.offset..placed.end()).contains(&found)) {
                Some(placed) if last_ms(io, placed) < time => {
                    format!("{placed:?} ends before it, at {}", last_ms(io, placed))
                }
                _ => return,
            }
        }
        (None, None) => return,
    };
    io.unexpected(format!("time {time} in partition {partition} is said to be at {:?}, but {text}", answer.offset));
}

impl Role for Prober {
    fn act(&mut self, io: &mut Io<'_>) {
        io.act_within(50 * MS..=2 * SECOND);
        if self.asked.is_none() && !io.board.topics.is_empty() && io.phase == Phase::Stir {
            self.ask(io);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        let Some((at, asked)) = self.asked.take() else { return };
        let frame = match (answer, &asked) {
            (Ok(frame), _) => frame,
            (Err(error), Asked::Nothing(kind)) if error.kind == *kind || passes(&error) => return,
            (Err(error), Asked::Bounds { .. } | Asked::AtTime { .. } | Asked::Topology) if passes(&error) => return,
            (Err(error), _) => return io.unexpected(format!("a question was refused: {error}")),
        };
        match asked {
            Asked::Topology => match frame.message::<proto::TopologyOk>() {
                Ok(answer) if answer.topics.len() == 1 && answer.topics[0].error.is_none() => {}
                answer => io.unexpected(format!("the topology of one topic: {answer:?}")),
            },
            Asked::Nothing(kind) => io.unexpected(format!("what is not there was answered, instead of {kind:?}")),
            Asked::Bounds { partition } | Asked::AtTime { partition, .. } => {
                let answer = match frame.message::<proto::ListOffsetsOk>() {
                    Ok(answer) => answer,
                    Err(error) => return io.unexpected(error.to_string()),
                };
                let (earliest, high_watermark) = (answer.earliest_offset, answer.high_watermark);
                io.saw(What::Bounds { partition, asked: at, earliest, high_watermark });
                if let Asked::AtTime { partition, time, first_known } = asked {
                    check_time(io, partition, time, first_known, &answer);
                }
            }
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
    }

    fn waits_for(&self) -> Option<String> {
        self.asked.as_ref().map(|asked| format!("{asked:?}"))
    }
}
