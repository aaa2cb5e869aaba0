//! Every parser of bytes from outside, on arbitrary bytes and on damaged good ones: it answers, it never panics, and it
//! takes no more memory than it was allowed.

use bytes::{Bytes, BytesMut};
use lockgate_wire::batch::{self, BatchBuilder, BatchHeader, Codec, HEADER_BYTES, Record};
use lockgate_wire::{Frame, proto};
use proptest::prelude::*;
use prost::Message;

const MAX_DECOMPRESSED: usize = 1 << 20;

/// Everything that reads batches.
fn read_as_batches(bytes: &Bytes) {
    let _ = BatchHeader::parse(bytes)
        .map(|header| (header.size(), header.codec(), header.producer(), header.last_sequence()));
    let _ = batch::validate(bytes, u32::MAX);
    if let Ok(decoded) = batch::decode(bytes.clone(), MAX_DECOMPRESSED) {
        assert_eq!(decoded.records.len(), decoded.header.count as usize);
    }
    let cut: Vec<_> = batch::split(bytes.clone()).collect();
    let whole: usize = cut.iter().flatten().map(Bytes::len).sum();
    assert!(whole <= bytes.len());
    assert!(cut.iter().rev().skip(1).all(Result::is_ok), "only the last can be an error");
}

/// Recomputes the CRC, so that damage gets past it and meets the checks behind.
fn resealed(mut bytes: Vec<u8>) -> Bytes {
    if bytes.len() >= HEADER_BYTES {
        let length = (bytes.len() - batch::LENGTH_END) as i32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    bytes.into()
}

fn good_batch(codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(codec);
    for index in 0..20u8 {
        let name = Bytes::from_static(b"name");
        let headers = vec![batch::RecordHeader { name, value: Some(vec![index].into()) }];
        let (key, value) = (Some(vec![index; 3].into()), Some(vec![7; 50].into()));
        builder.push(&Record { key, value, headers, timestamp_ms: 1000 + i64::from(index) }).expect("a small record");
    }
    builder.build(None).to_vec()
}

fn any_codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}

fn some_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_bytes_are_a_frame_or_a_reason(bytes in some_bytes(300), limit in 19u32..400) {
        let mut buffer = BytesMut::from(&bytes[..]);
        let missing = Frame::missing(&buffer, limit);
        let frame = Frame::decode(&mut buffer, limit);
        match (&missing, &frame) {
            (Ok(0), Ok(None)) | (Ok(1..), Ok(Some(_))) => prop_assert!(false, "missing {missing:?}, decoded {frame:?}"),
            (Err(_), Ok(_)) => prop_assert!(false, "missing refuses what decode takes"),
            _ => {}
        }
    }

    #[test]
    fn a_damaged_frame_is_a_frame_or_a_reason(at in 0usize..64, value: u8) {
        let body = proto::Publish { topic_id: 9, ..Default::default() };
        let mut bytes = lockgate_wire::OutFrame::request(4, &body).to_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(Some(frame)) = Frame::decode(&mut BytesMut::from(&bytes[..]), 1 << 20) {
            let _ = frame.message::<proto::Publish>();
            let _ = proto::Error::decode(frame.body);
        }
    }

    #[test]
    fn any_bytes_are_batches_or_a_reason(bytes in some_bytes(300)) {
        read_as_batches(&bytes.into());
    }

    #[test]
    fn any_records_behind_a_good_header_are_records_or_a_reason(codec in any_codec(), records in some_bytes(200)) {
        let mut bytes = good_batch(codec);
        bytes.truncate(HEADER_BYTES);
        bytes.extend_from_slice(&records);
        read_as_batches(&resealed(bytes));
    }

    #[test]
    fn damage_that_the_crc_does_not_show_is_a_reason_at_most(
        codec in any_codec(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = good_batch(codec);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_as_batches(&resealed(bytes.clone()));
        bytes.truncate(cut.index(bytes.len() + 1));
        read_as_batches(&resealed(bytes));
    }

    #[test]
    fn what_the_door_takes_uncompressed_every_reader_takes(
        damage in prop::collection::vec((HEADER_BYTES..400, any::<u8>()), 1..3),
    ) {
        let mut bytes = good_batch(Codec::None);
        for (at, value) in damage {
            bytes[at] = value;
        }
        let bytes = resealed(bytes);
        let (taken, read) = (batch::validate(&bytes, u32::MAX), batch::decode(bytes, MAX_DECOMPRESSED));
        if taken.is_ok() {
            prop_assert!(read.is_ok(), "{read:?}");
        }
    }
}
