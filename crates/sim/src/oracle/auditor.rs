//! Reads everything back when all has healed: every partition from its first offset to its end, every topic.

use std::collections::VecDeque;

use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, proto};

use super::client::Io;
use super::founder::{passes, see_described};
use super::payload::read_batches;
use super::{Board, Role};
use crate::history::{Placed, What};
use crate::time::{MS, Time};

const READ_BYTES: u32 = 256 << 10;

enum Task {
    Describe(String),
    Read { partition: PartitionId, next: Option<u64>, batches: Vec<Placed> },
}

pub(super) struct Auditor {
    tasks: VecDeque<Task>,
    asked: Option<Time>,
}

impl Auditor {
    pub(super) fn new(board: &Board) -> Self {
        let describe = board.topics.iter().map(|topic| Task::Describe(topic.name.clone()));
        let partitions = board.topics.iter().flat_map(|topic| {
            let partition = |partition| PartitionId { topic: topic.id, partition };
            (0..topic.facts.partitions).map(partition)
        });
        let read = partitions.map(|partition| Task::Read { partition, next: None, batches: Vec::new() });
        Self { tasks: describe.chain(read).collect(), asked: None }
    }

    fn ask(&mut self, io: &mut Io<'_>) {
        match self.tasks.front() {
            None => return,
            Some(Task::Describe(name)) => io.ask(&proto::DescribeTopic { name: name.clone() }),
            Some(Task::Read { partition, next: None, .. }) => io.ask(&proto::ListOffsets {
                topic_id: partition.topic.0,
                partition: partition.partition,
                timestamp_ms: None,
            }),
            Some(Task::Read { partition, next: Some(offset), .. }) => io.ask(&proto::Fetch {
                topic_id: partition.topic.0,
                partition: partition.partition,
                offset: *offset,
                max_bytes: READ_BYTES,
                max_wait_ms: 0,
            }),
        };
        self.asked = Some(io.now);
    }

    /// Whether retention took what was being read; the partition is then read once more from its beginning.
    fn was_overtaken(&mut self, io: &Io<'_>, error: &Error) -> bool {
        let Some(Task::Read { partition, next, batches }) = self.tasks.front_mut() else { return false };
        let trims = io.board.topic(partition.topic).is_some_and(|topic| topic.facts.trims);
        let is_gone = next.is_some_and(|next| error.details.earliest_offset.is_some_and(|earliest| next < earliest));
        if !trims || error.kind != ErrorKind::OffsetOutOfRange || !is_gone {
            return false;
        }
        (*next, *batches) = (None, Vec::new());
        true
    }

    /// Takes an answer to the first task. True: the task is done.
    fn take(&mut self, io: &mut Io<'_>, asked: Time, frame: &Frame) -> Result<bool, String> {
        let text = |error: Error| error.to_string();
        match self.tasks.front_mut() {
            None => Ok(false),
            Some(Task::Describe(_)) => {
                let answer: proto::DescribeTopicOk = frame.message().map_err(text)?;
                see_described(io, asked, &answer);
                if let Some(faulty) = answer.partitions.iter().find(|partition| partition.error.is_some()) {
                    return Err(format!("a partition does not serve: {faulty:?}"));
                }
                Ok(true)
            }
            Some(Task::Read { partition, next: next @ None, .. }) => {
                let answer: proto::ListOffsetsOk = frame.message().map_err(text)?;
                let (earliest, high_watermark) = (answer.earliest_offset, answer.high_watermark);
                io.saw(What::Bounds { partition: *partition, asked, earliest, high_watermark });
                *next = Some(answer.earliest_offset);
                Ok(false)
            }
            Some(Task::Read { partition, next: Some(next), batches }) => {
                let answer: proto::FetchOk = frame.message().map_err(text)?;
                let append_time = io.board.topic(partition.topic).is_some_and(|topic| topic.append_time);
                let read = read_batches(io.board, &frame.payload, *next, append_time)?;
                for placed in read {
                    if placed.offset > *next || placed.end() <= *next {
                        return Err(format!("partition {partition}: {placed:?} where offset {next} was due"));
                    }
                    *next = placed.end();
                    batches.push(placed);
                }
                if *next != answer.next_offset {
                    return Err(format!(
                        "partition {partition}: told to go on at {}, read up to {next}",
                        answer.next_offset
                    ));
                }
                if *next < answer.high_watermark {
                    return Ok(false);
                }
                let (earliest, high_watermark, batches) =
                    (answer.earliest_offset, answer.high_watermark, std::mem::take(batches));
                io.saw(What::Audited { partition: *partition, earliest, high_watermark, batches });
                Ok(true)
            }
        }
    }
}

impl Role for Auditor {
    fn act(&mut self, io: &mut Io<'_>) {
        if self.asked.is_none() {
            self.ask(io);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        let Some(asked) = self.asked.take() else { return };
        match answer {
            Ok(frame) => match self.take(io, asked, &frame) {
                Ok(is_done) => {
                    if is_done {
                        self.tasks.pop_front();
                    }
                    self.ask(io);
                }
                Err(text) => io.unexpected(format!("the audit: {text}")),
            },
            Err(error) if passes(&error) => io.act_in(100 * MS),
            Err(error) if self.was_overtaken(io, &error) => self.ask(io),
            Err(error) => io.unexpected(format!("the audit was refused: {error}")),
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
    }

    fn waits_for(&self) -> Option<String> {
        (!self.tasks.is_empty()).then(|| format!("{} tasks, asked at {:?}", self.tasks.len(), self.asked))
    }
}
