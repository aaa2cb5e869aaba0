//! A small broker for tests: topics in memory, the wire protocol over loopback, and faults on demand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use lockgate_wire::batch::{BatchHeader, PREFIX_BYTES, delivery_prefix, split, validate};
use lockgate_wire::frame::DEFAULT_MAX_FRAME_BYTES;
use lockgate_wire::proto::{self, start_position::At};
use lockgate_wire::{Error, ErrorKind, Frame, FrameKind, Offset, Op, OutFrame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// How a broker behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Serve,
    /// Takes connections and says nothing.
    Silent,
    /// Answers Hello and nothing after it.
    SilentAfterHello,
    /// Answers everything with bytes that are no frames.
    Garbage,
    /// Takes publishes and never answers them.
    SilentOnPublish,
}

/// A broker's state; it survives [`Broker::stop`].
#[derive(Default)]
pub(crate) struct State {
    pub(crate) mode: Mode,
    pub(crate) topics: BTreeMap<String, Topic>,
    pub(crate) cursors: BTreeMap<(u32, String), u64>,
    /// Offsets of the batches that idempotent producers numbered.
    numbered: BTreeMap<(u64, u32, i64, i32), u64>,
    subscriptions: BTreeMap<(u64, u64), Subscription>,
    connections: BTreeMap<u64, UnboundedSender<Bytes>>,
    last_id: u64,
    /// Connections that said goodbye.
    pub(crate) orderly_closes: usize,
    pub(crate) publishes: usize,
    /// Answers to publishes are dropped, so many of them.
    pub(crate) drop_answers: usize,
}

pub(crate) struct Topic {
    pub(crate) id: u64,
    pub(crate) partitions: Vec<Log>,
}

/// Batches as they are delivered, and the next offset.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) batches: Vec<Bytes>,
    pub(crate) next: u64,
}

struct Subscription {
    topic: u64,
    partition: u32,
    next: u64,
    credit: i64,
}

/// A broker on a port of loopback.
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    tasks: JoinSet<()>,
}

impl Broker {
    pub(crate) async fn start() -> Self {
        let mut broker = Self { address: ([127, 0, 0, 1], 0).into(), state: Arc::default(), tasks: JoinSet::new() };
        broker.restart().await;
        broker
    }

