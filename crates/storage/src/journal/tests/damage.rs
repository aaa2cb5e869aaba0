//! Rot in what was confirmed: found, or harmless, never handed out.

use proptest::prelude::*;

use super::*;
use crate::journal::format::file_name;
use JournalKind::{Buffered, Synced};

/// Three files, two lives, and a mark at the end.
fn journal(kind: JournalKind) -> Rig {
    let mut rig = Rig::new(kind);
    for blocks in [1, 3, 2, 4, 1, 4] {
        rig.write_blocks(blocks as u64 % 2, blocks);
    }
    if kind == Buffered {
        rig.sync();
    }
    rig.mark();
    let (mut rig, _) = rig.restart();
    rig.append(1, 10);
    rig.append(2, 5000);
    rig.write();
    rig.write_blocks(2, 2);
    if kind == Buffered {
        rig.sync();
    }
    rig.mark();
    assert_eq!(rig.files().iter().filter(|path| path.ends_with(".journal")).count(), 3);
    rig
}

/// Where the last mark is: the only write that nothing follows.
fn last_mark(rig: &Rig) -> (String, usize) {
    let last = rig.files().into_iter().rfind(|path| path.ends_with(".journal")).unwrap();
    let end = rig.disk.file(&last).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    (last, end / BLOCK_BYTES * BLOCK_BYTES)
}

fn never_silent(kind: JournalKind, rot: impl Fn(&str, &mut Vec<u8>, usize)) -> Result<(), TestCaseError> {
    let rig = journal(kind);
    let good = rig.recover().unwrap().records;
    let (last, mark) = last_mark(&rig);
    for path in rig.files().iter().filter(|path| path.ends_with(".journal")) {
        let end = if *path == last { mark } else { FILE_BYTES as usize };
        let before = rig.disk.file(path).unwrap();
        rig.change(path, |bytes| rot(path, bytes, end));
        // The same at every start, as long as the file is there.
        for _ in 0..2 {
            let found = rig.recover().unwrap();
            let damages = &found.recovered.damages;
            prop_assert!(damages.iter().all(|damage| *damage.file == **path), "{damages:?}");
            prop_assert!(found.records == good || !damages.is_empty());
            who_is_not_suspect_lost_nothing(&found, &good)?;
            goes_on_with_the_same_suspects(&rig, &found)?;
        }
        rig.disk.set_file(path, before);
    }
    Ok(())
}

fn of_group(records: &[RecoveredRecord], group: u64) -> Vec<&RecoveredRecord> {
    records.iter().filter(|record| record.group == GroupId(group)).collect()
}

fn who_is_not_suspect_lost_nothing(found: &Found, good: &[RecoveredRecord]) -> Result<(), TestCaseError> {
    prop_assert!(found.records.iter().all(|record| good.contains(record)), "something that was never written");
    for group in 0..3 {
        let (left, had) = (of_group(&found.records, group), of_group(good, group));
        let is_suspect = found.recovered.doubts.is_suspect(GroupId(group));
        prop_assert!(left == had || is_suspect, "group {group} lost something: {:?}", found.recovered.damages);
    }
    Ok(())
}

/// The next start's files hide nothing, whatever is written to them.
fn goes_on_with_the_same_suspects(rig: &Rig, found: &Found) -> Result<(), TestCaseError> {
    let (mut next, _) = Rig::start(rig.disk.clone(), rig.config.clone());
    next.append(9, 10);
    next.write();
    let again = next.recover().unwrap();
    prop_assert_eq!(again.records.len(), found.records.len() + 1);
    prop_assert_eq!(again.recovered.damages.is_empty(), found.recovered.damages.is_empty());
    prop_assert_eq!(again.recovered.doubts.has_gap(), found.recovered.doubts.has_gap());
    for group in 0..3 {
        let is_suspect = |found: &Found| found.recovered.doubts.is_suspect(GroupId(group));
        prop_assert_eq!(is_suspect(&again), is_suspect(found), "group {}", group);
    }
    Ok(())
}

