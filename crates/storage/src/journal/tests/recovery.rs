//! Recovery's decisions that are not damage.

use super::*;
use crate::journal::format::*;
use JournalKind::{Buffered, Synced};

pub(super) const SECTOR: usize = 512;

/// The bytes of a file when only some sectors of a write arrived: those whose bit is set.
pub(super) fn torn(before: &[u8], after: &[u8], write: &JournalWrite, arrived: &[bool]) -> Vec<u8> {
    let mut bytes = before.to_vec();
    for (sector, arrived) in arrived.iter().enumerate().take(write.bytes / SECTOR) {
        let at = write.offset as usize + sector * SECTOR;
        if *arrived {
            bytes[at..at + SECTOR].copy_from_slice(&after[at..at + SECTOR]);
        }
    }
    bytes
}

/// A journal with two good writes, then one of two records over three blocks, and the file before that one.
fn with_last_write() -> (Rig, JournalWrite, Vec<u8>) {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let good = rig.write_blocks(2, 2);
    let before = rig.disk.file(&good.path).unwrap();
    rig.append(1, 3000);
    rig.append(2, 8000);
    let last = rig.write();
    assert_eq!(last.bytes, 3 * BLOCK_BYTES);
    (rig, last, before)
}

#[test]
fn the_first_start_makes_the_directory_and_begins_with_record_one() {
    let (rig, found) = Rig::start(MemoryDisk::new(), config(Synced));
    assert_eq!(found.recovered.position, Position::first());
    assert!(!found.recovered.ended_cleanly);
    assert_eq!(rig.disk.list("shards/1/synced").unwrap(), []);
    assert_eq!(rig.recover().unwrap(), found);
}

#[test]
fn records_come_back_in_order_with_all_they_had() {
    let mut rig = Rig::new(Synced);
    let kinds = [RecordKind::Bootstrap, RecordKind::HardState, RecordKind::Entry, RecordKind::Removed];
    for (index, kind) in kinds.into_iter().enumerate() {
        let group = index as u64 % 2;
        rig.writer.append(Draft { kind, ..draft(group, format!("body {index}")) }).unwrap();
    }
    rig.write();
    let (_, found) = rig.restart();
    for (index, (record, kind)) in found.records.iter().zip(kinds).enumerate() {
        let group = index as u64 % 2;
        let expected = RecoveredRecord {
            sequence: Sequence(index as u64 + 1),
            group: GroupId(group),
            replica: ReplicaId(group + 100),
            kind,
            counter: index as u64 / 2 + 1,
            body: format!("body {index}").into(),
        };
        assert_eq!(*record, expected);
    }
    assert_eq!((found.recovered.records, found.recovered.bytes, found.recovered.files), (4, 24, 1));
}

#[test]
fn every_start_opens_a_new_file_of_a_higher_epoch() {
    let mut rig = Rig::new(Synced);
    for life in 1..5 {
        rig.write_blocks(1, 1);
        let (next, found) = rig.restart();
        rig = next;
        assert_eq!(found.recovered.position.epoch(), life + 1);
        assert_eq!((found.recovered.files, found.recovered.cuts.len()), (life as usize, 0));
        assert_eq!(sequences(&found), (1..=life).collect::<Vec<_>>());
    }
}

