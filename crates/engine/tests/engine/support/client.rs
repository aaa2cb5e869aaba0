//! Clients of a test's node: connections, requests, what comes back.

use bytes::{Bytes, BytesMut};
use lockgate_engine::Input;
use lockgate_wire::op::Body;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::{ConnectionId, Error, Frame, FrameKind, Op, OutFrame, proto};

use super::{Node, publish, records};

impl Node {
    /// A connection on this shard that has not said Hello.
    pub fn connect_raw(&mut self, shard: usize) -> ConnectionId {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        self.homes.insert(connection.0, shard);
        self.silent.insert(connection.0);
        self.input(shard, Input::ConnectionOpened { connection, peer: "test:1".into() });
        self.run();
        connection
    }

    pub fn connect(&mut self, shard: usize) -> ConnectionId {
        let connection = self.connect_raw(shard);
        self.silent.remove(&connection.0);
        let hello: proto::HelloOk = self.ask(connection, &proto::Hello::default());
        assert_eq!(hello.node_id, 1);
        connection
    }

    pub fn disconnect(&mut self, connection: ConnectionId) {
        let shard = self.homes[&connection.0];
        self.silent.insert(connection.0);
        self.input(shard, Input::ConnectionClosed { connection });
        self.run();
    }

    /// Puts a frame into the connection's socket, which is read as far as it may be.
    pub fn send_frame(&mut self, connection: ConnectionId, frame: OutFrame) {
        self.unread.entry(connection.0).or_default().push_back(frame);
        self.read_socket(connection);
    }

    pub(super) fn read_socket(&mut self, connection: ConnectionId) {
        let shard = self.homes[&connection.0];
        while self.unread.get(&connection.0).is_some_and(|frames| !frames.is_empty())
            && self.shards[shard].may_read(connection)
        {
            let frame = self.unread.get_mut(&connection.0).and_then(|frames| frames.pop_front()).unwrap();
            let mut bytes = BytesMut::from(&frame.to_bytes()[..]);
            match Frame::decode(&mut bytes, self.shards[shard].frame_limit(connection)) {
                Ok(frame) => {
                    self.input(shard, Input::FrameReceived { connection, frame: frame.expect("a whole frame") });
                }
                Err(error) => self.input(shard, Input::BadBytes { connection, error }),
            }
        }
    }

    /// Gives the connection's shard an input as it is.
    pub fn raw_input(&mut self, connection: ConnectionId, input: Input) {
        self.input(self.homes[&connection.0], input);
        self.run();
    }

    /// From now on this connection takes nothing of what is sent to it.
    pub fn set_hold_written_of(&mut self, connection: ConnectionId) {
        self.stuck.insert(connection.0);
    }

    /// How many frames of the connection are not read yet.
    pub fn unread(&self, connection: ConnectionId) -> usize {
        self.unread.get(&connection.0).map_or(0, |frames| frames.len())
    }

    /// Every connection that is open sends a Ping that wants no answer.
    pub(super) fn show_life(&mut self) {
        let open: Vec<u64> = self.homes.keys().copied().filter(|id| !self.silent.contains(id)).collect();
        let open = if self.clients_live { open } else { Vec::new() };
        for id in open {
            self.send_frame(ConnectionId(id), OutFrame::new(FrameKind::Request, 0, &proto::Ping {}, Vec::new()));
        }
    }

    /// Sends a request and gives its id; nothing runs yet.
    pub fn send<B: Body>(&mut self, connection: ConnectionId, body: &B, payload: Bytes) -> u64 {
        self.next_request += 1;
        let payload = if payload.is_empty() { Vec::new() } else { vec![payload] };
        let frame = OutFrame::new(FrameKind::Request, self.next_request, body, payload);
        self.send_frame(connection, frame);
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

    /// Sends a request and lets the node work; gives the request's id.
    pub fn send_and_run<B: Body>(&mut self, connection: ConnectionId, body: &B, payload: Bytes) -> u64 {
        let id = self.send(connection, body, payload);
        self.run();
        id
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

    /// Takes the oldest answer out of what was received.
    pub fn oldest_answer(&mut self, connection: ConnectionId) -> Option<Result<Frame, Error>> {
        let frames = self.received.get(&connection.0)?;
        let id = frames.iter().find(|frame| frame.kind != FrameKind::Push)?.request_id;
        self.answer(connection, id)
    }

    /// What connections were sent and nobody has taken, heartbeats aside.
    pub fn not_taken(&self) -> Vec<String> {
        let frames = self.received.iter().flat_map(|(c, frames)| frames.iter().map(move |frame| (c, frame)));
        let frames = frames.filter(|(_, frame)| frame.op() != Some(Op::Ping));
        frames.map(|(c, frame)| format!("{:?} of {:?} to connection {c}", frame.kind, frame.op())).collect()
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

    /// Subscribes and gives the answer.
    pub fn subscribe(
        &mut self,
        connection: ConnectionId,
        id: u64,
        (topic, partition): (u64, u32),
        at: At,
        credit: u64,
    ) -> Result<proto::SubscribeOk, Error> {
        self.try_ask(connection, &subscribe(id, (topic, partition), at, credit))
    }

    /// All records that were pushed to the connection, by subscription.
    pub fn delivered(&mut self, connection: ConnectionId) -> Vec<(u64, u64, String)> {
        let mut delivered = Vec::new();
        while let Some(frame) = self.push_of::<proto::Deliver>(connection) {
            let body: proto::Deliver = frame.message().unwrap();
            delivered.extend(records(frame.payload).into_iter().map(|(at, v)| (body.subscription_id, at, v)));
        }
        delivered
    }

    /// The next push of this kind.
    pub fn push_of<B: Body>(&mut self, connection: ConnectionId) -> Option<Frame> {
        let frames = self.received.entry(connection.0).or_default();
        let at = frames.iter().position(|f| f.kind == FrameKind::Push && f.op() == Some(B::OP))?;
        frames.remove(at)
    }

    /// The end of a subscription that was pushed: its id, the reason and the error.
    pub fn ended(&mut self, connection: ConnectionId) -> Option<(u64, proto::CloseReason, Error)> {
        let body: proto::SubscriptionClosed = self.push_of::<proto::SubscriptionClosed>(connection)?.message().unwrap();
        Some((body.subscription_id, body.reason(), Error::from_proto(body.error.unwrap())))
    }

    pub fn credit(&mut self, connection: ConnectionId, subscription_id: u64, bytes: u64) {
        self.send(connection, &proto::Credit { subscription_id, bytes }, Bytes::new());
        self.run();
    }
}

pub fn subscribe(id: u64, (topic_id, partition): (u64, u32), at: At, credit_bytes: u64) -> proto::Subscribe {
    let start = Some(proto::StartPosition { at: Some(at) });
    proto::Subscribe { subscription_id: id, topic_id, partition, start, credit_bytes }
}
