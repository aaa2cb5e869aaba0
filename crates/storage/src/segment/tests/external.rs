//! Frames that are written ahead of the journal: where they go, what is durable before them, what a start makes of them.

use proptest::prelude::*;

use super::*;
use crate::disk::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
const FIRST: &str = "00000000000000000000.log";

impl Log<MemoryDisk> {
    /// Batches of one entry each, of so many bytes and a bit.
    fn next_batches(&self, sizes: &[usize]) -> Vec<StoredBatch> {
        let mut at = self.next_entry();
        let mut batches = Vec::new();
        for size in sizes {
            let next = batch(at, 2, *size, 1);
            at = LogPoint { offset: next.end_offset(), index: LogIndex(at.index.0 + 1), ..at };
            batches.push(next);
        }
        batches
    }

    /// Writes batches ahead, behind some that wait.
    fn ahead(&mut self, waiting: &[usize], sizes: &[usize]) -> Vec<(Offset, Place)> {
        let all = self.next_batches(&[waiting, sizes].concat());
        let (waiting, batches) = all.split_at(waiting.len());
        let ahead = self.segments.append_ahead(&[], waiting, batches);
        for write in &ahead.writes {
            assert!(write.offset.is_multiple_of(BLOCK) || write.pieces.is_empty(), "{write:?}");
            assert_eq!(write.bytes, write.pieces.iter().map(Bytes::len).sum::<usize>());
            assert!(write.bytes.is_multiple_of(BLOCK_BYTES));
            write.execute(&self.disk).unwrap();
        }
        self.segments.durable();
        self.segments.written(self.segments.end_offset());
        self.appended.extend_from_slice(&all);
        batches.iter().map(|batch| batch.base_offset).zip(ahead.places).collect()
    }

    fn survey(&self, limit: Limit) -> Survey {
        Segments::survey(&self.disk, self.config.clone(), limit).unwrap()
    }

    fn check(&self, places: &[(Offset, Place)]) -> Result<(), SegmentError> {
        let survey = self.survey(Limit::None);
        places.iter().try_for_each(|(offset, place)| survey.check(*offset, place))
    }
}

#[test]
fn what_is_written_ahead_shares_no_block_with_anything_else() {
    let mut log = Log::new(config(1 << 20, 100));
    log.push(1, 10, 1);
    let small = log.segments.size_bytes();
    let places = log.ahead(&[20, 30], &[5000, 10]);
    assert_eq!(log.segments.size_bytes() % BLOCK, 0);
    log.push(1, 10, 1);
    let begins = places.iter().map(|(_, place)| place.byte).collect::<Vec<_>>();
    assert!(small < BLOCK && begins[0] > BLOCK && begins[1] == begins[0] + places[0].1.bytes, "{places:?}");
    let bytes = log.disk.file(&format!("{DIRECTORY}/{FIRST}")).unwrap();
    assert!(bytes[small as usize..BLOCK as usize].iter().all(|byte| *byte == 0), "filler up to the block");
    log.assert_whole();
    let report = log.reopen().unwrap();
    assert_eq!((report.cut, report.scanned), (None, 1));
    log.assert_whole();
    assert_eq!(log.check(&places), Ok(()));
}

#[test]
fn everything_before_it_in_the_log_is_made_durable_with_it() {
    let mut log = Log::new(config(400, 100));
    for _ in 0..4 {
        log.push(1, 150, 1);
    }
    let small = log.segments.count();
    assert!(small > 1);
    let batches = log.next_batches(&[100]);
    let ahead = log.segments.append_ahead(&[], &[], &batches);
    let synced: Vec<_> = ahead.writes.iter().map(|write| (&*write.path, write.is_new, write.is_whole)).collect();
    let bases: Vec<String> =
        log.segments.segments.iter().map(|s| format!("{DIRECTORY}/{:020}.log", s.base.0)).collect();
    let expected: Vec<_> =
        bases.iter().map(|path| (path.as_str(), true, bases.len() > small && *path == bases[small])).collect();
    assert_eq!(synced, expected, "every log, and the one that is written last");
    ahead.writes.iter().for_each(|write| write.execute(&log.disk).unwrap());
    log.segments.durable();
    log.segments.written(log.segments.end_offset());
    log.appended.extend(batches);
    // From then on there is nothing else to sync.
    let batches = log.next_batches(&[100]);
    let ahead = log.segments.append_ahead(&[], &[], &batches);
    assert_eq!(ahead.writes.len(), 1, "{:?}", ahead.writes);
}

