//! Which file a start writes to: one of its own, one that it takes over, or the last one.

use super::files::{FILES, bounded, journal_files};
use super::recovery::SECTOR;
use super::*;
use JournalKind::{Buffered, Synced};

#[test]
fn starts_that_end_early_leave_no_file_each() {
    let mut rig = bounded(Synced);
    while !rig.writer.is_at_bound() {
        rig.write_blocks(1, 1);
    }
    let mut written = 45;
    for start in 0..30 {
        let (again, found) = rig.restart();
        assert_eq!(sequences(&found), (1..=written).collect::<Vec<_>>(), "start {start}");
        assert_eq!(found.recovered.cuts, []);
        rig = again;
        // One that dies before it writes, one that writes.
        if start % 2 == 0 {
            rig.write_blocks(2, 1);
            written += 1;
        }
        assert!(rig.files().len() as u64 <= FILES + 1, "{:?}", rig.files());
    }
    let counters: Vec<_> =
        rig.recover().unwrap().records.iter().filter(|r| r.group == GroupId(2)).map(|r| r.counter).collect();
    assert_eq!(counters, (1..=15).collect::<Vec<_>>());
}

#[test]
fn a_file_is_taken_over_whole_or_not_at_all() {
    let mut rig = bounded(Synced);
    while !rig.writer.is_at_bound() {
        rig.write_blocks(1, 1);
    }
    let (mut rig, _) = rig.restart();
    rig.write_blocks(2, 1);
    let expected = rig.recover().unwrap().records;
    let before = rig.disk.clone();
    for calls in 0..60 {
        for power_loss in [None, Some(calls)] {
            let mut disk = crash_disk::CrashDisk::from_files(&before);
            disk.crash_after(calls as usize);
            let died = recover_all(&disk, &rig.config).is_err();
            if let Some(seed) = power_loss {
                disk = disk.after_power_loss(seed);
            }
            disk.crash_after(usize::MAX);
            assert_eq!(recover_all(&disk, &rig.config).unwrap().records, expected, "after {calls} calls, died: {died}");
        }
    }
}

#[test]
fn a_file_that_was_taken_over_says_itself_how_much_it_has() {
    let mut rig = bounded(Synced);
    while !rig.writer.is_at_bound() {
        rig.write_blocks(1, 1);
    }
    let (mut rig, _) = rig.restart();
    let last = rig.write_blocks(2, 1);
    // Its start writes the file anew, with the one record, and then dies.
    let (rig, found) = rig.restart();
    let lost = *sequences(&found).last().unwrap();
    rig.change(&last.path, |file| file[BLOCK_BYTES..].fill(0));
    assert_eq!(rig.damage().lost, Lost::Records(Sequence(lost), Sequence(lost)));
    let (rig, _) = rig.restart();
    assert_eq!(rig.damage().lost, Lost::Records(Sequence(lost), Sequence(lost)), "and at the next start");
}

/// No file can be made for it.
fn without_room(rig: &mut Rig) {
    drop(rig.writer.prepare().expect("a file of its own is made first, if there is room"));
    rig.writer.prepared(Err(failure(DiskError::ENOSPC)));
}

#[test]
fn starts_that_have_no_room_for_a_file_go_on_in_the_last_one() {
    for kind in [Synced, Buffered] {
        let mut rig = Rig::new(kind);
        rig.write_blocks(1, 1);
        rig.write_blocks(1, 1);
        let files = journal_files(&rig);
        let mut written = 2;
        for start in 0..6 {
            let (again, found) = rig.restart();
            assert_eq!(sequences(&found), (1..=written).collect::<Vec<_>>(), "{kind:?}, start {start}");
            // What the last start was writing when it died is cut once and for good.
            let was_torn = start % 3 == 2;
            assert_eq!((found.recovered.cuts.len(), found.recovered.damages), (usize::from(was_torn), vec![]));
            rig = again;
            without_room(&mut rig);
            match start % 3 {
                0 => {
                    assert!(rig.write_blocks(1, 1).open.is_none());
                    written += 1;
                }
                1 => {
                    let torn = rig.write_blocks(1, 2);
                    rig.flip(&torn.path, torn.offset + BLOCK_BYTES as u64 + 9);
                }
                _ => {
                    // An orderly stop, behind which the next start goes on all the same.
                    rig.append(1, 10);
                    rig.write();
                    written += 1;
                    if kind == Buffered {
                        rig.sync();
                    }
                    rig.writer.end();
                    rig.write();
                    assert!(rig.writer.is_ended());
                }
            }
        }
        assert_eq!(journal_files(&rig), files);
        let (mut rig, found) = rig.restart();
        assert!(!found.recovered.ended_cleanly);
        assert!(rig.write_blocks(1, 1).open.is_some(), "with room, it has a file of its own again");
        assert_eq!(sequences(&rig.recover().unwrap()), (1..=written + 1).collect::<Vec<_>>());
    }
}

#[test]
fn a_file_that_was_taken_over_is_told_if_its_header_is_what_it_was_before() {
    let mut rig = bounded(Synced);
    while !rig.writer.is_at_bound() {
        rig.write_blocks(1, 1);
    }
    let (mut rig, _) = rig.restart();
    let last = rig.write_blocks(2, 1);
    let header = rig.disk.file(&last.path).unwrap()[..SECTOR].to_vec();
    let (mut rig, _) = rig.restart();
    rig.write_blocks(2, 1);
    let good = sequences(&rig.recover().unwrap());
    rig.change(&last.path, |file| file[..SECTOR].copy_from_slice(&header));
    let found = rig.recover().unwrap();
    assert_eq!((sequences(&found), found.recovered.damages[0].lost), (good, Lost::Nothing));
}
