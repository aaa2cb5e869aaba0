//! Whatever comes in, the one who sent it gets a clear error, and nobody else notices: every test has a publisher beside it
//! that must never be refused, and whose every record must be there in the end.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use lockgate_client::{Client, ClientConfig, Codec, ProducerConfig, Record};
use lockgate_wire::batch::{self, BatchBuilder};
use lockgate_wire::frame::{DEFAULT_MAX_FRAME_BYTES, MAX_FRAME_BYTES_BEFORE_HELLO};
use lockgate_wire::{ErrorKind, FrameKind, OutFrame, proto};
use support::raw::Raw;
use support::{Broker, Scratch, shown, wait_until};

const MIB: u64 = 1024 * 1024;

/// A broker with a topic and a publisher that goes on all the time.
struct World {
    scratch: Scratch,
    broker: Broker,
    topic_id: u64,
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    publisher: JoinHandle<()>,
}

impl World {
    fn new(settings: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        let broker = scratch.broker_with(settings);
        for topic in ["steady", "target"] {
            scratch.run(&broker, &["topic", "create", topic]);
        }
        let described = scratch.run(&broker, &["topic", "describe", "target", "--json"]);
        let described: serde_json::Value = serde_json::from_str(&described).unwrap();
        let topic_id = described["topic_id"].as_u64().unwrap();
        let (acknowledged, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let publisher = {
            let (acknowledged, stop, address) = (Arc::clone(&acknowledged), Arc::clone(&stop), broker.client.clone());
            std::thread::spawn(move || publish_steadily(&address, &acknowledged, &stop))
        };
        let world = Self { scratch, broker, topic_id, acknowledged, stop, publisher };
        world.wait_for_more();
        world
    }

    /// The publisher goes on.
    fn wait_for_more(&self) {
        let target = self.acknowledged.load(Ordering::Relaxed) + 20;
        wait_until("another client publishes on", || {
            assert!(
                !self.publisher.is_finished(),
                "the publisher was refused; the broker's log:\n{}",
                self.broker.log()
            );
            self.acknowledged.load(Ordering::Relaxed) >= target
        });
    }

    /// What the target topic holds.
    fn target(&self) -> String {
        self.scratch.run(&self.broker, &["consume", "target"])
    }

    /// The broker lives, it served on, nothing is lost, and nothing was a bug of its own.
    fn check(mut self) {
        self.wait_for_more();
        self.stop.store(true, Ordering::Relaxed);
        self.publisher.join().unwrap();
        let steady = self.scratch.run(&self.broker, &["consume", "steady"]);
        let expected: Vec<String> = (0..self.acknowledged.load(Ordering::Relaxed)).map(|n| n.to_string()).collect();
        assert_eq!(steady.lines().collect::<Vec<_>>(), expected);
        assert_eq!(self.broker.ended(), None);
        assert_eq!(self.broker.metric("lockgate_internal_errors_total"), 0.0, "{}", self.broker.log());
    }

    fn publish(&self) -> proto::Publish {
        proto::Publish { topic_id: self.topic_id, partitioning_version: 1, ..proto::Publish::default() }
    }
}

/// One record after the other, each the next number.
fn publish_steadily(address: &str, acknowledged: &AtomicU64, stop: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(ClientConfig::with_seeds([address]).unwrap()).await.unwrap();
        let producer = client.producer("steady", ProducerConfig::default()).await.unwrap();
        while !stop.load(Ordering::Relaxed) {
            let next = acknowledged.load(Ordering::Relaxed);
            producer.send(Record::new(next.to_string())).await.unwrap().await.unwrap();
            acknowledged.store(next + 1, Ordering::Relaxed);
        }
        assert_eq!(client.stats().retries, 0, "it was never in the way");
    });
}

fn encoded(value: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = Some(bytes::Bytes::copy_from_slice(value));
    builder.push(&batch::Record { value, ..batch::Record::default() }).unwrap();
    builder.build(None).to_vec()
}