#[test]
fn a_record_that_was_never_written_has_its_frames_cut_and_others_are_never_cut_for_that() {
    let mut log = Log::new(config(1 << 20, 100));
    log.push(1, 10, 1);
    log.ahead(&[], &[100]);
    log.push(1, 10, 1);
    let last = log.segments.end_index().unwrap();
    let kept = log.segments.end_offset();
    log.ahead(&[50], &[100, 100]);
    let end = log.segments.end_offset();
    let before = log.disk.clone();
    // What waited is in the journal, what was ahead of it is not.
    let survey = log.survey(Limit::AheadUpTo(LogIndex(last.0 + 1)));
    assert_eq!(survey.end_index(), LogIndex(last.0 + 1));
    assert_eq!(log.disk.file(&format!("{DIRECTORY}/{FIRST}")), before.file(&format!("{DIRECTORY}/{FIRST}")));
    let (segments, report) = survey.settle(&log.disk).unwrap();
    assert_eq!(segments.end_offset(), kept.plus(2));
    assert!(report.cut.unwrap().reason.contains("never written"));
    // A journal that has less than that lost it: nothing is cut, and whoever compares the two sees it.
    log.disk = before;
    let (segments, _) = log.survey(Limit::AheadUpTo(LogIndex(last.0 - 1))).settle(&log.disk).unwrap();
    assert_eq!((segments.end_index(), segments.end_offset() < end), (Some(LogIndex(last.0 + 1)), true));
}

#[test]
fn what_the_journal_refers_to_is_missed_wherever_it_went_and_nothing_is_cut() {
    let whole = || {
        let mut log = Log::new(config(20_000, 100));
        log.push(1, 10, 1);
        let places = log.ahead(&[], &[3000, 3000]);
        (log, places)
    };
    let (log, places) = whole();
    assert_eq!(log.check(&places), Ok(()));
    let other = Place { crc: places[1].1.crc ^ 1, ..places[1].1 };
    assert!(log.check(&[(places[1].0, other)]).is_err(), "another batch at its place");
    for (at, lost_from) in [(places[0].1.byte + 60, 0), (places[1].1.byte + 2000, 1), (3, 0)] {
        let (log, places) = whole();
        log.change(FIRST, |bytes| bytes[at as usize] ^= 1);
        let before = log.disk.file(&format!("{DIRECTORY}/{FIRST}"));
        assert_eq!(log.check(&places[..lost_from]), Ok(()));
        let error = log.check(&places).unwrap_err();
        assert!(matches!(error, SegmentError::Damaged { position, .. } if position <= at), "{error}");
        assert_eq!(log.disk.file(&format!("{DIRECTORY}/{FIRST}")), before);
    }
    let (log, places) = whole();
    log.change(FIRST, |bytes| bytes.truncate(places[1].1.byte as usize));
    assert!(log.check(&places[..1]).is_ok() && log.check(&places).is_err(), "a file that ends early");
    let (log, places) = whole();
    log.disk.remove(&format!("{DIRECTORY}/{FIRST}")).unwrap();
    assert!(log.check(&places).is_err(), "no file");
}

#[test]
fn what_retention_removed_and_what_is_sealed_is_not_missed() {
    let mut log = Log::new(config(5000, 100));
    let mut places = Vec::new();
    for _ in 0..6 {
        places.extend(log.ahead(&[], &[3000]));
    }
    log.seal_all();
    assert_eq!(log.check(&places), Ok(()));
    log.expire(WallMs(0), &Retention { max_bytes: Some(9000), max_age_ms: None }, None);
    assert!(log.segments.start_offset() > Offset(0) && log.segments.count() > 1);
    assert_eq!(log.check(&places), Ok(()));
    log.reopen().unwrap();
    log.assert_whole();
}

#[test]
fn without_room_the_same_bytes_are_appended_later() {
    let mut log = Log::new(config(9000, 100));
    log.push(1, 10, 1);
    let batches = log.next_batches(&[50, 4000, 4000]);
    let appends = log.segments.append_ahead(&[], &batches[..1], &batches[1..]).into_appends();
    assert_eq!(appends.len(), 2, "one for each segment");
    log.run(&appends);
    log.run(&appends);
    log.segments.written(log.segments.end_offset());
    log.appended.extend(batches);
    log.assert_whole();
    log.push(1, 10, 1);
    log.reopen().unwrap();
    log.assert_whole();
}

