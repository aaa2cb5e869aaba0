//! How many files there may be, and how the oldest goes.

use super::recovery::{SECTOR, torn};
use super::*;
use JournalKind::{Buffered, Synced};

use crate::journal::format::FileHeader;

pub(super) const FILES: u64 = 5;

pub(super) fn bounded(kind: JournalKind) -> Rig {
    let config = JournalConfig { max_bytes: FILES * FILE_BYTES, ..config(kind) };
    Rig::start(MemoryDisk::new(), config).0
}

/// Fills so many files with records of one block each, fifteen to a file.
fn fill(rig: &mut Rig, files: usize) {
    while rig.writer.files() < files || rig.writer.room_in_file() > 0 {
        rig.write_blocks(1, 1);
    }
}

fn remove(rig: &mut Rig) {
    let op = rig.writer.start_removal(rig.now).expect("a file may go");
    rig.writer.removed(op.execute(&rig.disk).map(drop));
}

pub(super) fn journal_files(rig: &Rig) -> usize {
    rig.files().iter().filter(|path| path.ends_with(".journal")).count()
}

#[test]
fn a_file_goes_only_when_a_durable_write_says_that_it_is_not_needed() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 3);
    assert_eq!(rig.writer.oldest_ends(), Some(Sequence(15)));
    rig.writer.release(Sequence(15));
    assert_eq!(rig.writer.oldest_ends(), Some(Sequence(15)), "its last record is needed");
    rig.writer.release(Sequence(16));
    assert_eq!(rig.writer.oldest_ends(), Some(Sequence(30)));
    assert_eq!(rig.writer.start_removal(rig.now), None, "nothing says so yet");
    let write = rig.write();
    assert_eq!((write.last, write.sync), (Sequence(45), true), "with nothing else to write, a mark says it at once");
    remove(&mut rig);
    assert_eq!((journal_files(&rig), rig.writer.files(), rig.writer.counters().files_freed), (3, 3, 1));
    assert_eq!(rig.writer.start_removal(rig.now), None);
    let (_, found) = rig.restart();
    assert_eq!(found.records.first().map(|record| record.sequence), Some(Sequence(16)));
}

#[test]
fn a_start_after_any_step_finds_all_that_is_needed() {
    for step in 0..4 {
        let mut rig = bounded(Synced);
        fill(&mut rig, 3);
        rig.writer.release(Sequence(31));
        if step > 0 {
            rig.write();
        }
        for _ in 1..step {
            remove(&mut rig);
        }
        let first = [1, 1, 16, 31][step];
        let (mut rig, found) = rig.restart();
        assert_eq!(sequences(&found), (first..46).collect::<Vec<_>>(), "after step {step}");
        // What was begun is ended.
        rig.writer.release(Sequence(31));
        rig.write_blocks(1, 1);
        while let Some(op) = rig.writer.start_removal(rig.now) {
            rig.writer.removed(op.execute(&rig.disk).map(drop));
        }
        assert_eq!(sequences(&rig.recover().unwrap()), (31..47).collect::<Vec<_>>(), "after step {step}");
    }
}

#[test]
fn a_file_that_was_not_freed_is_missed() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 4);
    rig.writer.release(Sequence(16));
    rig.write();
    remove(&mut rig);
    let paths = rig.files();
    rig.disk.remove(&paths[0]).unwrap();
    let damage = rig.damage();
    assert!(damage.what.contains("files from 2 on are needed"), "{damage}");
}

#[test]
fn the_header_of_a_buffered_journals_file_lets_nothing_go_before_what_is_ahead_of_it_is_synced() {
    let sync = |rig: &mut Rig| {
        while rig.writer.needs_sync() {
            rig.sync();
        }
    };
    let mut rig = bounded(Buffered);
    fill(&mut rig, 2);
    sync(&mut rig);
    rig.write_blocks(1, 1);
    let before = journal_files(&rig);
    // The next file's header says that the first one is not needed.
    rig.writer.release(Sequence(16));
    while journal_files(&rig) == before {
        rig.write_blocks(1, 1);
    }
    assert_eq!(rig.writer.start_removal(rig.now), None);
    sync(&mut rig);
    assert!(rig.writer.start_removal(rig.now).is_some());
}

