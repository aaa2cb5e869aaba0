//! Open files by path, bounded in number: the least recently used one of those that nobody works with goes.
//!
//! A file is opened and entered under one lock, and forgotten after its name has changed. So a handle that another
//! thread opened under the old name is either entered before, and forgotten, or opened after, and new.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use rustix::process::{Resource, getrlimit};

/// Files kept open by a node's disk, besides those that threads work with, if the process may have many more descriptors…
const MAX_OPEN_FILES: usize = 512;
/// …and however few it may have.
const MIN_OPEN_FILES: usize = 16;
/// The part of the process's descriptors that they may take: one in this many.
const PART_OF_DESCRIPTORS: u64 = 8;
/// Only the owner reads what brokers store.
const FILE_MODE: u32 = 0o600;

#[derive(Debug)]
pub(super) struct Handles {
    inner: Mutex<Inner>,
    max_open: usize,
    read_only: bool,
}

#[derive(Default, Debug)]
struct Inner {
    files: FxHashMap<Box<str>, Open>,
    /// Grows by every use.
    clock: u64,
}

#[derive(Debug)]
struct Open {
    file: Arc<File>,
    used: u64,
}

impl Handles {
    /// No files yet, and as many as the process's limit of descriptors leaves room for.
    pub(super) fn new(read_only: bool) -> Self {
        // A node raises its limit to the highest that it may have.
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX) / PART_OF_DESCRIPTORS;
        let max_open = usize::try_from(most).unwrap_or(MAX_OPEN_FILES).clamp(MIN_OPEN_FILES, MAX_OPEN_FILES);
        Self { inner: Mutex::default(), max_open, read_only }
    }

    /// How many files are kept open at most.
    pub(super) fn max_open(&self) -> usize {
        self.max_open
    }

    /// The file, open for reading and, unless that is excluded, writing (and never inherited by a child process: the
    /// standard library sees to it).
    pub(super) fn open(&self, path: &str, place: &Path, create: bool) -> io::Result<Arc<File>> {
        let mut inner = self.lock();
        inner.clock += 1;
        let used = inner.clock;
        if let Some(open) = inner.files.get_mut(path) {
            open.used = used;
            return Ok(open.file.clone());
        }
        let (write, create) = (!self.read_only, create && !self.read_only);
        let mut options = OpenOptions::new();
        options.read(true).write(write).create(create).truncate(false).mode(FILE_MODE);
        let file = Arc::new(options.open(place)?);
        if inner.files.len() >= self.max_open {
            let idle = inner.files.iter().filter(|(_, open)| Arc::strong_count(&open.file) == 1);
            let oldest = idle.min_by_key(|(_, open)| open.used).map(|(path, _)| path.clone());
            oldest.and_then(|path| inner.files.remove(&path));
        }
        inner.files.insert(path.into(), Open { file: file.clone(), used });
        Ok(file)
    }

    /// Gives what was kept: as long as the file's name has not changed, whoever has the last of it knows that nobody else in
    /// this process works with the file.
    pub(super) fn forget(&self, path: &str) -> Option<Arc<File>> {
        Some(self.lock().files.remove(path)?.file)
    }

    pub(super) fn forget_directory(&self, directory: &str) {
        self.lock().files.retain(|path, _| !path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')));
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().files.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // Nothing under the lock leaves the map half changed, so a panic elsewhere does not spoil it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
