//! A node on a disk of its own, outside of the world's time: everything it wants done is done at once. It is started, read
//! out, written to and dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockgate_engine::{Input, NodeConfig, Output, Shard, recover};
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_wire::batch;
use lockgate_wire::op::Body;
use lockgate_wire::{ConnectionId, Error, Frame, FrameKind, Now, OutFrame, PartitionId, ShardId, proto};

const CLIENT: ConnectionId = ConnectionId(1);
const READ_BYTES: u32 = 256 << 10;
/// How often time may have to pass before an answer is there.
const TICKS_MAX: u32 = 1_000;

/// What a partition gives to somebody who reads all of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Contents {
    pub(super) earliest: u64,
    pub(super) high_watermark: u64,
    /// Its batches, as they came.
    pub(super) batches: Vec<Bytes>,
    /// The error at which reading ended.
    pub(super) ends_with: Option<Error>,
    pub(super) cursors: Vec<(String, u64)>,
}

/// All partitions, or the error of those that do not serve.
pub(super) type ReadOut = BTreeMap<PartitionId, Result<Contents, Error>>;

/// See the module.
pub(super) struct QuietNode<'a> {
    disk: &'a MemoryDisk,
    shards: Vec<Shard>,
    now: Now,
    todo: VecDeque<(usize, Output)>,
    received: Vec<Frame>,
    next_request: u64,
}

impl<'a> QuietNode<'a> {
    /// Starts on this disk. The error: the start is refused.
    pub(super) fn start(disk: &'a MemoryDisk, config: &Arc<NodeConfig>, now: Now) -> Result<Self, String> {
        let mut recovered = Vec::new();
        for shard in (0..config.shards).map(ShardId) {
            recovered.push(recover(disk, config, shard).map_err(|error| format!("shard {shard}: {error}"))?);
        }
        let mut node =
            Self { disk, shards: Vec::new(), now, todo: VecDeque::new(), received: Vec::new(), next_request: 0 };
        for (number, recovered) in recovered.into_iter().enumerate() {
            let mut out = Vec::new();
            let shard = ShardId(number as u16);
            node.shards.push(Shard::start(config.clone(), shard, recovered, 1, now, &mut out));
            node.todo.extend(out.into_iter().map(|output| (number, output)));
        }
        node.work();
        node.input(0, Input::ConnectionOpened { connection: CLIENT, peer: "rot:1".into() });
        node.ask::<_, proto::HelloOk>(&proto::Hello::default(), Bytes::new()).map_err(|error| error.to_string())?;
        Ok(node)
    }

    /// Reads every partition from its beginning to its end.
    pub(super) fn read_out(&mut self) -> Result<ReadOut, Error> {
        let mut read = ReadOut::new();
        let mut after = String::new();
        loop {
            let listed: proto::ListTopicsOk = self.ask(&proto::ListTopics { after, limit: 1_000 }, Bytes::new())?.0;
            for topic in &listed.topics {
                for partition in 0..topic.partitions {
                    let id = PartitionId { topic: topic.topic_id.into(), partition };
                    let contents = self.contents(id);
                    read.insert(id, contents);
                }
            }
            match listed.topics.last().filter(|_| listed.more) {
                Some(last) => after = last.name.clone(),
                None => return Ok(read),
            }
        }
    }

    fn contents(&mut self, id: PartitionId) -> Result<Contents, Error> {
        let (topic_id, partition) = (id.topic.0, id.partition);
        let list = proto::ListOffsets { topic_id, partition, timestamp_ms: None };
        let bounds: proto::ListOffsetsOk = self.ask(&list, Bytes::new())?.0;
        let list = proto::ListCursors { topic_id, partition, after: String::new(), limit: 1_000 };
        let cursors: proto::ListCursorsOk = self.ask(&list, Bytes::new())?.0;
        let mut contents = Contents {
            earliest: bounds.earliest_offset,
            high_watermark: bounds.high_watermark,
            batches: Vec::new(),
            ends_with: None,
            cursors: cursors.cursors.into_iter().map(|cursor| (cursor.name, cursor.offset)).collect(),
        };
        let mut offset = contents.earliest;
        while offset < contents.high_watermark {
            let fetch = proto::Fetch { topic_id, partition, offset, max_bytes: READ_BYTES, max_wait_ms: 0 };
            match self.ask::<_, proto::FetchOk>(&fetch, Bytes::new()) {
                Ok((fetched, payload)) => {
                    contents.batches.extend(batch::split(payload).map_while(Result::ok));
                    offset = fetched.next_offset.max(offset + 1);
                }
                Err(error) => {
                    contents.ends_with = Some(error);
                    break;
                }
            }
        }
        Ok(contents)
    }

