//! The journal thread's files against the meaning that storage gives a write.

use bytes::Bytes;
use lockgate_storage::disk::{Disk, FileOp};
use lockgate_storage::journal::{DataWrite, JournalKind, JournalWrite, OpenFile, Sequence};

use super::journal_thread::{JournalFiles, WriteMode, probe};
use super::*;

const BLOCK: usize = 4096;

fn disk() -> (tempfile::TempDir, Arc<RealDisk>) {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::new(directory.path()));
    disk.create_directory("j").unwrap();
    for n in 1..=2 {
        // Recycled files are full of what they held before.
        disk.write(&format!("j/free-{n}"), 0, &[Bytes::from(vec![0xAA; 32 * BLOCK])]).unwrap();
    }
    (directory, disk)
}

fn write(path: &str, free: Option<&str>, offset: usize, pieces: &[usize], sync: bool) -> JournalWrite {
    let bytes: usize = pieces.iter().sum();
    JournalWrite {
        kind: if sync { JournalKind::Synced } else { JournalKind::Buffered },
        data: Vec::new(),
        path: path.into(),
        open: free.map(|free| OpenFile { free: free.into(), header: Bytes::from(vec![b'h'; BLOCK]) }),
        offset: offset as u64,
        pieces: pieces.iter().map(|len| Bytes::from(vec![b'a' + (*len % 26) as u8; *len])).collect(),
        bytes: bytes.next_multiple_of(BLOCK),
        sync,
        last: Sequence(1),
    }
}

/// Data at the end of a file that has this much.
fn data(path: &str, blocks: usize, pieces: &[usize]) -> DataWrite {
    DataWrite {
        path: path.into(),
        offset: (blocks * BLOCK) as u64,
        pieces: pieces.iter().map(|len| Bytes::from(vec![b'A' + (*len % 26) as u8; *len])).collect(),
        bytes: pieces.iter().sum(),
        is_whole: blocks == 0,
        is_new: blocks < 2,
    }
}

#[test]
fn data_for_other_files_is_the_same_whichever_way_it_is_written_and_read() {
    let (_reference, expected) = disk();
    let small = Bytes::from_static(b"a small batch that was flushed");
    let with_data = || {
        let ahead = vec![data("j/log-1", 1, &[48, 5000, 3144]), data("j/log-2", 0, &[BLOCK])];
        let first = JournalWrite { data: ahead, ..write("j/1", Some("j/free-1"), BLOCK, &[BLOCK], true) };
        let ahead = vec![data("j/log-1", 0, &[]), data("j/log-2", 1, &[70_000, 3728])];
        [first, JournalWrite { data: ahead, ..write("j/1", None, 2 * BLOCK, &[BLOCK], true) }]
    };
    let carry_out = |disk: &RealDisk, execute: &mut dyn FnMut(&JournalWrite)| {
        disk.write("j/log-1", 0, std::slice::from_ref(&small)).unwrap();
        for write in with_data() {
            assert!(disk.read("j/log-1", 0, 1).unwrap() == small[..1], "somebody reads meanwhile");
            execute(&write);
        }
    };
    carry_out(&expected, &mut |write| write.execute(&*expected).unwrap());
    for mode in [WriteMode::Direct, WriteMode::Buffered] {
        let (_directory, disk) = disk();
        if mode == WriteMode::Direct && probe(&disk).unwrap() != mode {
            eprintln!("this file system takes no direct writes: only the other way is tested");
            continue;
        }
        let mut files = JournalFiles::new(disk.clone(), mode);
        carry_out(&disk, &mut |write| files.execute(write).unwrap());
        assert_eq!(disk.list("j").unwrap(), expected.list("j").unwrap());
        for name in ["j/1", "j/log-1", "j/log-2"] {
            assert!(
                disk.read(name, 0, 64 * BLOCK).unwrap() == expected.read(name, 0, 64 * BLOCK).unwrap(),
                "{name} {mode}"
            );
        }
    }
}

fn writes(sync: bool) -> Vec<JournalWrite> {
    vec![
        write("j/1", Some("j/free-1"), BLOCK, &[100, 0, 5000, 3], sync),
        write("j/1", None, 3 * BLOCK, &[BLOCK], sync),
        write("j/2", Some("j/free-2"), BLOCK, &[1], sync),
        write("j/2", None, 2 * BLOCK, &[70_000, 11], sync),
    ]
}

#[test]
fn every_way_of_writing_leaves_the_same_files_padded_with_zeros() {
    for sync in [true, false] {
        let (_reference, expected) = disk();
        for mut write in writes(sync) {
            let used: usize = write.pieces.iter().map(Bytes::len).sum();
            write.pieces.push(Bytes::from(vec![0; write.bytes - used]));
            write.execute(&*expected).unwrap();
        }
        for mode in [WriteMode::Direct, WriteMode::Buffered] {
            let (_directory, disk) = disk();
            if mode == WriteMode::Direct && probe(&disk).unwrap() != mode {
                eprintln!("this file system takes no direct writes: only the other way is tested");
                continue;
            }
            let mut files = JournalFiles::new(disk.clone(), mode);
            for write in writes(sync) {
                files.execute(&write).unwrap();
            }
            assert_eq!(disk.list("j").unwrap(), expected.list("j").unwrap());
            for name in ["j/1", "j/2"] {
                assert!(
                    disk.read(name, 0, 64 * BLOCK).unwrap() == expected.read(name, 0, 64 * BLOCK).unwrap(),
                    "{name} {mode} {sync}"
                );
            }
        }
    }
}

#[test]
fn a_journal_file_that_is_open_already_is_found_again_after_a_restart() {
    let (_directory, disk) = disk();
    JournalFiles::new(disk.clone(), WriteMode::Buffered).execute(&writes(true)[0]).unwrap();
    JournalFiles::new(disk.clone(), WriteMode::Buffered).execute(&writes(true)[1]).unwrap();
    assert_eq!(disk.read("j/1", 3 * BLOCK as u64, 1).unwrap()[0], b'a' + (BLOCK % 26) as u8);
}

#[test]
fn a_write_that_fails_says_where() {
    let (_directory, disk) = disk();
    let error = JournalFiles::new(disk, WriteMode::Buffered)
        .execute(&write("j/9", Some("j/free-9"), BLOCK, &[1], true))
        .unwrap_err();
    assert!(error.is_missing() && error.stage == "open" && &*error.path == "j/free-9", "{error}");
}

#[test]
fn the_probe_leaves_nothing_behind() {
    let (directory, disk) = disk();
    probe(&disk).unwrap();
    let names: Vec<_> = disk.list("").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["j"]);
    drop(directory);
}

#[test]
fn a_file_made_with_zeros_and_opened_is_not_the_next_file_of_its_old_name() {
    let (_directory, disk) = disk();
    let zero = FileOp::Zero { path: "j/free-3".into(), bytes: 16 * BLOCK as u64, written: true };
    zero.execute(&*disk).unwrap();
    JournalFiles::new(disk.clone(), WriteMode::Buffered)
        .execute(&write("j/3", Some("j/free-3"), BLOCK, &[10], true))
        .unwrap();
    zero.execute(&*disk).unwrap();
    assert_eq!(disk.read("j/3", 0, 1).unwrap(), "h", "the live file was not written over");
    assert_eq!(disk.read("j/free-3", 0, 1).unwrap(), "\0");
}
