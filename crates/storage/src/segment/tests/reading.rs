//! Every batch from any place, exactly once.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Records, value bytes and timestamp of each batch.
fn batches() -> impl Strategy<Value = Vec<(u32, usize, i64)>> {
    vec((1u32..5, 0usize..400, -1i64..200), 1..60)
}

fn filled(segment_bytes: u64, interval: u32, batches: &[(u32, usize, i64)]) -> Log<MemoryDisk> {
    let mut log = Log::new(config(segment_bytes, interval));
    batches.iter().for_each(|(count, bytes, timestamp)| log.push(*count, *bytes, *timestamp));
    log
}

proptest! {
    #[test]
    fn reading_on_from_any_offset_gives_every_batch_from_there_once(
        batches in batches(),
        segment_bytes in 1u64..4000,
        interval in 0u32..1500,
        max_bytes in 0usize..2500,
        sealed: bool,
    ) {
        let mut log = filled(segment_bytes, interval, &batches);
        if sealed {
            log.seal_all();
            log.reopen().unwrap();
        }
        let end = log.segments.end_offset();
        for offset in 0..end.0 {
            let position = log.segments.locate(Offset(offset)).unwrap();
            let read = log.read_on(position, max_bytes).unwrap();
            let first = read.first().unwrap().base_offset;
            prop_assert!(first.0 <= offset);
            prop_assert_eq!(&read[..], log.between(first, end));
            let skipped: u64 = read.iter().take_while(|b| b.end_offset().0 <= offset).map(frame::frame_bytes).sum();
            let largest = log.appended.iter().map(frame::frame_bytes).max().unwrap();
            prop_assert!(skipped <= u64::from(interval) + largest, "the index leads near: {} bytes before", skipped);
        }
        prop_assert_eq!(log.segments.locate(end), None);
    }

    #[test]
    fn a_lookup_by_time_agrees_with_a_naive_scan(
        batches in batches(),
        segment_bytes in 1u64..4000,
        interval in 0u32..1500,
        sealed: bool,
    ) {
        let mut log = filled(segment_bytes, interval, &batches);
        if sealed {
            log.seal_all();
            log.reopen().unwrap();
        }
        for timestamp in batches.iter().flat_map(|batch| [batch.2, batch.2 + 1]).chain([-2]) {
            let naive = batches.iter().position(|batch| batch.2 >= timestamp).map(|at| log.appended[at].base_offset);
            let found = log.segments.locate_time(timestamp).map(|position| {
                let read = log.read_on(position, 64 * 1024).unwrap();
                let at = |offset: Offset| log.appended.iter().position(|batch| batch.base_offset == offset).unwrap();
                read.iter().find(|batch| batches[at(batch.base_offset)].2 >= timestamp).unwrap().base_offset
            });
            prop_assert_eq!(found, naive, "timestamp {}", timestamp);
        }
    }

    #[test]
    fn a_reader_of_arbitrary_bytes_never_panics(bytes in vec(any::<u8>(), 0..400), asked in 0usize..400, byte: u64) {
        let log = filled(2000, 100, &[(1, 10, 1), (2, 1000, 1), (1, 10, 1), (1, 1500, 2)]);
        for segment in [0, 1, 4] {
            let position = Position { segment: Offset(segment), byte, offset: Offset(segment) };
            let _ = log.segments.read(position, asked);
            let _ = log.segments.parse(position, asked, Bytes::from(bytes.clone()));
        }
        let _ = frame::decode(&Bytes::from(bytes.clone()));
        let _ = index::decode(&bytes, Offset(0));
        let _ = start::decode(&Bytes::from(bytes));
    }
}

#[test]
fn a_reader_at_the_end_goes_on_when_more_is_there_even_in_a_new_segment() {
    let mut log = Log::new(config(500, 100));
    log.push(1, 10, 1);
    let FileOp::Read { len, .. } = log.segments.read(log.segments.locate(Offset(0)).unwrap(), 1 << 20).unwrap() else {
        panic!("not a read")
    };
    let mut next = Position { segment: Offset(0), byte: len as u64, offset: Offset(1) };
    for number in 1..20 {
        assert_eq!(log.segments.read(next, 1 << 20), None);
        log.push(1, 150, number);
        let Some(FileOp::Read { path, offset, len }) = log.segments.read(next, 1 << 20) else { panic!("not a read") };
        let parsed = log.segments.parse(next, len, log.disk.read(&path, offset, len).unwrap()).unwrap();
        assert_eq!(parsed.batches, log.appended[number as usize..]);
        next = parsed.next;
    }
    assert!(log.segments.count() > 5);
}

#[test]
fn batches_that_are_read_share_the_bytes_of_the_read() {
    let mut log = Log::new(config(5000, 100));
    (0..3).for_each(|_| log.push(1, 100, 1));
    let position = log.segments.locate(Offset(0)).unwrap();
    let op = log.segments.read(position, 1 << 20).unwrap();
    let bytes = op.execute(&log.disk).unwrap();
    let range = bytes.as_ptr_range();
    let parsed = log.segments.parse(position, bytes.len(), bytes.clone()).unwrap();
    assert_eq!(parsed.batches.len(), 3);
    assert!(parsed.batches.iter().all(|batch| range.contains(&batch.batch.as_ptr())));
}
