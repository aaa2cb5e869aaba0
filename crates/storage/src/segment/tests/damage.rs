//! Files that were cut, flipped, filled with garbage or lost.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// What happens to a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hurt {
    /// It ends here.
    Cut(Index),
    /// A byte changes.
    Flip(Index, u8),
    /// From here on there is garbage.
    Garbage(Index, u8),
}

pub(super) fn hurt() -> impl Strategy<Value = Hurt> {
    prop_oneof![
        any::<Index>().prop_map(Hurt::Cut),
        (any::<Index>(), 1u8..).prop_map(|(at, mask)| Hurt::Flip(at, mask)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Hurt::Garbage(at, byte)),
    ]
}

impl Hurt {
    /// Changes the bytes; gives the first that is other than it was, or the new length.
    pub(super) fn apply(self, bytes: &mut Vec<u8>) -> usize {
        let before = bytes.clone();
        match self {
            Self::Cut(at) => bytes.truncate(at.index(before.len())),
            Self::Flip(at, mask) => bytes[at.index(before.len())] ^= mask,
            Self::Garbage(at, byte) => bytes[at.index(before.len())..].fill(byte),
        }
        bytes.iter().zip(&before).position(|(new, old)| new != old).unwrap_or(bytes.len())
    }
}

/// Thirty batches in ten or so segments, the first `sealed` of them sealed.
pub(super) fn filled(sealed: usize) -> Log<MemoryDisk> {
    let mut log = Log::new(config(1000, 200));
    (0..30).for_each(|number| log.push(1 + number % 3, 60 + 11 * (number as usize % 9), i64::from(number)));
    for _ in 0..sealed {
        let ops = log.segments.next_seal().unwrap();
        log.run(&ops);
        log.segments.sealed(Ok(()));
    }
    log
}

