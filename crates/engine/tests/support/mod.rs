//! A node of real shards on a disk in memory: outputs are carried out at once, in order, until nothing is left to do.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockgate_engine::{Input, JournalSettings, Limits, NodeConfig, Output, Shard, recover};
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_wire::batch::{BatchBuilder, Codec, Producer, Record};
use lockgate_wire::op::Body;
use lockgate_wire::{
    ConnectionId, Error, Frame, FrameKind, MonoTime, NodeId, Now, OutFrame, ShardId, Uid, WallMs, proto,
};

pub struct Node {
    pub disk: MemoryDisk,
    pub config: Arc<NodeConfig>,
    pub shards: Vec<Shard>,
    pub now: Now,
    queue: VecDeque<(usize, Output)>,
    /// Frames that connections were sent, decoded.
    received: BTreeMap<u64, VecDeque<Frame>>,
    homes: BTreeMap<u64, usize>,
    pub closed: Vec<ConnectionId>,
    pub stopped: usize,
    next_connection: u64,
    next_request: u64,
    /// While set, journal writes are kept back instead of carried out.
    pub hold_journal: bool,
    held: VecDeque<(usize, Output)>,
    /// While set, bytes sent to clients are not reported as written.
    pub hold_written: bool,
    pub logs: Vec<String>,
}

pub fn config(shards: u16) -> NodeConfig {
    NodeConfig {
        node: NodeId(1),
        cluster: Uid([7; 16]),
        shards,
        incarnation: 1,
        journal: JournalSettings { file_bytes: 4 << 20, max_write_bytes: 2 << 20 },
        limits: Limits::default(),
        advertise: Vec::new(),
        version: "test".into(),
    }
}

impl Node {
    pub fn new(shards: u16) -> Self {
        Self::start(MemoryDisk::default(), config(shards))
    }

    pub fn start(disk: MemoryDisk, config: NodeConfig) -> Self {
        let now = Now { mono: MonoTime(1_000_000_000), wall: WallMs(1_700_000_000_000) };
        Self::start_at(disk, config, now)
    }

    pub fn start_at(disk: MemoryDisk, config: NodeConfig, now: Now) -> Self {
        let config = Arc::new(config);
        let mut node = Self {
            disk,
            config: config.clone(),
            shards: Vec::new(),
            now,
            queue: VecDeque::new(),
            received: BTreeMap::new(),
            homes: BTreeMap::new(),
            closed: Vec::new(),
            stopped: 0,
            next_connection: 0,
            next_request: 0,
            hold_journal: false,
            held: VecDeque::new(),
            hold_written: false,
            logs: Vec::new(),
        };
        for shard in 0..config.shards {
            let recovered = recover(&node.disk, &config, ShardId(shard)).unwrap();
            let mut out = Vec::new();
            let started = Shard::start(config.clone(), ShardId(shard), recovered, 42, now, &mut out);
            node.shards.push(started);
            node.queue.extend(out.into_iter().map(|output| (usize::from(shard), output)));
        }
        node.run();
        node
    }

    /// Stops in order and starts again on the same disk.
    pub fn restart(mut self) -> Self {
        self.stop();
        let (config, now) = ((*self.config).clone(), self.now);
        Self::start_at(self.disk, config, now)
    }

    /// Dies at once and starts again on the same disk.
    pub fn crash(self) -> Self {
        let (config, now) = ((*self.config).clone(), self.now);
        Self::start_at(self.disk, config, now)
    }

    pub fn stop(&mut self) {
        for shard in 0..self.shards.len() {
            self.input(shard, Input::Stop);
        }
        for _ in 0..1_000 {
            self.advance(10);
            if self.stopped == self.shards.len() {
                return;
            }
        }
        panic!("the node did not stop: {:?}", self.logs);
    }

    fn input(&mut self, shard: usize, input: Input) {
        let mut out = Vec::new();
        self.shards[shard].handle(self.now, input, &mut out);
        self.queue.extend(out.into_iter().map(|output| (shard, output)));
    }

    fn round(&mut self) {
        for shard in 0..self.shards.len() {
            let mut out = Vec::new();
            self.shards[shard].finish_round(self.now, &mut out);
            self.queue.extend(out.into_iter().map(|output| (shard, output)));
        }
    }

