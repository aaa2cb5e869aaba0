//! The code against `vectors/wire.json`, the formats as implementations in other languages test theirs: in both
//! directions, and for what must be refused.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use lockgate_wire::batch::{
    self, BatchBuilder, BatchHeader, Codec, MAX_DECOMPRESSED_BYTES, Producer, Record, RecordHeader,
};
use lockgate_wire::frame::{DEFAULT_MAX_FRAME_BYTES, FrameKind};
use lockgate_wire::op::Body;
use lockgate_wire::partitioner::{murmur2, partition_of_key};
use lockgate_wire::proto::start_position::At;
use lockgate_wire::{Error, ErrorKind, Frame, Op, OutFrame, ProducerId, TopicName, proto};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Vectors {
    frames: Vec<FrameVector>,
    errors: Vec<ErrorVector>,
    batches: Vec<BatchVector>,
    partitions: Vec<KeyVector>,
    names: Vec<NameVector>,
    invalid_frames: Vec<InvalidFrame>,
    invalid_batches: Vec<InvalidBatch>,
    unreadable_batches: Vec<UnreadableBatch>,
    invalid_names: Vec<InvalidName>,
}

#[derive(Deserialize)]
struct FrameVector {
    name: String,
    kind: String,
    op: u16,
    op_name: String,
    flags: u8,
    request_id: u64,
    message: String,
    fields: Value,
    body: Hex,
    payload: Hex,
    bytes: Hex,
}

#[derive(Deserialize)]
struct ErrorVector {
    name: String,
    op: u16,
    request_id: u64,
    code: u16,
    kind: String,
    advice: String,
    message: String,
    details: BTreeMap<String, Value>,
    bytes: Hex,
}

#[derive(Deserialize)]
struct BatchVector {
    name: String,
    encoding: String,
    codec: String,
    size: usize,
    base_offset: i64,
    leader_epoch: i32,
    append_time: bool,
    base_timestamp: i64,
    max_timestamp: i64,
    producer: Option<ProducerVector>,
    crc: u32,
    records: Vec<RecordVector>,
    bytes: Hex,
}

#[derive(Deserialize)]
struct ProducerVector {
    id: i64,
    epoch: i16,
    base_sequence: i32,
}

#[derive(Deserialize)]
struct RecordVector {
    offset: u64,
    timestamp_ms: i64,
    key: Option<Hex>,
    value: Option<Hex>,
    headers: Vec<HeaderVector>,
}

#[derive(Deserialize)]
struct HeaderVector {
    name: Hex,
    value: Option<Hex>,
}

#[derive(Deserialize)]
struct KeyVector {
    key: Hex,
    murmur2: i32,
    partition_of: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
struct NameVector {
    text: String,
    full: String,
    short: String,
}

#[derive(Deserialize)]
struct InvalidFrame {
    name: String,
    bytes: Hex,
    max_frame_bytes: u32,
    kind: String,
}

#[derive(Deserialize)]
struct InvalidBatch {
    name: String,
    bytes: Hex,
    max_batch_bytes: u32,
    kind: String,
}

#[derive(Deserialize)]
struct UnreadableBatch {
    name: String,
    bytes: Hex,
    kind: String,
}

#[derive(Deserialize)]
struct InvalidName {
    text: String,
    kind: String,
}

/// Bytes written as hexadecimal digits.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
struct Hex(Bytes);

impl TryFrom<String> for Hex {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
        pairs.collect::<Result<Vec<u8>, _>>().map(|bytes| Self(bytes.into()))
    }
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/wire.json")).expect("the vectors have the shape above")
}

fn received(bytes: &Bytes) -> Frame {
    let mut buffer = BytesMut::from(&bytes[..]);
    let frame = Frame::decode(&mut buffer, DEFAULT_MAX_FRAME_BYTES).expect("a frame").expect("a whole frame");
    assert!(buffer.is_empty());
    frame
}

fn kind_of(name: &str) -> FrameKind {
    match name {
        "request" => FrameKind::Request,
        "response" => FrameKind::Response,
        "push" => FrameKind::Push,
        "error" => FrameKind::Error,
        other => panic!("{other} is no kind of frame"),
    }
}

fn number(fields: &Value, name: &str) -> u64 {
    fields[name].as_u64().unwrap_or_else(|| panic!("{name} in {fields}"))
}

fn small(fields: &Value, name: &str) -> u32 {
    u32::try_from(number(fields, name)).expect("32 bits")
}

fn text(fields: &Value, name: &str) -> String {
    fields[name].as_str().unwrap_or_else(|| panic!("{name} in {fields}")).into()
}

/// Both directions: the frame with this body is what is sent, and the body of what is received is this one.
fn check_body<B: Body + PartialEq + Debug>(v: &FrameVector, body: B) {
    let out = OutFrame::new(kind_of(&v.kind), v.request_id, &body, vec![v.payload.0.clone()]);
    assert_eq!(out.to_bytes(), v.bytes.0, "{}", v.name);
    assert_eq!(received(&v.bytes.0).message(), Ok(body), "{}", v.name);
}