proptest! {
    #[test]
    fn an_unsealed_log_that_was_hurt_anywhere_ends_just_before_and_goes_on(
        sealed in 0usize..5,
        which: Index,
        hurt in hurt(),
    ) {
        let mut log = filled(sealed);
        let segments = log.segments.segments.clone();
        let segment = &segments[sealed + which.index(segments.len() - sealed)];
        let mut first_bad = 0;
        log.change(&format!("{:020}.log", segment.base), |bytes| first_bad = hurt.apply(bytes));

        let mut end = segment.base;
        let mut byte = 0;
        for batch in log.between(segment.base, segment.end) {
            byte += frame::frame_bytes(batch) as usize;
            end = if byte <= first_bad { batch.end_offset() } else { break };
        }
        let report = log.reopen().unwrap();
        prop_assert_eq!(log.segments.end_offset(), end, "{:?}", report);
        log.assert_whole();

        log.appended.retain(|batch| batch.base_offset < end);
        (0..9).for_each(|number| log.push(1, 70 * number, 1));
        prop_assert_eq!(log.reopen().unwrap().cut, None, "a torn tail is cut once and for good");
        log.assert_whole();
    }

    #[test]
    fn indexes_that_were_lost_or_hurt_change_nothing_but_speed(
        which in any::<Index>(),
        hurt in proptest::option::of(hurt()),
        offset: Index,
    ) {
        let mut log = filled(6);
        let segment = log.segments.segments[which.index(6)].clone();
        match hurt {
            Some(hurt) => log.change(&format!("{:020}.index", segment.base), |bytes| {
                hurt.apply(bytes);
            }),
            None => log.disk.remove(&index_path(DIRECTORY, segment.base)).unwrap(),
        }
        let report = log.reopen().unwrap();
        prop_assert_eq!(&report.removed, &[]);
        let untouched = report.sealed == 6;
        prop_assert_eq!(report.scanned, log.segments.count() - report.sealed);
        prop_assert_eq!(log.segments.synced_end().offset, if untouched { log.segments.segments[6].base } else { segment.base });
        log.assert_whole();
        let offset = Offset(offset.index(log.segments.end_offset().0 as usize) as u64);
        let read = log.read_on(log.segments.locate(offset).unwrap(), 500).unwrap();
        prop_assert_eq!(&read[..], log.between(read[0].base_offset, log.segments.end_offset()));
        log.seal_all();
        let report = log.reopen().unwrap();
        prop_assert_eq!((report.scanned, report.bad_indexes), (1, vec![]), "they are made anew");
    }

    #[test]
    fn a_sealed_log_that_was_hurt_is_never_cut_and_never_served(which: Index, hurt in hurt()) {
        let mut log = filled(6);
        let segment = log.segments.segments[which.index(6)].clone();
        let mut first_bad = 0;
        log.change(&format!("{:020}.log", segment.base), |bytes| first_bad = hurt.apply(bytes));
        let path = log_path(DIRECTORY, segment.base);
        let before = log.disk.clone();
        match log.reopen() {
            Err(SegmentError::Damaged { path: named, .. }) => {
                prop_assert_eq!(named, path);
                prop_assert_eq!(log.disk.paths(), before.paths());
                prop_assert!(log.disk.paths().iter().all(|path| log.disk.file(path) == before.file(path)));
            }
            Err(other) => prop_assert!(false, "{}", other),
            Ok(report) => {
                prop_assert_eq!(&report.removed, &[]);
                let read = log.read_on(log.segments.locate(Offset(0)).unwrap(), 100_000);
                let whole = first_bad as u64 == segment.bytes;
                match read {
                    Ok(read) => prop_assert!(whole && read == log.appended),
                    Err(SegmentError::Damaged { path: named, position, .. }) => {
                        prop_assert_eq!(named, path);
                        prop_assert!(position <= first_bad as u64);
                    }
                    Err(other) => prop_assert!(false, "{}", other),
                }
            }
        }
    }

    #[test]
    fn a_start_that_was_hurt_is_damage(hurt in hurt()) {
        let mut log = filled(0);
        let mut first_bad = 0;
        log.change("start", |bytes| first_bad = hurt.apply(bytes));
        if first_bad < start::BYTES {
            let refused = matches!(log.reopen(), Err(SegmentError::Damaged { .. }));
            prop_assert!(refused);
        }
    }
}

#[test]
fn a_missing_segment_ends_the_log_unless_a_later_one_is_sealed() {
    let mut log = filled(3);
    let base = |at: usize, log: &Log<MemoryDisk>| log.segments.segments[at].base;
    let (first, fifth) = (base(0, &log), base(4, &log));
    log.disk.remove(&log_path(DIRECTORY, fifth)).unwrap();
    let report = log.reopen().unwrap();
    assert!(report.removed.len() > 2, "{report:?}");
    assert_eq!(log.segments.end_offset(), fifth);
    log.assert_whole();

    log.disk.remove(&log_path(DIRECTORY, first)).unwrap();
    log.disk.remove(&index_path(DIRECTORY, first)).unwrap();
    let names = log.names();
    assert!(matches!(log.reopen(), Err(SegmentError::Damaged { .. })));
    assert_eq!(log.names(), names);
}

#[test]
fn a_sealed_segment_at_the_end_that_is_missing_is_damage() {
    let mut log = filled(3);
    let sealed = log.segments.segments[2].base;
    log.segments.segments.iter().skip(2).for_each(|s| log.disk.remove(&log_path(DIRECTORY, s.base)).unwrap());
    let error = log.reopen().unwrap_err();
    assert!(matches!(&error, SegmentError::Damaged { path, .. } if *path == log_path(DIRECTORY, sealed)), "{error}");
    assert!(error.to_string().contains("from a copy"), "who has no peers is told what to do, too: {error}");
}

#[test]
fn segments_without_a_start_are_damage() {
    let mut log = filled(0);
    log.disk.remove("partitions/7-0/start").unwrap();
    assert!(matches!(log.reopen(), Err(SegmentError::Damaged { .. })));
}

