//! The real disk: [`Disk`] over one data directory.
//!
//! One instance per node, shared by all threads that touch files, because it keeps files open: whoever renames or
//! removes must go through it, or somebody else would write on through a handle whose name has gone to another file.

mod handles;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, PathBuf};

use bytes::Bytes;
use lockgate_storage::disk::{Disk, DiskError, DiskResult, Entry, write_zeros};

use handles::Handles;

/// Slices given to the kernel at once; its own limit (`IOV_MAX`) is 1024.
const MAX_SLICES: usize = 512;
/// A read above this is first compared with the file's size, so that asking for much costs no memory.
const TRUSTED_READ_BYTES: usize = 1024 * 1024;
/// The largest page of the machines that this runs on.
const PAGE_BYTES: u64 = 64 * 1024;
/// How much of a removed file's room is given back at once. Appends that are synced wait for the file system's own journal,
/// and with it for what was given back since it was written last: for 256 MiB at once that was 70 ms, on ext4 that discards
/// what it frees.
const FREED_AT_ONCE_BYTES: u64 = 4 * 1024 * 1024;
/// Only the owner reads what brokers store.
pub(crate) const DIRECTORY_MODE: u32 = 0o700;

/// A directory of the machine as a [`Disk`].
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
    handles: Handles,
}

impl RealDisk {
    /// The disk whose empty path is `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), handles: Handles::new(false) }
    }

    /// The same for whoever only reads: files are opened for nothing else, so that none can be changed, and need not be
    /// writable.
    pub fn read_only(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), handles: Handles::new(true) }
    }

    /// How many files it keeps open at most.
    pub(crate) fn max_open_files(&self) -> usize {
        self.handles.max_open()
    }

    /// The place of a path on the machine. A path that would leave the root is refused: paths are made by the engine,
    /// but from names in files.
    pub(crate) fn locate(&self, stage: &'static str, path: &str) -> DiskResult<PathBuf> {
        let inside = std::path::Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if inside { Ok(self.root.join(path)) } else { Err(error(stage, path, &io::Error::from_raw_os_error(INVALID))) }
    }

    fn handle(&self, stage: &'static str, path: &str, create: bool) -> DiskResult<std::sync::Arc<File>> {
        let place = self.locate(stage, path)?;
        self.handles.open(path, &place, create).map_err(|e| error("open", path, &e))
    }
}

/// `EINVAL`.
const INVALID: i32 = 22;

/// A failed call as storage and operators want to see it.
pub(crate) fn error(stage: &'static str, path: &str, error: &io::Error) -> DiskError {
    let words = error.to_string();
    let message = words.split(" (os error").next().unwrap_or_default().to_owned();
    DiskError { stage, path: path.into(), errno: error.raw_os_error().unwrap_or(0), message }
}

