//! Builder and decoder agree on every record.

use super::*;
use crate::ids::Offset;

#[test]
fn records_keep_everything_through_every_codec() {
    for codec in Codec::ALL {
        let batch = build(codec, &three(), Some(PRODUCER));
        let decoded = decode(batch, MAX_DECOMPRESSED_BYTES).unwrap();
        assert_eq!(decoded.header.codec().unwrap(), codec);
        let expected: Vec<_> = three().into_iter().zip(0..).map(|(record, offset)| (Offset(offset), record)).collect();
        assert_eq!(decoded.records, expected, "{codec}");
    }
}

#[test]
fn delivered_records_count_from_the_base_offset() {
    let mut batch = build(Codec::Lz4, &three(), None).to_vec();
    let size = batch.len();
    batch[..PREFIX_BYTES].copy_from_slice(&delivery_prefix(Offset(5_000_000_000), size, 9));
    let decoded = decode(batch.into(), MAX_DECOMPRESSED_BYTES).unwrap();
    let offsets: Vec<u64> = decoded.records.iter().map(|(offset, _)| offset.0).collect();
    assert_eq!(offsets, [5_000_000_000, 5_000_000_001, 5_000_000_002]);
    assert_eq!(decoded.header.leader_epoch, 9);
}

#[test]
fn an_offset_that_no_record_can_have_is_refused() {
    for base in [-1, i64::MIN, i64::MAX, i64::MAX - 1] {
        let batch = altered(Codec::None, |b| b[..8].copy_from_slice(&base.to_be_bytes()));
        assert_eq!(decode(batch, MAX_DECOMPRESSED_BYTES), Err(BatchError::BaseOffset(base)));
    }
    let last = altered(Codec::None, |b| b[..8].copy_from_slice(&(i64::MAX - 2).to_be_bytes()));
    assert_eq!(decode(last, MAX_DECOMPRESSED_BYTES).unwrap().records[2].0, Offset(i64::MAX as u64));
}

#[test]
fn uncompressed_records_are_slices_of_the_batch() {
    let batch = build(Codec::None, &three(), None);
    let within = batch.as_ptr_range();
    for (_, record) in decode(batch.clone(), MAX_DECOMPRESSED_BYTES).unwrap().records {
        for part in record.key.iter().chain(&record.value).filter(|part| !part.is_empty()) {
            assert!(within.contains(&part.as_ptr()), "{part:?} was copied");
        }
    }
}

#[test]
fn a_damaged_batch_is_not_decoded() {
    let mut batch = build(Codec::Gzip, &three(), None).to_vec();
    *batch.last_mut().unwrap() ^= 1;
    assert!(matches!(decode(batch.into(), MAX_DECOMPRESSED_BYTES), Err(BatchError::Checksum { .. })));
}

#[test]
fn a_compressed_batch_that_holds_other_records_than_announced_is_not_decoded() {
    let records = Codec::Zstd.compress(&[12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0]);
    assert!(decode(around(Codec::Zstd, 2, &records), MAX_DECOMPRESSED_BYTES).is_ok());
    let decoded = |count| decode(around(Codec::Zstd, count, &records), MAX_DECOMPRESSED_BYTES).unwrap_err();
    assert_eq!(decoded(1), BatchError::BytesAfterRecords(7));
    assert_eq!(decoded(3), BatchError::Count { count: 3, last_offset_delta: 2 });
}

#[test]
fn timestamps_beyond_what_a_batch_can_carry_become_the_nearest_that_it_can() {
    let sent = [i64::MIN, i64::MAX, -1, 0, i64::MAX - 1].map(|time| record("k", "v", time));
    let batch = build(Codec::None, &sent, None);
    assert!(validate(&batch, NO_LIMIT).is_ok());
    let times: Vec<i64> = records_of(batch).iter().map(|record| record.timestamp_ms).collect();
    assert_eq!(times, [-1, i64::MAX - 1, -1, 0, i64::MAX - 1]);
    assert_eq!(*TIMESTAMP_MS_RANGE.end() - *TIMESTAMP_MS_RANGE.start(), i64::MAX, "the widest difference fits");
}

#[test]
fn the_builder_knows_its_size_before_and_after() {
    let mut builder = BatchBuilder::new(Codec::None);
    assert!(builder.is_empty());
    assert_eq!(builder.encoded_size(), HEADER_BYTES);
    for (before, record) in three().iter().enumerate() {
        assert_eq!(builder.count(), before);
        let announced = builder.size_with(record);
        builder.push(record).unwrap();
        assert_eq!(builder.encoded_size(), announced);
    }
    let size = builder.encoded_size();
    assert_eq!(builder.build(None).len(), size);
}

#[test]
fn records_that_no_reader_would_take_are_not_gathered() {
    let mut builder = BatchBuilder::new(Codec::Zstd);
    // length 4 | attributes 1 | deltas 2 | null key 1 | value length 4, value | header count 1
    let value = |bytes: usize| Record { value: Some(vec![0; bytes].into()), ..Record::default() };
    let most = MAX_DECOMPRESSED_BYTES - 13;
    assert_eq!(builder.push(&value(most + 1)), Err(BatchError::RecordsTooLarge { limit: MAX_DECOMPRESSED_BYTES }));
    assert!(builder.is_empty());
    builder.push(&value(most)).unwrap();
    assert_eq!(builder.encoded_size(), HEADER_BYTES + MAX_DECOMPRESSED_BYTES);
    assert_eq!(builder.push(&Record::default()), Err(BatchError::RecordsTooLarge { limit: MAX_DECOMPRESSED_BYTES }));
    let decoded = decode(builder.build(None), MAX_DECOMPRESSED_BYTES).unwrap();
    assert_eq!(decoded.records[0].1.value.as_ref().unwrap().len(), most);
}

proptest! {
    #[test]
    fn any_records_survive_any_codec(records in prop::collection::vec(any_record(), 1..30), codec in any_codec()) {
        let mut builder = BatchBuilder::new(codec);
        for record in &records {
            builder.push(record).unwrap();
        }
        let bound = builder.encoded_size();
        let batch = builder.build(Some(PRODUCER));
        prop_assert!(batch.len() <= bound);
        let header = validate(&batch, bound as u32).unwrap();
        prop_assert_eq!(header.producer(), Some(PRODUCER));
        prop_assert_eq!(header.max_timestamp, records.iter().map(|r| r.timestamp_ms).max().unwrap());
        prop_assert_eq!(records_of(batch), records);
    }
}
