//! What goes where, and what is believed at the next open.

use super::*;

#[test]
fn a_new_log_is_empty_and_begins_at_zero() {
    let mut log = Log::new(config(1000, 100));
    for _ in 0..2 {
        assert_eq!((log.segments.start_offset(), log.segments.end_offset()), (Offset(0), Offset(0)));
        assert_eq!((log.segments.end_index(), log.segments.end_term()), (None, None));
        assert_eq!((log.segments.locate(Offset(0)), log.segments.locate_time(0)), (None, None));
        assert_eq!((log.segments.size_bytes(), log.segments.max_append_time()), (0, None));
        assert_eq!(log.segments.next_seal(), None);
        assert_eq!(log.reopen().unwrap(), OpenReport::default());
    }
}

#[test]
fn a_log_that_was_created_by_plan_is_the_one_that_is_opened() {
    let (segments, ops) = Segments::create(config(1000, 100));
    let mut log = Log { disk: MemoryDisk::new(), config: config(1000, 100), segments, appended: Vec::new() };
    log.run(&ops);
    assert_eq!(log.names(), ["start"]);
    (0..20).for_each(|_| log.push(2, 100, 1));
    log.assert_whole();
    log.reopen().unwrap();
    log.assert_whole();
}

#[test]
#[should_panic(expected = "too dense")]
fn an_index_without_bounds_is_a_broken_invariant() {
    Segments::create(config(1 << 40, 1));
}

#[test]
fn a_call_plans_one_write_per_file() {
    let mut log = Log::new(config(400, 100));
    let mut batches = Vec::new();
    let mut at = log.next_entry();
    for _ in 0..4 {
        batches.push(batch(at, 2, 50, 1));
        at = LogPoint { offset: batches.last().unwrap().end_offset(), index: LogIndex(at.index.0 + 1), ..at };
    }
    let ops = log.segments.append(&batches);
    let paths: Vec<&str> =
        ops.iter().map(|op| if let FileOp::Write { path, .. } = op { &**path } else { "" }).collect();
    let path = |base: &str| format!("{DIRECTORY}/{base}.log");
    assert_eq!(paths, [path("00000000000000000000"), path("00000000000000000004")]);
}

#[test]
fn a_plan_that_is_repeated_changes_nothing() {
    let mut log = Log::new(config(400, 100));
    log.push(1, 100, 1);
    let more = batch(log.next_entry(), 1, 100, 1);
    let ops = log.segments.append(std::slice::from_ref(&more));
    log.appended.push(more);
    for _ in 0..3 {
        log.run(&ops);
    }
    log.segments.written(log.segments.end_offset());
    log.assert_whole();
    log.reopen().unwrap();
    log.assert_whole();
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let mut log = Log::new(config(300, 100));
    for value_bytes in [10, 1000, 10] {
        log.push(1, value_bytes, 1);
    }
    assert_eq!(log.segments.count(), 3);
    log.reopen().unwrap();
    log.assert_whole();
}

#[test]
fn batches_of_one_entry_are_never_divided() {
    let mut log = Log::new(config(400, 100));
    let entry = log.next_entry();
    for _ in 0..5 {
        let next = batch(LogPoint { offset: log.segments.end_offset(), ..entry }, 1, 100, 1);
        log.append(&[next]);
    }
    assert_eq!(log.segments.count(), 1);
    log.push(1, 1, 1);
    assert_eq!(log.segments.count(), 2);
}

#[test]
fn what_is_not_yet_written_is_not_read() {
    let mut log = Log::new(config(600, 100));
    log.push(1, 50, 1);
    let written = log.segments.locate(Offset(0)).unwrap();
    let mut plans = Vec::new();
    for _ in 0..4 {
        let next = batch(log.next_entry(), 1, 150, 9);
        plans.push((log.segments.append(std::slice::from_ref(&next)), next.end_offset()));
        log.appended.push(next);
    }
    assert_eq!(log.read_on(written, 10_000).unwrap(), log.appended[..1]);
    assert_eq!((log.segments.written_offset(), log.segments.locate(Offset(1))), (Offset(1), None));
    assert_eq!(log.segments.next_seal(), None, "a segment is sealed only when it is written");
    assert!(log.segments.expire(WallMs(i64::MAX), &Retention { max_age_ms: Some(0), max_bytes: None }, None).is_none());
    for (number, (ops, end)) in plans.into_iter().enumerate() {
        log.run(&ops);
        log.segments.written(end);
        assert_eq!(log.read_on(written, 10_000).unwrap(), log.appended[..number + 2]);
    }
}

#[test]
#[should_panic(expected = "a batch begins where the log ends")]
fn a_gap_in_the_offsets_is_a_broken_invariant() {
    let mut log = Log::new(config(400, 100));
    let at = log.next_entry();
    log.append(&[batch(LogPoint { offset: Offset(1), ..at }, 1, 1, 1)]);
}

#[test]
fn sealed_segments_are_not_scanned_again() {
    let mut log = Log::new(config(400, 100));
    for number in 0..20 {
        log.push(1, 100, number);
    }
    assert!(log.segments.has_rolled());
    log.seal_all();
    assert!(!log.segments.has_rolled());
    let sealed = log.segments.count() - 1;
    let last_base = log.segments.segments.back().unwrap().base;
    assert_eq!(log.segments.synced_end(), log.segments.segments[sealed - 1].end());
    assert_eq!(log.segments.synced_end().offset, last_base);
    // What was opened is durable.
    log.segments.durable();
    let before = log.segments.segments.clone();
    let report = log.reopen().unwrap();
    assert_eq!((report.sealed, report.scanned), (sealed, 1));
    assert_eq!(log.segments.segments, before, "seal and scan say the same");
    assert_eq!(log.segments.synced_end().offset, last_base);
    log.assert_whole();
}

#[test]
fn a_log_goes_on_behind_a_sealed_end() {
    let mut log = Log::new(config(400, 100));
    (0..5).for_each(|number| log.push(1, 200, number));
    log.seal_all();
    let last = log.segments.segments.back().unwrap().base;
    log.disk.remove(&log_path(DIRECTORY, last)).unwrap();
    log.reopen().unwrap();
    log.appended.truncate(4);
    assert_eq!(log.segments.end_offset(), Offset(4));
    log.push(1, 10, 1);
    log.assert_whole();
    log.reopen().unwrap();
    log.assert_whole();
}

#[test]
fn nothing_is_sealed_after_the_sync_of_a_log_failed() {
    let mut log = Log::new(config(400, 100));
    (0..9).for_each(|number| log.push(1, 200, number));
    let error = |path: &str, errno| DiskError { stage: "sync", path: path.into(), errno, message: String::new() };

    let first = log.segments.next_seal().unwrap();
    assert_eq!(log.segments.next_seal(), None, "one at a time");
    log.segments.sealed(Err(&error("partitions/7-0/00000000000000000000.index.new", DiskError::ENOSPC)));
    assert_eq!(log.segments.next_seal(), Some(first), "a full disk passes");
    log.segments.sealed(Err(&error("partitions/7-0/00000000000000000000.log", DiskError::ENOSPC)));
    assert_eq!(log.segments.next_seal(), None);
    assert_eq!(log.segments.synced_end(), LogPoint::default());
}
