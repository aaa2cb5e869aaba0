//! What retention takes, what it leaves, and that offsets are never used twice.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const BY_AGE: Retention = Retention { max_age_ms: Some(10), max_bytes: None };

fn by_size(max_bytes: u64) -> Retention {
    Retention { max_age_ms: None, max_bytes: Some(max_bytes) }
}

/// Ten batches in five segments; batch n was appended at 1 000 000 + n.
fn ten() -> Log<MemoryDisk> {
    let mut log = Log::new(config(600, 100));
    (0..10).for_each(|number| log.push(1, 150, number));
    assert_eq!(log.segments.count(), 5);
    log
}

#[test]
fn a_segment_goes_when_its_latest_append_is_old_enough() {
    let mut log = ten();
    log.expire(WallMs(1_000_010), &BY_AGE, None);
    assert_eq!(log.segments.start_offset(), Offset(0), "the second batch of the first segment is 9 ms old");
    log.expire(WallMs(1_000_011), &BY_AGE, None);
    assert_eq!(log.segments.start_offset(), Offset(2));
    log.assert_whole();
}

#[test]
fn by_size_the_rest_has_at_least_the_bound_and_the_last_segment_stays() {
    let mut log = ten();
    let segment = log.segments.size_bytes() / 5;
    log.expire(WallMs(0), &by_size(2 * segment + 1), None);
    assert_eq!(log.segments.count(), 3);
    log.expire(WallMs(0), &by_size(0), None);
    assert_eq!(log.segments.count(), 1);
    log.assert_whole();
}

#[test]
fn what_somebody_still_needs_stays() {
    let mut log = ten();
    log.expire(WallMs(i64::MAX), &BY_AGE, Some(Offset(5)));
    assert_eq!(log.segments.start_offset(), Offset(4));
    log.expire(WallMs(i64::MAX), &BY_AGE, Some(Offset(6)));
    assert_eq!(log.segments.start_offset(), Offset(6));
}

#[test]
fn a_log_whose_records_all_expired_goes_on_where_it_was() {
    let mut log = ten();
    let end = log.segments.end();
    log.expire(WallMs(i64::MAX), &BY_AGE, None);
    for _ in 0..2 {
        assert_eq!((log.segments.start_offset(), log.segments.end()), (end.offset, end));
        assert_eq!((log.segments.count(), log.segments.synced_end()), (0, end));
        assert_eq!(log.names(), ["start"]);
        log.reopen().unwrap();
    }
    log.push(1, 150, 1);
    log.reopen().unwrap();
    log.assert_whole();
    assert_eq!(log.segments.end_offset(), Offset(11));
}

#[test]
fn a_removal_that_was_cut_short_is_ended_at_the_next_open() {
    let mut log = ten();
    log.seal_all();
    let start = log.segments.expire(WallMs(0), &by_size(0), None).unwrap();
    log.run(&[start]);
    let FileOp::Remove { paths } = log.segments.started() else { panic!("a removal") };
    log.disk.remove(&paths[2]).unwrap();
    let report = log.reopen().unwrap();
    assert_eq!(report.removed.len(), 7, "four logs and four indexes, less one");
    assert_eq!(log.segments.start_offset(), Offset(8));
    log.assert_whole();
}

#[test]
fn nothing_counts_as_removed_before_its_removal_is_confirmed() {
    let mut log = ten();
    let start = log.segments.expire(WallMs(0), &by_size(0), None).unwrap();
    assert_eq!((log.segments.start_offset(), log.segments.count()), (Offset(0), 5));
    assert!(log.segments.next_seal().is_none());
    assert_eq!(log.segments.expire(WallMs(i64::MAX), &BY_AGE, None), None);
    log.run(&[start]);
    let removal = log.segments.started();
    assert_eq!((log.segments.start_offset(), log.segments.synced_end()), (Offset(8), LogPoint::default()));
    assert!(log.segments.next_seal().is_none());
    log.run(&[removal]);
    log.segments.expired();
    assert_eq!(log.segments.synced_end().offset, Offset(8));
}

#[test]
fn a_position_in_a_removed_segment_gives_nothing() {
    let mut log = ten();
    let position = log.segments.locate(Offset(0)).unwrap();
    log.expire(WallMs(0), &by_size(0), None);
    assert_eq!(log.segments.read(position, 1000), None);
    assert_eq!(log.segments.locate(Offset(0)), None);
}

#[test]
fn what_comes_while_the_last_segment_is_on_its_way_out_stays() {
    let mut log = ten();
    let start = log.segments.expire(WallMs(i64::MAX), &BY_AGE, None).unwrap();
    log.push(1, 150, 1);
    log.run(&[start]);
    let removal = log.segments.started();
    log.push(1, 150, 1);
    log.run(&[removal]);
    log.segments.expired();
    for _ in 0..2 {
        assert_eq!((log.segments.start_offset(), log.segments.end_offset()), (Offset(10), Offset(12)));
        log.assert_whole();
        log.reopen().unwrap();
    }
}

proptest! {
    #[test]
    fn retention_keeps_what_it_must_and_offsets_are_never_used_twice(
        steps in vec((1usize..8, 0i64..80, 0u64..4000, 0u64..60, 0u8..4), 1..12),
    ) {
        let mut log = Log::new(config(900, 200));
        for (batches, age, max_bytes, keep_from, kind) in steps {
            (0..batches).for_each(|number| log.push(1 + number as u32 % 3, 40 * number, 1));
            let end = log.segments.end_offset();
            let now = WallMs(1_000_000 + end.0 as i64);
            let policy = Retention {
                max_age_ms: (kind & 1 == 0).then_some(age as u64),
                max_bytes: (kind & 2 == 0).then_some(max_bytes),
            };
            let start = log.segments.start_offset();
            log.expire(now, &policy, Some(Offset(keep_from)));
            let new_start = log.segments.start_offset();
            prop_assert!(start <= new_start && (new_start.0 <= keep_from || new_start == start));
            prop_assert_eq!(log.segments.end_offset(), end);
            let removed = log.between(start, new_start);
            let all_old = removed.iter().all(|b| policy.max_age_ms.is_some_and(|age| now.0 - b.append_time.0 >= age as i64));
            let enough_left = policy.max_bytes.is_some_and(|max| log.segments.size_bytes() >= max);
            prop_assert!(all_old || enough_left);
            if kind == 1 {
                log.seal_all();
            }
            log.reopen().unwrap();
            prop_assert_eq!((log.segments.start_offset(), log.segments.end_offset()), (new_start, end));
            log.assert_whole();
        }
    }
}