#[test]
fn a_torn_tail_is_cut_once_and_for_good_whichever_sectors_are_missing() {
    let (rig, last, before) = with_last_write();
    let after = rig.disk.file(&last.path).unwrap();
    let sectors = last.bytes / SECTOR;
    let one_missing = (0..sectors).map(|missing| (0..sectors).map(|sector| sector != missing).collect());
    let one_there = (0..sectors).map(|there| (0..sectors).map(|sector| sector == there).collect());
    let mixed = (0..300).map(|seed| body(seed, sectors).iter().map(|byte| byte & 1 == 1).collect());
    let patterns: Vec<Vec<bool>> = one_missing.chain(one_there).chain(mixed).collect();
    let mut cut = 0;
    for arrived in patterns {
        let bytes = torn(&before, &after, &last, &arrived);
        let (whole, nothing) = (bytes == after, bytes == before);
        rig.disk.set_file(&last.path, bytes);
        let found = rig.recover().unwrap();
        assert_eq!(sequences(&found), if whole { vec![1, 2, 3, 4] } else { vec![1, 2] });
        if !whole {
            assert_eq!(found.recovered.cuts.first().map(|cut| cut.offset), (!nothing).then_some(last.offset));
            assert_eq!(rig.disk.file(&last.path).unwrap(), before, "the cut is zero again");
            cut += 1;
        }
        let again = rig.recover().unwrap();
        assert_eq!((again.records, again.recovered.cuts), (found.records, vec![]));
    }
    assert!(cut >= sectors * 2, "nearly all patterns are tears");
}

#[test]
fn after_a_cut_the_numbers_go_on_from_there() {
    let (rig, last, _) = with_last_write();
    rig.flip(&last.path, last.offset + 5000);
    let (mut rig, found) = rig.restart();
    assert_eq!(found.recovered.position.next_sequence(), Sequence(3));
    assert_eq!(
        found.recovered.cuts[0].to_string(),
        "shards/1/synced/0000000001-00000000000000000001.journal: cut 11160 bytes at offset 16384: record 4 does not match its body's CRC"
    );
    assert_eq!(rig.append(2, 10), Sequence(3));
    rig.write();
    rig.mark();
    let (_, found) = rig.restart();
    assert_eq!(sequences(&found), [1, 2, 3]);
    assert_eq!((found.records[2].counter, found.recovered.cuts.len()), (2, 0));
}

#[test]
fn a_tail_that_was_cut_does_not_come_back_when_the_repair_is_undone() {
    let (rig, last, _) = with_last_write();
    let whole = rig.disk.file(&last.path).unwrap();
    rig.flip(&last.path, last.offset + 5000);
    let (mut rig, _) = rig.restart();
    let write = rig.write_blocks(7, 1);
    rig.mark();
    rig.disk.set_file(&last.path, whole);
    let found = rig.recover().unwrap();
    assert_eq!(sequences(&found), [1, 2, 3]);
    assert_eq!(found.records[2].group, GroupId(7));
    assert_eq!(write.last, Sequence(3));
}

#[test]
fn a_torn_mark_loses_nothing() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let mark = rig.mark();
    rig.flip(&mark.path, mark.offset + 10);
    let (rig, found) = rig.restart();
    assert_eq!((sequences(&found), found.recovered.cuts.len()), (vec![1], 1));
    assert_eq!(rig.recover().unwrap().recovered.cuts, []);
}

#[test]
fn a_lost_mark_between_writes_is_not_damage() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let mark = rig.mark();
    rig.write_blocks(1, 2);
    rig.mark();
    rig.flip(&mark.path, mark.offset + 10);
    let found = rig.recover().unwrap();
    assert_eq!((sequences(&found), found.recovered.cuts), (vec![1, 2], vec![]));
}

#[test]
fn a_stray_copy_of_a_write_behind_the_end_counts_for_nothing() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let last = rig.write_blocks(1, 1);
    rig.change(&last.path, |bytes| bytes.copy_within(BLOCK_BYTES..2 * BLOCK_BYTES, last.offset as usize + BLOCK_BYTES));
    let (_, found) = rig.restart();
    assert_eq!((sequences(&found), found.recovered.cuts.len()), (vec![1, 2], 1));
}

#[test]
fn room_left_at_the_end_of_a_file_is_not_damage() {
    let mut rig = Rig::new(Synced);
    for blocks in [4, 4, 4, 2, 4] {
        rig.write_blocks(1, blocks);
    }
    let (_, found) = rig.restart();
    assert_eq!((found.recovered.files, sequences(&found)), (2, vec![1, 2, 3, 4, 5]));
    assert_eq!(found.recovered.cuts, []);
}

