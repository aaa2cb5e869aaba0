//! A disk on which changes stay in memory: what a start would do is tried by doing it, and nothing is changed.
//!
//! Lies over another disk, of which it knows all names from the beginning and which it only reads. A file keeps what was
//! written to it; writing what is there already is no change, so memory is taken only by what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::{Disk, DiskError, DiskResult, Entry, parent};

/// See the module. Shared by reference; calls exclude each other.
pub struct DryRun<'a> {
    below: &'a dyn Disk,
    tree: Mutex<Tree>,
}

#[derive(Default)]
struct Tree {
    files: BTreeMap<String, File>,
    directories: BTreeSet<String>,
}

/// A file: bytes of a file below, and what was written over them.
#[derive(Clone, Default)]
struct File {
    below: String,
    /// How many of its first bytes are those below.
    kept_bytes: u64,
    bytes: u64,
    /// In the order in which they were made.
    writes: Vec<(u64, Bytes)>,
}

impl<'a> DryRun<'a> {
    /// A trial over this disk, whose names are read now.
    pub fn new(below: &'a dyn Disk) -> DiskResult<Self> {
        let mut tree = Tree::default();
        let mut unread = vec![String::new()];
        while let Some(directory) = unread.pop() {
            for entry in below.list(&directory)? {
                let path = if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
                if entry.is_directory {
                    tree.directories.insert(path.clone());
                    unread.push(path);
                } else {
                    let (kept_bytes, bytes) = (entry.bytes, entry.bytes);
                    tree.files.insert(path.clone(), File { below: path, kept_bytes, bytes, writes: Vec::new() });
                }
            }
        }
        Ok(Self { below, tree: Mutex::new(tree) })
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_file(&self, file: &File, offset: u64, len: usize) -> DiskResult<Bytes> {
        let end = offset.saturating_add(len as u64).min(file.bytes).max(offset);
        let kept = file.kept_bytes.min(end).saturating_sub(offset);
        let kept = if kept > 0 { self.below.read(&file.below, offset, kept as usize)? } else { Bytes::new() };
        if file.writes.is_empty() && kept.len() as u64 == end - offset {
            return Ok(kept);
        }
        let mut bytes = kept.to_vec();
        bytes.resize((end - offset) as usize, 0);
        for (at, written) in &file.writes {
            let (from, to) = ((*at).max(offset), (at + written.len() as u64).min(end));
            if from < to {
                let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
                target.copy_from_slice(&written[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(bytes.into())
    }
}

impl Tree {
    fn has_directory(&self, path: &str) -> bool {
        path.is_empty() || self.directories.contains(path)
    }

    fn file(&mut self, stage: &'static str, path: &str) -> DiskResult<&mut File> {
        self.files.get_mut(path).ok_or_else(|| missing(stage, path))
    }
}

fn missing(stage: &'static str, path: &str) -> DiskError {
    DiskError { stage, path: path.into(), errno: DiskError::ENOENT, message: "no such file or directory".into() }
}

impl Disk for DryRun<'_> {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        let tree = self.tree();
        if !tree.has_directory(directory) {
            return Err(missing("list", directory));
        }
        let entry = |path: &String, bytes: u64, is_directory: bool| {
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            (parent(path) == directory).then_some(Entry { name, bytes, is_directory })
        };
        let files = tree.files.iter().filter_map(|(path, file)| entry(path, file.bytes, false));
        let directories = tree.directories.iter().filter_map(|path| entry(path, 0, true));
        let mut entries: Vec<Entry> = files.chain(directories).collect();
        entries.sort();
        Ok(entries)
    }

    fn size(&self, path: &str) -> DiskResult<u64> {
        self.tree().file("size", path).map(|file| file.bytes)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        let file = self.tree().file("read", path)?.clone();
        self.read_file(&file, offset, len)
    }

    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        let mut tree = self.tree();
        if !tree.has_directory(parent(path)) {
            return Err(missing("write", path));
        }
        let file = tree.files.entry(path.to_owned()).or_default();
        let mut at = offset;
        for piece in pieces {
            if self.read_file(file, at, piece.len())? != piece {
                file.writes.push((at, piece.clone()));
            }
            at += piece.len() as u64;
            file.bytes = file.bytes.max(at);
        }
        Ok(())
    }

    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()> {
        let mut tree = self.tree();
        let file = tree.file("truncate", path)?;
        file.kept_bytes = file.kept_bytes.min(bytes);
        file.bytes = bytes;
        for (at, written) in &mut file.writes {
            written.truncate(usize::try_from(bytes.saturating_sub(*at)).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    fn sync(&self, path: &str) -> DiskResult<()> {
        self.tree().file("sync", path).map(drop)
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        let mut tree = self.tree();
        if !tree.has_directory(parent(to)) {
            return Err(missing("rename", to));
        }
        let file = tree.files.remove(from).ok_or_else(|| missing("rename", from))?;
        tree.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> DiskResult<()> {
        self.tree().files.remove(path).map(drop).ok_or_else(|| missing("remove", path))
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
        let mut tree = self.tree();
        let mut rest = path;
        while !rest.is_empty() {
            tree.directories.insert(rest.to_owned());
            rest = parent(rest);
        }
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> DiskResult<()> {
        if self.tree().has_directory(path) { Ok(()) } else { Err(missing("sync", path)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::disk::memory::MemoryDisk;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, u64, Vec<u8>),
        Truncate(usize, u64),
        Rename(usize, usize),
        Remove(usize),
        RemoveDirectory(usize),
        CreateDirectory(usize),
    }

    const FILES: [&str; 4] = ["a/f", "a/g", "b/f", "b/c/h"];
    const DIRECTORIES: [&str; 4] = ["", "a", "b", "b/c"];

    fn step() -> impl Strategy<Value = Step> {
        let (file, directory) = (0..FILES.len(), 1..DIRECTORIES.len());
        prop_oneof![
            4 => (file.clone(), 0u64..40, vec(0u8..3, 0..30)).prop_map(|(f, at, bytes)| Step::Write(f, at, bytes)),
            2 => (file.clone(), 0u64..60).prop_map(|(f, bytes)| Step::Truncate(f, bytes)),
            2 => (file.clone(), file.clone()).prop_filter("another name", |(a, b)| a != b)
                .prop_map(|(a, b)| Step::Rename(a, b)),
            1 => file.prop_map(Step::Remove),
            1 => directory.clone().prop_map(Step::RemoveDirectory),
            1 => directory.prop_map(Step::CreateDirectory),
        ]
    }

    fn carry_out(step: &Step, disk: &dyn Disk) -> DiskResult<()> {
        match step {
            Step::Write(file, at, bytes) => disk.write(FILES[*file], *at, &[bytes.clone().into()]),
            Step::Truncate(file, bytes) => disk.truncate(FILES[*file], *bytes),
            Step::Rename(from, to) => disk.rename(FILES[*from], FILES[*to]),
            Step::Remove(file) => disk.remove(FILES[*file]),
            Step::RemoveDirectory(directory) => disk.remove_directory(DIRECTORIES[*directory]),
            Step::CreateDirectory(directory) => disk.create_directory(DIRECTORIES[*directory]),
        }
    }

    proptest! {
        #[test]
        fn a_trial_gives_what_the_disk_would_give_and_leaves_the_disk_alone(
            before in vec(step(), 0..20), steps in vec(step(), 0..40), (offset, len) in (0u64..70, 0usize..70),
        ) {
            let below = MemoryDisk::new();
            below.set_file("a/f", vec![1; 50]);
            before.iter().for_each(|step| drop(carry_out(step, &below)));
            let (untouched, real) = (below.clone(), below.clone());
            let trial = DryRun::new(&below).unwrap();
            for step in &steps {
                prop_assert_eq!(carry_out(step, &trial).is_ok(), carry_out(step, &real).is_ok(), "{:?}", step);
                for directory in DIRECTORIES {
                    prop_assert_eq!(trial.list(directory), real.list(directory));
                }
                for file in FILES {
                    prop_assert_eq!(trial.size(file), real.size(file));
                    prop_assert_eq!(trial.read(file, offset, len), real.read(file, offset, len));
                    prop_assert_eq!(trial.read(file, 0, 200), real.read(file, 0, 200));
                }
            }
            prop_assert_eq!(below.paths(), untouched.paths());
            for path in below.paths() {
                prop_assert_eq!(below.file(&path), untouched.file(&path));
            }
        }
    }
}