    /// Works until nothing is left to do at this moment.
    pub fn run(&mut self) {
        loop {
            self.round();
            if self.queue.is_empty() {
                return;
            }
            while let Some((shard, output)) = self.queue.pop_front() {
                self.output(shard, output);
            }
        }
    }

    pub fn advance(&mut self, ms: u64) {
        self.now.mono = self.now.mono.plus_ms(ms);
        self.now.wall.0 += ms as i64;
        self.run();
    }

    /// Carries out the journal writes that were kept back.
    pub fn release_journal(&mut self) {
        self.hold_journal = false;
        let held = std::mem::take(&mut self.held);
        self.queue.extend(held);
        self.run();
    }

    fn output(&mut self, shard: usize, output: Output) {
        match output {
            Output::Send { connection, frame } => {
                let mut bytes = BytesMut::from(&frame.to_bytes()[..]);
                let decoded = Frame::decode(&mut bytes, u32::MAX).unwrap().expect("a whole frame");
                self.received.entry(connection.0).or_default().push_back(decoded);
                if !self.hold_written {
                    self.input(shard, Input::Written { connection, bytes: frame.size() });
                }
            }
            Output::ResumeReading { .. } | Output::Ready => {}
            Output::Close { connection, .. } => {
                self.closed.push(connection);
                self.input(shard, Input::ConnectionClosed { connection });
            }
            Output::Mesh { to, frame } => {
                self.input(usize::from(to.0), Input::Mesh { from: ShardId(shard as u16), frame });
            }
            Output::Journal(write) => {
                if self.hold_journal {
                    self.held.push_back((shard, Output::Journal(write)));
                    return;
                }
                let result = write.execute(&self.disk);
                self.input(shard, Input::JournalWritten { journal: write.kind, result });
            }
            Output::File { token, op, .. } => {
                let result = op.execute(&self.disk);
                self.input(shard, Input::FileDone { token, result });
            }
            Output::View(view) => {
                for other in (0..self.shards.len()).filter(|other| *other != shard) {
                    self.input(other, Input::View(view.clone()));
                }
            }
            Output::Stopped => self.stopped += 1,
            Output::Log { message, .. } => self.logs.push(message),
        }
    }

    // ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// A connection on this shard that has not said Hello.
    pub fn connect_raw(&mut self, shard: usize) -> ConnectionId {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        self.homes.insert(connection.0, shard);
        self.input(shard, Input::ConnectionOpened { connection, peer: "test:1".into() });
        self.run();
        connection
    }

    pub fn connect(&mut self, shard: usize) -> ConnectionId {
        let connection = self.connect_raw(shard);
        let hello: proto::HelloOk = self.ask(connection, &proto::Hello::default());
        assert_eq!(hello.node_id, 1);
        connection
    }

    pub fn disconnect(&mut self, connection: ConnectionId) {
        let shard = self.homes[&connection.0];
        self.input(shard, Input::ConnectionClosed { connection });
        self.run();
    }

    pub fn send_frame(&mut self, connection: ConnectionId, frame: &OutFrame) {
        let shard = self.homes[&connection.0];
        let mut bytes = BytesMut::from(&frame.to_bytes()[..]);
        match Frame::decode(&mut bytes, self.shards[shard].frame_limit(connection)) {
            Ok(frame) => self.input(shard, Input::FrameReceived { connection, frame: frame.expect("a whole frame") }),
            Err(error) => self.input(shard, Input::BadBytes { connection, error }),
        }
    }

    /// Sends a request and gives its id; nothing runs yet.
    pub fn send<B: Body>(&mut self, connection: ConnectionId, body: &B, payload: Bytes) -> u64 {
        self.next_request += 1;
        let payload = if payload.is_empty() { Vec::new() } else { vec![payload] };
        let frame = OutFrame::new(FrameKind::Request, self.next_request, body, payload);
        self.send_frame(connection, &frame);
        self.next_request
    }

    pub fn written(&mut self, connection: ConnectionId, bytes: usize) {
        let shard = self.homes[&connection.0];
        self.input(shard, Input::Written { connection, bytes });
        self.run();
    }

    pub fn may_read(&mut self, connection: ConnectionId) -> bool {
        self.shards[self.homes[&connection.0]].may_read(connection)
    }

