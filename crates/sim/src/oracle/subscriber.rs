//! A reader by subscription: every start position, small and large credit, granted late; it comes back after every loss
//! where it stood.

use lockgate_wire::batch;
use lockgate_wire::op::Op;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::passes;
use super::payload::read_batches;
use crate::history::{ReaderNo, Start, What};
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};

/// A subscription that the broker knows or is asked for.
struct Reading {
    partition: PartitionId,
    reader: ReaderNo,
    subscription: u64,
    start: Start,
    opened: bool,
    next: u64,
    /// Bytes granted and not used; a batch is delivered whole, so the last one may go below.
    credit: i64,
    /// Bytes to be granted when the time has come.
    owed: u64,
    power: u32,
    /// The end of what was known to be there when the subscription was asked for.
    known_end: u64,
}

#[derive(Debug)]
enum Asked {
    Subscribe { at: Time },
    Unsubscribe,
}

pub(super) struct Subscriber {
    reading: Option<Reading>,
    /// Where to go on: a partition and the offset, with the power losses known then.
    resume: Option<(PartitionId, u64, u32)>,
    asked: Option<(u64, Asked)>,
    next_subscription: u64,
    window: u64,
    pace: Time,
}

impl Subscriber {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let window = rng.magnitude(512..=1 << 20);
        let pace = rng.magnitude(MS..=300 * MS);
        Self { reading: None, resume: None, asked: None, next_subscription: 1, window, pace }
    }

    fn subscribe(&mut self, io: &mut Io<'_>) {
        let life = io.life();
        let resume =
            self.resume.take().filter(|(partition, _, power)| !(io.board.is_weak(*partition) && *power != life.power));
        let steady: Vec<_> = io.board.steady_cursors.iter().map(|(name, at)| (name.clone(), *at)).collect();
        let (partition, start, cursor) = match resume {
            Some((partition, next, _)) => (partition, Start::Offset(next), String::new()),
            None if !steady.is_empty() && io.rng.per_mille(150) => {
                let (name, (partition, low)) = io.rng.pick(&steady).clone();
                (partition, Start::Cursor(low), name)
            }
            None => {
                let partition = io.board.pick(io.rng).1;
                (partition, draw_start(io, partition), String::new())
            }
        };
        let subscription = self.next_subscription;
        self.next_subscription += 1;
        let request = io.ask(&proto::Subscribe {
            subscription_id: subscription,
            topic_id: partition.topic.0,
            partition: partition.partition,
            start: Some(proto::StartPosition { at: Some(wire_start(start, &cursor)) }),
            credit_bytes: self.window,
        });
        self.asked = Some((request, Asked::Subscribe { at: io.now }));
        let known_end = io.board.known_end(partition);
        let (reader, credit) = (io.board.new_reader(), self.window as i64);
        self.reading = Some(Reading {
            partition,
            reader,
            subscription,
            start,
            opened: false,
            next: 0,
            credit,
            owed: 0,
            known_end,
            power: life.power,
        });
    }

    fn grant(&mut self, io: &mut Io<'_>) {
        let Some(reading) = self.reading.as_mut().filter(|reading| reading.opened && reading.owed > 0) else { return };
        let bytes = std::mem::take(&mut reading.owed);
        reading.credit += bytes as i64;
        io.tell(&proto::Credit { subscription_id: reading.subscription, bytes }, Vec::new());
    }

    fn opened(&mut self, io: &mut Io<'_>, asked: Time, answer: &proto::SubscribeOk) {
        let Some(reading) = &mut self.reading else { return };
        let (partition, earliest, high_watermark) = (reading.partition, answer.earliest_offset, answer.high_watermark);
        reading.opened = true;
        reading.next = answer.next_offset;
        io.saw(What::Bounds { partition, asked, earliest, high_watermark });
        let (reader, start, next) = (reading.reader, reading.start, answer.next_offset);
        io.saw(What::Opened { reader, partition, start, next, earliest, high_watermark });
    }

    fn refused(&mut self, io: &mut Io<'_>, error: &Error) {
        let Some(reading) = self.reading.take() else { return };
        let facts = io.board.topic(reading.partition.topic).map(|topic| topic.facts);
        let may_be_out = facts.is_some_and(|facts| facts.trims) || matches!(reading.start, Start::Offset(_));
        match error.kind {
            ErrorKind::OffsetOutOfRange if may_be_out => check_out_of_range(io, &reading, error),
            _ if passes(error) => self.resume = resume_of(&reading),
            _ => io.unexpected(format!("{:?} of partition {} was refused: {error}", reading.start, reading.partition)),
        }
    }

    fn delivered(&mut self, io: &mut Io<'_>, frame: &Frame) {
        let deliver = match frame.message::<proto::Deliver>() {
            Ok(deliver) => deliver,
            Err(error) => return io.unexpected(error.to_string()),
        };
        let Some(reading) = self.reading.as_mut().filter(|reading| reading.subscription == deliver.subscription_id)
        else {
            // Of a subscription that this side has ended; its last deliveries may still come.
            return;
        };
        if !reading.opened || reading.credit <= 0 {
            io.unexpected(format!("a delivery with credit {} (opened: {})", reading.credit, reading.opened));
        }
        let append_time = io.board.topic(reading.partition.topic).is_some_and(|topic| topic.append_time);
        let batches = match read_batches(io.board, &frame.payload, reading.next, append_time) {
            Ok(batches) => batches,
            Err(error) => return io.unexpected(format!("partition {}: {error}", reading.partition)),
        };
        let wire_batches = batch::split(frame.payload.clone()).count();
        if wire_batches == 0 || wire_batches != deliver.append_time_ms.len() {
            io.unexpected(format!("a delivery of {wire_batches} batches with {} times", deliver.append_time_ms.len()));
        }
        reading.credit -= frame.payload.len() as i64;
        reading.owed += frame.payload.len() as u64;
        reading.next = deliver.next_offset;
        let (reader, partition) = (reading.reader, reading.partition);
        io.saw(What::Read {
            reader,
            partition,
            batches,
            next: deliver.next_offset,
            high_watermark: deliver.high_watermark,
        });
        io.act_within(self.pace / 10..=2 * self.pace);
    }

    fn closed(&mut self, io: &mut Io<'_>, frame: &Frame) {
        let closed = frame.message::<proto::SubscriptionClosed>().unwrap_or_default();
        let Some(reading) = self.reading.take_if(|reading| reading.subscription == closed.subscription_id) else {
            return;
        };
        let error = closed.error.clone().map(Error::from_proto);
        match closed.reason() {
            proto::CloseReason::Shutdown => {}
            proto::CloseReason::Error if error.as_ref().is_some_and(passes) => {}
            proto::CloseReason::Error
                if error.as_ref().is_some_and(|error| error.kind == ErrorKind::OffsetOutOfRange) =>
            {
                return check_out_of_range(io, &reading, &error.unwrap_or_else(|| Error::new(ErrorKind::Internal, "")));
            }
            reason => io
                .unexpected(format!("the subscription of partition {} ended: {reason:?} {error:?}", reading.partition)),
        }
        self.resume = resume_of(&reading);
    }
}