/// Writes all of the pieces from `offset`.
pub(crate) fn write_all_at(file: &File, mut offset: u64, pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> =
        pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| IoSlice::new(piece)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        match rustix::io::pwritev(file, &left[..left.len().min(MAX_SLICES)], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn read_full_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let len = if len > TRUSTED_READ_BYTES {
        len.min(usize::try_from(file.metadata()?.len().saturating_sub(offset)).unwrap_or(usize::MAX))
    } else {
        len
    };
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The room may be larger than what was asked for.
    bytes.truncate(len);
    Ok(bytes)
}

impl Disk for RealDisk {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        let place = self.locate("list", directory)?;
        let read = || -> io::Result<Vec<Entry>> {
            let mut entries = Vec::new();
            for entry in fs::read_dir(place)? {
                let entry = entry?;
                let facts = entry.metadata()?;
                let name = entry
                    .file_name()
                    .into_string()
                    .map_err(|name| io::Error::other(format!("the name {name:?} is not UTF-8")))?;
                entries.push(Entry {
                    name,
                    bytes: if facts.is_dir() { 0 } else { facts.len() },
                    is_directory: facts.is_dir(),
                });
            }
            entries.sort();
            Ok(entries)
        };
        read().map_err(|e| error("list", directory, &e))
    }

    fn size(&self, path: &str) -> DiskResult<u64> {
        fs::metadata(self.locate("size", path)?).map(|facts| facts.len()).map_err(|e| error("size", path, &e))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        let file = self.handle("read", path, false)?;
        read_full_at(&file, offset, len).map(Bytes::from).map_err(|e| error("read", path, &e))
    }

    /// The pages of the range go first. A file system that cannot let go of them reads as always.
    fn reread(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        let file = self.handle("read", path, false)?;
        let first = offset - offset % PAGE_BYTES;
        let bytes = (offset - first).saturating_add(len as u64).next_multiple_of(PAGE_BYTES);
        let _ = rustix::fs::fadvise(&file, first, NonZeroU64::new(bytes), rustix::fs::Advice::DontNeed);
        read_full_at(&file, offset, len).map(Bytes::from).map_err(|e| error("read", path, &e))
    }

    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        let file = self.handle("write", path, true)?;
        write_all_at(&file, offset, pieces).map_err(|e| error("write", path, &e))
    }

    fn reserve(&self, path: &str, bytes: u64) -> DiskResult<()> {
        let file = self.handle("reserve", path, true)?;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // A file system that cannot reserve: only what is written has its room.
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(self, path, bytes),
            Err(errno) => Err(error("reserve", path, &errno.into())),
        }
    }

    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()> {
        self.handle("truncate", path, false)?.set_len(bytes).map_err(|e| error("truncate", path, &e))
    }

    fn sync(&self, path: &str) -> DiskResult<()> {
        self.handle("sync", path, false)?.sync_data().map_err(|e| error("sync", path, &e))
    }

    /// Pages that a failed sync left count as clean, so that they go too.
    fn forget_cached(&self, path: &str) -> DiskResult<()> {
        let file = self.handle("sync", path, false)?;
        file.sync_data().map_err(|e| error("sync", path, &e))?;
        let whole = None;
        rustix::fs::fadvise(&file, 0, whole, rustix::fs::Advice::DontNeed).map_err(|e| error("forget", path, &e.into()))
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        let result = fs::rename(self.locate("rename", from)?, self.locate("rename", to)?);
        self.handles.forget(from);
        self.handles.forget(to);
        result.map_err(|e| error("rename", from, &e))
    }

    /// The name goes at once; the blocks of a file that nobody else has open or knows by another name, in parts.
    fn remove(&self, path: &str) -> DiskResult<()> {
        let place = self.locate("remove", path)?;
        // So that it is among those that are kept open. What cannot be opened can be removed all the same.
        drop(self.handle("remove", path, false));
        let result = fs::remove_file(place);
        let file = self.handles.forget(path);
        result.map_err(|e| error("remove", path, &e))?;
        if let Some(file) = file.and_then(std::sync::Arc::into_inner) {
            free_in_parts(&file);
        }
        Ok(())
    }

    /// Its files one by one, as [`Disk::remove`] does it; what cannot go that way goes with the directory, or says why not.
    fn remove_directory(&self, path: &str) -> DiskResult<()> {
        for entry in self.list(path).unwrap_or_default().into_iter().filter(|entry| !entry.is_directory) {
            drop(self.remove(&format!("{path}/{}", entry.name)));
        }
        let result = fs::remove_dir_all(self.locate("remove", path)?);
        self.handles.forget_directory(path);
        result.map_err(|e| error("remove", path, &e))
    }

    /// Makes one part after the other and syncs the directory that holds it: what exists already may have been made by
    /// an attempt that did not live to sync it.
    fn create_directory(&self, path: &str) -> DiskResult<()> {
        self.locate("create", path)?;
        let mut made = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let parent = made.clone();
            if !made.is_empty() {
                made.push('/');
            }
            made.push_str(part);
            match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(self.root.join(&made)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.root.join(&made).is_dir() => {}
                result => result.map_err(|e| error("create", &made, &e))?,
            }
            self.sync_directory(&parent)?;
        }
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> DiskResult<()> {
        let place = self.locate("sync", path)?;
        File::open(place).and_then(|directory| directory.sync_all()).map_err(|e| error("sync", path, &e))
    }
}

/// Makes a file without a name shorter and shorter. If that fails, the rest goes when it is closed.
fn free_in_parts(file: &File) {
    let mut rest = file.metadata().map_or(0, |file| if file.nlink() == 0 { file.len() } else { 0 });
    while rest > FREED_AT_ONCE_BYTES && file.set_len(rest - FREED_AT_ONCE_BYTES).is_ok() {
        rest -= FREED_AT_ONCE_BYTES;
    }
}
