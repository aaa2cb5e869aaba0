//! The disk as storage sees it: a synchronous trait for recovery and a planned operation for everything later.
//!
//! Paths are relative to the data directory, with `/` between parts. The trait has a real implementation (server) and a
//! simulated one (sim); [`FileOp::execute`] is the one place that gives an operation its meaning on either.

pub mod dry_run;
pub mod memory;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// What is written past the page cache begins and ends at a multiple of this.
pub const BLOCK_BYTES: usize = 4096;

/// A path relative to the data directory.
pub type Path = Arc<str>;

/// A failed operation, with what an operator needs to find the cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskError {
    /// The operation: "open", "read", "write", "sync", …
    pub stage: &'static str,
    /// The file or directory.
    pub path: Path,
    /// The operating system's number, 0 if it gave none.
    pub errno: i32,
    /// The operating system's words.
    pub message: String,
}

impl DiskError {
    /// No such file or directory.
    pub const ENOENT: i32 = 2;
    /// No space left on the device.
    pub const ENOSPC: i32 = 28;
    /// The quota is used up.
    pub const EDQUOT: i32 = 122;
    /// No memory.
    pub const ENOMEM: i32 = 12;
    /// Too many open files in the system.
    pub const ENFILE: i32 = 23;
    /// Too many open files in the process.
    pub const EMFILE: i32 = 24;

    /// True when room on the device would mend it.
    pub fn is_full(&self) -> bool {
        matches!(self.errno, Self::ENOSPC | Self::EDQUOT)
    }
    /// True when the process or the machine lacks what the operation takes, so that it says nothing of the file.
    pub fn is_want_of_means(&self) -> bool {
        matches!(self.errno, Self::ENOMEM | Self::ENFILE | Self::EMFILE)
    }
    /// True when something was not made durable. To try it again would prove nothing.
    pub fn is_sync(&self) -> bool {
        self.stage.starts_with("sync")
    }
    /// True when the file or directory is not there.
    pub fn is_missing(&self) -> bool {
        self.errno == Self::ENOENT
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} failed: {} (errno {})", self.stage, self.path, self.message, self.errno)
    }
}
impl std::error::Error for DiskError {}

/// What an operation gives.
pub type DiskResult<T> = Result<T, DiskError>;

/// A directory's entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The last part of its path.
    pub name: String,
    /// Its size in bytes; 0 for directories.
    pub bytes: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A disk. Calls block; after a crash only what was synced is promised: a file's bytes and size by [`Disk::sync`] of the
/// file, its name by [`Disk::sync_directory`] of its directory.
pub trait Disk {
    /// The entries of a directory, in name order. A directory that does not exist is an error (`is_missing`).
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>>;
    /// A file's size.
    fn size(&self, path: &str) -> DiskResult<u64>;
    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes>;
    /// As [`Disk::read`], but what the device has and not what was kept in memory of it. For what is synced.
    fn reread(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        self.read(path, offset, len)
    }
    /// Writes all the pieces, one after another, from `offset`, making the file if it is not there. Bytes between the
    /// end of the file and `offset` become zero.
    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()>;
    /// Makes a new file of this many zero bytes, with room on the device for all of them.
    fn reserve(&self, path: &str, bytes: u64) -> DiskResult<()> {
        write_zeros(self, path, bytes)
    }
    /// Sets the file's size, cutting it or filling with zeros.
    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()>;
    /// Makes the file's bytes and size durable.
    fn sync(&self, path: &str) -> DiskResult<()>;
    /// Makes the file durable and has later reads give what the device has. After a sync that failed, and not only in the
    /// process that saw it fail, an operating system may go on showing bytes that the device never got, and say of the
    /// next sync that it succeeded. A disk that keeps nothing in memory has nothing to forget.
    fn forget_cached(&self, path: &str) -> DiskResult<()> {
        self.sync(path)
    }
    /// Renames a file, replacing what is there. Durable after syncing the directory (directories, if they differ).
    fn rename(&self, from: &str, to: &str) -> DiskResult<()>;
    /// Removes a file. A file that is not there is an error (`is_missing`).
    fn remove(&self, path: &str) -> DiskResult<()>;
    /// Removes a directory and everything in it. One that is not there is an error (`is_missing`).
    fn remove_directory(&self, path: &str) -> DiskResult<()>;
    /// Makes a directory with its parents, durably; one that is there is fine.
    fn create_directory(&self, path: &str) -> DiskResult<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &str) -> DiskResult<()>;
}

