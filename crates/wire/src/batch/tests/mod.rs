//! What the batch promises: at the door, to readers, and between builder and decoder.

mod codecs;
mod door;
mod records;
mod rewriting;

use bytes::Bytes;
use proptest::prelude::*;

use super::rewrite::seal;
use super::*;
use crate::ids::ProducerId;

const NO_LIMIT: u32 = u32::MAX;
const PRODUCER: Producer = Producer { id: ProducerId(7), epoch: 3, base_sequence: 41 };

fn record(key: &str, value: &str, timestamp_ms: i64) -> Record {
    Record { key: Some(bytes_of(key)), value: Some(bytes_of(value)), headers: Vec::new(), timestamp_ms }
}

fn bytes_of(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Three records that use everything a record has, and compress well.
fn three() -> Vec<Record> {
    let header = |name: &str, value: Option<&str>| RecordHeader { name: bytes_of(name), value: value.map(bytes_of) };
    let headers = vec![header("trace", Some("a1")), header("trace", None), header("", Some(""))];
    vec![
        Record { headers, ..record("user-1", &"hello ".repeat(200), 1_700_000_000_000) },
        Record { key: None, value: None, headers: Vec::new(), timestamp_ms: 1_700_000_000_500 },
        Record { key: Some(Bytes::new()), value: Some(Bytes::new()), ..record("", "", 1_699_999_999_000) },
    ]
}

fn build(codec: Codec, records: &[Record], producer: Option<Producer>) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    records.iter().for_each(|record| builder.push(record).unwrap());
    builder.build(producer)
}

/// A valid batch with `change` made to its bytes and the CRC made right again: what only the other checks can find.
fn altered(codec: Codec, change: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = build(codec, &three(), Some(PRODUCER)).to_vec();
    change(&mut bytes);
    seal(&mut bytes);
    bytes.into()
}

/// A batch around records that are given as raw bytes.
fn around(codec: Codec, count: i32, records: &[u8]) -> Bytes {
    let mut bytes = build(Codec::None, &[record("", "", 0)], None)[..HEADER_BYTES].to_vec();
    bytes.extend_from_slice(records);
    let length = (bytes.len() - LENGTH_END) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[21..23].copy_from_slice(&i16::from(codec.bits()).to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    seal(&mut bytes);
    bytes.into()
}

fn records_of(batch: Bytes) -> Vec<Record> {
    decode(batch, MAX_DECOMPRESSED_BYTES).unwrap().records.into_iter().map(|(_, record)| record).collect()
}

prop_compose! {
    fn some_bytes(max: usize)(bytes in prop::collection::vec(any::<u8>(), 0..max)) -> Bytes { bytes.into() }
}

prop_compose! {
    fn any_record()(
        key in prop::option::of(some_bytes(40)),
        value in prop::option::of(some_bytes(300)),
        headers in prop::collection::vec((some_bytes(20), prop::option::of(some_bytes(40))), 0..5),
        timestamp_ms in prop_oneof![Just(-1), Just(i64::MAX - 1), 0..4_000_000_000_000i64],
    ) -> Record {
        let headers = headers.into_iter().map(|(name, value)| RecordHeader { name, value }).collect();
        Record { key, value, headers, timestamp_ms }
    }
}

fn any_codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}
