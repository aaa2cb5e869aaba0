use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::*;
use lockgate_storage::disk::FileOp;
use lockgate_storage::disk::memory::MemoryDisk;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// What every disk must do. Crashes are not part of it: only the simulated disk can have one.
fn conforms(disk: &dyn Disk) {
    assert!(disk.list("a").unwrap_err().is_missing());
    assert!(disk.read("a/file", 0, 1).unwrap_err().is_missing());
    disk.create_directory("a/b").unwrap();
    disk.create_directory("a/b").unwrap();

    disk.write("a/file", 0, &[bytes("one"), Bytes::new(), bytes("two")]).unwrap();
    assert_eq!(disk.size("a/file").unwrap(), 6);
    assert_eq!(disk.read("a/file", 2, 3).unwrap(), "etw");
    assert_eq!(disk.read("a/file", 4, 100).unwrap(), "wo", "a read is short only at the end");
    assert_eq!(disk.read("a/file", 6, 1).unwrap(), "");
    assert_eq!(disk.read("a/file", 100, 1).unwrap(), "");
    assert_eq!(disk.read("a/file", 0, 1 << 60).unwrap(), "onetwo", "asking for much costs no memory");

    disk.write("a/file", 8, &[bytes("x")]).unwrap();
    assert_eq!(disk.read("a/file", 5, 9).unwrap(), "o\0\0x", "a gap is zeros");
    disk.truncate("a/file", 2).unwrap();
    disk.truncate("a/file", 4).unwrap();
    assert_eq!(disk.read("a/file", 0, 9).unwrap(), "on\0\0", "what was cut does not come back");
    disk.sync("a/file").unwrap();
    disk.forget_cached("a/file").unwrap();
    assert_eq!(disk.read("a/file", 0, 9).unwrap(), "on\0\0", "what was synced is not forgotten");
    assert_eq!(
        (disk.reread("a/file", 1, 9).unwrap(), disk.reread("a/file", 4, 1).unwrap()),
        (bytes("n\0\0"), bytes(""))
    );
    assert!(disk.reread("a/nothing", 0, 9).unwrap_err().is_missing());
    disk.sync_directory("a").unwrap();

    disk.write("a/other", 0, &[bytes("other")]).unwrap();
    disk.rename("a/other", "a/file").unwrap();
    assert_eq!(disk.read("a/file", 0, 9).unwrap(), "other", "a rename replaces");
    assert!(disk.read("a/other", 0, 9).unwrap_err().is_missing());
    assert!(disk.rename("a/other", "a/b/x").unwrap_err().is_missing());
    let names: Vec<_> = disk.list("a").unwrap().into_iter().map(|e| (e.name, e.bytes, e.is_directory)).collect();
    assert_eq!(names, [("b".to_owned(), 0, true), ("file".to_owned(), 5, false)]);

    disk.remove("a/file").unwrap();
    assert!(disk.remove("a/file").unwrap_err().is_missing());
    assert!(disk.sync("a/file").unwrap_err().is_missing());
    assert!(disk.truncate("a/file", 1).unwrap_err().is_missing());
    assert!(disk.size("a/file").unwrap_err().is_missing());
    disk.write("a/b/deep", 0, &[bytes("deep")]).unwrap();
    disk.remove_directory("a").unwrap();
    assert!(disk.remove_directory("a").unwrap_err().is_missing());
    assert!(disk.read("a/b/deep", 0, 1).unwrap_err().is_missing());
}

fn real() -> (tempfile::TempDir, RealDisk) {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(directory.path());
    (directory, disk)
}

#[test]
fn the_real_disk_does_what_every_disk_must() {
    conforms(&real().1);
}

#[test]
fn the_disk_in_memory_that_other_tests_use_does_the_same() {
    conforms(&MemoryDisk::default());
}

#[test]
fn planned_operations_leave_whole_files() {
    let (_directory, disk) = real();
    FileOp::CreateDirectory { path: "p".into() }.execute(&disk).unwrap();
    FileOp::Replace { path: "p/state".into(), pieces: vec![bytes("a long first state")] }.execute(&disk).unwrap();
    FileOp::Replace { path: "p/state".into(), pieces: vec![bytes("short")] }.execute(&disk).unwrap();
    assert_eq!(disk.read("p/state", 0, 99).unwrap(), "short");
    FileOp::Zero { path: "p/zeros".into(), bytes: 3 << 20, written: true }.execute(&disk).unwrap();
    assert_eq!(disk.size("p/zeros").unwrap(), 3 << 20);
    assert_eq!(disk.list("p").unwrap().len(), 2, "nothing temporary stays");
}