/// An operation on a file, planned by the engine and carried out elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOp {
    /// Bytes from `offset`; fewer only at the end of the file.
    Read {
        /// The file.
        path: Path,
        /// Where to start.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// As [`FileOp::Read`], but what the device has and not what was kept in memory of it. For what is synced.
    Reread {
        /// The file.
        path: Path,
        /// Where to start.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// Writes the pieces at `offset`, making the file if needed. Not synced.
    Write {
        /// The file.
        path: Path,
        /// Where to start.
        offset: u64,
        /// The bytes, in order.
        pieces: Vec<Bytes>,
    },
    /// Makes the file and its name durable.
    Sync {
        /// The file.
        path: Path,
    },
    /// Sets a file's size, durably.
    Truncate {
        /// The file.
        path: Path,
        /// The size.
        bytes: u64,
    },
    /// Makes a directory with its parents, durably.
    CreateDirectory {
        /// The directory.
        path: Path,
    },
    /// Replaces a file as a whole, durably: beside, sync, rename, sync the directory. A failed attempt leaves nothing.
    Replace {
        /// The file.
        path: Path,
        /// All of its bytes.
        pieces: Vec<Bytes>,
    },
    /// Makes a file of this many zero bytes, durably, under its final name. For journal files ahead of need.
    Zero {
        /// The file.
        path: Path,
        /// Its size.
        bytes: u64,
        /// The zeros are written through, so that a later synced write changes data and nothing else. Otherwise the room
        /// is only reserved.
        written: bool,
    },
    /// Gives a file another name in its directory, durably. What had that name is gone.
    Rename {
        /// The file.
        from: Path,
        /// Its name from now on.
        to: Path,
    },
    /// Removes files in this order, then makes that durable. Files that are not there are no failure.
    Remove {
        /// The files, all of one directory.
        paths: Vec<Path>,
    },
    /// Removes a directory with everything in it, durably. One that is not there is no failure.
    RemoveDirectory {
        /// The directory.
        path: Path,
    },
}

/// Size of the pieces in which zeros are written.
const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

impl FileOp {
    /// Carries the operation out. A read gives its bytes, everything else gives none.
    pub fn execute(&self, disk: &dyn Disk) -> DiskResult<Bytes> {
        match self {
            Self::Read { path, offset, len } => return disk.read(path, *offset, *len),
            Self::Reread { path, offset, len } => return disk.reread(path, *offset, *len),
            Self::Write { path, offset, pieces } => disk.write(path, *offset, pieces)?,
            Self::Sync { path } => {
                disk.sync(path)?;
                disk.sync_directory(parent(path))?;
            }
            Self::Truncate { path, bytes } => {
                disk.truncate(path, *bytes)?;
                disk.sync(path)?;
            }
            Self::CreateDirectory { path } => disk.create_directory(path)?,
            Self::Replace { path, pieces } => replace(disk, path, pieces)?,
            Self::Zero { path, bytes, written } => zero(disk, path, *bytes, *written)?,
            Self::Rename { from, to } => {
                disk.rename(from, to)?;
                disk.sync_directory(parent(to))?;
            }
            Self::Remove { paths } => {
                for path in paths {
                    unless_missing(disk.remove(path))?;
                }
                if let Some(first) = paths.first() {
                    unless_missing(disk.sync_directory(parent(first)))?;
                }
            }
            Self::RemoveDirectory { path } => {
                unless_missing(disk.remove_directory(path))?;
                disk.sync_directory(parent(path))?;
            }
        }
        Ok(Bytes::new())
    }
}

/// The directory of a path; the data directory itself is the empty path.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn unless_missing(result: DiskResult<()>) -> DiskResult<()> {
    match result {
        Err(error) if error.is_missing() => Ok(()),
        other => other,
    }
}

fn replace(disk: &dyn Disk, path: &str, pieces: &[Bytes]) -> DiskResult<()> {
    let beside = format!("{path}.new");
    let attempt = || {
        disk.write(&beside, 0, pieces)?;
        disk.truncate(&beside, pieces.iter().map(|piece| piece.len() as u64).sum())?;
        disk.sync(&beside)?;
        disk.rename(&beside, path)?;
        disk.sync_directory(parent(path))
    };
    attempt().inspect_err(|_| drop(disk.remove(&beside)))
}

/// Writes zeros from the beginning of a file, making it if it is not there.
pub fn write_zeros(disk: &(impl Disk + ?Sized), path: &str, bytes: u64) -> DiskResult<()> {
    let chunk = Bytes::from(vec![0; bytes.min(ZERO_CHUNK_BYTES as u64) as usize]);
    let mut at = 0;
    while at < bytes {
        let len = chunk.len().min((bytes - at) as usize);
        disk.write(path, at, &[chunk.slice(..len)])?;
        at += len as u64;
    }
    Ok(())
}

fn zero(disk: &dyn Disk, path: &str, bytes: u64, written: bool) -> DiskResult<()> {
    let attempt = || {
        if written {
            write_zeros(disk, path, bytes)?;
        } else {
            disk.reserve(path, bytes)?;
        }
        disk.sync(path)?;
        disk.sync_directory(parent(path))
    };
    attempt().inspect_err(|_| drop(disk.remove(path)))
}