#[test]
fn damage_in_a_file_that_nobody_needs_is_nobodys() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 4);
    let paths = rig.files();
    rig.writer.release(Sequence(31));
    rig.write();
    // The process ends before the two files are removed.
    rig.flip(&paths[0], 3 * BLOCK + 100);
    for _ in 0..2 {
        let found = rig.recover().unwrap();
        assert_eq!((found.recovered.damages.len(), found.recovered.doubts.has_gap()), (0, false));
        assert_eq!(sequences(&found).last(), Some(&60));
        let (next, _) = rig.restart();
        rig = next;
    }
    rig.write_blocks(1, 1);
    remove(&mut rig);
    remove(&mut rig);
    assert!(!rig.files().contains(&paths[0]) && !rig.files().contains(&paths[1]), "what was stated goes on");
    rig.flip(&paths[2], 3 * BLOCK + 100);
    assert!(rig.recover().unwrap().recovered.doubts.has_gap(), "this one is needed");
}

#[test]
fn a_needed_file_is_missed_although_one_that_nobody_needs_is_still_there() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 4);
    let paths = rig.files();
    rig.writer.release(Sequence(16));
    rig.write();
    // The first file would go next, and the second one is gone.
    rig.disk.remove(&paths[1]).unwrap();
    for _ in 0..2 {
        let (next, found) = rig.restart();
        assert!(found.recovered.doubts.is_suspect(GroupId(1)), "{:?}", found.recovered.damages);
        rig = next;
        rig.write_blocks(2, 1);
    }
}

#[test]
fn a_start_at_the_bound_takes_back_nothing_of_what_was_stated() {
    let mut rig = bounded(Synced);
    rig.write_blocks(2, 1);
    fill(&mut rig, 3);
    let paths = rig.files();
    rig.writer.release(Sequence(16));
    rig.write();
    rig.write_blocks(2, 1);
    // Were the first file needed, it would prove that the second one had nothing of group 2.
    rig.disk.remove(&paths[1]).unwrap();
    for start in 0..3 {
        let (next, found) = rig.restart();
        let is_suspect = [1, 2].map(|group| found.recovered.doubts.is_suspect(GroupId(group)));
        assert_eq!(is_suspect, [true, true], "start {start}: {:?}", found.recovered.damages);
        rig = next;
        assert!(rig.files().contains(&paths[0]), "nothing goes while somebody is suspect");
        rig.write_blocks(3, 1);
    }
}

#[test]
fn damage_stays_nobodys_where_only_a_torn_write_says_that_its_file_is_not_needed() {
    for kind in [Synced, Buffered] {
        let mut rig = Rig::new(kind);
        fill(&mut rig, 2);
        let paths = rig.files();
        rig.write_blocks(1, 1);
        while rig.writer.needs_sync() {
            rig.sync();
        }
        rig.mark();
        rig.writer.release(Sequence(16));
        let torn = rig.write_blocks(1, 2);
        rig.flip(&torn.path, torn.offset + BLOCK + 100);
        rig.flip(&paths[0], 3 * BLOCK + 100);
        for start in 0..3 {
            let (next, found) = rig.restart();
            assert_eq!((found.recovered.damages, found.recovered.doubts.has_gap()), (vec![], false), "start {start}");
            rig = next;
        }
        rig.write_blocks(1, 1);
        let found = rig.recover().unwrap();
        assert_eq!(sequences(&found).last(), Some(&32), "what is torn does not count");
        assert!(!found.recovered.doubts.has_gap());
    }
}

