//! A disk in memory whose operations can be made to fail.

use std::sync::Mutex;

use bytes::Bytes;
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_storage::disk::{Disk, DiskError, DiskResult, Entry};

/// Operations of this stage on paths with this text fail with this number.
#[derive(Clone, Debug)]
struct Fault {
    stage: &'static str,
    path: String,
    errno: i32,
}

/// A write to a journal that no sync has followed, and what it wrote over.
struct Unsynced {
    path: String,
    offset: u64,
    before: Bytes,
}

/// See the module.
#[derive(Default)]
pub struct FaultyDisk {
    pub memory: MemoryDisk,
    faults: Mutex<Vec<Fault>>,
    /// Calls until every call fails, as those of a process that is gone.
    calls_left: Mutex<Option<u64>>,
    unsynced: Mutex<Vec<Unsynced>>,
}

impl FaultyDisk {
    /// A copy of the bytes, with nothing that fails.
    pub fn copy(&self) -> Self {
        Self { memory: self.memory.clone(), ..Self::default() }
    }

    /// From now on, operations of `stage` (`write`, `sync`, `read`, …; `grow` is a write that needs room) on paths that
    /// contain `path` fail.
    pub fn fail(&self, stage: &'static str, path: &str, errno: i32) {
        self.faults.lock().unwrap().push(Fault { stage, path: path.into(), errno });
    }

    /// After so many more calls all fail.
    pub fn cut_after(&self, calls: u64) {
        *self.calls_left.lock().unwrap() = Some(calls);
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        *self.calls_left.lock().unwrap() = None;
        self.faults.lock().unwrap().clear();
    }

    /// The power goes: what was written to journals and not synced never reached the device.
    pub fn lose_unsynced(&self) {
        for write in self.unsynced.lock().unwrap().drain(..).rev() {
            self.memory.write(&write.path, write.offset, &[write.before]).unwrap();
        }
    }

    /// The files whose path contains this.
    pub fn files(&self, path: &str) -> Vec<String> {
        self.memory.paths().into_iter().filter(|file| file.contains(path)).collect()
    }

    /// Puts the files whose path contains `path` back to what they were in `earlier`: what was written since then never
    /// reached the device.
    pub fn lose_since(&self, earlier: &FaultyDisk, path: &str) {
        for file in self.files(path) {
            match earlier.memory.file(&file) {
                Some(bytes) => self.memory.set_file(&file, bytes),
                None => self.memory.remove(&file).unwrap(),
            }
        }
        for file in earlier.files(path) {
            self.memory.set_file(&file, earlier.memory.file(&file).unwrap());
        }
    }

    fn check(&self, stage: &'static str, path: &str) -> DiskResult<()> {
        if let Some(left) = &mut *self.calls_left.lock().unwrap() {
            let error = || DiskError { stage, path: path.into(), errno: 0, message: "the process is gone".into() };
            *left = left.checked_sub(1).ok_or_else(error)?;
        }
        let faults = self.faults.lock().unwrap();
        match faults.iter().find(|fault| fault.stage == stage && path.contains(&fault.path)) {
            Some(fault) => {
                Err(DiskError { stage, path: path.into(), errno: fault.errno, message: "made to fail".into() })
            }
            None => Ok(()),
        }
    }
}

impl Disk for FaultyDisk {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        self.check("list", directory)?;
        self.memory.list(directory)
    }
    fn size(&self, path: &str) -> DiskResult<u64> {
        self.memory.size(path)
    }
    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        self.check("read", path)?;
        self.memory.read(path, offset, len)
    }
    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        self.check("write", path)?;
        let end = offset + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        if self.memory.size(path).unwrap_or(0) < end {
            self.check("grow", path)?;
        } else if path.contains("/journal") || path.contains("/buffered") {
            let before = self.memory.read(path, offset, (end - offset) as usize)?;
            self.unsynced.lock().unwrap().push(Unsynced { path: path.into(), offset, before });
        }
        self.memory.write(path, offset, pieces)
    }
    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()> {
        self.check("truncate", path)?;
        self.memory.truncate(path, bytes)
    }
    fn sync(&self, path: &str) -> DiskResult<()> {
        self.check("sync", path)?;
        self.unsynced.lock().unwrap().retain(|write| write.path != path);
        self.memory.sync(path)
    }
    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.check("rename", from)?;
        self.memory.rename(from, to)
    }
    fn remove(&self, path: &str) -> DiskResult<()> {
        self.check("remove", path)?;
        self.memory.remove(path)
    }
    fn remove_directory(&self, path: &str) -> DiskResult<()> {
        self.check("remove_directory", path)?;
        self.memory.remove_directory(path)
    }
    fn create_directory(&self, path: &str) -> DiskResult<()> {
        self.check("create_directory", path)?;
        self.memory.create_directory(path)
    }
    fn sync_directory(&self, path: &str) -> DiskResult<()> {
        self.memory.sync_directory(path)
    }
}
