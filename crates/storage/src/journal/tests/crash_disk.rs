//! A small disk that crashes: after a number of operations everything fails, and a crash keeps what was synced and any
//! sectors and names besides. For the journal's own tests; the simulator has the full model.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::disk::{DiskResult, Entry, parent};
use crate::journal::format::SECTOR_BYTES;

#[derive(Clone, Default)]
struct File {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone)]
enum NameChange {
    Put(String, usize),
    Remove(String),
}

#[derive(Clone, Default)]
struct State {
    files: Vec<File>,
    directories: BTreeSet<String>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// In order, since the last sync of the directory. A rename is one change of several names.
    changes: Vec<Vec<NameChange>>,
    /// How many changing operations are left before the crash.
    left: usize,
    next_sync_fails: bool,
}

#[derive(Default)]
pub(super) struct CrashDisk(RefCell<State>);

fn crashed() -> DiskError {
    failure(5)
}

fn missing() -> DiskError {
    failure(DiskError::ENOENT)
}

fn apply(names: &mut BTreeMap<String, usize>, change: &[NameChange]) {
    for change in change {
        match change {
            NameChange::Put(name, file) => drop(names.insert(name.clone(), *file)),
            NameChange::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl File {
    fn sector(&self, sector: usize) -> std::ops::Range<usize> {
        sector * SECTOR_BYTES..((sector + 1) * SECTOR_BYTES).min(self.cached.len())
    }

    fn persist(&mut self, sector: usize) {
        let range = self.sector(sector);
        if self.durable.len() < range.end {
            self.durable.resize(range.end, 0);
        }
        let bytes = self.cached[range.clone()].to_vec();
        self.durable[range].copy_from_slice(&bytes);
    }
}

impl CrashDisk {
    /// The crash comes with the operation after so many more.
    pub(super) fn crash_after(&self, operations: usize) {
        let mut state = self.0.borrow_mut();
        (state.left, state.next_sync_fails) = (operations, false);
    }

    /// A disk that has these files, durably.
    pub(super) fn from_files(files: &MemoryDisk) -> Self {
        let disk = Self::default();
        disk.crash_after(usize::MAX);
        for path in files.paths() {
            disk.create_directory(parent(&path)).unwrap();
            disk.write(&path, 0, &[files.file(&path).unwrap().into()]).unwrap();
            disk.sync(&path).unwrap();
            disk.sync_directory(parent(&path)).unwrap();
        }
        disk
    }

    /// One sync fails, the kernel forgets what it should have written, and later syncs succeed.
    pub(super) fn fail_next_sync(&self) {
        self.0.borrow_mut().next_sync_fails = true;
    }

    /// The disk as the next process finds it after a loss of power: what was synced, and by the seed more.
    pub(super) fn after_power_loss(&self, seed: u64) -> Self {
        let mut state = self.0.borrow().clone();
        let mut coins = body(seed, 64 * 1024).into_iter().cycle();
        // Seeds also choose between "nothing more", "everything" and something between.
        let threshold = [0u8, 255, 128, 30, 220][seed as usize % 5];
        let mut lucky = || coins.next().is_some_and(|coin| coin < threshold);
        for change in std::mem::take(&mut state.changes) {
            if lucky() {
                apply(&mut state.durable_names, &change);
            }
        }
        for file in &mut state.files {
            for sector in std::mem::take(&mut file.dirty) {
                if lucky() {
                    file.persist(sector);
                }
            }
            file.cached = file.durable.clone();
        }
        state.names = state.durable_names.clone();
        Self(RefCell::new(state))
    }

    /// One more changing operation, which may be the last.
    fn operation<T>(&self, work: impl FnOnce(&mut State) -> DiskResult<T>) -> DiskResult<T> {
        let mut state = self.0.borrow_mut();
        if state.left == 0 {
            return Err(crashed());
        }
        state.left -= 1;
        let result = work(&mut state)?;
        if state.left == 0 { Err(crashed()) } else { Ok(result) }
    }
}

impl Disk for CrashDisk {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        let state = self.0.borrow();
        if !state.directories.contains(directory) {
            return Err(missing());
        }
        let inside = state.names.iter().filter(|(name, _)| parent(name) == directory);
        let entry = |(name, file): (&String, &usize)| Entry {
            name: name[directory.len() + 1..].to_owned(),
            bytes: state.files[*file].cached.len() as u64,
            is_directory: false,
        };
        Ok(inside.map(entry).collect())
    }

    fn size(&self, path: &str) -> DiskResult<u64> {
        let state = self.0.borrow();
        state.names.get(path).map(|file| state.files[*file].cached.len() as u64).ok_or_else(missing)
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        let state = self.0.borrow();
        let file = &state.files[*state.names.get(path).ok_or_else(missing)?].cached;
        let start = (offset as usize).min(file.len());
        Ok(Bytes::copy_from_slice(&file[start..(start + len).min(file.len())]))
    }

    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        self.operation(|state| {
            let file = match state.names.get(path) {
                Some(file) => *file,
                None => {
                    let file = state.files.len();
                    state.files.push(File::default());
                    state.names.insert(path.into(), file);
                    state.changes.push(vec![NameChange::Put(path.into(), file)]);
                    file
                }
            };
            let (file, bytes, at) = (&mut state.files[file], pieces.concat(), offset as usize);
            if file.cached.len() < at + bytes.len() {
                file.cached.resize(at + bytes.len(), 0);
            }
            file.cached[at..at + bytes.len()].copy_from_slice(&bytes);
            file.dirty.extend(at / SECTOR_BYTES..(at + bytes.len()).div_ceil(SECTOR_BYTES));
            Ok(())
        })
    }

    fn truncate(&self, _: &str, _: u64) -> DiskResult<()> {
        unreachable!("the journal truncates nothing")
    }

    fn sync(&self, path: &str) -> DiskResult<()> {
        self.operation(|state| {
            let file = *state.names.get(path).ok_or_else(missing)?;
            let file = &mut state.files[file];
            let dirty = std::mem::take(&mut file.dirty);
            if std::mem::take(&mut state.next_sync_fails) {
                return Err(failure(5));
            }
            dirty.into_iter().for_each(|sector| file.persist(sector));
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.operation(|state| {
            let file = *state.names.get(from).ok_or_else(missing)?;
            let change = vec![NameChange::Remove(from.into()), NameChange::Put(to.into(), file)];
            apply(&mut state.names, &change);
            state.changes.push(change);
            Ok(())
        })
    }

    fn remove(&self, path: &str) -> DiskResult<()> {
        self.operation(|state| {
            state.names.remove(path).ok_or_else(missing)?;
            state.changes.push(vec![NameChange::Remove(path.into())]);
            Ok(())
        })
    }

    fn remove_directory(&self, _: &str) -> DiskResult<()> {
        unreachable!("the journal removes no directory")
    }

    fn create_directory(&self, path: &str) -> DiskResult<()> {
        self.operation(|state| {
            state.directories.insert(path.into());
            Ok(())
        })
    }

    fn sync_directory(&self, _: &str) -> DiskResult<()> {
        self.operation(|state| {
            state.durable_names = state.names.clone();
            state.changes.clear();
            Ok(())
        })
    }
}
