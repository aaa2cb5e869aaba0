//! Records whose data goes elsewhere: in which order, and what becomes of them when there is no room.

use super::*;
use crate::journal::DataWrite;

const LOG: &str = "partitions/1-0/log";

fn data(disk: &MemoryDisk, bytes: usize) -> DataWrite {
    disk.create_directory("partitions/1-0").unwrap();
    let pieces = vec![Bytes::from(body(9, bytes))];
    DataWrite { path: LOG.into(), offset: 0, pieces, bytes, is_whole: true, is_new: true }
}

/// A journal with an open file, and three records that are due.
fn rig() -> Rig {
    let mut rig = Rig::new(JournalKind::Synced);
    rig.write_blocks(1, 1);
    prepare(&rig.disk, &mut rig.writer);
    for group in 1..=3 {
        rig.append(group, 3000);
    }
    rig
}

fn due(rig: &Rig) -> Vec<u64> {
    rig.writer.due().map(|record| record.sequence.0).collect()
}

fn no_room(path: &str) -> DiskError {
    DiskError { path: path.into(), ..failure(DiskError::ENOSPC) }
}

#[test]
fn the_data_is_durable_before_the_record_that_refers_to_it() {
    let mut rig = rig();
    assert_eq!(due(&rig), [2, 3, 4]);
    let waits = rig.writer.pending_bytes();
    rig.writer.put_elsewhere(vec![(Sequence(3), vec!["it is there".into()])], vec![data(&rig.disk, BLOCK_BYTES)]);
    assert_eq!(
        (due(&rig), rig.writer.pending_bytes()),
        (vec![2, 3, 4], waits),
        "the same write, with all that it brings"
    );
    let write = rig.writer.start_write(rig.now).unwrap();
    assert_eq!(due(&rig), [], "one write under way");
    let reached = std::cell::Cell::new(false);
    write.data.iter().for_each(|data| data.execute(&rig.disk).map(|()| reached.set(true)).unwrap());
    let (_, found) = Rig::start(rig.disk.clone(), rig.config.clone());
    assert!(reached.get() && sequences(&found) == [1], "the data alone is nothing");
    rig.writer.finished(write.execute(&rig.disk), rig.now).unwrap();
    let counters = rig.writer.counters();
    assert_eq!((counters.external_records, counters.external_bytes), (1, BLOCK));
    let (_, found) = rig.restart();
    let kinds: Vec<_> = found.records.iter().map(|record| (record.kind, record.body.len())).collect();
    assert_eq!(kinds[1..], [(RecordKind::Entry, 3000), (RecordKind::ExternalEntry, 11), (RecordKind::Entry, 3000)]);
}

#[test]
fn data_without_room_goes_into_the_journal_after_all() {
    let mut rig = rig();
    let waits = rig.writer.pending_bytes();
    rig.writer.put_elsewhere(vec![(Sequence(2), vec!["there".into()])], vec![data(&rig.disk, BLOCK_BYTES)]);
    let write = rig.writer.start_write(rig.now).unwrap();
    let late = rig.append(1, 10);
    let full = Err(no_room(LOG));
    assert!(rig.writer.is_without_room(&full) && !rig.writer.is_without_room(&Ok(())));
    assert_eq!(rig.writer.finished(full, rig.now), Ok(Sequence(1)), "nothing new is durable");
    assert_eq!(rig.writer.pending_bytes(), waits + RECORD_HEADER_BYTES + 16);
    let again = rig.write();
    assert_eq!((again.offset, &again.path, again.data.len(), again.last), (write.offset, &write.path, 0, late));
    assert_eq!(rig.writer.counters().external_records, 0);
    let (_, found) = rig.restart();
    assert_eq!(sequences(&found), [1, 2, 3, 4, 5]);
    assert!(found.records.iter().all(|record| record.kind == RecordKind::Entry));
    assert_eq!(found.recovered.cuts, []);
}

#[test]
fn a_file_that_such_a_write_was_to_open_is_opened_by_the_next_one() {
    let mut rig = Rig::new(JournalKind::Synced);
    prepare(&rig.disk, &mut rig.writer);
    rig.append(1, 3000);
    rig.writer.put_elsewhere(vec![(Sequence(1), vec!["there".into()])], vec![data(&rig.disk, BLOCK_BYTES)]);
    let write = rig.writer.start_write(rig.now).unwrap();
    assert!(write.open.is_some());
    rig.writer.finished(Err(no_room(LOG)), rig.now).unwrap();
    assert_eq!(rig.write().open, write.open);
    let (_, found) = rig.restart();
    assert_eq!((sequences(&found), found.recovered.files), (vec![1], 1));
}

#[test]
fn every_other_failure_of_the_data_stops_the_journal() {
    for (path, stage, errno) in [(LOG, "write", 5), (LOG, "sync", DiskError::ENOSPC), ("shards/1", "write", 28)] {
        let mut rig = rig();
        rig.writer.put_elsewhere(vec![(Sequence(2), vec!["there".into()])], vec![data(&rig.disk, BLOCK_BYTES)]);
        rig.writer.start_write(rig.now).unwrap();
        let error = DiskError { path: path.into(), stage, ..failure(errno) };
        assert!(rig.writer.finished(Err(error), rig.now).is_err(), "{path} {stage} {errno}");
        assert_eq!(due(&rig), []);
        let (_, found) = rig.restart();
        assert_eq!(sequences(&found), [1]);
    }
}

#[test]
#[should_panic(expected = "only what is due is put elsewhere")]
fn what_is_not_due_is_not_put_elsewhere() {
    let mut rig = rig();
    rig.writer.put_elsewhere(vec![(Sequence(5), vec!["there".into()])], vec![data(&rig.disk, BLOCK_BYTES)]);
}