/// A frame's beginning that announces this many bytes after the length.
fn announcing(length: u32) -> Vec<u8> {
    let mut frame = OutFrame::request(1, &proto::Ping {}).to_bytes().to_vec();
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

#[test]
fn a_frame_above_the_limit_is_refused_with_the_limit_before_it_is_buffered() {
    let world = World::new(&[]);
    for (greeted, limit) in [(false, MAX_FRAME_BYTES_BEFORE_HELLO), (true, DEFAULT_MAX_FRAME_BYTES)] {
        let before = world.broker.resident_bytes();
        let mut raw = if greeted { Raw::hello(&world.broker.client) } else { Raw::connect(&world.broker.client) };
        raw.send(&announcing(limit - 4 + 1));
        let error = raw.closed_with();
        assert_eq!((error.kind, error.details.limit), (ErrorKind::FrameTooLarge, Some(limit.into())), "{error}");
        assert!(error.message.contains(&limit.to_string()), "{error}");
        assert!(world.broker.resident_bytes() < before + 8 * MIB);
    }
    let huge = Raw::connect(&world.broker.client);
    (&huge.stream).write_all(&announcing(u32::MAX)).unwrap();
    assert_eq!(huge.closed_with().kind, ErrorKind::FrameTooLarge);
    world.check();
}

#[test]
fn an_unknown_operation_is_named_and_the_connection_lives_on() {
    let world = World::new(&[]);
    let mut raw = Raw::hello(&world.broker.client);
    let mut frame = OutFrame::request(77, &proto::Ping {}).to_bytes().to_vec();
    frame[6..8].copy_from_slice(&54_321_u16.to_le_bytes());
    raw.send(&frame);
    let answer = raw.receive().unwrap();
    assert_eq!((answer.kind, answer.request_id), (FrameKind::Error, 77));
    let error = lockgate_wire::Error::from_proto(answer.message().unwrap());
    assert_eq!(error.kind, ErrorKind::UnknownOp);
    assert!(error.message.contains("54321"), "{error}");
    raw.assert_alive();
    world.check();
}

#[test]
fn a_batch_with_a_flipped_bit_is_refused_and_nothing_of_it_is_there() {
    let world = World::new(&[]);
    let mut raw = Raw::hello(&world.broker.client);
    let good = encoded(b"good");
    for at in 16..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let answer: Result<proto::PublishOk, _> = raw.ask_with(&world.publish(), &bad);
        assert_eq!(answer.unwrap_err().kind, ErrorKind::BadBatch, "the flipped byte is {at}");
    }
    let mut short = good.clone();
    short.pop();
    for bad in [&short[..], &[], &[good.clone(), good.clone()].concat()] {
        let answer: Result<proto::PublishOk, _> = raw.ask_with(&world.publish(), bad);
        assert_eq!(answer.unwrap_err().kind, ErrorKind::BadBatch);
    }
    let ok: proto::PublishOk = raw.ask_with(&world.publish(), &good).unwrap();
    assert_eq!(ok.base_offset, 0);
    assert_eq!(world.target(), "good\n");
    world.check();
}

#[test]
fn a_batch_above_the_topics_limit_is_refused_and_one_of_just_that_size_is_taken() {
    let world = World::new(&[]);
    let mut raw = Raw::hello(&world.broker.client);
    // What the batch adds to a value of about this size.
    let about = MIB as usize - 100;
    let value = MIB as usize - (encoded(&vec![b'x'; about]).len() - about);
    let answer: Result<proto::PublishOk, _> = raw.ask_with(&world.publish(), &encoded(&vec![b'x'; value + 1]));
    let error = answer.unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::BatchTooLarge, Some(MIB)), "{error}");
    let exact = encoded(&vec![b'x'; value]);
    assert_eq!(exact.len() as u64, MIB);
    let _: proto::PublishOk = raw.ask_with(&world.publish(), &exact).unwrap();
    world.check();
}