#[test]
fn a_frame_of_a_later_version_is_refused_not_cut() {
    let mut log = Log::new(config(10_000, 200));
    log.push(1, 10, 1);
    log.change("00000000000000000000.log", |bytes| {
        bytes[7] = frame::VERSION_AHEAD + 1;
        let crc = crc32c::crc32c(&bytes[4..frame::HEADER_BYTES + 21]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    });
    let error = log.reopen().unwrap_err();
    let path = log_path(DIRECTORY, Offset(0));
    assert_eq!(error, SegmentError::UnknownVersion { path, found: 3, known: 2 });
    assert!(error.to_string().contains("start a later release"));
}

#[test]
fn frames_that_are_whole_but_of_another_place_do_not_count() {
    let mut log = Log::new(config(10_000, 1));
    (0..4).for_each(|_| log.push(1, 100, 1));
    let size = log.segments.size_bytes() as usize / 4;
    log.change("00000000000000000000.log", |bytes| bytes.copy_within(0..size, 2 * size));
    let read = log.read_on(log.segments.locate(Offset(0)).unwrap(), 1 << 20);
    assert!(matches!(read, Err(SegmentError::Damaged { position, .. }) if position == 2 * size as u64));
    let report = log.reopen().unwrap();
    assert_eq!(report.cut.unwrap().kept_bytes, 2 * size as u64);
    assert_eq!(log.segments.end_offset(), Offset(2));
}

#[test]
fn a_file_that_lost_its_end_while_open_is_damage() {
    let mut log = filled(0);
    let position = log.segments.locate(Offset(0)).unwrap();
    log.change("00000000000000000000.log", |bytes| bytes.truncate(100));
    assert!(matches!(log.read_on(position, 1 << 20), Err(SegmentError::Damaged { .. })));
    log.change("00000000000000000000.log", Vec::clear);
    assert!(matches!(log.read_on(position, 1 << 20), Err(SegmentError::Damaged { .. })));
    log.reopen().unwrap();
}

#[test]
fn what_an_unfinished_replacement_left_is_removed_and_files_of_others_stay() {
    let mut log = filled(1);
    for name in ["start.new", "00000000000000000000.index.new", "state.00000000000000000007", "notes.txt"] {
        log.disk.set_file(&format!("{DIRECTORY}/{name}"), vec![1, 2, 3]);
    }
    let report = log.reopen().unwrap();
    assert_eq!(report.removed.len(), 2);
    assert!(["state.00000000000000000007", "notes.txt"].iter().all(|name| log.names().contains(&(*name).to_owned())));
    log.assert_whole();
}

#[test]
fn a_whole_frame_ends_the_log_when_its_offset_index_or_term_does_not_follow() {
    let at = |offset, index, term| LogPoint { offset: Offset(offset), index: LogIndex(index), term: Term(term) };
    let cases = [(at(2, 9, 3), true), (at(2, 8, 3), true), (at(3, 9, 3), false), (at(1, 9, 3), false)];
    for (next, follows) in cases.into_iter().chain([(at(2, 7, 3), false), (at(2, 9, 2), false)]) {
        let mut log = Log::new(config(10_000, 100));
        log.append(&[batch(at(0, 8, 3), 2, 10, 1)]);
        let kept_bytes = log.segments.size_bytes();
        let frame = batch(next, 1, 10, 1);
        log.change("00000000000000000000.log", |bytes| {
            bytes.extend(frame::encode_header(&frame, false));
            bytes.extend(&frame.batch);
        });
        let report = log.reopen().unwrap();
        assert_eq!(log.segments.end_offset(), Offset(if follows { 3 } else { 2 }), "{next:?}");
        assert_eq!(report.cut.map(|cut| cut.kept_bytes), (!follows).then_some(kept_bytes), "{next:?}");
    }
}
