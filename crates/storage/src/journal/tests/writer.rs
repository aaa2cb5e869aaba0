use super::*;
use JournalKind::{Buffered, Synced};

#[test]
fn finished_confirms_what_the_write_held_and_nothing_appended_since() {
    let mut rig = Rig::new(Synced);
    rig.append(1, 10);
    rig.append(2, 10);
    prepare(&rig.disk, &mut rig.writer);
    let write = rig.writer.start_write(rig.now).unwrap();
    assert_eq!(rig.append(1, 10), Sequence(3));
    assert_eq!(rig.writer.start_write(rig.now), None, "one write in flight");
    assert_eq!(rig.writer.synced_sequence(), Sequence(0));
    assert_eq!(rig.writer.finished(write.execute(&rig.disk), rig.now), Ok(Sequence(2)));
    assert_eq!(rig.writer.synced_sequence(), Sequence(2));
    assert_eq!(rig.write().last, Sequence(3));
}

#[test]
fn nothing_is_written_before_a_file_is_prepared() {
    let mut rig = Rig::new(Synced);
    rig.append(1, 10);
    assert_eq!(rig.writer.start_write(rig.now), None);
    let op = rig.writer.prepare().unwrap();
    assert_eq!(op, FileOp::Zero { path: "shards/1/synced/free-1".into(), bytes: FILE_BYTES, written: true });
    assert_eq!(rig.writer.prepare(), None, "one at a time");
    assert_eq!(rig.writer.start_write(rig.now), None);
    rig.writer.prepared(op.execute(&rig.disk).map(drop));
    assert_eq!(rig.writer.prepare(), None, "one ahead");
    let write = rig.write();
    assert_eq!(&*write.path, "shards/1/synced/0000000001-00000000000000000001.journal");
    assert_eq!(&*write.open.unwrap().free, "shards/1/synced/free-1");
    assert!(rig.writer.prepare().is_some(), "the next one ahead");
}

#[test]
fn a_record_that_fills_a_write_exactly_is_taken_and_one_byte_more_is_refused() {
    let mut rig = Rig::new(Synced);
    let limit = rig.config.max_body_bytes();
    rig.append(1, limit);
    let bytes = limit + 1;
    assert_eq!(rig.writer.append(draft(1, vec![0; bytes])), Err(AppendRefused::TooLarge { bytes, limit }));
    assert_eq!(rig.append(1, 5), Sequence(2), "a refusal takes no number");
    let write = rig.write();
    assert_eq!((write.bytes, write.last), (MAX_WRITE_BYTES as usize, Sequence(1)));
    rig.write();
    let (_, found) = rig.restart();
    assert_eq!(found.records.iter().map(|record| record.body.len()).collect::<Vec<_>>(), [limit, 5]);
    assert_eq!(found.records.iter().map(|record| record.counter).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn what_does_not_fit_one_write_goes_into_the_next() {
    let mut rig = Rig::new(Synced);
    for _ in 0..3 {
        rig.append(1, 2 * BLOCK_BYTES);
    }
    assert_eq!(rig.write().last, Sequence(1));
    assert_eq!(rig.write().last, Sequence(2));
    assert_eq!(rig.write().last, Sequence(3));
    assert_eq!(rig.writer.pending_bytes(), 0);
}

#[test]
fn bodies_are_written_by_reference() {
    let mut rig = Rig::new(Synced);
    let bodies = [Bytes::from(body(1, 1000)), Bytes::from(body(2, 77))];
    rig.writer.append(Draft { body: bodies.to_vec(), ..draft(1, "") }).unwrap();
    let write = rig.write();
    for body in &bodies {
        assert!(write.pieces.iter().any(|piece| std::ptr::eq(piece.as_ptr(), body.as_ptr())));
    }
    assert_eq!(write.pieces.iter().map(Bytes::len).sum::<usize>(), write.bytes);
    let (_, found) = rig.restart();
    assert_eq!(found.records[0].body, bodies.concat());
}

#[test]
fn a_file_is_filled_to_its_last_byte_and_the_next_one_follows() {
    let mut rig = Rig::new(Synced);
    for blocks in [4, 4, 4, 3] {
        rig.write_blocks(1, blocks);
    }
    let first = rig.files()[0].clone();
    assert_eq!(rig.disk.size(&first).unwrap(), FILE_BYTES);
    let write = rig.write_blocks(1, 1);
    assert!(write.open.is_some());
    assert_eq!(&*write.path, "shards/1/synced/0000000002-00000000000000000005.journal");
    let (_, found) = rig.restart();
    assert_eq!(sequences(&found), [1, 2, 3, 4, 5]);
    assert_eq!((found.recovered.files, found.recovered.cuts.len()), (2, 0));
}

#[test]
fn a_mark_follows_after_ten_milliseconds_of_silence_and_only_one() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let due = rig.writer.next_deadline().unwrap();
    assert_eq!(due, rig.now.plus_ms(10));
    assert_eq!(rig.writer.start_write(MonoTime(due.0 - 1)), None);
    rig.now = due;
    let mark = rig.write();
    assert_eq!((mark.bytes, mark.last, mark.sync), (BLOCK_BYTES, Sequence(1), true));
    assert_eq!(rig.writer.next_deadline(), None);
    assert_eq!(rig.writer.start_write(due.plus_ms(1000)), None);
}

#[test]
fn a_write_that_follows_in_time_makes_the_mark_unnecessary() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let due = rig.writer.next_deadline().unwrap();
    rig.now = MonoTime(due.0 - 1);
    rig.write_blocks(1, 1);
    assert_eq!(rig.writer.next_deadline(), Some(rig.now.plus_ms(10)));
}