fn check_message(v: &FrameVector) {
    let f = &v.fields;
    let flag = |name: &str| f[name].as_bool().expect("a flag");
    let time = |value: &Value| value.as_i64().expect("a time");
    match v.message.as_str() {
        "Ping" => check_body(v, proto::Ping {}),
        "PingOk" => check_body(v, proto::PingOk {}),
        "Hello" => check_body(
            v,
            proto::Hello {
                client_id: text(f, "client_id"),
                client_name: text(f, "client_name"),
                features: number(f, "features"),
                max_frame_bytes: small(f, "max_frame_bytes"),
                heartbeat_ms: small(f, "heartbeat_ms"),
            },
        ),
        "Publish" => check_body(
            v,
            proto::Publish {
                topic_id: number(f, "topic_id"),
                partition: small(f, "partition"),
                ack: proto::Ack::from_str_name(&text(f, "ack")).expect("a level").into(),
                partitioning_version: small(f, "partitioning_version"),
            },
        ),
        "PublishOk" => check_body(
            v,
            proto::PublishOk {
                partition: small(f, "partition"),
                base_offset: number(f, "base_offset"),
                append_time_ms: time(&f["append_time_ms"]),
                leader_epoch: small(f, "leader_epoch"),
                duplicate: flag("duplicate"),
            },
        ),
        "Subscribe" => check_body(
            v,
            proto::Subscribe {
                subscription_id: number(f, "subscription_id"),
                topic_id: number(f, "topic_id"),
                partition: small(f, "partition"),
                start: Some(proto::StartPosition { at: Some(At::TimestampMs(time(&f["start"]["timestamp_ms"]))) }),
                credit_bytes: number(f, "credit_bytes"),
            },
        ),
        "Deliver" => check_body(
            v,
            proto::Deliver {
                subscription_id: number(f, "subscription_id"),
                next_offset: number(f, "next_offset"),
                high_watermark: number(f, "high_watermark"),
                append_time_ms: f["append_time_ms"].as_array().expect("times").iter().map(time).collect(),
            },
        ),
        "CommitCursor" => check_body(
            v,
            proto::CommitCursor {
                topic_id: number(f, "topic_id"),
                partition: small(f, "partition"),
                name: text(f, "name"),
                offset: number(f, "offset"),
                force: flag("force"),
            },
        ),
        "GetCursorOk" => check_body(v, proto::GetCursorOk { offset: f["offset"].as_u64() }),
        other => panic!("{other} has fields that this test does not know"),
    }
}

#[test]
fn frames_are_read_and_written_as_the_vectors_say() {
    for v in vectors().frames {
        let frame = received(&v.bytes.0);
        assert_eq!(frame.kind, kind_of(&v.kind), "{}", v.name);
        assert_eq!((frame.op, frame.flags, frame.request_id), (v.op, v.flags, v.request_id), "{}", v.name);
        assert_eq!(frame.op().map(Op::name), Some(v.op_name.as_str()), "{}", v.name);
        assert_eq!((&frame.body, &frame.payload), (&v.body.0, &v.payload.0), "{}", v.name);
        check_message(&v);
        assert!(batch::split(frame.payload).all(|batch| batch.is_ok()), "{}", v.name);
    }
}

#[test]
fn errors_are_read_and_written_as_the_vectors_say() {
    for v in vectors().errors {
        let mut expected = Error::new(ErrorKind::from_name(&v.kind).expect("a kind"), &v.message);
        for (name, value) in &v.details {
            let d = &mut expected.details;
            match name.as_str() {
                "limit" => d.limit = value.as_u64(),
                "earliest_offset" => d.earliest_offset = value.as_u64(),
                "high_watermark" => d.high_watermark = value.as_u64(),
                "retry_after_ms" => d.retry_after_ms = value.as_u64().map(|ms| ms as u32),
                "expected_sequence" => d.expected_sequence = value.as_i64().map(|number| number as i32),
                "leader_address" => d.leader_address = value.as_str().map(str::to_owned),
                other => panic!("{other} is no detail"),
            }
        }
        let frame = received(&v.bytes.0);
        assert_eq!((frame.kind, frame.op, frame.request_id), (FrameKind::Error, v.op, v.request_id), "{}", v.name);
        let error = Error::from_proto(frame.message().expect("an error"));
        assert_eq!(error, expected, "{}", v.name);
        assert_eq!(error.kind.code(), v.code, "{}", v.name);
        assert_eq!(format!("{:?}", error.advice()).to_lowercase(), v.advice, "{}", v.name);
        assert_eq!(OutFrame::error(v.op, v.request_id, &error).to_bytes(), v.bytes.0, "{}", v.name);
    }
}

