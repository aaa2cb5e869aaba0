//! A disk in memory, for tests of this crate and of those above it. It keeps everything it is given and loses nothing:
//! the disk that crashes, tears and rots is the simulator's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Disk, DiskError, DiskResult, Entry, parent};

/// Files and directories in memory. Shared by reference; every call is atomic.
#[derive(Default, Debug)]
pub struct MemoryDisk {
    tree: Mutex<Tree>,
}

#[derive(Clone, Default, Debug)]
struct Tree {
    files: BTreeMap<String, Vec<u8>>,
    directories: BTreeSet<String>,
}

impl Clone for MemoryDisk {
    /// A copy with the same bytes, on its own from now on.
    fn clone(&self) -> Self {
        Self { tree: Mutex::new(self.tree().clone()) }
    }
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// All bytes of a file, if it is there.
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        self.tree().files.get(path).cloned()
    }

    /// Puts a file there as a whole, with the directories above it.
    pub fn set_file(&self, path: &str, bytes: Vec<u8>) {
        let mut tree = self.tree();
        tree.make_directories(parent(path));
        tree.files.insert(path.to_owned(), bytes);
    }

    /// The paths of all files, in order.
    pub fn paths(&self) -> Vec<String> {
        self.tree().files.keys().cloned().collect()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || self.directories.contains(path)
    }

    fn make_directories(&mut self, path: &str) {
        let mut rest = path;
        while !rest.is_empty() {
            self.directories.insert(rest.to_owned());
            rest = parent(rest);
        }
    }

    fn existing(&mut self, stage: &'static str, path: &str) -> DiskResult<&mut Vec<u8>> {
        self.files.get_mut(path).ok_or_else(|| missing(stage, path))
    }
}

fn missing(stage: &'static str, path: &str) -> DiskError {
    DiskError { stage, path: path.into(), errno: DiskError::ENOENT, message: "no such file or directory".into() }
}

impl Disk for MemoryDisk {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        let tree = self.tree();
        if !tree.has_directory(directory) {
            return Err(missing("list", directory));
        }
        let inside = |path: &String| path.as_str() != directory && parent(path) == directory;
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let files = tree.files.iter().filter(|(path, _)| inside(path)).map(|(path, bytes)| Entry {
            name: name(path),
            bytes: bytes.len() as u64,
            is_directory: false,
        });
        let directories = tree.directories.iter().filter(|path| inside(path)).map(|path| Entry {
            name: name(path),
            bytes: 0,
            is_directory: true,
        });
        let mut entries: Vec<Entry> = files.chain(directories).collect();
        entries.sort();
        Ok(entries)
    }

    fn size(&self, path: &str) -> DiskResult<u64> {
        Ok(self.tree().existing("size", path)?.len() as u64)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        let mut tree = self.tree();
        let file = tree.existing("read", path)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let end = start.saturating_add(len).min(file.len());
        Ok(Bytes::copy_from_slice(&file[start..end]))
    }

    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        let mut tree = self.tree();
        if !tree.has_directory(parent(path)) {
            return Err(missing("write", path));
        }
        let file = tree.files.entry(path.to_owned()).or_default();
        let mut at = offset as usize;
        for piece in pieces {
            let end = at + piece.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[at..end].copy_from_slice(piece);
            at = end;
        }
        Ok(())
    }

    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()> {
        self.tree().existing("truncate", path)?.resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self, path: &str) -> DiskResult<()> {
        self.tree().existing("sync", path).map(|_| ())
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        let mut tree = self.tree();
        if !tree.has_directory(parent(to)) {
            return Err(missing("rename", to));
        }
        let bytes = tree.files.remove(from).ok_or_else(|| missing("rename", from))?;
        tree.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&self, path: &str) -> DiskResult<()> {
        self.tree().files.remove(path).map(|_| ()).ok_or_else(|| missing("remove", path))
    }

    fn remove_directory(&self, path: &str) -> DiskResult<()> {
        let mut tree = self.tree();
        if !tree.directories.remove(path) {
            return Err(missing("remove", path));
        }
        let inside = format!("{path}/");
        tree.files.retain(|file, _| !file.starts_with(&inside));
        tree.directories.retain(|directory| !directory.starts_with(&inside));
        Ok(())
    }

    fn create_directory(&self, path: &str) -> DiskResult<()> {
        self.tree().make_directories(path);
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> DiskResult<()> {
        if self.tree().has_directory(path) { Ok(()) } else { Err(missing("sync", path)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FileOp;

    #[test]
    fn what_was_written_is_read_and_holes_are_zero() {
        let disk = MemoryDisk::new();
        disk.create_directory("a/b").unwrap();
        disk.write("a/b/f", 2, &[Bytes::from_static(b"xy"), Bytes::from_static(b"z")]).unwrap();
        assert_eq!(disk.read("a/b/f", 0, 100).unwrap(), &b"\0\0xyz"[..]);
        assert_eq!(disk.read("a/b/f", 9, 1).unwrap(), &b""[..]);
        assert_eq!(disk.list("a").unwrap(), [Entry { name: "b".into(), bytes: 0, is_directory: true }]);
        assert_eq!(disk.list("a/b").unwrap(), [Entry { name: "f".into(), bytes: 5, is_directory: false }]);
    }

    #[test]
    fn what_is_not_there_is_said_to_be_missing() {
        let disk = MemoryDisk::new();
        assert!(disk.list("a").unwrap_err().is_missing());
        assert!(disk.write("a/f", 0, &[]).unwrap_err().is_missing());
        assert!(disk.rename("f", "g").unwrap_err().is_missing());
        assert!(disk.remove_directory("a").unwrap_err().is_missing());
        disk.set_file("a/b/f", vec![1]);
        disk.remove_directory("a").unwrap();
        assert!(disk.size("a/b/f").unwrap_err().is_missing());
    }

    #[test]
    fn a_replacement_leaves_no_temporary_file() {
        let disk = MemoryDisk::new();
        disk.set_file("d/f", vec![9; 10]);
        let pieces = vec![Bytes::from_static(b"new")];
        FileOp::Replace { path: "d/f".into(), pieces }.execute(&disk).unwrap();
        assert_eq!(disk.paths(), ["d/f"]);
        assert_eq!(disk.file("d/f").unwrap(), b"new");
    }
}
