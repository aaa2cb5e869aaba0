//! The data directory: who may use it, and whose it is.
//!
//! [`DataDir::open`] makes or checks the directory, locks it for this process and reads or makes its identity. The lock
//! lives as long as the value.

mod identity;
mod reading;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate_wire::NodeId;
use rustix::fs::{FlockOperation, flock};

use crate::disk::{DIRECTORY_MODE, RealDisk};
pub(crate) use identity::random;
pub use identity::{Identity, IdentityError};
pub use reading::ReadDir;

/// The file that tells which process has locked the directory.
const LOCK_FILE: &str = "LOCK";
/// Names that a directory may hold that is not yet anybody's: leavings of a first start that was interrupted, and what
/// a fresh file system has.
const INNOCENT: &[&str] = &[LOCK_FILE, "identity.new", "lost+found"];

/// A locked data directory with its identity for this start.
#[derive(Debug)]
pub struct DataDir {
    /// Its files.
    pub disk: Arc<RealDisk>,
    /// Whose it is; the incarnation is this start's.
    pub identity: Identity,
    /// True when this start made it.
    pub is_new: bool,
    _lock: File,
}

/// Why a data directory cannot be used.
#[derive(Debug)]
pub enum DataDirError {
    /// The directory above does not exist.
    NoParent(PathBuf),
    /// It is not a directory.
    NotADirectory(PathBuf),
    /// Another user owns it.
    WrongOwner {
        /// The directory.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// This process's.
        user: u32,
    },
    /// Another process uses it.
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process, as far as it told.
        pid: Option<u32>,
    },
    /// It holds files, and they are not a node's.
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        example: String,
    },
    /// An operation failed.
    Io {
        /// What was tried.
        stage: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The identity does not fit.
    Identity {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: IdentityError,
    },
}

impl DataDir {
    /// Opens the directory for a node with this number, or makes it with this many shards. One that has another count
    /// keeps it until its partitions are moved.
    pub fn open(path: &Path, node: NodeId, shards: u16) -> Result<DataDir, DataDirError> {
        make_or_check(path)?;
        let lock = lock(path)?;
        let disk = Arc::new(RealDisk::new(path));
        let failed = |error| DataDirError::Identity { path: path.into(), error };
        let found = Identity::read(&*disk).map_err(failed)?;
        let is_new = found.is_none();
        let identity = match found {
            Some(identity) => identity.next_start(node).map_err(failed)?,
            None => {
                refuse_foreign(path)?;
                Identity::new(node, shards).map_err(failed)?
            }
        };
        identity.write(&*disk).map_err(failed)?;
        Ok(DataDir { disk, identity, is_new, _lock: lock })
    }

    /// Notes durably that other journals count from now on, of as many shards as that identity says.
    pub(crate) fn switch(&mut self, identity: Identity) -> Result<(), IdentityError> {
        identity.write(&*self.disk)?;
        self.identity = identity;
        Ok(())
    }
}

fn make_or_check(path: &Path) -> Result<(), DataDirError> {
    let failed = |stage, error| DataDirError::Io { stage, path: path.into(), error };
    match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Ok(()) => return sync_parent(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(DataDirError::NoParent(path.into())),
        Err(error) => return Err(failed("making", error)),
    }
    let facts = fs::metadata(path).map_err(|error| failed("looking at", error))?;
    if !facts.is_dir() {
        return Err(DataDirError::NotADirectory(path.into()));
    }
    let user = rustix::process::geteuid().as_raw();
    if facts.uid() != user {
        return Err(DataDirError::WrongOwner { path: path.into(), owner: facts.uid(), user });
    }
    if facts.mode() & 0o777 != DIRECTORY_MODE {
        fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
            .map_err(|error| failed("closing to other users", error))?;
    }
    Ok(())
}

fn sync_parent(path: &Path) -> Result<(), DataDirError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(parent).and_then(|directory| directory.sync_all());
    synced.map_err(|error| DataDirError::Io { stage: "syncing", path: parent.into(), error })
}

/// Locks the directory itself for this process: no file in it that could be removed stands for it. The kernel frees the
/// lock when the process ends, however it ends. The file [`LOCK_FILE`] only tells who holds it.
fn lock(directory: &Path) -> Result<File, DataDirError> {
    let path = directory.join(LOCK_FILE);
    let locked = try_lock(directory, FlockOperation::NonBlockingLockExclusive)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let tell = opened.and_then(|mut file| writeln!(file, "{}", std::process::id()));
    // Nothing depends on it, and a full disk must not keep a node from starting.
    if let Err(error) = tell {
        tracing::warn!("{} does not tell who uses the directory: {error}", path.display());
    }
    Ok(locked)
}

fn try_lock(directory: &Path, operation: FlockOperation) -> Result<File, DataDirError> {
    let failed = |stage, error| DataDirError::Io { stage, path: directory.into(), error };
    let file = File::open(directory).map_err(|error| failed("opening", error))?;
    match flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(DataDirError::Locked { path: directory.into(), pid: holder(directory) })
        }
        Err(error) => Err(failed("locking", error.into())),
    }
}

/// Who holds the lock, as far as it told: a tool that reads does not, and the one before it may be gone.
fn holder(directory: &Path) -> Option<u32> {
    let pid = fs::read_to_string(directory.join(LOCK_FILE)).ok()?.trim().parse().ok()?;
    Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
}

/// A directory that holds something and has no identity is somebody else's, or has lost its identity: both end badly if
/// a node is made in it.
fn refuse_foreign(path: &Path) -> Result<(), DataDirError> {
    let failed = |error| DataDirError::Io { stage: "listing", path: path.into(), error };
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !INNOCENT.contains(&name.as_str()) {
            return Err(DataDirError::Foreign { path: path.into(), example: name });
        }
    }
    Ok(())
}

impl fmt::Display for DataDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoParent(path) => {
                write!(
                    f,
                    "the data directory {} cannot be made: the directory above it does not exist; make that first",
                    path.display()
                )
            }
            Self::NotADirectory(path) => write!(f, "the data directory {} is not a directory", path.display()),
            Self::WrongOwner { path, owner, user } => write!(
                f,
                "the data directory {} belongs to user id {owner}, this process runs as {user}; start it as its owner, or name a directory of its own",
                path.display()
            ),
            Self::Locked { path, pid: Some(pid) } => {
                write!(
                    f,
                    "the data directory {} is in use by process {pid}; stop that one, or name another directory",
                    path.display()
                )
            }
            Self::Locked { path, pid: None } => {
                write!(
                    f,
                    "the data directory {} is in use by another process; stop that one, or name another directory",
                    path.display()
                )
            }
            Self::Foreign { path, example } => write!(
                f,
                "the directory {} holds {example:?} but no identity of a node; name an empty directory, or bring its identity file back",
                path.display()
            ),
            Self::Io { stage, path, error } => write!(f, "{stage} {} failed: {error}", path.display()),
            Self::Identity { path, error } => write!(f, "the data directory {}: {error}", path.display()),
        }
    }
}
impl std::error::Error for DataDirError {}