fn kind() -> impl Strategy<Value = JournalKind> {
    prop_oneof![Just(Synced), Just(Buffered)]
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_flipped_byte_in_what_was_synced_is_damage_or_harmless(kind in kind(), place: prop::sample::Index, flip in 1u8..) {
        never_silent(kind, |_, bytes, end| bytes[place.index(end)] ^= flip)?;
    }

    #[test]
    fn a_lost_sector_in_what_was_synced_is_damage_or_harmless(kind in kind(), place: prop::sample::Index) {
        never_silent(kind, |_, bytes, end| {
            let sector = place.index(end / 512) * 512;
            bytes[sector..sector + 512].fill(0);
        })?;
    }

    #[test]
    fn a_misplaced_block_in_what_was_synced_is_damage_or_harmless(kind in kind(), from: prop::sample::Index, to: prop::sample::Index) {
        never_silent(kind, |_, bytes, end| {
            let (from, to) = (from.index(end / BLOCK_BYTES) * BLOCK_BYTES, to.index(end / BLOCK_BYTES) * BLOCK_BYTES);
            bytes.copy_within(from..from + BLOCK_BYTES, to);
        })?;
    }

    #[test]
    fn a_file_that_lost_its_end_is_damage_or_harmless(kind in kind(), place: prop::sample::Index) {
        // With its header gone too, the newest file cannot be told from one that was never used.
        never_silent(kind, |_, bytes, end| bytes.truncate(BLOCK_BYTES + place.index(end - BLOCK_BYTES)))?;
    }

    #[test]
    fn no_file_of_any_bytes_panics(bytes in prop::collection::vec(any::<u8>(), 0..9000), place: prop::sample::Index, name in 1u64..4) {
        let rig = journal(Synced);
        rig.disk.set_file(&format!("shards/1/synced/{}", file_name(name, 1)), bytes.clone());
        let _ = rig.recover();
        let rig = journal(Synced);
        let path = rig.files()[0].clone();
        rig.change(&path, |file| {
            let at = place.index(file.len());
            let end = (at + bytes.len()).min(file.len());
            file[at..end].copy_from_slice(&bytes[..end - at]);
        });
        let _ = rig.recover();
    }
}

#[test]
fn a_bad_record_that_a_later_write_states_as_synced_is_damage() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let bad = rig.write_blocks(1, 2);
    rig.write_blocks(1, 1);
    rig.flip(&bad.path, bad.offset + 3000);
    let damage = rig.damage();
    assert_eq!((damage.file, damage.offset), (bad.path, bad.offset));
    assert_eq!(damage.lost, Lost::Records(Sequence(2), Sequence(2)));
}

#[test]
fn damage_says_where_what_how_much_and_what_to_do() {
    let mut rig = Rig::new(Synced);
    let bad = rig.write_blocks(1, 2);
    rig.mark();
    rig.flip(&bad.path, bad.offset + 3000);
    let damage = rig.damage();
    assert_eq!(
        RecoveryError::Damage(damage).to_string(),
        "shards/1/synced/0000000001-00000000000000000001.journal is damaged at offset 4096: record 1 does not match its \
         body's CRC. The records 1 to 1 are lost, which had been confirmed. Keep the files as they are, and \
         restore the data directory from a copy"
    );
}

#[test]
fn a_mark_makes_the_last_write_certain() {
    let mut rig = Rig::new(Synced);
    let write = rig.write_blocks(1, 1);
    rig.flip(&write.path, write.offset);
    assert!(rig.recover().is_ok(), "rot in the last write cannot be told from a tear");
    let mut rig = Rig::new(Synced);
    let write = rig.write_blocks(1, 1);
    rig.mark();
    rig.flip(&write.path, write.offset);
    assert_eq!(rig.damage().lost, Lost::Records(Sequence(1), Sequence(1)));
}

