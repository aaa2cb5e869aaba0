//! An oracle that uses the client library's core: the decisions of the real producer and reader, judged like any other's.
//! It works on topics that no power loss may touch and no retention cuts, so that nothing may fail for good.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockgate_client::core::{BatchId, Core, Input, LinkId, Output, ProducerKey, ReaderKey, Take, Taken, Topic};
use lockgate_client::{ClientConfig, ClientError, ProducerConfig, ReaderConfig, Receipt, Start};
use lockgate_wire::batch::Codec;
use lockgate_wire::frame::HARD_MAX_FRAME_BYTES;
use lockgate_wire::{Frame, MonoTime, Now, PartitionId, WallMs};

use super::client::{Actor, ClientInput, Environment, Phase};
use super::payload;
use crate::history::{self, BatchNo, ClientNo, Event, Life, Placed, ReaderNo, What};
use crate::rng::Rng;
use crate::time::{MS, SECOND, Time};

/// Longer than any run heals, so that an answer always comes.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Batches that may wait for their answers: on the slowest disk they still have them within the bound for healing.
const ON_THEIR_WAY_MAX: usize = 100;
/// Chains of this kind of producer are told apart by this bit.
const LIBRARY_CHAIN: u64 = 1 << 62;

/// A client of the library.
pub(super) struct LibraryClient {
    number: ClientNo,
    rng: Rng,
    core: Option<Core>,
    /// The transport that counts, once it was asked for.
    link: Option<LinkId>,
    is_connected: bool,
    wants_connect: bool,
    wants_close: bool,
    outgoing: Vec<Bytes>,
    incoming: BytesMut,
    life: Life,
    topic: Option<Topic>,
    producer: Option<ProducerKey>,
    reader: Option<ReaderKey>,
    readers: BTreeMap<u32, ReaderNo>,
    /// Records on their way, by the batch that the library put them into and their place in it.
    on_their_way: BTreeMap<BatchId, (PartitionId, Vec<(u32, BatchNo)>)>,
    act_at: Time,
    pace: Time,
}

impl LibraryClient {
    pub(super) fn new(number: ClientNo, mut rng: Rng) -> Self {
        let pace = rng.magnitude(800 * MS..=10 * SECOND);
        Self {
            number,
            rng,
            core: None,
            link: None,
            is_connected: false,
            wants_connect: false,
            wants_close: false,
            outgoing: Vec::new(),
            incoming: BytesMut::new(),
            life: Life::default(),
            topic: None,
            producer: None,
            reader: None,
            readers: BTreeMap::new(),
            on_their_way: BTreeMap::new(),
            act_at: 0,
            pace,
        }
    }

    fn saw(&self, environment: &mut Environment<'_>, what: What) {
        environment.events.push(Event { at: environment.now, client: self.number, life: self.life, what });
    }

    fn unexpected(&self, environment: &mut Environment<'_>, text: String) {
        self.saw(environment, What::Unexpected(text));
    }

    /// Opens the library's client, its producer and its reader, once there is a topic for them.
    fn begin(&mut self, environment: &Environment<'_>) -> Result<(), ClientError> {
        let fit = environment
            .board
            .topics
            .iter()
            .filter(|topic| topic.facts.interval.is_none() && !topic.facts.trims && !topic.append_time);
        let fit: Vec<_> = fit.collect();
        if fit.is_empty() {
            return Ok(());
        }
        let chosen = *self.rng.pick(&fit);
        let topic = Topic {
            name: chosen.name.clone(),
            id: chosen.id,
            partitions: chosen.facts.partitions,
            partitioning_version: chosen.partitioning_version,
            max_batch_bytes: chosen.max_batch_bytes,
        };
        let now = clock(environment);
        let core = self.core.insert(Core::new(&ClientConfig::with_seeds(["node:7400"])?, now, self.rng.draw())?);
        let config = ProducerConfig {
            linger: Duration::from_millis(self.rng.magnitude(0..=50)),
            batch_records: self.rng.magnitude(1..=100) as usize,
            compression: *self.rng.pick(&Codec::ALL),
            in_flight: self.rng.within(1..=5) as usize,
            timeout: TIMEOUT,
            ..ProducerConfig::default()
        };
        self.producer = Some(core.open_producer(now, topic.clone(), config)?);
        let config = ReaderConfig {
            from: Start::Earliest,
            credit_bytes: self.rng.magnitude(1..=1 << 20),
            ..ReaderConfig::default()
        };
        self.reader = Some(core.open_reader(now, topic.clone(), &config, TIMEOUT)?);
        core.handle(now, Input::Tick);
        self.topic = Some(topic);
        Ok(())
    }