fn record(v: &RecordVector) -> Record {
    let bytes = |hex: &Option<Hex>| hex.clone().map(|hex| hex.0);
    let header = |h: &HeaderVector| RecordHeader { name: h.name.0.clone(), value: bytes(&h.value) };
    Record {
        key: bytes(&v.key),
        value: bytes(&v.value),
        headers: v.headers.iter().map(header).collect(),
        timestamp_ms: v.timestamp_ms,
    }
}

fn producer(v: &BatchVector) -> Option<Producer> {
    let p = v.producer.as_ref()?;
    Some(Producer { id: ProducerId(p.id), epoch: p.epoch, base_sequence: p.base_sequence })
}

fn built(v: &BatchVector, codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    v.records.iter().for_each(|v| builder.push(&record(v)).expect("a small record"));
    builder.build(producer(v))
}

#[test]
fn batches_are_read_as_the_vectors_say() {
    for v in vectors().batches {
        let decoded =
            batch::decode(v.bytes.0.clone(), MAX_DECOMPRESSED_BYTES).unwrap_or_else(|e| panic!("{}: {e}", v.name));
        let h = decoded.header;
        assert_eq!(h.codec().map(Codec::name), Ok(v.codec.as_str()), "{}", v.name);
        assert_eq!((h.size(), h.crc, h.count as usize), (v.size, v.crc, v.records.len()), "{}", v.name);
        assert_eq!((h.base_offset, h.leader_epoch), (v.base_offset, v.leader_epoch), "{}", v.name);
        assert_eq!((h.base_timestamp, h.max_timestamp), (v.base_timestamp, v.max_timestamp), "{}", v.name);
        assert_eq!((h.producer(), h.is_append_time()), (producer(&v), v.append_time), "{}", v.name);
        let expected: Vec<_> = v.records.iter().map(|r| (r.offset.into(), record(r))).collect();
        assert_eq!(decoded.records, expected, "{}", v.name);
        let taken = batch::validate(&v.bytes.0, v.size as u32);
        assert_eq!(taken.is_ok(), !v.append_time, "{}: only a broker sets the append time", v.name);
    }
}

#[test]
fn batches_are_written_as_the_vectors_say() {
    for v in vectors().batches {
        let codec: Codec = v.codec.parse().expect("a codec");
        match v.encoding.as_str() {
            "built" => assert_eq!(built(&v, codec), v.bytes.0, "{}", v.name),
            "compressed" => {
                let batch = built(&v, codec);
                assert_eq!(BatchHeader::parse(&batch).and_then(|h| h.codec()), Ok(codec), "{}", v.name);
                let decoded = batch::decode(batch, MAX_DECOMPRESSED_BYTES).expect("our own batch");
                let records: Vec<Record> = decoded.records.into_iter().map(|(_, record)| record).collect();
                assert_eq!(records, v.records.iter().map(record).collect::<Vec<_>>(), "{}", v.name);
            }
            "delivered" => {}
            other => panic!("{other} is no way to encode"),
        }
    }
}

#[test]
fn keys_go_to_the_partitions_that_the_vectors_say() {
    for v in vectors().partitions {
        assert_eq!(murmur2(&v.key.0) as i32, v.murmur2, "{:?}", v.key.0);
        for (partitions, partition) in v.partition_of {
            let partitions = partitions.parse().expect("a number");
            assert_eq!(partition_of_key(&v.key.0, partitions), partition, "{:?} of {partitions}", v.key.0);
        }
    }
}

#[test]
fn names_are_read_and_written_as_the_vectors_say() {
    for v in vectors().names {
        let name = TopicName::parse(&v.text).expect("a name");
        assert_eq!((name.to_string(), name.short()), (v.full, v.short.as_str()));
    }
    for v in vectors().invalid_names {
        assert_eq!(TopicName::parse(&v.text).expect_err(&v.text).kind.name(), v.kind, "{}", v.text);
    }
}

#[test]
fn what_is_invalid_is_refused_with_its_kind() {
    let v = vectors();
    for v in v.invalid_frames {
        let refused = Frame::decode(&mut BytesMut::from(&v.bytes.0[..]), v.max_frame_bytes).expect_err(&v.name);
        assert_eq!(refused.to_error().kind.name(), v.kind, "{}", v.name);
    }
    for v in v.invalid_batches {
        let refused = batch::validate(&v.bytes.0, v.max_batch_bytes).expect_err(&v.name);
        assert_eq!(refused.to_error().kind.name(), v.kind, "{}: {refused}", v.name);
    }
    for v in v.unreadable_batches {
        assert!(batch::validate(&v.bytes.0, u32::MAX).is_ok(), "{}", v.name);
        let refused = batch::decode(v.bytes.0, MAX_DECOMPRESSED_BYTES).expect_err(&v.name);
        assert_eq!(refused.to_error().kind.name(), v.kind, "{}", v.name);
    }
}