#[test]
fn prepared_files_are_used_or_removed_and_never_in_the_way() {
    let rig = Rig::new(Synced);
    let free = |number: u64| rig.config.path(&free_name(number));
    rig.disk.set_file(&free(3), vec![0; 100]);
    rig.disk.set_file(&free(4), vec![]);
    rig.disk.set_file(&free(5), vec![0; FILE_BYTES as usize]);
    rig.disk.set_file(&free(9), vec![0; FILE_BYTES as usize]);
    let kept = free(5);
    let (mut rig, found) = rig.restart();
    assert_eq!(rig.files(), [&*kept]);
    assert_eq!(found.recovered.cuts, []);
    assert_eq!(&*rig.write_blocks(1, 1).open.unwrap().free, &*kept);
    prepare(&rig.disk, &mut rig.writer);
    assert_eq!(rig.files()[1], "shards/1/synced/free-10");
}

#[test]
fn a_crash_between_the_header_and_its_name_leaves_a_prepared_file() {
    let mut rig = Rig::new(Synced);
    rig.append(1, 10);
    prepare(&rig.disk, &mut rig.writer);
    let open = rig.writer.start_write(rig.now).unwrap().open.unwrap();
    rig.disk.write(&open.free, 0, &[open.header]).unwrap();
    let (mut rig, found) = rig.restart();
    assert_eq!((found.recovered.files, found.recovered.cuts.len()), (0, 0));
    rig.write_blocks(1, 1);
    assert_eq!(sequences(&rig.restart().1), [1]);
}

#[test]
fn a_file_that_was_opened_and_not_written_is_an_empty_part_of_the_journal() {
    let mut rig = Rig::new(Synced);
    let write = rig.write_blocks(1, 1);
    rig.change(&write.path, |bytes| bytes[BLOCK_BYTES..].fill(0));
    let (mut rig, found) = rig.restart();
    assert_eq!((found.recovered.files, found.records.len(), found.recovered.cuts.len()), (1, 0, 0));
    assert_eq!(&*rig.write_blocks(1, 1).path, "shards/1/synced/0000000002-00000000000000000001.journal");
    assert_eq!(sequences(&rig.restart().1), [1]);
}

#[test]
fn the_newest_file_with_a_bad_header_and_no_write_is_removed_and_said_so() {
    for bytes in [vec![], vec![0; FILE_BYTES as usize], vec![1; 3 * BLOCK_BYTES]] {
        let mut rig = Rig::new(Synced);
        rig.write_blocks(1, 1);
        let unused = rig.config.path(&file_name(2, 2));
        rig.disk.set_file(&unused, bytes);
        let (mut rig, found) = rig.restart();
        assert_eq!(found.recovered.cuts.len(), 1);
        assert_eq!(found.recovered.cuts[0].file, unused);
        assert!(found.recovered.cuts[0].why.starts_with("made and never used: it"));
        assert_eq!(rig.disk.file(&unused), None);
        rig.write_blocks(1, 1);
        assert_eq!(sequences(&rig.restart().1), [1, 2]);
    }
}

#[test]
fn a_journal_of_somebody_else_is_refused_with_both_names() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let others = [
        JournalIdentity { cluster: Uid([8; 16]), ..identity() },
        JournalIdentity { node: NodeId(4), ..identity() },
        JournalIdentity { shard: ShardId(2), ..identity() },
    ];
    for other in others {
        let refused = recover_all(&rig.disk, &JournalConfig { identity: other, ..config(Synced) }).unwrap_err();
        let RecoveryError::WrongOwner { found, expected, .. } = &refused else { panic!("{refused}") };
        assert_eq!((*found, *expected), ((identity(), Synced), (other, Synced)));
        assert!(
            refused.to_string().contains(&identity().to_string()) && refused.to_string().contains(&other.to_string())
        );
    }
    let refused = recover_all(&rig.disk, &JournalConfig { directory: "shards/1/synced".into(), ..config(Buffered) });
    assert!(matches!(refused, Err(RecoveryError::WrongOwner { .. })));
}