#[test]
fn appends_under_way_are_made_durable_too_and_may_be_carried_out_before_or_after() {
    for is_late in [false, true] {
        let mut log = Log::new(config(1000, 100));
        let batches = log.next_batches(&[300, 300, 300, 50, 3000]);
        let appends = log.segments.append(&batches[..3]);
        assert_eq!(appends.len(), 2);
        let ahead = log.segments.append_ahead(&appends, &batches[3..4], &batches[4..]);
        let (first, second) = ahead.writes.split_at(2);
        assert!(first.iter().zip(&appends).all(|(write, append)| {
            matches!(append, FileOp::Write { path, offset, pieces } if (path, *offset, pieces) == (&write.path, write.offset, &write.pieces))
        }));
        assert!(!second.is_empty());
        if !is_late {
            log.run(&appends);
        }
        ahead.writes.iter().for_each(|write| write.execute(&log.disk).unwrap());
        if is_late {
            log.run(&appends);
        }
        log.segments.durable();
        log.segments.written(log.segments.end_offset());
        log.appended.extend(batches);
        log.assert_whole();
        assert_eq!(log.reopen().unwrap().cut, None);
        log.assert_whole();
    }
}

/// A frame may begin with zeros: what is skipped is never the beginning of one.
#[test]
fn zeros_are_filler_only_where_no_frame_can_begin() {
    let at = BLOCK - 3;
    let bad = frame::Fault::Bad("no frame begins here");
    let few = frame::Fault::Incomplete(frame::MIN_FRAME_BYTES);
    assert_eq!(frame::filler(&[0; 200], at, bad, false), Some(3));
    assert_eq!(frame::filler(&[0, 0, 0], at, few, false), None, "what follows may make it a frame");
    assert_eq!(frame::filler(&[0, 0, 0], at, few, true), Some(3));
    assert_eq!(frame::filler(&[0, 0], at, few, true), None, "the file ends within a block");
    assert_eq!(frame::filler(&[0, 1, 0], at, bad, true), None);
    assert_eq!(frame::filler(&[0; 200], BLOCK, bad, false), None, "a block begins here");
    assert_eq!(frame::filler(&[0; 200], at, frame::Fault::Version(9), false), None);
}

#[test]
fn filler_that_ends_with_the_file_and_with_a_read_of_the_scan_is_no_cut() {
    for left in [1, 50, 108, 109, 2000] {
        let mut log = Log::new(config(1 << 20, 100_000));
        let frame = |log: &Log<MemoryDisk>, size| log.next_batches(&[size])[0].batch.len() + frame::HEADER_BYTES;
        let beside = frame(&log, 1 << 20) - (1 << 20);
        log.ahead(&[], &[(1 << 20) - left - beside]);
        assert_eq!(log.segments.size_bytes(), 1 << 20);
        log.ahead(&[], &[10]);
        assert_eq!(log.reopen().unwrap().cut, None, "{left}");
        log.assert_whole();
        let path = format!("{DIRECTORY}/{FIRST}");
        let end = inspect::frames(&log.disk, &path, &mut |_| {}).unwrap();
        assert_eq!((end.position, end.fault), (1 << 20, None));
    }
}

#[test]
fn filler_that_is_too_short_for_a_frame_is_read_in_pieces_of_any_size() {
    let mut log = Log::new(config(300, 512));
    log.ahead(&[], &[3862]);
    for read_bytes in 1..200 {
        let first = log.segments.locate(Offset(0)).unwrap();
        assert!(log.read_on(first, read_bytes).unwrap().contains(&log.appended[0]), "{read_bytes}");
    }
}

proptest! {
    #[test]
    fn logs_of_both_kinds_are_read_as_they_were_written(
        steps in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(0usize..6000, 0..3), prop::collection::vec(0usize..6000, 1..4)), 1..12,
        ),
        segment_bytes in 300u64..20_000, seals in any::<bool>(), read_bytes in 1usize..9000,
    ) {
        let mut log = Log::new(config(segment_bytes, 512));
        let mut places = Vec::new();
        for (is_ahead, waiting, sizes) in steps {
            if is_ahead {
                places.extend(log.ahead(&waiting, &sizes));
            } else {
                let batches = log.next_batches(&sizes);
                log.append(&batches);
            }
            log.assert_whole();
        }
        if seals {
            log.seal_all();
        }
        prop_assert_eq!(log.check(&places), Ok(()));
        let report = log.reopen().unwrap();
        prop_assert_eq!(report.cut, None);
        log.assert_whole();
        for batch in &log.appended {
            let position = log.segments.locate(batch.base_offset).unwrap();
            prop_assert!(log.read_on(position, read_bytes).unwrap().contains(batch));
        }
        log.push(1, 10, 1);
        log.assert_whole();
    }
}
