//! What a scrub finds: all damage of sealed segments, and nothing else.

use proptest::prelude::*;
use proptest::sample::Index;

use super::damage::{filled, hurt};
use super::*;
use crate::disk::{DiskError, DiskResult};

impl<D: Disk> Log<D> {
    /// The scrub's next read, unless it is at its end.
    fn scrub(&self, scrub: &mut Scrub, max_bytes: usize) -> Option<Scrubbed> {
        let op = self.segments.scrub(scrub, max_bytes)?;
        Some(self.segments.scrubbed(scrub, op.execute(&self.disk)))
    }

    /// What a whole pass finds.
    fn pass(&self, max_bytes: usize) -> Vec<(ScrubPlace, Damage)> {
        let mut scrub = Scrub::default();
        let mut found = Vec::new();
        for reads in 0.. {
            assert!(reads < 10_000, "a scrub comes to an end: {scrub:?}");
            match self.scrub(&mut scrub, max_bytes) {
                Some(Scrubbed::Damaged(place, damage)) => found.push((place, damage)),
                Some(Scrubbed::Good(_)) => {}
                Some(Scrubbed::Nothing) => panic!("every read says something"),
                None => break,
            }
        }
        found
    }
}

fn file(base: Offset, kind: &str) -> String {
    format!("{base:020}.{kind}")
}

fn failed(errno: i32) -> DiskResult<Bytes> {
    Err(DiskError { stage: "read", path: "x".into(), errno, message: "made to fail".into() })
}

proptest! {
    #[test]
    fn a_scrub_of_what_is_as_it_was_written_finds_nothing_and_reads_all_of_it(
        sealed in 0usize..8,
        max_bytes in 0usize..3000,
        reopened: bool,
    ) {
        let mut log = filled(sealed);
        if reopened {
            log.reopen().unwrap();
        }
        prop_assert_eq!(log.pass(max_bytes), []);
        let (mut scrub, mut read) = (Scrub::default(), 0);
        while let Some(FileOp::Reread { path, len, .. }) = log.segments.scrub(&mut scrub, 1 << 20) {
            let bytes = log.disk.read(&path, 0, len).unwrap();
            read += if path.ends_with(".log") { bytes.len() as u64 } else { 0 };
            log.segments.scrubbed(&mut scrub, Ok(bytes));
        }
        prop_assert_eq!(read, log.segments.segments.iter().take(sealed).map(|segment| segment.bytes).sum::<u64>());
    }

    #[test]
    fn a_scrub_finds_a_frame_that_was_hurt_names_where_it_begins_and_goes_on_behind_it(
        sealed in 1usize..7,
        which: Index,
        hurt in hurt(),
        max_bytes in 0usize..3000,
    ) {
        let log = filled(sealed);
        let segment = log.segments.segments[which.index(sealed)].clone();
        let mut first_bad = 0;
        log.change(&file(segment.base, "log"), |bytes| first_bad = hurt.apply(bytes));
        let found = log.pass(max_bytes);
        if first_bad as u64 == segment.bytes {
            prop_assert_eq!(found, []); // The change wrote what was there.
            return Ok(());
        }
        let mut begins = 0;
        for batch in log.between(segment.base, segment.end) {
            let end = begins + frame::frame_bytes(batch);
            if end > first_bad as u64 {
                break;
            }
            begins = end;
        }
        let bad = matches!(&found[0].1, Damage::Log(SegmentError::Damaged { path, position, .. })
            if path.ends_with(&file(segment.base, "log")) && (begins..=first_bad as u64).contains(position));
        prop_assert!(bad, "{:?} at {} of the frame at {}", found, first_bad, begins);
        prop_assert!(found.iter().all(|(place, _)| place.0 == segment.base), "{found:?}");
        prop_assert_eq!(&found, &log.pass(max_bytes), "it is found at the same place again");
        // A reader stops at the same byte.
        let reader = log.read_on(Position::first(segment.base), max_bytes).unwrap_err();
        prop_assert_eq!(&found[0].1, &Damage::Log(reader));
    }

    #[test]
    fn a_scrub_finds_a_seal_that_was_hurt(sealed in 1usize..7, which: Index, hurt in hurt()) {
        let log = filled(sealed);
        let segment = log.segments.segments[which.index(sealed)].clone();
        let mut changed = false;
        log.change(&file(segment.base, "index"), |bytes| {
            let before = bytes.clone();
            hurt.apply(bytes);
            changed = *bytes != before;
        });
        let found = log.pass(500);
        prop_assert_eq!(found.len(), usize::from(changed));
        let is_seal = |(place, damage): &(ScrubPlace, Damage)| {
            *place == (segment.base, segment.bytes) && matches!(damage, Damage::Seal { .. })
        };
        prop_assert!(found.iter().all(is_seal), "{found:?}");
    }

    #[test]
    fn a_scrub_that_retention_overtakes_finds_nothing(at in 0usize..40, max_bytes in 1usize..800, in_flight: bool) {
        let mut log = filled(7);
        let mut scrub = Scrub::default();
        for _ in 0..at {
            log.scrub(&mut scrub, max_bytes);
        }
        let op = if in_flight { log.segments.scrub(&mut scrub, max_bytes) } else { None };
        let policy = Retention { max_bytes: Some(2_500), ..Retention::default() };
        log.expire(WallMs(0), &policy, None);
        if let Some(op) = op {
            let found = log.segments.scrubbed(&mut scrub, op.execute(&log.disk));
            prop_assert!(!matches!(found, Scrubbed::Damaged(..)), "{found:?}");
        }
        while let Some(found) = log.scrub(&mut scrub, max_bytes) {
            prop_assert!(matches!(found, Scrubbed::Good(_)), "{found:?}");
        }
    }
}