#[test]
fn a_missing_file_stays_nobodys_where_only_a_torn_write_says_that_it_is_not_needed() {
    for kind in [Synced, Buffered] {
        let mut rig = Rig::new(kind);
        fill(&mut rig, 3);
        let paths = rig.files();
        rig.write_blocks(1, 1);
        while rig.writer.needs_sync() {
            rig.sync();
        }
        rig.mark();
        rig.writer.release(Sequence(31));
        let torn = rig.write_blocks(1, 2);
        rig.flip(&torn.path, torn.offset + BLOCK + 100);
        rig.disk.remove(&paths[1]).unwrap();
        for start in 0..3 {
            let (next, found) = rig.restart();
            assert_eq!((found.recovered.damages, found.recovered.doubts.has_gap()), (vec![], false), "start {start}");
            rig = next;
        }
    }
}

#[test]
fn a_torn_end_that_alone_says_that_damage_is_nobodys_is_kept_with_the_files_behind_it() {
    let mut rig = Rig::new(Buffered);
    fill(&mut rig, 2);
    let paths = rig.files();
    while rig.writer.needs_sync() {
        rig.sync();
    }
    let torn = rig.write_blocks(1, 2);
    rig.writer.release(Sequence(16));
    fill(&mut rig, 3);
    rig.write_blocks(1, 1);
    rig.flip(&torn.path, torn.offset + BLOCK + 100);
    rig.flip(&paths[0], 3 * BLOCK + 100);
    let before = rig.files();
    let (mut rig, first) = rig.restart();
    assert_eq!((rig.files(), &first.recovered.cuts), (before, &vec![]));
    for start in 0..3 {
        rig.write_blocks(2, 1);
        let (next, found) = rig.restart();
        let told = (&found.recovered.damages, found.recovered.doubts.is_suspect(GroupId(1)));
        let then = (&first.recovered.damages, first.recovered.doubts.is_suspect(GroupId(1)));
        assert_eq!(told, then, "start {start}");
        rig = next;
    }
}

#[test]
fn what_is_before_damage_goes_only_together_with_it() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 1);
    rig.write_blocks(2, 1);
    let bad = rig.write_blocks(2, 1);
    fill(&mut rig, 2);
    rig.write_blocks(2, 1);
    rig.flip(&bad.path, bad.offset + 100);
    let (mut rig, found) = rig.restart();
    assert!(!found.recovered.doubts.is_suspect(GroupId(1)), "file 1 has what proves it");
    rig.write_blocks(1, 1);
    rig.writer.release(Sequence(16));
    assert_eq!((rig.writer.oldest_ends(), rig.writer.start_removal(rig.now)), (Some(Sequence(30)), None));
    rig.writer.release(Sequence(31));
    rig.write();
    remove(&mut rig);
    // Between the two removals the damage is nobody's.
    assert!(!rig.recover().unwrap().recovered.doubts.has_gap());
}

#[test]
fn a_freed_file_that_is_still_there_behind_a_gap_is_no_damage() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 4);
    let paths = rig.files();
    let first = rig.disk.file(&paths[0]).unwrap();
    rig.writer.release(Sequence(31));
    rig.write();
    remove(&mut rig);
    remove(&mut rig);
    // The device lost one of the two removals.
    rig.disk.set_file(&paths[0], first);
    let found = rig.recover().unwrap();
    assert_eq!(sequences(&found).first(), Some(&31));
    assert!(!rig.files().contains(&paths[0]), "it is gone for good");
    assert_eq!(rig.recover().unwrap().recovered.cuts, []);
}

#[test]
fn publishes_end_before_the_reserve_and_what_makes_room_still_fits() {
    let mut rig = bounded(Synced);
    while let Some(room) = rig.writer.room_for(Purpose::Publish) {
        assert!(room < FILES * FILE_BYTES);
        rig.write_blocks(1, 1);
    }
    assert_eq!((rig.writer.files(), rig.writer.is_at_bound()), (3, true));
    assert!(rig.writer.room_for(Purpose::Change).is_some());
    while rig.writer.room_for(Purpose::Change).is_some() {
        rig.write_blocks(1, 1);
    }
    assert_eq!(rig.writer.files(), 4);
    fill(&mut rig, 5);
    assert_eq!(rig.writer.prepare(), None, "the bound is the bound");
    assert_eq!(rig.files().len() as u64, FILES);
}