    /// Publishes what was read somewhere once more.
    pub(super) fn publish(&mut self, id: PartitionId, batch: Bytes) -> Result<proto::PublishOk, Error> {
        let ack = proto::Ack::Quorum as i32;
        let (topic_id, partition) = (id.topic.0, id.partition);
        let publish = proto::Publish { topic_id, partition, ack, partitioning_version: 1 };
        self.ask(&publish, batch).map(|(answer, _)| answer)
    }

    fn ask<B: Body, A: Body>(&mut self, body: &B, payload: Bytes) -> Result<(A, Bytes), Error> {
        self.next_request += 1;
        let id = self.next_request;
        let payload = if payload.is_empty() { Vec::new() } else { vec![payload] };
        let frame = OutFrame::new(FrameKind::Request, id, body, payload);
        let mut bytes = BytesMut::from(&frame.to_bytes()[..]);
        let frame = Frame::decode(&mut bytes, u32::MAX).ok().flatten().expect("what was encoded is decoded");
        self.input(0, Input::FrameReceived { connection: CLIENT, frame });
        for _ in 0..TICKS_MAX {
            self.work();
            let found = self.received.iter().position(|frame| frame.request_id == id && frame.kind != FrameKind::Push);
            if let Some(found) = found {
                let frame = self.received.swap_remove(found);
                return match frame.kind {
                    FrameKind::Error => Err(Error::from_proto(frame.message()?)),
                    _ => Ok((frame.message()?, frame.payload)),
                };
            }
            self.pass_time();
        }
        panic!("no answer to request {id}");
    }

    /// Until the next moment at which a shard wants to be looked at.
    fn pass_time(&mut self) {
        let next = self.shards.iter().filter_map(Shard::next_deadline).min();
        let next = next.unwrap_or(self.now.mono).max(self.now.mono.plus_ms(1));
        self.now.wall.0 += next.ms_since(self.now.mono) as i64;
        self.now.mono = next;
    }

    fn input(&mut self, shard: usize, input: Input) {
        let mut out = Vec::new();
        self.shards[shard].handle(self.now, input, &mut out);
        self.todo.extend(out.into_iter().map(|output| (shard, output)));
    }

    fn work(&mut self) {
        loop {
            for number in 0..self.shards.len() {
                let mut out = Vec::new();
                self.shards[number].finish_round(self.now, &mut out);
                self.todo.extend(out.into_iter().map(|output| (number, output)));
            }
            if self.todo.is_empty() {
                return;
            }
            while let Some((shard, output)) = self.todo.pop_front() {
                self.carry_out(shard, output);
            }
        }
    }

    fn carry_out(&mut self, shard: usize, output: Output) {
        match output {
            Output::Send { connection, frame } => {
                let mut bytes = BytesMut::from(&frame.to_bytes()[..]);
                self.received.extend(Frame::decode(&mut bytes, u32::MAX).ok().flatten());
                self.input(shard, Input::Written { connection, bytes: frame.size() });
            }
            Output::Mesh { to, frame } => {
                self.input(usize::from(to.0), Input::Mesh { from: ShardId(shard as u16), frame });
            }
            Output::Journal(write) => {
                let result = write.execute(self.disk);
                self.input(shard, Input::JournalWritten { journal: write.kind, result });
            }
            Output::File { token, op, .. } => {
                let result = op.execute(self.disk);
                self.input(shard, Input::FileDone { token, result });
            }
            Output::View(view) => {
                for other in (0..self.shards.len()).filter(|other| *other != shard) {
                    self.input(other, Input::View(view.clone()));
                }
            }
            Output::ResumeReading { .. } | Output::Close { .. } => {}
            Output::Ready | Output::Stopped | Output::Log { .. } => {}
        }
    }
}