#[test]
fn a_handle_never_follows_its_file_to_another_name() {
    let (_directory, disk) = real();
    disk.write("free", 0, &[bytes("old")]).unwrap();
    disk.rename("free", "live").unwrap();
    disk.write("free", 0, &[bytes("new")]).unwrap();
    assert_eq!(disk.read("live", 0, 9).unwrap(), "old");
    assert_eq!(disk.read("free", 0, 9).unwrap(), "new");
    disk.rename("free", "live").unwrap();
    assert_eq!(disk.read("live", 0, 9).unwrap(), "new");
}

#[test]
fn open_files_are_bounded() {
    let (_directory, disk) = real();
    for n in 0..disk.max_open_files() + 10 {
        disk.write(&format!("f{n}"), 0, &[bytes("x")]).unwrap();
        disk.read("f0", 0, 1).unwrap();
    }
    assert_eq!(disk.handles.count(), disk.max_open_files());
    fs::remove_file(disk.root.join("f0")).unwrap();
    assert_eq!(disk.read("f0", 0, 1).unwrap(), "x", "the file in use stayed open");
}

#[test]
fn a_removed_file_keeps_its_bytes_for_who_has_it_open_or_by_another_name() {
    let (_directory, disk) = real();
    let len = 3 * FREED_AT_ONCE_BYTES + 1;
    for name in ["read", "linked", "alone"] {
        disk.reserve(name, len).unwrap();
        disk.write(name, len - 1, &[bytes("x")]).unwrap();
    }
    let reader = disk.handle("read", "read", false).unwrap();
    fs::hard_link(disk.root.join("linked"), disk.root.join("copy")).unwrap();
    // Another way to the same bytes that `remove` cannot know of, to see what it leaves of them.
    let alone = File::open(disk.root.join("alone")).unwrap();
    ["read", "linked", "alone"].iter().for_each(|name| disk.remove(name).unwrap());
    assert_eq!(read_full_at(&reader, len - 1, 9).unwrap(), b"x");
    assert_eq!(disk.read("copy", len - 1, 9).unwrap(), "x");
    assert_eq!(alone.metadata().unwrap().len(), 1, "its blocks were given back in parts");
    assert!(disk.read("alone", 0, 1).unwrap_err().is_missing());
}

#[test]
fn a_directory_goes_with_whatever_is_in_it() {
    let (_directory, disk) = real();
    disk.create_directory("d/e").unwrap();
    let len = 3 * FREED_AT_ONCE_BYTES + 1;
    disk.reserve("d/large", len).unwrap();
    disk.write("d/e/small", 0, &[bytes("x")]).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"d/\xff");
    File::create(disk.root.join(name)).unwrap();
    disk.remove_directory("d").unwrap();
    assert!(!disk.root.join("d").exists());
    disk.create_directory("d").unwrap();
    disk.reserve("d/large", len).unwrap();
    let large = File::open(disk.root.join("d/large")).unwrap();
    disk.remove_directory("d").unwrap();
    assert_eq!(large.metadata().unwrap().len(), 1, "in parts");
    assert!(disk.remove_directory("d").unwrap_err().is_missing());
}

#[test]
fn a_file_in_use_stays_among_the_open_ones() {
    let (_directory, disk) = real();
    disk.write("used", 0, &[bytes("x")]).unwrap();
    let used = disk.handle("read", "used", false).unwrap();
    (0..disk.max_open_files()).for_each(|n| disk.write(&format!("f{n}"), 0, &[bytes("x")]).unwrap());
    assert_eq!(Arc::strong_count(&used), 2, "so that a removal knows that it is in use");
    disk.remove("used").unwrap();
    assert_eq!((Arc::strong_count(&used), read_full_at(&used, 0, 9).unwrap()), (1, b"x".to_vec()));
}

#[test]
fn more_pieces_than_the_kernel_takes_at_once_are_written_in_order() {
    let (_directory, disk) = real();
    let pieces: Vec<Bytes> = (0..3 * MAX_SLICES + 1).map(|n| bytes(&format!("{n},"))).collect();
    disk.write("many", 0, &pieces).unwrap();
    assert_eq!(disk.read("many", 0, 1 << 20).unwrap(), pieces.concat());
}

#[test]
fn a_path_out_of_the_data_directory_is_refused() {
    let (_directory, disk) = real();
    for path in ["../x", "a/../../x", "/etc/passwd", "./x"] {
        assert_eq!(disk.read(path, 0, 1).unwrap_err().errno, INVALID, "{path}");
    }
}

#[test]
fn an_error_carries_errno_stage_and_file() {
    let (_directory, disk) = real();
    let error = disk.write("missing/file", 0, &[bytes("x")]).unwrap_err();
    assert_eq!((error.stage, &*error.path, error.errno), ("open", "missing/file", DiskError::ENOENT));
    assert_eq!(error.to_string(), "open of missing/file failed: No such file or directory (errno 2)");
}
