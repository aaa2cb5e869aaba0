use bytes::Bytes;
use lockgate_storage::disk::{Disk, FileOp};
use lockgate_storage::journal::{self, JournalConfig, JournalIdentity, JournalKind};
use lockgate_wire::{NodeId, ShardId, Uid};

use super::SimDisk;
use crate::rng::Rng;

fn disk(seed: u64) -> SimDisk {
    SimDisk::new(Rng::new(seed))
}

fn bytes(fill: u8, len: usize) -> Bytes {
    Bytes::from(vec![fill; len])
}

fn read(disk: &SimDisk, path: &str) -> Option<Bytes> {
    disk.read(path, 0, usize::MAX).ok()
}

#[test]
fn what_was_synced_with_its_name_survives_a_power_loss() {
    for seed in 0..50 {
        let disk = disk(seed);
        disk.create_directory("a/b").unwrap();
        disk.write("a/b/f", 0, &[bytes(1, 700), bytes(2, 800)]).unwrap();
        disk.sync("a/b/f").unwrap();
        disk.sync_directory("a/b").unwrap();
        disk.write("a/b/f", 0, &[bytes(9, 600)]).unwrap();
        disk.power_loss();
        let left = read(&disk, "a/b/f").unwrap();
        assert_eq!(left.len(), 1500);
        assert_eq!(left[600..], [bytes(1, 100), bytes(2, 800)].concat());
    }
}

#[test]
fn the_death_of_the_process_loses_nothing_that_was_written() {
    let disk = disk(1);
    disk.write("f", 0, &[bytes(1, 5000)]).unwrap();
    disk.crash();
    assert_eq!(read(&disk, "f").unwrap(), bytes(1, 5000));
}

#[test]
fn unsynced_bytes_survive_wholly_partly_or_not_at_all() {
    let (mut whole, mut torn, mut none) = (0, 0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        FileOp::Zero { path: "f".into(), bytes: 4096, written: true }.execute(&disk).unwrap();
        disk.write("f", 0, &[bytes(1, 4096)]).unwrap();
        disk.power_loss();
        let left = read(&disk, "f").unwrap();
        assert_eq!(left.len(), 4096);
        let sectors: Vec<u8> = left.chunks(512).map(|sector| sector.iter().fold(0, |all, byte| all | byte)).collect();
        assert!(left.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "a sector is never torn");
        match sectors.iter().filter(|byte| **byte == 1).count() {
            0 => none += 1,
            8 => whole += 1,
            _ => torn += 1,
        }
    }
    assert!(whole > 20 && torn > 20 && none > 20, "{whole} whole, {torn} torn, {none} lost");
}

#[test]
fn a_name_that_was_not_synced_may_be_lost_and_a_rename_happens_as_a_whole() {
    let (mut renamed, mut old) = (0, 0);
    for seed in 0..100 {
        let disk = disk(seed);
        FileOp::Zero { path: "old".into(), bytes: 512, written: true }.execute(&disk).unwrap();
        disk.rename("old", "new").unwrap();
        assert!(read(&disk, "old").is_none());
        disk.power_loss();
        match (read(&disk, "old"), read(&disk, "new")) {
            (Some(_), None) => old += 1,
            (None, Some(_)) => renamed += 1,
            both => panic!("a rename left {both:?}"),
        }
    }
    assert!(renamed > 10 && old > 10);
}

#[test]
fn syncing_a_file_does_not_sync_its_name() {
    let lost = (0..100).filter(|seed| {
        let disk = disk(*seed);
        disk.write("f", 0, &[bytes(1, 10)]).unwrap();
        disk.sync("f").unwrap();
        disk.power_loss();
        read(&disk, "f").is_none()
    });
    assert!(lost.count() > 20);
}

#[test]
fn a_removed_directory_comes_back_at_most_until_its_parent_is_synced() {
    for seed in 0..50 {
        let disk = disk(seed);
        disk.create_directory("d/e").unwrap();
        FileOp::Zero { path: "d/e/f".into(), bytes: 10, written: true }.execute(&disk).unwrap();
        disk.remove_directory("d/e").unwrap();
        assert!(disk.list("d/e").unwrap_err().is_missing());
        if seed % 2 == 0 {
            disk.sync_directory("d").unwrap();
            disk.power_loss();
            assert!(disk.list("d/e").unwrap_err().is_missing());
            disk.create_directory("d/e").unwrap();
            assert_eq!(disk.list("d/e").unwrap(), []);
        } else {
            disk.power_loss();
            assert!(disk.list("d").unwrap().len() <= 1);
        }
    }
}

