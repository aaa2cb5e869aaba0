//! Owns a few cursors: commits, steps back with and without force, deletes, reads them back one by one and in a list.

use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::passes;
use crate::history::{CursorEvent, OperationNo, What};
use crate::rng::Rng;
use crate::time::{MS, Time};

struct Cursor {
    number: u32,
    partition: PartitionId,
    name: String,
    /// The last position that was asked for.
    last: u64,
    /// Only goes forward, on a topic that loses nothing.
    is_steady: bool,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Change { cursor: usize, operation: OperationNo, to: Option<u64> },
    Get { cursor: usize, at: Time },
    List { partition: PartitionId, at: Time },
}

pub(super) struct CursorKeeper {
    cursors: Vec<Cursor>,
    wanted: u64,
    asked: Option<Asked>,
    pace: Time,
}

impl CursorKeeper {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { cursors: Vec::new(), wanted: rng.within(2..=6), asked: None, pace: rng.magnitude(500 * MS..=5000 * MS) }
    }

    fn choose(&mut self, io: &mut Io<'_>) {
        for _ in 0..self.wanted {
            let number = io.board.new_cursor();
            let (topic, partition) = io.board.pick(io.rng);
            let is_steady = topic.facts.interval.is_none() && !topic.facts.trims && io.rng.coin();
            self.cursors.push(Cursor { number, partition, name: format!("cursor-{number}"), last: 0, is_steady });
        }
    }

    fn change(&mut self, io: &mut Io<'_>, at: usize) {
        let cursor = &mut self.cursors[at];
        let (number, partition, end) = (cursor.number, cursor.partition, io.board.known_end(cursor.partition));
        let operation = io.board.new_operation();
        let (to, force) = match if cursor.is_steady { 19 } else { io.rng.below(20) } {
            0 => (None, false),
            1 => (Some(io.rng.below(end + 1)), true),
            2 => (Some(io.rng.below(end + 1)), false),
            _ => (Some(end.min(cursor.last + io.rng.below(20))), false),
        };
        cursor.last = to.unwrap_or(0);
        io.saw(What::Cursor { cursor: number, what: CursorEvent::Sent { operation, partition, to, force } });
        let (topic_id, partition, name) = (partition.topic.0, partition.partition, cursor.name.clone());
        match to {
            Some(offset) => io.ask(&proto::CommitCursor { topic_id, partition, name, offset, force }),
            None => io.ask(&proto::DeleteCursor { topic_id, partition, name }),
        };
        self.asked = Some(Asked::Change { cursor: at, operation, to });
    }

    fn look(&mut self, io: &mut Io<'_>, at: usize) {
        let cursor = &self.cursors[at];
        let (topic_id, partition) = (cursor.partition.topic.0, cursor.partition.partition);
        if io.rng.per_mille(300) {
            io.ask(&proto::ListCursors { topic_id, partition, after: String::new(), limit: 0 });
            self.asked = Some(Asked::List { partition: cursor.partition, at: io.now });
        } else {
            io.ask(&proto::GetCursor { topic_id, partition, name: cursor.name.clone() });
            self.asked = Some(Asked::Get { cursor: at, at: io.now });
        }
    }

    fn changed(
        &mut self,
        io: &mut Io<'_>,
        at: usize,
        operation: OperationNo,
        to: Option<u64>,
        answer: Result<Frame, Error>,
    ) {
        let cursor = &self.cursors[at];
        let error = match answer {
            Ok(_) => {
                if let (true, Some(to)) = (cursor.is_steady, to) {
                    io.board.steady_cursors.insert(cursor.name.clone(), (cursor.partition, to));
                }
                return io.saw(What::Cursor { cursor: cursor.number, what: CursorEvent::Done { operation } });
            }
            Err(error) => error,
        };
        let backwards = error.kind == ErrorKind::CursorBackwards;
        if error.advice() != proto::Advice::Unknown {
            io.saw(What::Cursor { cursor: cursor.number, what: CursorEvent::Refused { operation, backwards } });
        }
        let may_be_out = error.kind == ErrorKind::OffsetOutOfRange
            && (io.board.is_weak(cursor.partition)
                || io.board.topic(cursor.partition.topic).is_some_and(|t| t.facts.trims));
        if !backwards && !passes(&error) && !may_be_out {
            io.unexpected(format!(
                "a commit of {} in partition {} was refused: {error}",
                cursor.name, cursor.partition
            ));
        }
    }

    fn listed(&mut self, io: &mut Io<'_>, partition: PartitionId, asked: Time, answer: &proto::ListCursorsOk) {
        for cursor in self.cursors.iter().filter(|cursor| cursor.partition == partition) {
            let listed = answer.cursors.iter().find(|listed| listed.name == cursor.name).map(|listed| listed.offset);
            io.saw(What::Cursor { cursor: cursor.number, what: CursorEvent::Seen { asked, position: listed } });
        }
        if answer.more || !answer.cursors.is_sorted_by(|a, b| a.name < b.name) {
            io.unexpected(format!("a list of few cursors, in no order or with more to come: {answer:?}"));
        }
    }
}

impl Role for CursorKeeper {
    fn act(&mut self, io: &mut Io<'_>) {
        io.act_within(self.pace / 50..=2 * self.pace);
        if self.asked.is_some() || io.board.topics.is_empty() || io.phase == Phase::Settle {
            return;
        }
        if self.cursors.is_empty() {
            self.choose(io);
        }
        let at = io.rng.below(self.cursors.len() as u64) as usize;
        if io.rng.per_mille(600) { self.change(io, at) } else { self.look(io, at) }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        let Some(asked) = self.asked.take() else { return };
        let result = match (asked, answer) {
            (Asked::Change { cursor, operation, to }, answer) => {
                return self.changed(io, cursor, operation, to, answer);
            }
            (_, Err(error)) if passes(&error) => return,
            (_, Err(error)) => Err(error),
            (Asked::Get { cursor, at }, Ok(frame)) => frame.message::<proto::GetCursorOk>().map(|answer| {
                let what = CursorEvent::Seen { asked: at, position: answer.offset };
                io.saw(What::Cursor { cursor: self.cursors[cursor].number, what });
            }),
            (Asked::List { partition, at }, Ok(frame)) => {
                frame.message().map(|answer| self.listed(io, partition, at, &answer))
            }
        };
        if let Err(error) = result {
            io.unexpected(format!("a look at cursors failed: {error}"));
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
    }

    fn waits_for(&self) -> Option<String> {
        self.asked.as_ref().map(|asked| format!("{asked:?}"))
    }
}