#[test]
fn anything_bad_before_an_end_mark_is_damage() {
    for kind in [Synced, Buffered] {
        let mut rig = Rig::new(kind);
        let write = rig.write_blocks(1, 1);
        if kind == Buffered {
            rig.sync();
        }
        rig.writer.end();
        rig.write();
        rig.flip(&write.path, write.offset);
        assert_eq!(rig.damage().lost, Lost::Records(Sequence(1), Sequence(1)), "{kind}");
    }
}

#[test]
fn a_bad_write_at_the_end_of_a_file_is_damage_once_the_next_file_is_there() {
    let mut rig = Rig::new(Synced);
    for blocks in [4, 4, 4] {
        rig.write_blocks(1, blocks);
    }
    let bad = rig.write_blocks(1, 3);
    rig.append(1, 10);
    prepare(&rig.disk, &mut rig.writer);
    let next = rig.writer.start_write(rig.now).unwrap();
    next.execute(&rig.disk).unwrap();
    rig.change(&next.path, |bytes| bytes[BLOCK_BYTES..].fill(0));
    rig.flip(&bad.path, bad.offset + 100);
    let damage = rig.damage();
    let lost = Lost::Records(Sequence(4), Sequence(4));
    assert_eq!((damage.file, damage.offset, damage.lost), (bad.path, bad.offset, lost));
}

#[test]
fn a_missing_file_is_damage_wherever_it_was() {
    for (index, missing) in ["0000000001-", "0000000002-"].into_iter().enumerate() {
        let rig = journal(Synced);
        let path = rig.files().into_iter().find(|path| path.contains(missing)).unwrap();
        rig.disk.remove(&path).unwrap();
        let damage = rig.damage();
        let next = format!("{:010}", index + 2);
        assert!(damage.file.contains(&next) || damage.file.contains("0000000003"), "{damage}");
    }
}

#[test]
fn a_short_file_is_damage() {
    let rig = journal(Synced);
    for path in rig.files().iter().filter(|path| path.ends_with(".journal")) {
        let before = rig.disk.file(path).unwrap();
        rig.change(path, |bytes| bytes.truncate(FILE_BYTES as usize - 1));
        let damage = rig.damage();
        assert_eq!((&*damage.file, damage.offset), (path.as_str(), FILE_BYTES - 1));
        rig.disk.set_file(path, before);
    }
}

#[test]
fn a_bad_file_header_is_damage_if_anything_was_written_behind_it_or_after_it() {
    let rig = journal(Synced);
    for path in rig.files().iter().filter(|path| path.ends_with(".journal")) {
        rig.flip(path, 40);
        let damage = rig.damage();
        assert_eq!((&*damage.file, damage.offset), (path.as_str(), 0));
        rig.flip(path, 40);
    }
}

#[test]
fn a_file_under_another_name_is_damage() {
    let mut rig = Rig::new(Synced);
    let write = rig.write_blocks(1, 1);
    let other = rig.config.path(&file_name(1, 2));
    rig.disk.rename(&write.path, &other).unwrap();
    assert_eq!(rig.damage().file, other);
}

#[test]
fn a_group_whose_records_do_not_count_on_is_damage() {
    let mut rig = Rig::new(Synced);
    rig.write_blocks(1, 1);
    let mut position = rig.recover().unwrap().recovered.position;
    position.counters.insert(GroupId(1), 7);
    rig.writer = JournalWriter::new(rig.config.clone(), position);
    rig.write_blocks(1, 1);
    assert!(rig.damage().what.contains("number 8 of group 1"));
}

#[test]
fn a_buffered_tail_that_a_sync_had_confirmed_is_damage() {
    let mut rig = Rig::new(Buffered);
    let bad = rig.write_blocks(1, 1);
    rig.write_blocks(1, 1);
    rig.sync();
    rig.write_blocks(1, 1);
    rig.flip(&bad.path, bad.offset + 100);
    assert_eq!(rig.damage().lost, Lost::Records(Sequence(1), Sequence(1)));
}