#[test]
fn a_directory_whose_making_was_cut_short_may_be_gone_with_the_power_until_it_is_made_again() {
    let (mut made, mut lost) = (0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        disk.cut_after(0);
        disk.create_directory("a/b").unwrap_err();
        disk.crash();
        if disk.list("a/b").is_err() {
            continue;
        }
        made += 1;
        if seed % 2 == 0 {
            disk.create_directory("a/b").unwrap();
        }
        FileOp::Zero { path: "a/b/f".into(), bytes: 10, written: true }.execute(&disk).unwrap();
        disk.power_loss();
        let is_lost = read(&disk, "a/b/f").is_none();
        assert!(!is_lost || seed % 2 == 1);
        lost += u32::from(is_lost);
    }
    assert!(made > 30 && lost > 5, "{made} made, {lost} lost");
}

#[test]
fn a_journals_directory_lasts_once_a_start_has_read_it_whoever_began_to_make_it() {
    for seed in 0..200 {
        let disk = disk(seed);
        let identity = JournalIdentity { cluster: Uid([7; 16]), node: NodeId(1), shard: ShardId(0) };
        let config = JournalConfig::new(JournalKind::Synced, "shards/0/journal".to_owned(), identity);
        disk.cut_after(0);
        disk.create_directory(&config.directory).unwrap_err();
        disk.crash();
        journal::recover(&disk, &config, &mut |_| {}).unwrap();
        disk.power_loss();
        assert_eq!(disk.list(&config.directory), Ok(Vec::new()), "seed {seed}");
    }
}

#[test]
fn a_cut_call_is_torn_and_nothing_follows_it() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let disk = disk(seed);
        disk.write("f", 0, &[bytes(1, 512)]).unwrap();
        disk.cut_after(1);
        disk.write("f", 512, &[bytes(2, 512)]).unwrap();
        assert!(disk.write("f", 1024, &[bytes(3, 2048)]).is_err());
        assert!(disk.is_cut());
        assert!(disk.write("f", 0, &[bytes(4, 4096)]).is_err());
        assert!(disk.read("f", 0, 1).is_err());
        disk.crash();
        let left = read(&disk, "f").unwrap();
        assert_eq!(left[..1024], [bytes(1, 512), bytes(2, 512)].concat());
        assert!(left[1024..].iter().all(|byte| *byte == 3));
        lengths.insert(left.len());
    }
    assert!(lengths.len() > 2, "cut at different places: {lengths:?}");
}

#[test]
fn a_failing_write_says_so_once() {
    let disk = disk(5);
    disk.fail_next_write();
    assert_eq!(disk.write("f", 0, &[bytes(1, 4096)]).unwrap_err().errno, super::EIO);
    assert!(disk.write("f", 0, &[bytes(1, 4096)]).is_ok());
}

#[test]
fn what_a_failed_sync_did_not_save_no_later_sync_saves_and_reads_show_it_until_the_power_goes() {
    let (mut lost, mut torn) = (0, 0);
    for seed in 0..100 {
        let disk = disk(seed);
        FileOp::Zero { path: "f".into(), bytes: 4096, written: true }.execute(&disk).unwrap();
        disk.write("f", 0, &[bytes(1, 4096)]).unwrap();
        disk.fail_sync_after(0);
        assert_eq!(disk.sync("f").unwrap_err().errno, super::EIO);
        disk.crash();
        assert_eq!(read(&disk, "f").unwrap(), bytes(1, 4096), "a new process sees it too");
        disk.write("f", 4096, &[bytes(2, 512)]).unwrap();
        disk.sync("f").unwrap();
        disk.power_loss();
        let left = read(&disk, "f").unwrap();
        assert_eq!(left[4096..], bytes(2, 512), "what was written since is saved by the sync that succeeded");
        let kept = left[..4096].iter().filter(|byte| **byte == 1).count();
        lost += usize::from(kept == 0);
        torn += usize::from((1..4096).contains(&kept));
    }
    assert!(lost > 10 && torn > 10, "{lost} lost, {torn} torn");
}

