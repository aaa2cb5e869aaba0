//! Record batches: what the door takes, every reader can read, and a rewriting keeps it so.

use bytes::Bytes;
use lockgate_wire::batch::{self, BatchBuilder, BatchHeader, Codec, HEADER_BYTES, Producer, Record, RecordHeader};
use lockgate_wire::{Offset, ProducerId};

const MAX_BATCH_BYTES: u32 = 64 * 1024;
const MAX_DECOMPRESSED_BYTES: usize = 256 * 1024;
/// The checksum's place, and where what it covers begins.
const CRC_AT: usize = 17;
const CRC_FROM: usize = 21;

pub(crate) fn run(bytes: &[u8]) {
    check(Bytes::copy_from_slice(bytes));
    // Behind the checksum is where the parsing is.
    if bytes.len() >= HEADER_BYTES {
        let mut sealed = bytes.to_vec();
        let length = (bytes.len() - batch::LENGTH_END) as i32;
        sealed[8..batch::LENGTH_END].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c(&sealed[CRC_FROM..]);
        sealed[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
        check(sealed.into());
    }
    let cut: Vec<_> = batch::split(Bytes::copy_from_slice(bytes)).collect();
    let whole: usize = cut.iter().flatten().map(Bytes::len).sum();
    assert!(whole <= bytes.len() && cut.iter().rev().skip(1).all(Result::is_ok), "nothing follows an error");
}

fn check(bytes: Bytes) {
    let decoded = batch::decode(bytes.clone(), MAX_DECOMPRESSED_BYTES);
    let Ok(header) = batch::validate(&bytes, MAX_BATCH_BYTES) else { return };
    assert_eq!(BatchHeader::parse(&bytes).as_ref(), Ok(&header));
    assert!(header.size() == bytes.len() && header.count >= 1);
    let codec = header.codec().unwrap();
    if codec == Codec::None && header.base_offset >= 0 {
        let decoded = decoded.as_ref().expect("what the door took, a reader reads");
        assert_eq!(decoded.records.len(), header.count as usize);
        let above = decoded.records.iter().find(|(_, record)| record.timestamp_ms > header.max_timestamp);
        assert_eq!(above, None, "a record is above the batch's greatest timestamp");
        rebuild(&decoded.records);
    }
    let producer = Producer { id: ProducerId(9), epoch: 1, base_sequence: 4 };
    for rewritten in [batch::rewrite_append_time(bytes.clone(), 77), batch::restamp(bytes.clone(), producer)] {
        assert_eq!(rewritten.len(), bytes.len());
        let again = batch::decode(delivered(&rewritten), MAX_DECOMPRESSED_BYTES);
        let before = batch::decode(delivered(&bytes), MAX_DECOMPRESSED_BYTES);
        assert_eq!(again.is_ok(), before.is_ok(), "rewriting changes whether it can be read");
    }
}

/// As a reader gets it.
fn delivered(batch: &Bytes) -> Bytes {
    let prefix = batch::delivery_prefix(Offset(5), batch.len(), 1);
    [&prefix[..], &batch[batch::PREFIX_BYTES..]].concat().into()
}

/// Records survive being written again.
fn rebuild(records: &[(Offset, Record)]) {
    let mut builder = BatchBuilder::new(Codec::None);
    for (_, record) in records {
        if builder.push(record).is_err() {
            return;
        }
    }
    let again = batch::decode(builder.build(None), usize::MAX).unwrap();
    let again: Vec<&Record> = again.records.iter().map(|(_, record)| record).collect();
    let before: Vec<&Record> = records.iter().map(|(_, record)| record).collect();
    assert_eq!(again, before);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let header = |name: &'static [u8], value: Option<&'static [u8]>| RecordHeader {
        name: Bytes::from_static(name),
        value: value.map(Bytes::from_static),
    };
    let records = [
        Record { value: Some(Bytes::from_static(b"value")), timestamp_ms: 1_700_000_000_000, ..Record::default() },
        Record { key: Some(Bytes::from_static(b"key")), timestamp_ms: -1, ..Record::default() },
        Record {
            value: Some(Bytes::from(vec![b'x'; 300])),
            headers: vec![header(b"h", Some(b"v")), header(b"", None)],
            timestamp_ms: 5,
            ..Record::default()
        },
    ];
    let build = |codec: Codec| {
        let mut builder = BatchBuilder::new(codec);
        records.iter().for_each(|record| builder.push(record).unwrap());
        builder.build(Some(Producer { id: ProducerId(1), epoch: 0, base_sequence: 0 })).to_vec()
    };
    let mut seeds: Vec<Vec<u8>> = Codec::ALL.into_iter().map(build).collect();
    seeds.push([seeds[0].clone(), seeds[1].clone()].concat());
    seeds
}