/// Only what retention took, or a power loss, is out of range.
fn check_out_of_range(io: &mut Io<'_>, reading: &Reading, error: &Error) {
    let wanted = if reading.opened { reading.next } else { wanted(reading.start) };
    let details = &error.details;
    let is_below = details.earliest_offset.is_some_and(|earliest| wanted < earliest);
    let is_above = details.high_watermark.is_some_and(|end| wanted > end);
    let trims = io.board.topic(reading.partition.topic).is_some_and(|topic| topic.facts.trims);
    let may_be_above = !reading.opened && wanted > reading.known_end;
    let is_right = (is_below && trims) || (is_above && may_be_above);
    if !is_right {
        io.unexpected(format!(
            "offset {wanted} of partition {} is said to be out of range: {error}",
            reading.partition
        ));
    }
}

fn wanted(start: Start) -> u64 {
    match start {
        Start::Offset(offset) => offset,
        _ => 0,
    }
}

fn resume_of(reading: &Reading) -> Option<(PartitionId, u64, u32)> {
    let next = if reading.opened { reading.next } else { return None };
    Some((reading.partition, next, reading.power))
}

fn draw_start(io: &mut Io<'_>, partition: PartitionId) -> Start {
    let end = io.board.known_end(partition);
    match io.rng.below(6) {
        0 | 1 => Start::Earliest,
        2 => Start::Latest,
        3 => Start::Offset(io.rng.below(end + 3)),
        4 => Start::Last(io.rng.magnitude(0..=2 * end + 1)),
        _ => Start::Time(io.wall_ms - io.rng.below(20_000) as i64),
    }
}

fn wire_start(start: Start, cursor: &str) -> At {
    match start {
        Start::Earliest => At::Earliest(true),
        Start::Latest => At::Latest(true),
        Start::Offset(offset) => At::Offset(offset),
        Start::Time(time) => At::TimestampMs(time),
        Start::Last(count) => At::Last(count),
        Start::Cursor(_) => At::Cursor(cursor.to_owned()),
    }
}

impl Role for Subscriber {
    fn act(&mut self, io: &mut Io<'_>) {
        self.grant(io);
        if io.phase == Phase::Settle || io.board.topics.is_empty() {
            return io.act_in(SECOND);
        }
        io.act_within(50 * MS..=2 * SECOND);
        match &self.reading {
            None if self.asked.is_none() => self.subscribe(io),
            Some(reading) if self.asked.is_none() && reading.opened && io.rng.per_mille(30) => {
                let request = io.ask(&proto::Unsubscribe { subscription_id: reading.subscription });
                self.asked = Some((request, Asked::Unsubscribe));
                self.reading = None;
            }
            _ => {}
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        match (self.asked.take(), answer) {
            (Some((_, Asked::Subscribe { at })), Ok(frame)) => match frame.message() {
                Ok(answer) => self.opened(io, at, &answer),
                Err(error) => io.unexpected(error.to_string()),
            },
            (Some((_, Asked::Subscribe { .. })), Err(error)) => self.refused(io, &error),
            (Some((_, Asked::Unsubscribe)), Err(error))
                if !passes(&error) && error.kind != ErrorKind::SubscriptionNotFound =>
            {
                io.unexpected(format!("an unsubscribe was refused: {error}"));
            }
            _ => {}
        }
    }

    fn pushed(&mut self, io: &mut Io<'_>, frame: Frame) {
        match frame.op() {
            Some(Op::Deliver) => self.delivered(io, &frame),
            Some(Op::SubscriptionClosed) => self.closed(io, &frame),
            op => io.unexpected(format!("a push nobody asked for: {op:?}")),
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
        if let Some(reading) = self.reading.take() {
            self.resume = resume_of(&reading);
        }
    }

    fn waits_for(&self) -> Option<String> {
        self.asked.as_ref().map(|asked| format!("{asked:?}"))
    }
}
