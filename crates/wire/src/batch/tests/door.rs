//! The door refuses what is not a batch, and says why.

use super::*;
use crate::error::ErrorKind;

fn refusal(batch: &[u8]) -> BatchError {
    validate(batch, NO_LIMIT).unwrap_err()
}

#[test]
fn a_batch_of_every_codec_passes() {
    for codec in Codec::ALL {
        for producer in [None, Some(PRODUCER)] {
            let batch = build(codec, &three(), producer);
            let header = validate(&batch, NO_LIMIT).unwrap();
            assert_eq!((header.codec(), header.producer(), header.count), (Ok(codec), producer, 3));
            assert_eq!((header.size(), header.base_offset, header.leader_epoch), (batch.len(), 0, -1));
            assert_eq!((header.base_timestamp, header.max_timestamp), (1_700_000_000_000, 1_700_000_000_500));
        }
    }
}

#[test]
fn the_size_limit_is_exact() {
    let batch = build(Codec::None, &three(), None);
    let size = batch.len() as u32;
    assert!(validate(&batch, size).is_ok());
    let error = validate(&batch, size - 1).unwrap_err();
    assert_eq!(error, BatchError::TooLarge { bytes: batch.len(), limit: size - 1 });
    let error = error.to_error();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::BatchTooLarge, Some(u64::from(size - 1))));
    assert!(error.message.contains(&size.to_string()) && error.message.contains(&(size - 1).to_string()));
}

#[test]
fn a_batch_above_the_limit_is_refused_before_its_bytes_are_looked_at() {
    assert_eq!(validate(&[0xff; 100], 99).unwrap_err(), BatchError::TooLarge { bytes: 100, limit: 99 });
}

#[test]
fn any_flipped_bit_behind_the_prefix_is_refused() {
    for codec in Codec::ALL {
        let batch = build(codec, &three(), Some(PRODUCER));
        for bit in PREFIX_BYTES * 8..batch.len() * 8 {
            let mut flipped = batch.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = refusal(&flipped);
            let expected = if bit / 8 == 16 {
                matches!(error, BatchError::Magic(_))
            } else {
                matches!(error, BatchError::Checksum { .. })
            };
            assert!(expected, "bit {bit} of a {codec} batch: {error:?}");
        }
    }
}

#[test]
fn the_brokers_prefix_is_not_the_producers_business() {
    let mut batch = build(Codec::None, &three(), None).to_vec();
    let size = batch.len();
    batch[..PREFIX_BYTES].copy_from_slice(&delivery_prefix(crate::Offset(900), size, 12));
    let header = validate(&batch, NO_LIMIT).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch, header.size()), (900, 12, size));
}

#[test]
fn exactly_one_batch_is_taken() {
    let batch = build(Codec::None, &three(), None);
    let size = batch.len();
    for cut in HEADER_BYTES..size {
        assert_eq!(refusal(&batch[..cut]), BatchError::Truncated { bytes: cut, needed: size });
    }
    for cut in 0..HEADER_BYTES {
        assert_eq!(refusal(&batch[..cut]), BatchError::Truncated { bytes: cut, needed: HEADER_BYTES });
    }
    let and_a_byte = [&batch[..], &[0]].concat();
    assert_eq!(refusal(&and_a_byte), BatchError::Trailing { bytes: size + 1, batch: size });
    let twice = [&batch[..], &batch[..]].concat();
    assert_eq!(refusal(&twice), BatchError::Trailing { bytes: 2 * size, batch: size });
}

#[test]
fn a_length_that_is_no_length_is_refused() {
    for length in [i32::MIN, -1, 0, 48] {
        let batch = altered(Codec::None, |b| b[8..12].copy_from_slice(&length.to_be_bytes()));
        assert_eq!(refusal(&batch), BatchError::Length(length));
    }
}

#[test]
fn other_versions_of_the_layout_are_refused() {
    for magic in [0i8, 1, 3, -1] {
        assert_eq!(refusal(&altered(Codec::None, |b| b[16] = magic as u8)), BatchError::Magic(magic));
    }
}

#[test]
fn an_unknown_codec_is_refused() {
    for codec in 5..8u8 {
        assert_eq!(refusal(&altered(Codec::None, |b| b[22] = codec)), BatchError::Codec(codec));
    }
}

#[test]
fn attributes_that_are_not_the_producers_to_set_are_refused() {
    for bit in 3..16 {
        let bits = 1i16 << bit;
        let batch = altered(Codec::None, |b| b[21..23].copy_from_slice(&bits.to_be_bytes()));
        assert_eq!(refusal(&batch), BatchError::Attributes(bits), "bit {bit}");
    }
}

#[test]
fn counts_must_agree_and_be_possible() {
    for (count, delta) in [(0, -1), (-1, -2), (3, 3), (3, 1), (i32::MIN, i32::MAX), (i32::MAX, i32::MAX - 1)] {
        for codec in Codec::ALL {
            let batch = altered(codec, |b| {
                b[23..27].copy_from_slice(&i32::to_be_bytes(delta));
                b[57..61].copy_from_slice(&i32::to_be_bytes(count));
            });
            assert_eq!(refusal(&batch), BatchError::Count { count, last_offset_delta: delta });
        }
    }
}