#[test]
fn at_the_bound_the_write_that_frees_a_file_gets_one() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 5);
    assert_eq!(rig.writer.prepare(), None);
    rig.writer.release(Sequence(16));
    assert!(rig.write().open.is_some());
    remove(&mut rig);
    assert_eq!(journal_files(&rig) as u64, FILES);
    assert_eq!(rig.files().len() as u64, FILES + 1, "and the spare one");
}

/// A journal whose next file had an earlier life.
fn reusing(kind: JournalKind) -> Rig {
    let mut rig = bounded(kind);
    fill(&mut rig, 3);
    while rig.writer.needs_sync() {
        rig.sync();
    }
    rig.writer.release(Sequence(16));
    rig.write();
    while rig.writer.needs_sync() {
        rig.sync();
    }
    let op = rig.writer.start_removal(rig.now).expect("a file may go");
    assert!(matches!(op, FileOp::Rename { .. }), "{op:?}");
    rig.writer.removed(op.execute(&rig.disk).map(drop));
    rig
}

/// Writes until the freed file is opened.
fn open_reused(rig: &mut Rig) -> JournalWrite {
    loop {
        let write = rig.write_blocks(1, 1);
        if let Some(open) = &write.open {
            assert!(FileHeader::decode(&open.header).unwrap().0.reused);
            return write;
        }
    }
}

#[test]
fn a_freed_file_is_used_again_instead_of_a_new_one() {
    for kind in [Synced, Buffered] {
        let mut rig = reusing(kind);
        assert_eq!(rig.writer.prepare(), None, "nothing has to be made");
        let before = rig.files();
        let opened = open_reused(&mut rig).open.unwrap();
        assert!(before.contains(&opened.free.to_string()), "{opened:?}");
        assert_eq!(rig.files().len(), before.len());
    }
}

#[test]
fn what_waits_for_a_file_is_written_as_soon_as_one_was_let_go() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 5);
    rig.writer.release(Sequence(16));
    assert!(rig.write().open.is_some(), "the write that says so gets a file beyond the bound");
    while rig.writer.room_in_file() > 0 {
        rig.write_blocks(1, 1);
    }
    rig.append(1, 100);
    assert_eq!(rig.writer.start_write(rig.now), None, "there is no file");
    remove(&mut rig);
    assert!(rig.writer.start_write(rig.now).is_some(), "without anybody asking for a file");
}

#[test]
fn what_is_left_of_a_files_earlier_life_is_never_taken_for_this_ones() {
    let mut rig = reusing(Synced);
    let path = open_reused(&mut rig).path;
    let before = rig.disk.file(&path).unwrap();
    assert!(before[2 * BLOCK_BYTES..].chunks(BLOCK_BYTES).all(|block| block.iter().any(|byte| *byte != 0)));
    let end = rig.writer.written_sequence().0;
    let found = rig.recover().unwrap();
    assert_eq!((found.recovered.cuts.len(), sequences(&found).last().copied()), (0, Some(end)));
    // A write that is torn in any way is cut, and what is behind it stays what it was.
    rig.append(1, 3000);
    rig.append(2, 8000);
    let last = rig.write();
    let after = rig.disk.file(&last.path).unwrap();
    let sectors = last.bytes / SECTOR;
    // What pads the last block may be anything.
    let used = (WRITE_HEADER_BYTES + 2 * RECORD_HEADER_BYTES + 3000 + 8000).div_ceil(SECTOR);
    for seed in 0..300_u64 {
        let arrived: Vec<bool> = match (seed as usize).checked_sub(sectors) {
            None => (0..sectors).map(|sector| sector != seed as usize).collect(),
            Some(_) => body(seed, sectors).iter().map(|byte| byte & 1 == 1).collect(),
        };
        rig.disk.set_file(&last.path, torn(&before, &after, &last, &arrived));
        let found = rig.recover().unwrap();
        let is_whole = arrived[..used].iter().all(|arrived| *arrived);
        assert_eq!(sequences(&found).last().copied(), Some(if is_whole { end + 2 } else { end }), "{arrived:?}");
        let tells = arrived[0] && !is_whole;
        assert_eq!(found.recovered.cuts.len(), usize::from(tells), "a header that arrived tells of the tear");
        assert_eq!(found.recovered.damages, []);
        let again = rig.recover().unwrap();
        assert_eq!((again.records, again.recovered.cuts), (found.records, vec![]));
    }
}