/// Writes with the groups of one record each, and a mark that states them.
fn written(groups: &[u64]) -> (Rig, Vec<JournalWrite>) {
    let mut rig = Rig::new(Synced);
    let writes = groups.iter().map(|group| rig.write_blocks(*group, 1)).collect();
    rig.mark();
    (rig, writes)
}

fn suspects(found: &Found) -> Vec<u64> {
    (1..=4).filter(|group| found.recovered.doubts.is_suspect(GroupId(*group))).collect()
}

#[test]
fn behind_damage_the_journal_goes_on() {
    let (rig, writes) = written(&[1, 2, 1, 2]);
    rig.flip(&writes[1].path, writes[1].offset + 3000);
    let found = rig.recover().unwrap();
    assert_eq!(sequences(&found), [1, 3, 4]);
    assert_eq!(found.recovered.position.next_sequence(), Sequence(5));
}

#[test]
fn the_next_number_of_a_group_proves_that_nothing_of_it_was_lost() {
    // 1 and 3 go on with their next number, 2 does not; nobody can tell whether there was more of 4.
    let (rig, writes) = written(&[1, 2, 4, 3, 2, 1, 2, 3]);
    rig.flip(&writes[4].path, writes[4].offset + 3000);
    let found = rig.recover().unwrap();
    assert_eq!(suspects(&found), [2, 4]);
    assert!(found.recovered.doubts.has_gap());
}

#[test]
fn a_group_that_begins_behind_a_gap_is_whole_if_it_begins_with_its_first_record() {
    let (rig, writes) = written(&[1, 2, 2, 3]);
    rig.flip(&writes[1].path, writes[1].offset + 3000);
    assert_eq!(suspects(&rig.recover().unwrap()), [1, 2, 4], "3 had nothing before, 4 may have been there");
}

#[test]
fn damage_with_nothing_behind_it_makes_every_group_suspect_for_good() {
    let (mut rig, writes) = written(&[1, 2, 1]);
    rig.flip(&writes[2].path, writes[2].offset + 3000);
    for _ in 0..3 {
        let (next, found) = rig.restart();
        assert_eq!((sequences(&found)[..2].to_vec(), suspects(&found)[..2].to_vec()), (vec![1, 2], vec![1, 2]));
        rig = next;
        rig.write_blocks(3, 1);
    }
    assert_eq!(sequences(&rig.recover().unwrap()), [1, 2, 4, 5, 6]);
}

#[test]
fn a_bad_header_costs_no_record() {
    let (mut rig, _) = written(&[1, 2]);
    let path = rig.files().into_iter().find(|path| path.ends_with(".journal")).unwrap();
    (rig, _) = rig.restart();
    rig.write_blocks(1, 1);
    rig.flip(&path, 40);
    let found = rig.recover().unwrap();
    assert_eq!((sequences(&found), suspects(&found)), (vec![1, 2, 3], vec![]));
    assert_eq!(found.recovered.damages[0].lost, Lost::Nothing);
}

#[test]
fn who_is_suspect_stays_so_where_nobody_knows_how_much_is_lost() {
    let (mut rig, writes) = written(&[1, 2]);
    let path = &writes[0].path;
    rig.change(path, |bytes| bytes.truncate(writes[1].offset as usize));
    for _ in 0..3 {
        let (next, found) = rig.restart();
        assert_eq!((sequences(&found)[0], suspects(&found)[..2].to_vec()), (1, vec![1, 2]));
        rig = next;
        rig.write_blocks(3, 1);
    }
}

#[test]
fn a_missing_file_is_missed_at_every_start() {
    let mut rig = journal(Synced);
    let first = rig.files().into_iter().find(|path| path.ends_with(".journal")).unwrap();
    rig.disk.remove(&first).unwrap();
    for _ in 0..3 {
        let (next, found) = rig.restart();
        assert!(found.recovered.damages[0].what.contains("files from 1 on are needed"));
        assert!([0, 1].iter().all(|group| found.recovered.doubts.is_suspect(GroupId(*group))));
        rig = next;
        rig.write_blocks(3, 1);
    }
}