    fn act(&mut self, environment: &mut Environment<'_>) {
        self.act_at = environment.now + self.rng.magnitude(self.pace / 50..=2 * self.pace);
        if self.core.is_none() {
            if let Err(error) = self.begin(environment) {
                self.unexpected(environment, format!("the library does not open: {error}"));
            }
        } else if environment.phase == Phase::Stir && self.on_their_way.len() < ON_THEIR_WAY_MAX {
            for _ in 0..self.rng.magnitude(1..=20) {
                self.send_record(environment);
            }
        }
    }

    fn send_record(&mut self, environment: &mut Environment<'_>) {
        let (Some(core), Some(producer), Some(topic)) = (&mut self.core, self.producer, &self.topic) else { return };
        let (batch, record) =
            payload::make_single(environment.board, self.rng.magnitude(1..=500) as usize, environment.wall_ms);
        let partition = self.rng.coin().then(|| self.rng.below(topic.partitions.into()) as u32);
        environment.board.operations += 1;
        match core.send(clock(environment), producer, partition, &record) {
            Ok(ticket) => {
                let partition = PartitionId { topic: topic.id, partition: ticket.partition };
                self.on_their_way.entry(ticket.batch).or_insert((partition, Vec::new())).1.push((ticket.index, batch));
                let chain = u64::from(self.number) | LIBRARY_CHAIN;
                self.saw(environment, What::Sent { batch, partition, chain });
            }
            Err(ClientError::BufferFull { .. }) => {}
            Err(error) => self.unexpected(environment, format!("the library does not take a record: {error}")),
        }
    }

    /// Carries the core's outputs out.
    fn carry_out(&mut self, environment: &mut Environment<'_>) {
        while let Some(output) = self.core.as_mut().and_then(Core::next_output) {
            match output {
                Output::Dial { link, .. } => {
                    self.link = Some(link);
                    self.is_connected = false;
                    self.wants_connect = true;
                }
                Output::Send { link, frame } if self.link == Some(link) => {
                    let bytes = frame.to_bytes();
                    let input = Input::Written { link, bytes: bytes.len() };
                    self.outgoing.push(bytes);
                    self.tell_core(environment, input);
                }
                Output::Close { link } if self.link == Some(link) => {
                    self.link = None;
                    self.wants_close = true;
                }
                Output::BatchDone { batch, result } => self.batch_done(environment, batch, result),
                Output::ReaderOpened { result, .. } => self.reader_opened(environment, result),
                Output::ReaderReady { .. } => self.take(environment),
                Output::Send { .. }
                | Output::Close { .. }
                | Output::Connected(_)
                | Output::CallDone { .. }
                | Output::BufferFreed { .. }
                | Output::Flushed { .. } => {}
            }
        }
    }

    fn tell_core(&mut self, environment: &Environment<'_>, input: Input) {
        if let Some(core) = &mut self.core {
            core.handle(clock(environment), input);
        }
    }

    fn batch_done(&mut self, environment: &mut Environment<'_>, batch: BatchId, result: Result<Receipt, ClientError>) {
        let Some((partition, records)) = self.on_their_way.remove(&batch) else { return };
        let offset = match result {
            Ok(Receipt { offset: Some(offset), .. }) => offset.0,
            other => {
                return self
                    .unexpected(environment, format!("records {records:?} of partition {partition} end as {other:?}"));
            }
        };
        for (index, batch) in records {
            let placed = Placed { offset: offset + u64::from(index), records: 1, batch };
            environment.board.placed(partition, placed, self.life);
            self.saw(environment, What::Acknowledged { placed, partition, duplicate: false });
        }
    }

