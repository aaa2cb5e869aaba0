//! A whole node over real sockets and files, spoken to in plain frames.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lockgate_server::config::Machine;
use lockgate_server::{Config, Server, ServerError, Sources};
use lockgate_wire::batch::{self, BatchBuilder, Codec, Record};
use lockgate_wire::op::Body;
use lockgate_wire::proto::{
    CreateTopic, CreateTopicOk, Error, Fetch, FetchOk, Hello, HelloOk, Ping, Publish, PublishOk,
};
use lockgate_wire::{Frame, FrameKind, OutFrame};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);
const PARTITIONS: u32 = 4;

fn start(data: &Path, settings: &[(&'static str, &str)]) -> Server {
    Server::start(config(data, settings)).unwrap()
}

fn config(data: &Path, settings: &[(&'static str, &str)]) -> Config {
    let mut flags = vec![
        ("data_dir", data.display().to_string()),
        ("listen", "127.0.0.1:0".to_owned()),
        ("admin.listen", "127.0.0.1:0".to_owned()),
        ("shards.count", "2".to_owned()),
        ("journal.file_bytes", "8MiB".to_owned()),
    ];
    flags.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
    let sources = Sources { file: None, environment: BTreeMap::new(), flags, machine: Machine::default() };
    Config::load(&sources).unwrap()
}

/// A client that sends and waits.
struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    next_request: u64,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: BytesMut::new(), next_request: 1 }
    }

    fn hello(address: SocketAddr) -> Self {
        let mut client = Self::connect(address);
        let answer: HelloOk =
            client.call(&Hello { client_id: "test".into(), ..Hello::default() }, Bytes::new()).unwrap().0;
        assert_eq!(answer.node_id, 1);
        client
    }

    fn send<B: Body>(&mut self, body: &B, payload: Bytes) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        let frame = OutFrame::new(FrameKind::Request, id, body, vec![payload]);
        self.stream.write_all(&frame.to_bytes()).unwrap();
        id
    }

    /// The next frame; `None` at the connection's end.
    fn receive(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer, u32::MAX).unwrap() {
                return Some(frame);
            }
            let mut chunk = vec![0; 1 << 16];
            match self.stream.read(&mut chunk).unwrap() {
                0 => return None,
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
    }

    fn call<B: Body, A: Body>(&mut self, body: &B, payload: Bytes) -> Result<(A, Bytes), Box<Error>> {
        let id = self.send(body, payload);
        loop {
            let frame = self.receive().expect("an answer");
            match frame.kind {
                FrameKind::Response if frame.request_id == id => return Ok((frame.message().unwrap(), frame.payload)),
                FrameKind::Error => return Err(Box::new(frame.message().unwrap())),
                _ => {}
            }
        }
    }

    fn create_topic(&mut self, name: &str, settings: &[(&str, &str)]) -> u64 {
        let settings = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let request = CreateTopic { name: name.into(), partitions: PARTITIONS, settings, ..CreateTopic::default() };
        self.call::<_, CreateTopicOk>(&request, Bytes::new()).unwrap().0.topic_id
    }
}

fn batch_of(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in values {
        builder.push(&Record { value: Some(Bytes::copy_from_slice(value.as_bytes())), ..Record::default() }).unwrap();
    }
    builder.build(None)
}

fn publish(topic_id: u64, partition: u32) -> Publish {
    Publish { topic_id, partition, partitioning_version: 1, ..Publish::default() }
}

/// All values of a partition, in order.
fn read_all(client: &mut Client, topic_id: u64, partition: u32) -> Vec<String> {
    let (mut values, mut offset) = (Vec::new(), 0);
    loop {
        let request = Fetch { topic_id, partition, offset, ..Fetch::default() };
        let (answer, payload) = client.call::<_, FetchOk>(&request, Bytes::new()).unwrap();
        for one in batch::split(payload) {
            for (_, record) in batch::decode(one.unwrap(), 1 << 24).unwrap().records {
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
        }
        if answer.next_offset >= answer.high_watermark {
            return values;
        }
        offset = answer.next_offset;
    }
}

#[test]
fn what_was_acknowledged_is_read_on_every_shard_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for (name, settings) in [("always", &[][..]), ("interval", &[("fsync", "interval:100")][..])] {
        let server = start(&data, &[]);
        let mut clients: Vec<Client> = (0..4).map(|_| Client::hello(server.client_address())).collect();
        let topic_id = clients[0].create_topic(name, settings);
        let mut expected: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for n in 0..200 {
            let (client, partition) = (n % clients.len(), n as u32 % PARTITIONS);
            let (a, b) = (format!("{n} first"), format!("{n} second"));
            let (answer, _) =
                clients[client].call::<_, PublishOk>(&publish(topic_id, partition), batch_of(&[&a, &b])).unwrap();
            let values = expected.entry(partition).or_default();
            assert_eq!((answer.partition, answer.base_offset), (partition, values.len() as u64));
            values.extend([a, b]);
        }
        for (partition, values) in &expected {
            assert_eq!(read_all(&mut clients[1], topic_id, *partition), *values);
        }
        server.stop().unwrap();
        let server = start(&data, &[]);
        let mut client = Client::hello(server.client_address());
        for (partition, values) in &expected {
            assert_eq!(read_all(&mut client, topic_id, *partition), *values, "{name} after a restart");
        }
        server.stop().unwrap();
    }
}