#[test]
fn timestamps_must_be_in_range_and_order() {
    for (base, max) in [(-2, 5), (10, 9), (i64::MIN, i64::MAX - 1), (0, i64::MAX), (i64::MAX, i64::MAX)] {
        let batch = altered(Codec::Gzip, |b| {
            b[27..35].copy_from_slice(&i64::to_be_bytes(base));
            b[35..43].copy_from_slice(&i64::to_be_bytes(max));
        });
        assert_eq!(refusal(&batch), BatchError::Timestamps { base, max });
    }
}

#[test]
fn a_record_above_the_greatest_timestamp_is_refused() {
    let batch = altered(Codec::None, |b| b[35..43].copy_from_slice(&1_700_000_000_499i64.to_be_bytes()));
    assert!(matches!(refusal(&batch), BatchError::Record { index: 1, .. }));
}

#[test]
fn producer_fields_are_all_set_or_all_at_rest() {
    let with = |id: i64, epoch: i16, sequence: i32| {
        altered(Codec::Zstd, |b| {
            b[43..51].copy_from_slice(&id.to_be_bytes());
            b[51..53].copy_from_slice(&epoch.to_be_bytes());
            b[53..57].copy_from_slice(&sequence.to_be_bytes());
        })
    };
    for (id, epoch, sequence) in [(0, 0, 0), (i64::MAX, i16::MAX, i32::MAX), (-1, -1, -1), (-1, 0, 0), (-1, -1, 0)] {
        assert!(validate(&with(id, epoch, sequence), NO_LIMIT).is_ok(), "{id} {epoch} {sequence}");
    }
    for (id, epoch, sequence) in [(-2, -1, -1), (5, -1, 0), (5, 0, -1), (-1, 1, -1), (-1, -1, 5), (-1, -2, -1)] {
        assert_eq!(refusal(&with(id, epoch, sequence)), BatchError::Producer { id, epoch, sequence });
    }
}

/// Raw records, what is wrong with them, and how many the header announces.
#[test]
fn malformed_records_are_refused() {
    // length 6 | attributes | timestamp delta | offset delta | null key | null value | no headers
    let good = [12, 0, 0, 0, 1, 1, 0];
    assert!(validate(&around(Codec::None, 1, &good), NO_LIMIT).is_ok());
    let cases: &[(&str, &[u8])] = &[
        ("length is beyond the batch", &[14, 0, 0, 0, 1, 1, 0]),
        ("length is beyond its last header", &[14, 0, 0, 0, 1, 1, 0, 0]),
        ("ends too early", &[10, 0, 0, 0, 1, 1, 0]),
        ("length is negative", &[11, 0, 0, 0, 1, 1, 0]),
        ("offset delta is not its place", &[12, 0, 0, 2, 1, 1, 0]),
        ("length is below -1", &[12, 0, 0, 0, 3, 1, 0]),
        ("length is beyond the record's end", &[12, 0, 0, 0, 1, 10, 0]),
        ("header count is negative", &[12, 0, 0, 0, 1, 1, 1]),
        ("ends too early", &[20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]),
        ("above 64 bits", &[30, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 1, 1, 0]),
        ("header has no name", &[16, 0, 0, 0, 1, 1, 2, 1, 1]),
        ("above 32 bits", &[0xff, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0]),
        ("too many bytes", &[0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0]),
    ];
    for (expected, records) in cases {
        let batch = around(Codec::None, 1, records);
        let error = refusal(&batch);
        let BatchError::Record { index: 0, fault } = error else { panic!("{expected}: {error:?}") };
        assert!(fault.contains(expected), "{expected}: {fault}");
        assert_eq!(decode(batch, MAX_DECOMPRESSED_BYTES).unwrap_err(), error, "a reader finds the same");
    }
}

#[test]
fn offset_deltas_count_the_records() {
    for (second, fault) in [(0, true), (2, false), (4, true)] {
        let records = [12, 0, 0, 0, 1, 1, 0, 12, 0, 0, second, 1, 1, 0];
        let taken = validate(&around(Codec::None, 2, &records), NO_LIMIT);
        assert_eq!(matches!(taken, Err(BatchError::Record { index: 1, .. })), fault, "{taken:?}");
    }
}

#[test]
fn nothing_follows_the_last_record() {
    let records = [12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0];
    assert!(validate(&around(Codec::None, 2, &records), NO_LIMIT).is_ok());
    assert_eq!(refusal(&around(Codec::None, 1, &records)), BatchError::BytesAfterRecords(7));
}

#[test]
fn a_payload_of_batches_is_cut_into_them() {
    let batches: Vec<Bytes> = Codec::ALL.map(|codec| build(codec, &three(), None)).to_vec();
    let cut: Vec<Bytes> = split(batches.concat().into()).collect::<Result<_, _>>().unwrap();
    assert_eq!(cut, batches);
    assert_eq!(split(Bytes::new()).count(), 0);
}

#[test]
fn a_cut_off_payload_gives_its_whole_batches_and_one_error() {
    let batch = build(Codec::None, &three(), None);
    let payload: Bytes = [&batch[..], &batch[..batch.len() - 1]].concat().into();
    let cut: Vec<_> = split(payload).collect();
    assert_eq!(
        cut,
        vec![Ok(batch.clone()), Err(BatchError::Truncated { bytes: batch.len() - 1, needed: batch.len() })]
    );
}

#[test]
fn every_error_tells_its_values() {
    let error = BatchError::Checksum { stored: 0xdead, computed: 0xbeef }.to_error();
    assert_eq!(error.kind, ErrorKind::BadBatch);
    assert!(error.message.contains("0x0000dead") && error.message.contains("0x0000beef"), "{error}");
}