    /// Begins to listen, on the port that it had before.
    pub(crate) async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the port is free");
        self.address = listener.local_addr().unwrap();
        self.tasks.spawn(accept(listener, Arc::clone(&self.state)));
    }

    /// Dies: the port is closed and every connection with it.
    pub(crate) async fn stop(&mut self) {
        self.tasks.shutdown().await;
        self.state().connections.clear();
        self.state().subscriptions.clear();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn seeds(&self) -> [String; 1] {
        [self.address.to_string()]
    }

    pub(crate) fn add_topic(&self, name: &str, partitions: usize) {
        self.state().add_topic(name, partitions);
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    stream.set_nodelay(true).unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let (out, mut to_write) = unbounded_channel::<Bytes>();
    let connection = {
        let mut state = state.lock().unwrap();
        let connection = state.new_id();
        state.connections.insert(connection, out);
        connection
    };
    let write = async move {
        while let Some(bytes) = to_write.recv().await {
            if writing.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    let read = async {
        let mut buffer = BytesMut::new();
        while reading.read_buf(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
            while let Some(frame) = Frame::decode(&mut buffer, DEFAULT_MAX_FRAME_BYTES).expect("a frame") {
                state.lock().unwrap().take(connection, &frame);
            }
        }
    };
    tokio::select! { () = write => {}, () = read => {} }
    state.lock().unwrap().connections.remove(&connection);
}

impl State {
    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn add_topic(&mut self, name: &str, partitions: usize) -> u64 {
        let id = self.new_id();
        let partitions = (0..partitions).map(|_| Log::default()).collect();
        self.topics.insert(format!("default/default/{name}"), Topic { id, partitions });
        id
    }

    pub(crate) fn log(&self, topic: u64, partition: u32) -> Option<&Log> {
        self.topics.values().find(|known| known.id == topic)?.partitions.get(partition as usize)
    }

    fn send(&self, connection: u64, frame: &OutFrame) {
        if let Some(out) = self.connections.get(&connection) {
            let _ = out.send(frame.to_bytes());
        }
    }

    fn take(&mut self, connection: u64, frame: &Frame) {
        let op = frame.op().expect("a known operation");
        match self.mode {
            Mode::Silent => return,
            Mode::SilentAfterHello if op != Op::Hello => return,
            Mode::Garbage => {
                if let Some(out) = self.connections.get(&connection) {
                    let _ = out.send(Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
                }
                return;
            }
            _ => {}
        }
        match self.answer(connection, op, frame) {
            Ok(Some(answer)) if frame.request_id != 0 => self.send(connection, &answer),
            Ok(_) => {}
            Err(error) => self.send(connection, &OutFrame::error(frame.op, frame.request_id, &error)),
        }
        self.deliver();
    }

    fn answer(&mut self, connection: u64, op: Op, frame: &Frame) -> Result<Option<OutFrame>, Error> {
        let id = frame.request_id;
        Ok(Some(match op {
            Op::Hello => OutFrame::response(id, &proto::HelloOk { heartbeat_ms: 300, ..Default::default() }),
            Op::Ping => OutFrame::response(id, &proto::PingOk {}),
            Op::Close => {
                self.orderly_closes += 1;
                return Ok(None);
            }
            Op::Topology => OutFrame::response(id, &self.topology(&frame.message()?)),
            Op::InitProducer => {
                let producer_id = self.new_id() as i64;
                OutFrame::response(id, &proto::InitProducerOk { producer_id, producer_epoch: 0 })
            }
            Op::Publish => {
                let ok = self.publish(&frame.message()?, &frame.payload)?;
                if self.mode == Mode::SilentOnPublish || self.drop_answers > 0 {
                    self.drop_answers = self.drop_answers.saturating_sub(1);
                    return Ok(None);
                }
                OutFrame::response(id, &ok)
            }
            Op::Subscribe => OutFrame::response(id, &self.subscribe(connection, &frame.message()?)?),
            Op::Credit => {
                let credit: proto::Credit = frame.message()?;
                if let Some(subscription) = self.subscriptions.get_mut(&(connection, credit.subscription_id)) {
                    subscription.credit += credit.bytes as i64;
                }
                return Ok(None);
            }
            Op::Unsubscribe => {
                let gone: proto::Unsubscribe = frame.message()?;
                self.subscriptions.remove(&(connection, gone.subscription_id));
                return Ok(None);
            }
            _ => return self.administer(op, frame).map(Some),
        }))
    }

    fn administer(&mut self, op: Op, frame: &Frame) -> Result<OutFrame, Error> {
        let id = frame.request_id;
        Ok(match op {
            Op::CreateTopic => {
                let create: proto::CreateTopic = frame.message()?;
                let topic_id = self.add_topic(&create.name, create.partitions.max(1) as usize);
                OutFrame::response(id, &proto::CreateTopicOk { topic_id, name: create.name })
            }
            Op::ListTopics => {
                // Pages of two, whatever was asked for.
                let asked: proto::ListTopics = frame.message()?;
                let rest = self.topics.iter().filter(|(name, _)| **name > asked.after);
                let mut topics: Vec<proto::TopicSummary> =
                    rest.map(|(name, _)| proto::TopicSummary { name: name.clone(), ..Default::default() }).collect();
                let more = topics.len() > 2;
                topics.truncate(2);
                OutFrame::response(id, &proto::ListTopicsOk { topics, more })
            }
            Op::DeleteTopic => {
                let delete: proto::DeleteTopic = frame.message()?;
                let gone = self.topics.remove(&format!("default/default/{}", delete.name));
                gone.ok_or_else(|| Error::new(ErrorKind::TopicNotFound, "no such topic"))?;
                OutFrame::response(id, &proto::DeleteTopicOk {})
            }
            Op::CommitCursor => {
                let commit: proto::CommitCursor = frame.message()?;
                self.cursors.insert((commit.partition, commit.name), commit.offset);
                OutFrame::response(id, &proto::CommitCursorOk {})
            }
            Op::GetCursor => {
                let get: proto::GetCursor = frame.message()?;
                let offset = self.cursors.get(&(get.partition, get.name)).copied();
                OutFrame::response(id, &proto::GetCursorOk { offset })
            }
            Op::DeleteCursor => {
                let delete: proto::DeleteCursor = frame.message()?;
                let existed = self.cursors.remove(&(delete.partition, delete.name)).is_some();
                OutFrame::response(id, &proto::DeleteCursorOk { existed })
            }
            Op::ListCursors => {
                let asked: proto::ListCursors = frame.message()?;
                let rest = self.cursors.iter().filter(|((p, name), _)| *p == asked.partition && *name > asked.after);
                let next = rest.map(|((_, name), offset)| proto::Cursor {
                    name: name.clone(),
                    offset: *offset,
                    committed_ms: 1,
                });
                let mut cursors: Vec<proto::Cursor> = next.take(2).collect();
                let more = cursors.len() > 1;
                cursors.truncate(1);
                OutFrame::response(id, &proto::ListCursorsOk { cursors, more })
            }
            Op::ListOffsets => {
                let asked: proto::ListOffsets = frame.message()?;
                let log = self.log(asked.topic_id, asked.partition).ok_or_else(no_partition)?;
                let ok = proto::ListOffsetsOk { high_watermark: log.next, ..Default::default() };
                OutFrame::response(id, &ok)
            }
            Op::Fetch => {
                let asked: proto::Fetch = frame.message()?;
                let log = self.log(asked.topic_id, asked.partition).ok_or_else(no_partition)?;
                if asked.offset > log.next {
                    let mut error = Error::new(ErrorKind::OffsetOutOfRange, "beyond the end");
                    error.details.high_watermark = Some(log.next);
                    return Err(error);
                }
                let batches: Vec<Bytes> = log.batches.iter().filter(|b| end(b) > asked.offset).cloned().collect();
                let ok = proto::FetchOk { next_offset: log.next, high_watermark: log.next, ..Default::default() };
                OutFrame::new(FrameKind::Response, id, &ok, batches)
            }
            other => {
                return Err(Error::new(ErrorKind::UnknownOp, format!("the test's broker has no {}", other.name())));
            }
        })
    }

    fn topology(&self, asked: &proto::Topology) -> proto::TopologyOk {
        let topics = asked.topics.iter().map(|name| {
            let Some(topic) = self.topics.get(&format!("default/default/{name}")) else {
                let error = Error::new(ErrorKind::TopicNotFound, format!("there is no topic {name}"));
                return proto::TopicTopology {
                    name: name.clone(),
                    error: Some(error.to_proto()),
                    ..Default::default()
                };
            };
            let partition = |partition| proto::PartitionTopology { partition, leader_node: 1, ..Default::default() };
            proto::TopicTopology {
                name: format!("default/default/{name}"),
                topic_id: topic.id,
                max_batch_bytes: 1024 * 1024,
                partitions: (0..topic.partitions.len() as u32).map(partition).collect(),
                ..Default::default()
            }
        });
        proto::TopologyOk { version: 1, brokers: Vec::new(), topics: topics.collect() }
    }

    fn publish(&mut self, publish: &proto::Publish, payload: &Bytes) -> Result<proto::PublishOk, Error> {
        self.publishes += 1;
        let header = validate(payload, 1024 * 1024)?;
        let number = (publish.topic_id, publish.partition, header.producer_id, header.base_sequence);
        let ok = |base_offset, duplicate| proto::PublishOk {
            partition: publish.partition,
            base_offset,
            duplicate,
            append_time_ms: 1_234,
            ..Default::default()
        };
        if let Some(offset) = self.numbered.get(&number).filter(|_| header.producer_id >= 0) {
            return Ok(ok(*offset, true));
        }
        let topic = self.topics.values_mut().find(|topic| topic.id == publish.topic_id);
        let log =
            topic.and_then(|topic| topic.partitions.get_mut(publish.partition as usize)).ok_or_else(no_partition)?;
        let base = log.next;
        let mut stored = delivery_prefix(Offset(base), payload.len(), 1).to_vec();
        stored.extend_from_slice(&payload[PREFIX_BYTES..]);
        log.batches.push(stored.into());
        log.next += header.count as u64;
        self.numbered.insert(number, base);
        Ok(ok(base, false))
    }

    fn subscribe(&mut self, connection: u64, asked: &proto::Subscribe) -> Result<proto::SubscribeOk, Error> {
        let log = self.log(asked.topic_id, asked.partition).ok_or_else(no_partition)?;
        let high_watermark = log.next;
        let next = match asked.start.as_ref().and_then(|start| start.at.as_ref()) {
            Some(At::Latest(_)) => log.next,
            Some(At::Offset(offset)) => *offset,
            _ => 0,
        };
        let (topic, partition, credit) = (asked.topic_id, asked.partition, asked.credit_bytes as i64);
        let subscription = Subscription { topic, partition, next, credit };
        self.subscriptions.insert((connection, asked.subscription_id), subscription);
        Ok(proto::SubscribeOk { next_offset: next, high_watermark, ..Default::default() })
    }

    /// Pushes what the subscriptions' credits allow, a batch a frame.
    fn deliver(&mut self) {
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        for ((connection, subscription_id), subscription) in &mut subscriptions {
            let Some(log) = self.log(subscription.topic, subscription.partition) else { continue };
            let from = log.batches.partition_point(|batch| end(batch) <= subscription.next);
            for batch in &log.batches[from..] {
                if batch.len() as i64 > subscription.credit {
                    break;
                }
                subscription.credit -= batch.len() as i64;
                subscription.next = end(batch);
                let deliver = proto::Deliver {
                    subscription_id: *subscription_id,
                    next_offset: subscription.next,
                    high_watermark: log.next,
                    append_time_ms: vec![1_234],
                };
                self.send(*connection, &OutFrame::new(FrameKind::Push, 0, &deliver, vec![batch.clone()]));
            }
        }
        self.subscriptions = subscriptions;
    }
}

/// The offset after a stored batch.
fn end(batch: &Bytes) -> u64 {
    let header = BatchHeader::parse(batch).unwrap();
    header.base_offset as u64 + header.count as u64
}

/// The values of a payload of batches.
pub(crate) fn values(batches: Bytes) -> Vec<Bytes> {
    let decoded = split(batches).map(|batch| lockgate_wire::batch::decode(batch.unwrap(), 1 << 26).unwrap());
    decoded.flat_map(|batch| batch.records).map(|(_, record)| record.value.unwrap()).collect()
}

fn no_partition() -> Error {
    Error::new(ErrorKind::PartitionNotFound, "no such partition")
}
