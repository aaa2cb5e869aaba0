//! Headers that are rewritten stay headers of a sound batch.

use super::*;

#[test]
fn append_time_becomes_the_time_of_every_record() {
    for codec in Codec::ALL {
        let batch = rewrite_append_time(build(codec, &three(), Some(PRODUCER)), 1_800_000_000_000);
        let decoded = decode(batch, MAX_DECOMPRESSED_BYTES).unwrap();
        assert!(decoded.header.is_append_time());
        assert_eq!(decoded.header.codec().unwrap(), codec);
        assert!(decoded.records.iter().all(|(_, record)| record.timestamp_ms == 1_800_000_000_000));
        assert_eq!(decoded.records[0].1.value, three()[0].value);
    }
}

#[test]
fn rewriting_leaves_bytes_that_others_hold_alone() {
    let original = build(Codec::None, &three(), None);
    let copy = Bytes::copy_from_slice(&original);
    let rewritten = rewrite_append_time(original.clone(), 1);
    assert_ne!(rewritten, original);
    assert_eq!(original, copy);
}

#[test]
fn a_batch_nobody_else_holds_is_rewritten_in_place() {
    let batch = build(Codec::None, &three(), None);
    let place = batch.as_ptr();
    assert_eq!(rewrite_append_time(batch, 1).as_ptr(), place);
}

#[test]
fn a_restamped_batch_is_the_batch_that_this_producer_would_have_built() {
    for codec in Codec::ALL {
        let first = build(codec, &three(), None);
        assert_eq!(restamp(first, PRODUCER), build(codec, &three(), Some(PRODUCER)), "{codec}");
    }
}

#[test]
fn sequence_numbers_start_again_at_0_after_the_largest() {
    assert_eq!(sequence_after(0, 5), 5);
    assert_eq!(sequence_after(i32::MAX, 1), 0);
    assert_eq!(sequence_after(i32::MAX - 1, 3), 1);
    let producer = Producer { base_sequence: i32::MAX - 1, ..PRODUCER };
    let header = validate(&build(Codec::None, &three(), Some(producer)), NO_LIMIT).unwrap();
    assert_eq!(header.last_sequence(), 0);
}