#[test]
fn no_deadline_is_named_that_could_not_be_met() {
    let mut rig = Rig::new(Synced);
    for blocks in [4, 4, 4, 3] {
        rig.write_blocks(1, blocks);
    }
    assert_eq!(rig.writer.next_deadline(), None, "the file is full and the next one is not ready");
    prepare(&rig.disk, &mut rig.writer);
    assert!(rig.mark().open.is_some());
}

#[test]
fn a_failed_write_poisons_for_good_whatever_succeeds_later() {
    let mut rig = Rig::new(Synced);
    rig.append(1, 10);
    prepare(&rig.disk, &mut rig.writer);
    rig.writer.start_write(rig.now).unwrap();
    let poison = rig.writer.finished(Err(failure(5)), rig.now).unwrap_err();
    assert_eq!((poison.stage, poison.errno, &*poison.path), ("write", 5, "some/file"));
    assert_eq!(rig.writer.poison(), Some(&poison));
    assert_eq!(rig.writer.append(draft(1, "x")), Err(AppendRefused::Poisoned(poison)));
    assert_eq!(rig.writer.start_write(rig.now.plus_ms(1000)), None);
    assert_eq!((rig.writer.prepare(), rig.writer.next_deadline()), (None, None));
    assert_eq!(rig.writer.synced_sequence(), Sequence(0));
}

#[test]
fn a_write_that_ends_well_after_the_journal_was_poisoned_confirms_nothing() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    rig.append(1, 10);
    let write = rig.writer.start_write(rig.now).unwrap();
    let op = rig.writer.prepare().unwrap();
    assert!(matches!(op, FileOp::Zero { .. }));
    rig.writer.prepared(Err(failure(5)));
    assert_eq!(rig.writer.finished(write.execute(&rig.disk), rig.now).unwrap_err().errno, 5);
    assert_eq!(rig.writer.synced_sequence(), Sequence(1));
}

#[test]
fn a_full_disk_is_no_poison_and_is_tried_again_after_a_pause() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    rig.writer.prepare().unwrap();
    rig.writer.prepared(Err(failure(DiskError::ENOSPC)));
    assert!(rig.writer.is_full());
    assert_eq!(rig.writer.poison(), None);
    rig.write_blocks(1, 1);
    rig.mark();
    assert_eq!(rig.writer.prepare(), None, "not before the pause is over");
    rig.now = rig.writer.next_deadline().unwrap();
    assert_eq!(rig.writer.start_write(rig.now), None);
    assert!(rig.writer.is_full());
    prepare(&rig.disk, &mut rig.writer);
    assert!(!rig.writer.is_full());
    assert_eq!(rig.writer.next_deadline(), None);
}