#[test]
fn large_batches_and_thousands_in_flight_are_answered_in_full() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]);
    let mut client = Client::hello(server.client_address());
    let topic_id = client.create_topic("t", &[]);
    let large = batch_of(&["x".repeat(900_000).as_str()]);
    let small = batch_of(&["small"]);
    let mut sender = Client {
        stream: client.stream.try_clone().unwrap(),
        buffer: BytesMut::new(),
        next_request: client.next_request,
    };
    const COUNT: usize = 5_000;
    let writer = std::thread::spawn(move || {
        for n in 0..COUNT {
            let payload = if n % 100 == 0 { large.clone() } else { small.clone() };
            sender.send(&publish(topic_id, n as u32 % PARTITIONS), payload);
        }
    });
    for _ in 0..COUNT {
        let frame = client.receive().unwrap();
        assert_eq!(frame.kind, FrameKind::Response, "{:?}", frame.message::<Error>());
    }
    writer.join().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_stop_answers_what_was_taken_and_ends_every_connection() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]);
    let mut client = Client::hello(server.client_address());
    let topic_id = client.create_topic("t", &[]);
    let busy = std::thread::spawn(move || {
        let mut acknowledged = Vec::new();
        for n in 0.. {
            let value = n.to_string();
            if client.stream.write_all(&publish_frame(&mut client.next_request, topic_id, &value)).is_err() {
                break;
            }
            match next_answer(&mut client) {
                Some(true) => acknowledged.push(value),
                Some(false) => {}
                None => break,
            }
        }
        acknowledged
    });
    let begin = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    server.stop().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(8), "the stop waited for its timeout");
    let acknowledged = busy.join().unwrap();
    assert!(!acknowledged.is_empty());
    let server = start(&data, &[]);
    let mut client = Client::hello(server.client_address());
    let read = read_all(&mut client, topic_id, 0);
    assert!(
        read.len() >= acknowledged.len() && read[..acknowledged.len()] == acknowledged,
        "{read:?} {acknowledged:?}"
    );
    server.stop().unwrap();
}

fn publish_frame(next_request: &mut u64, topic_id: u64, value: &str) -> Bytes {
    *next_request += 1;
    OutFrame::new(FrameKind::Request, *next_request, &publish(topic_id, 0), vec![batch_of(&[value])]).to_bytes()
}

/// Whether the next answer is a success; `None` at the connection's end.
fn next_answer(client: &mut Client) -> Option<bool> {
    loop {
        if let Some(frame) = Frame::decode(&mut client.buffer, u32::MAX).unwrap() {
            match frame.kind {
                FrameKind::Response => return Some(true),
                FrameKind::Error => return Some(false),
                _ => continue,
            }
        }
        let mut chunk = [0; 4096];
        match client.stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => client.buffer.extend_from_slice(&chunk[..count]),
        }
    }
}

#[test]
fn a_stranger_is_told_what_this_port_speaks() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[]);
    let mut stranger = Client::connect(server.client_address());
    stranger.stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let frame = stranger.receive().unwrap();
    assert_eq!(frame.kind, FrameKind::Error);
    let error: Error = frame.message().unwrap();
    assert!(error.message.contains("native protocol") && error.message.contains("HTTP"), "{}", error.message);
    assert!(stranger.receive().is_none(), "the connection closes");
    server.stop().unwrap();
}

#[test]
fn a_connection_above_the_limit_is_answered_and_others_live_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(&directory.path().join("data"), &[("limits.connections_per_shard", "1")]);
    let mut taken: Vec<Client> = (0..2).map(|_| Client::hello(server.client_address())).collect();
    let mut refused = Client::connect(server.client_address());
    let error: Error = refused.receive().unwrap().message().unwrap();
    assert_eq!(error.kind, "limit_reached");
    assert!(refused.receive().is_none());
    for client in &mut taken {
        client.call::<_, lockgate_wire::proto::PingOk>(&Ping::default(), Bytes::new()).unwrap();
    }
    server.stop().unwrap();
}

#[test]
fn every_shard_that_cannot_start_is_reported_and_the_data_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = start(&data, &[]);
    let mut client = Client::hello(server.client_address());
    let topic_id = client.create_topic("t", &[]);
    for partition in 0..PARTITIONS {
        client.call::<_, PublishOk>(&publish(topic_id, partition), batch_of(&["kept"])).unwrap();
    }
    drop(client);
    server.stop().unwrap();
    let swap = || {
        let (a, b, c) = (data.join("shards/0"), data.join("shards/1"), data.join("shards/x"));
        std::fs::rename(&a, &c).unwrap();
        std::fs::rename(&b, &a).unwrap();
        std::fs::rename(&c, &b).unwrap();
    };
    swap();
    let Err(ServerError::Failed(failures)) = Server::start(config(&data, &[])) else {
        panic!("journals of other shards were taken")
    };
    let mut who: Vec<&str> = failures.iter().map(|failure| failure.who.as_str()).collect();
    who.sort_unstable();
    assert_eq!(who, ["shard 0", "shard 1"], "{failures:?}");
    assert!(failures.iter().all(|failure| failure.what.contains("recovery failed")), "{failures:?}");
    swap();
    let server = start(&data, &[]);
    assert_eq!(read_all(&mut Client::hello(server.client_address()), topic_id, 0), ["kept"]);
    server.stop().unwrap();
}