#[test]
fn a_mark_opens_no_file_of_the_reserve() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 3);
    prepare(&rig.disk, &mut rig.writer);
    assert_eq!(rig.writer.next_deadline(), None);
    assert_eq!(rig.writer.start_write(rig.now.plus_ms(1000)), None);
}

#[test]
fn a_start_at_the_bound_opens_its_file_and_no_more() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 5);
    let (mut rig, _) = rig.restart();
    assert!(rig.write_blocks(1, 1).open.is_some());
    prepare(&rig.disk, &mut rig.writer);
    assert_eq!(rig.files().len() as u64, FILES + 1);
}

#[test]
fn a_buffered_journal_says_it_durably_too() {
    let mut rig = bounded(Buffered);
    fill(&mut rig, 3);
    rig.write_blocks(1, 1);
    for _ in 0..4 {
        rig.sync();
    }
    rig.writer.release(Sequence(16));
    assert!(!rig.write().sync);
    assert_eq!(rig.writer.start_removal(rig.now), None, "written and not synced");
    rig.sync();
    remove(&mut rig);
    assert_eq!(journal_files(&rig), 3);
    // Saying so is said once.
    assert_eq!((rig.mark().sync, rig.writer.start_sync(rig.now)), (false, None));
}

#[test]
fn a_removal_that_fails_is_tried_again_and_a_failed_sync_stops_the_journal() {
    let mut rig = bounded(Synced);
    fill(&mut rig, 3);
    rig.writer.release(Sequence(16));
    rig.write();
    rig.writer.start_removal(rig.now).unwrap();
    rig.writer.removed(Err(DiskError { stage: "remove", ..failure(5) }));
    assert_eq!(rig.writer.start_removal(rig.now), None, "after a pause");
    rig.now = rig.now.plus_ms(1000);
    assert!(rig.writer.next_deadline().is_some_and(|at| at <= rig.now));
    rig.writer.start_removal(rig.now).unwrap();
    rig.writer.removed(Err(DiskError { stage: "sync directory", ..failure(5) }));
    assert!(rig.writer.poison().is_some());
}

#[test]
fn what_makes_room_gets_a_file_beyond_the_bound_once_the_reserve_is_used_up() {
    let mut rig = bounded(Synced);
    fill(&mut rig, FILES as usize);
    assert_eq!(rig.writer.prepare(), None, "nothing waits");
    rig.append(1, 10);
    rig.write();
    assert_eq!(journal_files(&rig), FILES as usize + 1);
    while rig.writer.room_in_file() > 0 {
        rig.write_blocks(1, 1);
    }
    rig.append(1, 10);
    assert_eq!(rig.writer.prepare(), None, "one and no more");
}

#[test]
fn a_file_that_could_not_be_made_is_tried_again_only_while_it_is_wanted() {
    let mut rig = bounded(Synced);
    fill(&mut rig, FILES as usize - 1);
    rig.write_blocks(1, 1);
    rig.mark();
    rig.writer.release(Sequence(16));
    assert!(rig.writer.prepare().is_some(), "the statement may need a file");
    rig.writer.prepared(Err(failure(DiskError::ENOSPC)));
    assert!(rig.writer.next_deadline().is_some());
    // It found room where the journal is.
    assert!(rig.write().open.is_none());
    assert_eq!(rig.writer.next_deadline(), None);
}
