//! The client's decisions, pure: facts and times go in, outputs come out. The tokio shell and the simulator drive the
//! same code.
//!
//! Owns the connection's state, retries, batching and numbering, positions and credit. No I/O, no clock, no randomness:
//! the time comes with every input, the seed once. After every input and every application call the driver takes the
//! outputs with [`Core::next_output`] and carries them out in order, and it calls [`Input::Tick`] no later than
//! [`Core::next_deadline`].
//!
//! ```text
//! Input:  Connected, DialFailed, Received(frame), Disconnected, Written(bytes), Tick
//! Output: Dial, Send(frame), Close · Connected · CallDone, BatchDone, BufferFreed, Flushed, ReaderOpened, ReaderReady
//! ```

mod call;
mod context;
mod ids;
mod io;
mod link;
mod producer;
mod reader;
mod retry;
mod stats;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lockgate_wire::op::Body;
use lockgate_wire::{Frame, FrameKind, HostPort, MonoTime, Now, Offset, Op, OutFrame, batch, proto};

use self::call::{Calls, Finished, Purpose};
use self::context::{Context, Owner};
use self::link::{Link, LinkEvent, Received};
use self::producer::Producer;
use self::reader::Reader;
use self::timers::TimerKey;
use crate::config::{ClientConfig, ProducerConfig, ReaderConfig};
use crate::error::ClientError;

pub use self::call::{MAX_CALLS, Resend};
pub use self::ids::{BatchId, CallId, FlushId, LinkId, ProducerKey, ReaderKey};
pub use self::io::{Input, MAX_PARTITIONS, Output, Ticket, Topic};
pub use self::link::{
    HEARTBEAT_DEFAULT_MS, HEARTBEAT_MAX_MS, HEARTBEAT_MIN_MS, MAX_UNWRITTEN_BYTES, MISSED_HEARTBEATS,
};
pub use self::producer::{CloseReport, FRAME_OVERHEAD_BYTES, MAX_BATCH_BYTES, RECORD_OVERHEAD_BYTES};
pub use self::reader::{Chunk, Take, Taken, Unpacker};
pub use self::retry::{
    ATTEMPT_MIN_MS, PAUSE_CEILING_FIRST_MS, PAUSE_CEILING_LEADER_MS, PAUSE_CEILING_MAX_MS, RETRY_AFTER_MAX_MS,
};
pub use self::stats::Stats;

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// One client's decisions. Lives wherever its driver puts it; not shared.
#[derive(Debug)]
pub struct Core {
    context: Context,
    calls: Calls,
    producers: BTreeMap<ProducerKey, Producer>,
    readers: BTreeMap<ReaderKey, Reader>,
    connect_told: bool,
    closed: bool,
}

impl Core {
    /// A client that will dial at its first [`Input::Tick`]. `seed` makes its jitter and its choices.
    pub fn new(config: &ClientConfig, now: Now, seed: u64) -> Result<Self, ClientError> {
        config.check()?;
        Ok(Self {
            context: Context::new(now, Link::new(config, now.mono), seed),
            calls: Calls::default(),
            producers: BTreeMap::new(),
            readers: BTreeMap::new(),
            connect_told: false,
            closed: false,
        })
    }

    /// The next thing to carry out.
    pub fn next_output(&mut self) -> Option<Output> {
        self.context.outputs.pop_front()
    }