#[test]
fn an_unknown_version_is_refused_with_the_known_ones() {
    let mut rig = Rig::new(Synced);
    let write = rig.write_blocks(1, 1);
    rig.change(&write.path, |bytes| {
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..508]);
        bytes[508..512].copy_from_slice(&crc.to_le_bytes());
    });
    let refused = rig.recover().unwrap_err();
    assert_eq!(refused, RecoveryError::UnknownVersion { file: write.path, found: 2 });
    assert!(refused.to_string().contains("format version 2, this program knows version 1"));
}

#[test]
fn what_is_left_in_a_recycled_file_never_counts() {
    let mut rig = Rig::new(Synced);
    for blocks in [1, 1, 1, 4, 4, 4] {
        rig.write_blocks(1, blocks);
    }
    let old = rig.disk.file(&rig.files()[0]).unwrap();
    let (mut rig, _) = rig.restart();
    prepare(&rig.disk, &mut rig.writer);
    let free = rig.files().into_iter().find(|path| path.contains("free-")).unwrap();
    rig.disk.set_file(&free, old);
    rig.write_blocks(9, 1);
    rig.write_blocks(9, 1);
    let torn_or_left = rig.disk.clone();
    rig.writer.end();
    rig.write();
    let (_, found) = rig.restart();
    assert_eq!(sequences(&found), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(found.records[6].group, GroupId(9));
    assert_eq!((found.recovered.cuts, found.recovered.ended_cleanly), (vec![], true));
    let (_, without_end) = Rig::start(torn_or_left, config(Synced));
    assert_eq!((without_end.records, without_end.recovered.cuts.len()), (found.records, 1));
}

#[test]
fn a_payload_that_looks_like_a_write_is_none_when_its_own_write_is_torn() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    // The body reaches the next block exactly where the forged write stands.
    let mut forged = vec![0; BLOCK_BYTES - WRITE_HEADER_BYTES - RECORD_HEADER_BYTES];
    let header = WriteHeader {
        file_sequence: 1,
        epoch: 1,
        first_sequence: 2,
        synced: 1,
        oldest_file: 1,
        length: WRITE_HEADER_BYTES as u32,
        count: 0,
        chain: 0,
        flags: FLAG_MARK | FLAG_END,
        block: 3,
    };
    header.encode(salt(&identity(), Synced), &mut forged);
    rig.writer.append(draft(1, forged)).unwrap();
    let write = rig.write();
    assert_eq!((write.offset, write.bytes), (2 * BLOCK, 2 * BLOCK_BYTES));
    rig.flip(&write.path, write.offset);
    let found = rig.recover().unwrap();
    assert_eq!((sequences(&found), found.recovered.ended_cleanly), (vec![1], false));
    assert_eq!(found.recovered.cuts[0].offset, write.offset);
}

#[test]
fn a_buffered_journal_is_cut_at_the_first_bad_write_with_all_files_behind_it() {
    let mut rig = Rig::new(Buffered);
    rig.write_blocks(1, 1);
    rig.sync();
    rig.write_blocks(1, 1);
    let bad = rig.write_blocks(1, 4);
    for _ in 0..8 {
        rig.write_blocks(1, 4);
    }
    assert_eq!(rig.files().len(), 3);
    rig.flip(&bad.path, bad.offset + 5000);
    let (mut rig, found) = rig.restart();
    assert_eq!(sequences(&found), [1, 2]);
    let cut: Vec<_> = found.recovered.cuts.iter().map(|cut| (cut.file[28..].to_owned(), cut.offset)).collect();
    let names = ["-00000000000000000009.journal", "-00000000000000000006.journal", "-00000000000000000001.journal"];
    assert_eq!(cut, [(names[0].to_owned(), 0), (names[1].to_owned(), 0), (names[2].to_owned(), bad.offset)]);
    assert_eq!(rig.recover().unwrap().records, found.records);
    assert_eq!(rig.recover().unwrap().recovered.cuts, []);
    rig.write_blocks(1, 1);
    assert_eq!(sequences(&rig.restart().1), [1, 2, 3]);
}