#[test]
fn after_forgetting_reads_show_what_a_power_loss_would_leave() {
    for seed in 0..50 {
        let disk = disk(seed);
        disk.write("f", 0, &[bytes(1, 3000)]).unwrap();
        disk.fail_sync_after(1);
        disk.sync("f").unwrap();
        disk.sync_directory("").unwrap_err();
        disk.power_loss();
        FileOp::Zero { path: "f".into(), bytes: 3000, written: true }.execute(&disk).unwrap();
        disk.write("f", 1000, &[bytes(2, 4000)]).unwrap();
        disk.fail_sync_after(0);
        disk.sync("f").unwrap_err();
        disk.write("f", 512, &[bytes(3, 512)]).unwrap();
        disk.forget_cached("f").unwrap();
        let shown = read(&disk, "f").unwrap();
        assert_eq!(shown.len(), 5000, "the size is no page");
        assert_eq!(shown[512..1024], bytes(3, 512), "what waits for a sync gets it");
        disk.power_loss();
        let left = read(&disk, "f").unwrap();
        assert_eq!(shown[..left.len()], left);
        assert!(shown[left.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn names_whose_sync_failed_wait_for_the_next_one_or_the_file_system_takes_no_change_until_the_machine_starts_again() {
    let (mut waiting, mut stopped) = (0, 0);
    for seed in 0..50 {
        let disk = disk(seed);
        disk.write("f", 0, &[bytes(1, 512)]).unwrap();
        disk.sync("f").unwrap();
        disk.fail_sync_after(0);
        disk.sync_directory("").unwrap_err();
        disk.crash();
        if disk.is_read_only() {
            stopped += 1;
            assert_eq!(disk.sync_directory("").unwrap_err().errno, super::EROFS);
            assert_eq!(disk.write("g", 0, &[bytes(1, 1)]).unwrap_err().errno, super::EROFS);
            assert_eq!(read(&disk, "f").unwrap(), bytes(1, 512));
            disk.power_loss();
            disk.write("g", 0, &[bytes(1, 1)]).unwrap();
        } else {
            waiting += 1;
            disk.sync_directory("").unwrap();
            disk.power_loss();
            assert_eq!(read(&disk, "f").unwrap(), bytes(1, 512));
        }
    }
    assert!(waiting > 10 && stopped > 10);
}

#[test]
fn a_full_disk_takes_what_there_is_room_for_and_what_needs_none() {
    let disk = disk(1);
    disk.write("f", 0, &[bytes(1, 1000)]).unwrap();
    disk.fill(600);
    assert!(disk.write("f", 900, &[bytes(2, 500), bytes(3, 500)]).unwrap_err().is_full());
    assert_eq!(read(&disk, "f").unwrap(), [bytes(1, 900), bytes(2, 500), bytes(3, 200)].concat());
    disk.write("f", 0, &[bytes(4, 1600)]).unwrap();
    assert!(disk.write("g", 0, &[bytes(1, 1)]).unwrap_err().is_full());
    assert!(disk.create_directory("d").unwrap_err().is_full());
    disk.rename("f", "h").unwrap();
    disk.truncate("h", 1000).unwrap();
    disk.write("g", 0, &[bytes(1, 600)]).unwrap();
    assert!(disk.write("g", 600, &[bytes(1, 1)]).unwrap_err().is_full());
    disk.crash();
    assert!(disk.write("g", 600, &[bytes(1, 1)]).unwrap_err().is_full(), "it is full for the next process too");
    disk.make_room();
    disk.write("g", 600, &[bytes(1, 4096)]).unwrap();
}

#[test]
fn missing_things_are_said_to_be_missing() {
    let disk = disk(1);
    assert!(disk.read("f", 0, 1).unwrap_err().is_missing());
    assert!(disk.write("d/f", 0, &[]).unwrap_err().is_missing());
    assert!(disk.remove("f").unwrap_err().is_missing());
    assert!(disk.list("d").unwrap_err().is_missing());
    assert_eq!(disk.list("").unwrap(), []);
}