    /// When the next [`Input::Tick`] is due at the latest.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        [self.context.link.deadline(), self.context.timers.next()].into_iter().flatten().min()
    }

    /// Whether requests can be sent now.
    pub fn is_connected(&self) -> bool {
        self.context.link.is_up()
    }

    /// Every address that is a candidate for the next connection.
    pub fn endpoints(&self) -> &[HostPort] {
        self.context.link.seeds()
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        Stats { calls_open: self.calls.len() as u64, ..self.context.stats }
    }

    /// Takes a fact in.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.context.now = now;
        match input {
            Input::Connected { link } if self.context.link.is_current(link) => {
                let request = self.context.new_id();
                self.context.link.connected(request, &mut self.context.outputs);
            }
            Input::DialFailed { link, reason } | Input::Disconnected { link, reason }
                if self.context.link.is_current(link) =>
            {
                self.lose_link(reason, false);
            }
            Input::Received { link, frame } if self.context.link.is_current(link) => self.received(frame),
            Input::BytesReceived { link } => self.context.link.progressed(now.mono, link),
            Input::Written { link, bytes } if self.context.link.written(link, bytes) => self.pump_waiting(),
            Input::Tick => self.tick(),
            // Of a link that no longer counts.
            _ => {}
        }
    }

    /// Starts a call. Its end is an [`Output::CallDone`]. Fails at once when there are too many, or after a close.
    pub fn call<B: Body>(
        &mut self,
        now: Now,
        message: &B,
        payload: Option<Bytes>,
        timeout: Duration,
        resend: Resend,
    ) -> Result<CallId, ClientError> {
        self.check_open(now)?;
        self.calls.start(&mut self.context, message, payload, timeout, resend, Purpose::Application)
    }

    /// Sends a message that is not answered. Fails when there is no connection now, and with
    /// [`ClientError::BufferFull`] while too much waits to be written; [`Input::Written`] makes room.
    pub fn tell<B: Body>(&mut self, now: Now, message: &B, payload: Option<Bytes>) -> Result<(), ClientError> {
        self.check_open(now)?;
        call::check_size(message, payload.as_ref())?;
        if !self.context.link.is_up() {
            let last = "there is no connection".into();
            return Err(ClientError::Unavailable { after: Duration::ZERO, last });
        }
        if !self.context.link.has_room() {
            return Err(ClientError::BufferFull { buffer_bytes: MAX_UNWRITTEN_BYTES });
        }
        self.context.tell(message, payload);
        Ok(())
    }

    /// Opens a producer.
    pub fn open_producer(
        &mut self,
        now: Now,
        topic: Topic,
        config: ProducerConfig,
    ) -> Result<ProducerKey, ClientError> {
        self.check_open(now)?;
        config.check()?;
        let topic = topic.checked()?;
        let key = ProducerKey(self.context.new_id());
        self.producers.insert(key, Producer::new(&mut self.context, key, topic, config));
        Ok(key)
    }

    /// Takes a record, for this partition or for the one that its key or the spread says. Its timestamp is the caller's.
    ///
    /// With [`ClientError::BufferFull`] it was not taken; [`Output::BufferFreed`] tells when to try again.
    pub fn send(
        &mut self,
        now: Now,
        producer: ProducerKey,
        partition: Option<u32>,
        record: &batch::Record,
    ) -> Result<Ticket, ClientError> {
        self.check_open(now)?;
        let producer = self.producers.get_mut(&producer).ok_or(ClientError::Closed)?;
        producer.send(&mut self.context, &mut self.calls, partition, record)
    }

    /// Sends what is gathered; [`Output::Flushed`] tells when everything sent so far has its answer.
    pub fn flush(&mut self, now: Now, producer: ProducerKey) -> Result<FlushId, ClientError> {
        self.check_open(now)?;
        let producer = self.producers.get_mut(&producer).ok_or(ClientError::Closed)?;
        Ok(producer.flush(&mut self.context, &mut self.calls))
    }

    /// A flush after which the producer takes nothing more. The producer stays until
    /// [`remove_producer`](Self::remove_producer).
    pub fn close_producer(&mut self, now: Now, producer: ProducerKey) -> Result<FlushId, ClientError> {
        self.check_open(now)?;
        let producer = self.producers.get_mut(&producer).ok_or(ClientError::Closed)?;
        Ok(producer.close(&mut self.context, &mut self.calls))
    }

    /// What the producer confirmed so far.
    pub fn producer_report(&self, producer: ProducerKey) -> Option<CloseReport> {
        self.producers.get(&producer).map(Producer::report)
    }

    /// The application is done with a producer. What it took is still sent, and the producer goes when all has its answer.
    pub fn remove_producer(&mut self, now: Now, producer: ProducerKey) {
        self.context.now = now;
        if let Some(state) = self.producers.get_mut(&producer) {
            state.remove(&mut self.context, &mut self.calls);
        }
        self.drop_if_done(producer);
    }

    /// Opens a reader; [`Output::ReaderOpened`] tells when it covers its partitions, within `timeout`, or why not.
    pub fn open_reader(
        &mut self,
        now: Now,
        topic: Topic,
        config: &ReaderConfig,
        timeout: Duration,
    ) -> Result<ReaderKey, ClientError> {
        self.check_open(now)?;
        config.check()?;
        let topic = topic.checked()?;
        let key = ReaderKey(self.context.new_id());
        let reader = Reader::new(&mut self.context, key, topic, config, timeout)?;
        self.readers.insert(key, reader);
        Ok(key)
    }

    /// The next thing that a reader has. A chunk's bytes count as consumed by this.
    pub fn take(&mut self, now: Now, reader: ReaderKey) -> Take {
        self.context.now = now;
        self.readers.get_mut(&reader).map_or(Take::Finished, |reader| reader.take(&mut self.context))
    }

    /// Where each partition of an open reader began.
    pub fn start_positions(&self, reader: ReaderKey) -> BTreeMap<u32, Offset> {
        self.readers.get(&reader).map(Reader::positions).unwrap_or_default()
    }

    /// Reads a partition no further, because a batch of it is damaged.
    pub fn abandon_partition(&mut self, now: Now, reader: ReaderKey, partition: u32) {
        self.context.now = now;
        if let Some(reader) = self.readers.get_mut(&reader) {
            reader.abandon(&mut self.context, partition);
        }
    }

    /// The application is done with a reader.
    pub fn remove_reader(&mut self, now: Now, reader: ReaderKey) {
        self.context.now = now;
        if let Some(mut reader) = self.readers.remove(&reader) {
            reader.close(&mut self.context);
        }
    }

    /// Ends everything: what is not answered fails, as closed or as unknown, and the connection is closed in order.
    pub fn close(&mut self, now: Now) {
        self.context.now = now;
        self.closed = true;
        for producer in self.producers.values_mut() {
            producer.shut(&mut self.context);
        }
        self.producers.clear();
        for reader in self.readers.values_mut() {
            reader.close(&mut self.context);
        }
        self.readers.clear();
        let finished = self.calls.close(&mut self.context);
        self.finish(finished);
        self.context.link.close(now.mono, &mut self.context.outputs);
        self.tell_connected(Err(ClientError::Closed));
    }

    fn check_open(&mut self, now: Now) -> Result<(), ClientError> {
        self.context.now = now;
        if self.closed { Err(ClientError::Closed) } else { Ok(()) }
    }

    fn received(&mut self, frame: Frame) {
        match self.context.link.received(self.context.now.mono, frame) {
            Received::Frame(frame) => {
                if let Err(violation) = self.dispatch(frame) {
                    self.lose_link(format!("the broker broke the protocol: {violation}"), true);
                }
            }
            Received::Up => self.link_up(),
            Received::Broken(reason) => self.lose_link(reason, true),
            Received::Ignored => {}
        }
    }

    /// Brings a frame to whom it concerns. `Err` says how it breaks the protocol.
    fn dispatch(&mut self, frame: Frame) -> Result<(), String> {
        match (frame.kind, frame.op()) {
            // That it came was all there is to it.
            (FrameKind::Response, Some(Op::Ping)) => Ok(()),
            (FrameKind::Response | FrameKind::Error, _) => self.answered(frame),
            (FrameKind::Push, Some(Op::Deliver)) => {
                let deliver: proto::Deliver = frame.message().map_err(|error| error.message)?;
                let Some((key, place)) = self.context.subscriptions.get(&deliver.subscription_id).copied() else {
                    return Ok(());
                };
                let Some(reader) = self.readers.get_mut(&key) else { return Ok(()) };
                reader.delivered(&mut self.context, place, &deliver, &frame)
            }
            (FrameKind::Push, Some(Op::SubscriptionClosed)) => {
                let closed: proto::SubscriptionClosed = frame.message().map_err(|error| error.message)?;
                if let Some((key, place)) = self.context.subscriptions.get(&closed.subscription_id).copied() {
                    if let Some(reader) = self.readers.get_mut(&key) {
                        reader.closed(&mut self.context, place, closed);
                    }
                    self.drop_if_failed(key);
                }
                Ok(())
            }
            (FrameKind::Request, Some(Op::Ping)) if frame.request_id != 0 => {
                let answer = OutFrame::response(frame.request_id, &proto::PingOk {});
                self.context.link.send(self.context.now.mono, answer, &mut self.context.outputs);
                Ok(())
            }
            // GoingAway needs nothing of a client with one broker; what is not known is no business of this build.
            (FrameKind::Push | FrameKind::Request, _) => Ok(()),
        }
    }

    fn answered(&mut self, frame: Frame) -> Result<(), String> {
        match self.context.answered(frame.request_id) {
            Some(Owner::Call(id)) => {
                let finished = self.calls.answered(&mut self.context, id, frame)?;
                self.finish(finished);
                Ok(())
            }
            Some(Owner::Batch(key, partition)) => {
                let Some(producer) = self.producers.get_mut(&key) else { return Ok(()) };
                producer.answered(&mut self.context, &mut self.calls, partition, &frame)?;
                self.drop_if_done(key);
                Ok(())
            }
            Some(Owner::Subscription(key, place)) => match self.readers.get_mut(&key) {
                Some(reader) => {
                    reader.answered(&mut self.context, place, &frame)?;
                    self.drop_if_failed(key);
                    Ok(())
                }
                None => Ok(()),
            },
            None => {
                self.context.stats.late_answers += 1;
                Ok(())
            }
        }
    }

    fn tick(&mut self) {
        let ping = self.context.new_id();
        let Context { link, rng, outputs, now, .. } = &mut self.context;
        if let Some(event) = link.tick(now.mono, rng, ping, outputs) {
            self.link_event(event);
        }
        while let Some(key) = self.context.timers.take_due(self.context.now.mono) {
            self.ring(key);
        }
    }

    fn ring(&mut self, key: TimerKey) {
        match key {
            TimerKey::Call(id) => {
                let finished = self.calls.tick(&mut self.context, id);
                self.finish(finished);
            }
            TimerKey::Producer(key, partition) => {
                if let Some(producer) = self.producers.get_mut(&key) {
                    producer.tick(&mut self.context, &mut self.calls, partition);
                }
                self.drop_if_done(key);
            }
            TimerKey::Reader(key, place) => {
                if let Some(reader) = self.readers.get_mut(&key) {
                    reader.tick_partition(&mut self.context, place);
                }
            }
            TimerKey::Opening(key) => {
                if self.readers.get_mut(&key).is_some_and(|reader| reader.tick_opening(&mut self.context)) {
                    self.remove_reader(self.context.now, key);
                }
            }
        }
    }

    fn lose_link(&mut self, reason: String, close: bool) {
        let Context { link, rng, outputs, now, .. } = &mut self.context;
        if let Some(event) = link.lost(now.mono, reason, close, rng, outputs) {
            self.link_event(event);
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Down(reason) => self.link_down(&reason),
            LinkEvent::Unreachable(attempts) => self.tell_connected(Err(ClientError::Connect { attempts })),
        }
    }

    fn link_up(&mut self) {
        self.context.stats.connections += 1;
        self.tell_connected(Ok(()));
        self.calls.link_up(&mut self.context);
        for producer in self.producers.values_mut() {
            producer.link_up(&mut self.context, &mut self.calls);
        }
        for reader in self.readers.values_mut() {
            reader.subscribe(&mut self.context);
        }
    }

    fn link_down(&mut self, reason: &str) {
        self.context.stats.disconnections += 1;
        self.context.forget_all();
        let finished = self.calls.link_down(&mut self.context, reason);
        self.finish(finished);
        for producer in self.producers.values_mut() {
            producer.link_down(&mut self.context, reason);
        }
        self.producers.retain(|_, producer| !producer.is_done());
        for reader in self.readers.values_mut() {
            reader.link_down(&mut self.context, reason);
        }
    }

    fn tell_connected(&mut self, result: Result<(), ClientError>) {
        if !std::mem::replace(&mut self.connect_told, true) {
            self.context.output(Output::Connected(result));
        }
    }

    fn pump_waiting(&mut self) {
        for (key, partition) in std::mem::take(&mut self.context.waiting_for_room) {
            if let Some(producer) = self.producers.get_mut(&key) {
                producer.pump(&mut self.context, &mut self.calls, partition);
            }
            self.drop_if_done(key);
        }
    }

    fn drop_if_done(&mut self, key: ProducerKey) {
        if self.producers.get(&key).is_some_and(Producer::is_done) {
            self.producers.remove(&key);
        }
    }

    fn drop_if_failed(&mut self, key: ReaderKey) {
        if self.readers.get(&key).is_some_and(Reader::is_failed) {
            self.remove_reader(self.context.now, key);
        }
    }

    /// Brings the ends of calls to those who started them.
    fn finish(&mut self, finished: impl IntoIterator<Item = Finished>) {
        for (_, purpose, answer) in finished {
            let Purpose::Identity(key) = purpose else { continue };
            if let Some(producer) = self.producers.get_mut(&key) {
                producer.identity(&mut self.context, &mut self.calls, answer);
            }
            self.drop_if_done(key);
        }
    }
}
