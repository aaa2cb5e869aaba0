use bytes::Bytes;
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_wire::batch::{BatchBuilder, Codec, Record};
use lockgate_wire::{LogIndex, PartitionId, Term, TopicId};

use super::*;
use crate::recovery::segment_config;

fn log() -> (Log, MemoryDisk) {
    let disk = MemoryDisk::new();
    let (segments, make) = Segments::create(segment_config(PartitionId { topic: TopicId(1), partition: 0 }, 1 << 20));
    make.iter().for_each(|op| drop(op.execute(&disk).unwrap()));
    (Log::new(segments), disk)
}

fn append(log: &mut Log, size: usize, at: MonoTime) {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = Some(Bytes::from(vec![0; size]));
    builder.push(&Record { key: None, value, headers: Vec::new(), timestamp_ms: 0 }).unwrap();
    let (base_offset, index) = (log.end(), LogIndex(log.end().0 + 2));
    let batch = builder.build(None);
    log.append(StoredBatch { index, term: Term(1), append_time: WallMs(0), base_offset, count: 1, batch }, at);
}

fn flush(log: &mut Log, disk: &MemoryDisk, now: MonoTime) {
    let ops = log.plan_flush(now, Flush::All);
    assert!(!ops.is_empty());
    ops.iter().for_each(|op| drop(op.execute(disk).unwrap()));
    log.flush_done(now);
}

#[test]
fn a_flush_is_due_by_size_or_by_time_and_one_is_under_way() {
    let (mut log, _) = log();
    let start = MonoTime::default();
    assert_eq!(log.flush_deadline(), None);
    append(&mut log, 10, start);
    let due = start.plus_ms(FLUSH_AFTER_MS);
    assert_eq!(log.flush_deadline(), Some(due));
    assert!(log.plan_flush(due.plus_ms(0), Flush::Large).len() == 1);
    append(&mut log, FLUSH_BYTES as usize, due);
    assert!(log.plan_flush(due, Flush::All).is_empty(), "the first is still under way");
    assert_eq!(log.flush_deadline(), None);
    log.flush_done(due);
    assert!(!log.plan_flush(due, Flush::Large).is_empty(), "by its size");
    log.flush_done(due);
    assert_eq!((log.unflushed_bytes(), log.flush_deadline()), (0, None));
}

#[test]
fn what_is_not_in_segments_is_never_let_go() {
    let (mut log, disk) = log();
    let now = MonoTime::default();
    for _ in 0..5 {
        append(&mut log, 100, now);
    }
    log.trim(0);
    assert_eq!(log.tail_start(), Offset(0));
    flush(&mut log, &disk, now);
    append(&mut log, 100, now);
    let one = log.tail_bytes() / 6;
    log.trim(3 * one);
    assert_eq!((log.tail_start(), log.tail_bytes()), (Offset(3), 3 * one));
    log.trim(0);
    assert_eq!((log.tail_start(), log.end(), log.unflushed_bytes()), (Offset(5), Offset(6), one));
    assert_eq!(log.size_bytes(), log.segments.size_bytes() + one);
    flush(&mut log, &disk, now);
    log.trim(0);
    assert_eq!((log.tail_start(), log.tail_bytes()), (Offset(6), 0));
    assert_eq!(log.in_memory(Offset(6)).count(), 0);
}

#[test]
fn memory_gives_the_batch_that_holds_an_offset_and_what_follows() {
    let (mut log, disk) = log();
    let now = MonoTime::default();
    for _ in 0..4 {
        append(&mut log, 100, now);
    }
    flush(&mut log, &disk, now);
    log.trim(log.tail_bytes() / 2);
    let offsets = |log: &Log, from| log.in_memory(Offset(from)).map(|batch| batch.base_offset.0).collect::<Vec<_>>();
    assert_eq!(offsets(&log, 1), Vec::<u64>::new(), "below what memory has");
    assert_eq!(offsets(&log, 2), [2, 3]);
    assert_eq!(offsets(&log, 3), [3]);
    assert_eq!(offsets(&log, 4), Vec::<u64>::new());
}