    fn reader_opened(&mut self, environment: &mut Environment<'_>, result: Result<(), ClientError>) {
        let (Some(core), Some(reader), Some(topic)) = (&self.core, self.reader, &self.topic) else { return };
        if let Err(error) = result {
            return self.unexpected(environment, format!("the library's reader does not open: {error}"));
        }
        let topic = topic.id;
        for (partition, next) in core.start_positions(reader) {
            let reader = environment.board.new_reader();
            self.readers.insert(partition, reader);
            let (partition, next, start) = (PartitionId { topic, partition }, next.0, history::Start::Offset(next.0));
            self.saw(
                environment,
                What::Opened { reader, partition, start, next, earliest: next, high_watermark: next },
            );
        }
        self.take(environment);
    }

    fn take(&mut self, environment: &mut Environment<'_>) {
        let (Some(reader), Some(topic)) = (self.reader, self.topic.as_ref().map(|topic| topic.id)) else { return };
        while let Some(core) = &mut self.core {
            match core.take(clock(environment), reader) {
                Take::Item(Taken::Chunk(chunk)) => {
                    let partition = PartitionId { topic, partition: chunk.partition };
                    let (Some(reader), batches) = (
                        self.readers.get(&chunk.partition).copied(),
                        payload::read_batches(environment.board, &chunk.batch, chunk.from.0, false),
                    ) else {
                        return self.unexpected(
                            environment,
                            format!("partition {partition} is read before the reader is open"),
                        );
                    };
                    match batches {
                        Ok(batches) => {
                            let next = batches.last().map_or(0, Placed::end);
                            self.saw(
                                environment,
                                What::Read { reader, partition, batches, next, high_watermark: next },
                            );
                        }
                        Err(error) => self.unexpected(environment, format!("partition {partition}: {error}")),
                    }
                }
                Take::Item(Taken::Failed { partition, error }) => {
                    self.unexpected(
                        environment,
                        format!("the library reads partition {partition} no further: {error}"),
                    );
                }
                Take::Item(_) => {}
                _ => return,
            }
        }
    }

    fn received(&mut self, environment: &mut Environment<'_>, bytes: &Bytes) {
        self.incoming.extend_from_slice(bytes);
        while let Some(link) = self.link {
            match Frame::decode(&mut self.incoming, HARD_MAX_FRAME_BYTES) {
                Ok(Some(frame)) => self.tell_core(environment, Input::Received { link, frame }),
                Ok(None) => return,
                Err(error) => return self.unexpected(environment, error.to_string()),
            }
            self.carry_out(environment);
        }
    }
}

fn clock(environment: &Environment<'_>) -> Now {
    Now { mono: MonoTime(environment.now), wall: WallMs(environment.wall_ms) }
}

impl Actor for LibraryClient {
    fn handle(&mut self, input: ClientInput, environment: &mut Environment<'_>) {
        match input {
            ClientInput::Hurry => {}
            ClientInput::Wake => {
                if self.act_at <= environment.now {
                    self.act(environment);
                }
                self.tell_core(environment, Input::Tick);
            }
            ClientInput::Connected { life, .. } => {
                self.life = life;
                self.is_connected = true;
                self.incoming.clear();
                if let Some(link) = self.link {
                    self.tell_core(environment, Input::Connected { link });
                }
            }
            ClientInput::Received(bytes) => self.received(environment, &bytes),
            ClientInput::Lost => {
                if let Some(link) = self.link.take() {
                    let reason = "the connection is gone".to_owned();
                    let was_connected = std::mem::take(&mut self.is_connected);
                    let input = if was_connected {
                        Input::Disconnected { link, reason }
                    } else {
                        Input::DialFailed { link, reason }
                    };
                    self.tell_core(environment, input);
                }
            }
        }
        self.carry_out(environment);
    }

    fn takes_connect(&mut self, _now: Time) -> bool {
        std::mem::take(&mut self.wants_connect)
    }

    fn takes_close(&mut self) -> bool {
        std::mem::take(&mut self.wants_close)
    }

    fn takes_outgoing(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.outgoing)
    }

    fn next_wake(&self) -> Time {
        let core = self.core.as_ref().and_then(Core::next_deadline).map_or(Time::MAX, |deadline| deadline.0);
        core.min(self.act_at)
    }

    fn waits_for(&self) -> Option<String> {
        (!self.on_their_way.is_empty())
            .then(|| format!("client {} (library) waits for {:?}", self.number, self.on_their_way))
    }
}