#[test]
fn two_places_of_one_segment_are_both_found() {
    let mut log = Log::new(config(4_000, 200));
    (0..30).for_each(|_| log.push(1, 150, 1));
    log.seal_all();
    let marks = log.segments.segments[0].marks.clone();
    assert!(marks.len() > 6, "{marks:?}");
    let hurt = [marks[1].byte, marks[5].byte];
    log.change(&file(Offset(0), "log"), |bytes| hurt.iter().for_each(|at| bytes[*at as usize + 60] ^= 4));
    let places: Vec<ScrubPlace> = log.pass(1 << 20).into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, hurt.map(|byte| (Offset(0), byte)));
}

#[test]
fn a_log_that_lost_its_end_is_one_place_and_a_seal_that_got_a_longer_one_is_another() {
    let mut log = Log::new(config(4_000, 200));
    (0..30).for_each(|_| log.push(1, 150, 1));
    log.seal_all();
    let bytes = log.segments.segments[0].bytes;
    log.change(&file(Offset(0), "log"), |bytes| bytes.truncate(900));
    log.change(&file(Offset(0), "index"), |bytes| bytes.push(0));
    let places: Vec<ScrubPlace> = log.pass(500).into_iter().map(|(place, _)| place).collect();
    assert!(places.len() == 2 && places[0].1 <= 900 && places[1] == (Offset(0), bytes), "{places:?}");
}

#[test]
fn a_segment_with_whole_frames_of_another_is_damaged() {
    let mut log = Log::new(config(1_000, 200));
    (0..30).for_each(|_| log.push(1, 150, 1));
    log.seal_all();
    let other = log.disk.file(&format!("{DIRECTORY}/{}", file(log.segments.segments[1].base, "log"))).unwrap();
    log.change(&file(Offset(0), "log"), |bytes| bytes.copy_from_slice(&other));
    assert!(matches!(log.pass(1 << 20)[0], ((Offset(0), 0), Damage::Log(SegmentError::Damaged { position: 0, .. }))));
}

#[test]
fn entries_that_go_back_or_end_elsewhere_than_sealed_are_damage() {
    let mut log = Log::new(config(1_000, 200));
    (0..30).for_each(|_| log.push(1, 150, 1));
    log.seal_all();
    let end = log.segments.segments[0].end();
    let frames = log.between(Offset(0), end.offset).to_vec();
    for (number, wrong) in [(1, 0), (frames.len() - 1, end.index.0 + 7)] {
        let before = log.disk.file(&format!("{DIRECTORY}/{}", file(Offset(0), "log"))).unwrap();
        let frame = StoredBatch { index: LogIndex(wrong), ..frames[number].clone() };
        let from = frames[..number].iter().map(frame::frame_bytes).sum::<u64>() as usize;
        log.change(&file(Offset(0), "log"), |bytes| {
            bytes.splice(from..from + frame::HEADER_BYTES, frame::encode_header(&frame, false));
        });
        assert_eq!(log.read_all().len(), 30, "a reader takes it");
        let found = log.pass(1 << 20);
        assert!(matches!(found[..], [((Offset(0), 0), Damage::Log(SegmentError::Damaged { .. }))]), "{found:?}");
        log.change(&file(Offset(0), "log"), |bytes| *bytes = before);
    }
}

#[test]
fn a_file_that_is_gone_is_damage_once_and_its_seal_is_still_looked_at() {
    let log = filled(3);
    let base = log.segments.segments[1].base;
    log.disk.remove(&format!("{DIRECTORY}/{}", file(base, "log"))).unwrap();
    let found = log.pass(100);
    assert!(
        matches!(&found[..], [(place, Damage::Log(error))]
        if *place == (base, 0) && error.to_string().contains("it is missing")),
        "{found:?}"
    );
    log.disk.remove(&format!("{DIRECTORY}/{}", file(base, "index"))).unwrap();
    assert_eq!(log.pass(100).len(), 2);
}

#[test]
fn a_read_that_fails_is_damage_unless_means_are_wanting() {
    let log = filled(3);
    let mut scrub = Scrub::default();
    let first = log.segments.scrub(&mut scrub, 1 << 20);
    assert_eq!(log.segments.scrubbed(&mut scrub, failed(DiskError::EMFILE)), Scrubbed::Nothing);
    assert_eq!(log.segments.scrub(&mut scrub, 1 << 20), first, "it is tried again");
    assert!(matches!(log.segments.scrubbed(&mut scrub, failed(5)), Scrubbed::Damaged((Offset(0), 0), Damage::Log(_))));
    assert_ne!(log.segments.scrub(&mut scrub, 1 << 20), first, "it goes on behind");
}