#[test]
fn names_that_break_the_rules_and_topics_that_are_not_there_are_told_apart() {
    let world = World::new(&[]);
    let mut raw = Raw::hello(&world.broker.client);
    for name in ["", "a b", "a/b/c/d", "..", "ünï", &"x".repeat(250), "a\0b"] {
        let create = proto::CreateTopic { name: name.into(), partitions: 1, ..proto::CreateTopic::default() };
        let answer: Result<proto::CreateTopicOk, _> = raw.ask(&create);
        assert_eq!(answer.unwrap_err().kind, ErrorKind::InvalidName, "{name:?}");
    }
    let unknown = proto::Publish { topic_id: 999_999, ..world.publish() };
    let answer: Result<proto::PublishOk, _> = raw.ask_with(&unknown, &encoded(b"x"));
    assert_eq!(answer.unwrap_err().kind, ErrorKind::TopicNotFound);
    let unknown = proto::Publish { partition: 1, ..world.publish() };
    let answer: Result<proto::PublishOk, _> = raw.ask_with(&unknown, &encoded(b"x"));
    assert_eq!(answer.unwrap_err().kind, ErrorKind::PartitionNotFound);
    raw.assert_alive();
    let output = world.scratch.lockgate(&world.broker, &["consume", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("lockgate topic create"), "{}", shown(&output));
    world.check();
}

#[test]
fn an_offset_out_of_range_is_answered_with_the_range() {
    let world = World::new(&[]);
    let mut raw = Raw::hello(&world.broker.client);
    for value in ["a", "b"] {
        let _: proto::PublishOk = raw.ask_with(&world.publish(), &encoded(value.as_bytes())).unwrap();
    }
    let start = proto::StartPosition { at: Some(proto::start_position::At::Offset(3)) };
    let subscribe = proto::Subscribe {
        subscription_id: 1,
        topic_id: world.topic_id,
        start: Some(start),
        credit_bytes: MIB,
        ..proto::Subscribe::default()
    };
    let error = raw.ask::<_, proto::SubscribeOk>(&subscribe).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OffsetOutOfRange);
    assert_eq!((error.details.earliest_offset, error.details.high_watermark), (Some(0), Some(2)));
    let fetch = proto::Fetch { topic_id: world.topic_id, offset: 9, ..proto::Fetch::default() };
    let error = raw.ask::<_, proto::FetchOk>(&fetch).unwrap_err();
    assert_eq!(error.kind, ErrorKind::OffsetOutOfRange);
    raw.assert_alive();
    let output = world.scratch.lockgate(&world.broker, &["consume", "target", "--from", "offset:9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("from 0 up to 2"), "{}", shown(&output));
    world.check();
}

#[test]
fn bytes_of_other_protocols_and_of_none_are_refused_by_what_they_look_like() {
    let world = World::new(&[]);
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
        (b"*1\r\n$4\r\nPING\r\n", "RESP"),
        (&[0xff; 64], "limit"),
        (&[0; 64], "not a frame"),
    ];
    for (bytes, names) in cases {
        let mut raw = Raw::connect(&world.broker.client);
        raw.send(bytes);
        let error = raw.closed_with();
        assert!(error.message.contains(names), "{bytes:?}: {error}");
    }
    // Noise of any kind, also after a good beginning: an error or a close, never a wait.
    let mut random = support::Random::from_env("LOCKGATE_NOISE_SEED");
    for round in 0..100 {
        let mut raw =
            if round % 2 == 0 { Raw::connect(&world.broker.client) } else { Raw::hello(&world.broker.client) };
        let mut noise: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
        // Short lengths, so that the broker reads frames of noise and does not only refuse their sizes.
        noise[1..4].fill(0);
        // The broker may have closed already.
        drop(raw.stream.write_all(&noise));
        drop(raw.stream.shutdown(std::net::Shutdown::Write));
        while raw.receive().is_some() {}
    }
    world.check();
}

#[test]
fn http_on_the_client_port_is_told_where_http_is() {
    let world = World::new(&[]);
    let mut stream = TcpStream::connect(&world.broker.client).unwrap();
    stream.set_read_timeout(Some(support::bound(30))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("the admin port serves that"), "{answer:?}");
    world.check();
}

#[test]
fn nothing_goes_before_hello_and_hello_comes_once() {
    let world = World::new(&[]);
    let mut raw = Raw::connect(&world.broker.client);
    let _ = raw.request(&proto::Ping {}, &[]);
    assert_eq!(raw.closed_with().kind, ErrorKind::HelloRequired);
    let mut raw = Raw::hello(&world.broker.client);
    let _ = raw.request(&proto::Hello::default(), &[]);
    assert_eq!(raw.closed_with().kind, ErrorKind::HelloRequired);
    world.check();
}

#[test]
fn connections_that_say_nothing_are_closed_with_the_reason() {
    let settings = [("LOCKGATE_SESSIONS_HELLO_TIMEOUT", "300ms"), ("LOCKGATE_SESSIONS_HEARTBEAT", "200ms")];
    let world = World::new(&settings);
    let silent = Raw::connect(&world.broker.client);
    let mut half = Raw::connect(&world.broker.client);
    half.send(&announcing(100)[..10]);
    let dead = Raw::hello(&world.broker.client);
    assert!(silent.closed_with().message.contains("Hello"));
    assert!(half.closed_with().message.contains("Hello"));
    assert!(dead.closed_with().message.contains("heartbeat"));
    wait_until("only the publisher's connection is left", || world.broker.metric("lockgate_connections") == 1.0);
    world.check();
}

#[test]
fn what_was_asked_before_the_other_side_ended_is_answered() {
    let world = World::new(&[]);
    let mut raw = Raw::hello(&world.broker.client);
    let id = raw.request(&world.publish(), &encoded(b"last words"));
    raw.half_close();
    let mut answers = std::iter::from_fn(|| raw.receive());
    let answer = answers.find(|frame| frame.request_id == id).expect("an answer before the end");
    assert_eq!(answer.kind, FrameKind::Response);
    assert!(answers.all(|frame| frame.kind == FrameKind::Push), "nothing but the end follows");
    assert_eq!(world.target(), "last words\n");
    world.check();
}

#[test]
fn a_client_that_stops_reading_costs_bounded_memory_and_its_own_connection() {
    let settings = [
        ("LOCKGATE_SESSIONS_SEND_STALL_TIMEOUT", "2s"),
        ("LOCKGATE_LIMITS_UNANSWERED_BYTES", "8MiB"),
        ("LOCKGATE_LIMITS_TAIL_BYTES_PER_SHARD", "4MiB"),
    ];
    let world = World::new(&settings);
    let mut raw = Raw::hello(&world.broker.client);
    // 64 MiB that readers could be sent.
    let batch = encoded(&vec![b'x'; MIB as usize - 1024]);
    for _ in 0..64 {
        let _: proto::PublishOk = raw.ask_with(&world.publish(), &batch).unwrap();
    }
    let before = world.broker.resident_bytes();
    let mut stalled: Vec<Raw> = (0..8).map(|_| Raw::hello(&world.broker.client)).collect();
    for raw in &mut stalled {
        let subscribe = proto::Subscribe {
            subscription_id: 1,
            topic_id: world.topic_id,
            start: Some(proto::StartPosition { at: Some(proto::start_position::At::Earliest(true)) }),
            credit_bytes: 1 << 40,
            ..proto::Subscribe::default()
        };
        let _ = raw.request(&subscribe, &[]);
        for _ in 0..2_000 {
            let fetch = proto::Fetch { topic_id: world.topic_id, max_bytes: 8 << 20, ..proto::Fetch::default() };
            let frame = OutFrame::request(9, &fetch).to_bytes();
            raw.stream.set_nonblocking(true).unwrap();
            if (&raw.stream).write_all(&frame).is_err() {
                break;
            }
        }
    }
    let mut highest = 0;
    wait_until("the broker gives the stalled connections up", || {
        highest = highest.max(world.broker.resident_bytes());
        let (_, metrics) = world.broker.get("/metrics");
        metrics.contains("lockgate_connections_closed_total{reason=\"stalled\"} 8")
    });
    let grown = highest.saturating_sub(before) / MIB;
    println!("memory grew by {grown} MiB at most");
    assert!(grown < 160, "memory grew by {grown} MiB for 8 connections of at most 8 MiB each");
    drop(stalled);
    world.check();
}