#[test]
fn what_fits_the_rest_of_the_file_is_written_while_there_is_no_next_one() {
    let mut rig = Rig::new(Synced);
    for blocks in [4, 4, 4, 1] {
        rig.write_blocks(1, blocks);
    }
    rig.append(1, 5000);
    rig.append(1, 5000);
    rig.append(1, 10);
    let write = rig.writer.start_write(rig.now).unwrap();
    assert_eq!((write.bytes, write.last), (2 * BLOCK_BYTES, Sequence(5)));
    rig.writer.finished(write.execute(&rig.disk), rig.now).unwrap();
    assert_eq!(rig.writer.start_write(rig.now), None);
    assert_eq!(rig.write().last, Sequence(7));
    assert_eq!(sequences(&rig.restart().1), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn an_end_is_the_last_word() {
    let mut rig = Rig::new(Synced);
    rig.append(1, 10);
    rig.writer.end();
    assert_eq!(rig.writer.append(draft(1, "x")), Err(AppendRefused::Ending));
    assert!(!rig.writer.is_ended());
    assert_eq!(rig.write().last, Sequence(1));
    assert!(rig.writer.is_ended());
    assert_eq!((rig.writer.start_write(rig.now.plus_ms(1000)), rig.writer.next_deadline()), (None, None));
    let (_, found) = rig.restart();
    assert!(found.recovered.ended_cleanly);
    assert_eq!(sequences(&found), [1]);
}

#[test]
fn an_end_with_nothing_to_write_is_an_empty_write() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    rig.writer.end();
    assert_eq!(rig.write().last, Sequence(1));
    let (mut rig, found) = rig.restart();
    assert!(found.recovered.ended_cleanly);
    rig.write_blocks(1, 1);
    let (_, found) = rig.restart();
    assert!(!found.recovered.ended_cleanly, "the end mark of an earlier life is not this one's");
}

#[test]
fn a_buffered_write_is_not_synced_and_a_sync_covers_what_was_written_before_it_began() {
    let mut rig = Rig::new(Buffered);
    assert!(!rig.write_blocks(1, 1).sync);
    let sync = rig.writer.start_sync(rig.now).unwrap();
    assert_eq!(rig.writer.start_sync(rig.now), None, "one at a time");
    rig.write_blocks(1, 1);
    assert_eq!(rig.writer.synced(sync.execute(&rig.disk).map(drop), rig.now), Ok(Sequence(1)));
    assert_eq!(rig.writer.synced_sequence(), Sequence(1));
    assert_eq!(rig.sync(), Sequence(2));
    assert_eq!(rig.writer.start_sync(rig.now), None);
    rig.mark();
    assert_eq!(rig.writer.start_sync(rig.now), None, "a mark needs no sync");
}

#[test]
fn buffered_files_are_synced_oldest_first() {
    let mut rig = Rig::new(Buffered);
    for _ in 0..4 {
        rig.write_blocks(1, 4);
    }
    let sync = rig.writer.start_sync(rig.now).unwrap();
    assert_eq!(sync, FileOp::Sync { path: "shards/1/buffered/0000000001-00000000000000000001.journal".into() });
    assert_eq!(rig.writer.synced(Ok(()), rig.now), Ok(Sequence(3)));
    assert_eq!(rig.sync(), Sequence(4));
}

#[test]
fn a_buffered_journal_ends_only_after_everything_is_synced() {
    let mut rig = Rig::new(Buffered);
    rig.write_blocks(1, 1);
    rig.append(1, 10);
    rig.writer.end();
    assert!(!rig.write().sync);
    assert_eq!(rig.writer.start_write(rig.now), None, "what was written is not synced");
    rig.sync();
    assert!(rig.write().sync);
    assert!(rig.writer.is_ended());
    let (_, found) = rig.restart();
    assert_eq!((sequences(&found), found.recovered.ended_cleanly), (vec![1, 2], true));
}

#[test]
fn a_failed_sync_poisons() {
    let mut rig = Rig::new(Buffered);
    rig.write_blocks(1, 1);
    rig.writer.start_sync(rig.now).unwrap();
    assert_eq!(rig.writer.synced(Err(failure(5)), rig.now).unwrap_err().errno, 5);
    assert_eq!(rig.writer.start_sync(rig.now), None);
    assert_eq!(rig.writer.synced_sequence(), Sequence(0));
}

#[test]
fn the_synced_journal_has_nothing_to_sync() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    assert_eq!(rig.writer.start_sync(rig.now), None);
}

#[test]
fn what_was_done_is_counted_once_it_is_finished() {
    let mut rig = Rig::new(Synced);
    rig.append(1, 10);
    rig.append(1, 10);
    prepare(&rig.disk, &mut rig.writer);
    let write = rig.writer.start_write(rig.now).unwrap();
    assert_eq!(rig.writer.counters(), JournalCounters::default());
    rig.writer.finished(write.execute(&rig.disk), rig.now).unwrap();
    let counted = JournalCounters { writes: 1, records: 2, bytes: BLOCK, syncs: 1, files: 1, ..Default::default() };
    assert_eq!(rig.writer.counters(), counted);
}

#[test]
fn settings_that_do_not_fit_each_other_are_refused_with_the_rule() {
    let good = config(Synced);
    assert_eq!(good.validate(), Ok(()));
    let filling = JournalConfig { max_write_bytes: (FILE_BYTES - BLOCK) as u32, ..good.clone() };
    assert_eq!(filling.validate(), Ok(()));
    let refused = |config: JournalConfig| config.validate().unwrap_err().setting;
    assert_eq!(
        refused(JournalConfig { max_write_bytes: FILE_BYTES as u32, ..good.clone() }),
        "journal.max_write_bytes"
    );
    assert_eq!(refused(JournalConfig { max_write_bytes: 0, ..good.clone() }), "journal.max_write_bytes");
    assert_eq!(refused(JournalConfig { max_write_bytes: 4097, ..good.clone() }), "journal.max_write_bytes");
    assert_eq!(refused(JournalConfig { file_bytes: BLOCK, ..good.clone() }), "journal.file_bytes");
    assert_eq!(refused(JournalConfig { file_bytes: FILE_BYTES + 1, ..good.clone() }), "journal.file_bytes");
    assert_eq!(refused(JournalConfig { mark_after_ms: 0, ..good.clone() }), "journal.mark_after_ms");
    let message = JournalConfig { file_bytes: 1, ..good }.validate().unwrap_err().to_string();
    assert_eq!(message, "journal.file_bytes is 1, but it must be a multiple of 4096 from 8192 to 4294967296");
}