    /// Takes the answer to a request out of what was received.
    pub fn answer(&mut self, connection: ConnectionId, id: u64) -> Option<Result<Frame, Error>> {
        let frames = self.received.entry(connection.0).or_default();
        let at = frames.iter().position(|f| f.request_id == id && f.kind != FrameKind::Push)?;
        let frame = frames.remove(at)?;
        Some(match frame.kind {
            FrameKind::Error => Err(Error::from_proto(frame.message().unwrap())),
            _ => Ok(frame),
        })
    }

    /// The frame of an error about the connection.
    pub fn connection_error(&mut self, connection: ConnectionId) -> Error {
        self.answer(connection, 0).expect("an error about the connection").expect_err("an error")
    }

    pub fn push(&mut self, connection: ConnectionId) -> Option<Frame> {
        let frames = self.received.entry(connection.0).or_default();
        let at = frames.iter().position(|f| f.kind == FrameKind::Push)?;
        frames.remove(at)
    }

    pub fn try_ask_with<B: Body, A: Body>(
        &mut self,
        connection: ConnectionId,
        body: &B,
        payload: Bytes,
    ) -> Result<A, Error> {
        let id = self.send(connection, body, payload);
        self.run();
        let frame = self.answer(connection, id).expect("an answer")?;
        Ok(frame.message().unwrap())
    }

    pub fn try_ask<B: Body, A: Body>(&mut self, connection: ConnectionId, body: &B) -> Result<A, Error> {
        self.try_ask_with(connection, body, Bytes::new())
    }

    pub fn ask<B: Body, A: Body>(&mut self, connection: ConnectionId, body: &B) -> A {
        self.try_ask(connection, body).unwrap()
    }

    pub fn create_topic(
        &mut self,
        connection: ConnectionId,
        name: &str,
        partitions: u32,
        settings: &[(&str, &str)],
    ) -> u64 {
        let settings = settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let create = proto::CreateTopic { name: name.into(), partitions, settings, ..Default::default() };
        let created: proto::CreateTopicOk = self.ask(connection, &create);
        created.topic_id
    }

    pub fn publish(
        &mut self,
        connection: ConnectionId,
        topic_id: u64,
        partition: u32,
        batch: Bytes,
    ) -> Result<proto::PublishOk, Error> {
        self.try_ask_with(connection, &publish(topic_id, partition), batch)
    }

    /// Reads a partition from an offset to its end by fetches: offset and value of each record.
    pub fn read_all(
        &mut self,
        connection: ConnectionId,
        topic_id: u64,
        partition: u32,
        from: u64,
    ) -> Vec<(u64, String)> {
        let mut offset = from;
        let mut records = Vec::new();
        loop {
            let fetch = proto::Fetch { topic_id, partition, offset, max_bytes: 1 << 20, max_wait_ms: 0 };
            let id = self.send(connection, &fetch, Bytes::new());
            self.run();
            let frame = self.answer(connection, id).expect("an answer").unwrap();
            let body: proto::FetchOk = frame.message().unwrap();
            if frame.payload.is_empty() {
                return records;
            }
            records.extend(self::records(frame.payload).into_iter().filter(|(at, _)| *at >= offset));
            offset = body.next_offset;
        }
    }
}

pub fn publish(topic_id: u64, partition: u32) -> proto::Publish {
    proto::Publish { topic_id, partition, ack: proto::Ack::Quorum as i32, partitioning_version: 1 }
}

/// The records of a payload: offset and value.
pub fn records(payload: Bytes) -> Vec<(u64, String)> {
    lockgate_wire::batch::split(payload)
        .flat_map(|batch| lockgate_wire::batch::decode(batch.unwrap(), 1 << 26).unwrap().records)
        .map(|(offset, record)| (offset.0, String::from_utf8(record.value.unwrap().to_vec()).unwrap()))
        .collect()
}

pub fn batch(values: &[&str]) -> Bytes {
    numbered_batch(values, None)
}

pub fn numbered_batch(values: &[&str], producer: Option<Producer>) -> Bytes {
    batch_at(values, producer, 1_700_000_000_000)
}

pub fn batch_at(values: &[&str], producer: Option<Producer>, timestamp_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in values {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        builder.push(&Record { key: None, value, headers: Vec::new(), timestamp_ms }).unwrap();
    }
    builder.build(producer)
}
