//! A data directory for tools that only read it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use lockgate_wire::NodeId;
use rustix::fs::{FlockOperation, flock};

use super::{DataDirError, Identity, LOCK_FILE, holder, refuse_foreign};
use crate::disk::RealDisk;

/// A data directory that no server uses meanwhile, unless that was not wanted. Nothing in it is changed, and its files
/// are opened for reading only.
#[derive(Debug)]
pub struct ReadDir {
    /// Its files.
    pub disk: Arc<RealDisk>,
    _lock: Option<File>,
}

impl ReadDir {
    /// Opens the directory. With `even_if_used` also one that a server uses: what it writes meanwhile is then seen half.
    pub fn open(path: &Path, even_if_used: bool) -> Result<ReadDir, DataDirError> {
        let failed = |error| DataDirError::Io { stage: "looking at", path: path.into(), error };
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(DataDirError::NotADirectory(path.into()));
        }
        let lock = if even_if_used { None } else { share(path)? };
        Ok(ReadDir { disk: Arc::new(RealDisk::read_only(path)), _lock: lock })
    }

    /// Whose it is, if a node with this number and this many shards could start in it; `None` if it is empty.
    pub fn identity(&self, path: &Path, node: NodeId, shards: u16) -> Result<Option<Identity>, DataDirError> {
        let failed = |error| DataDirError::Identity { path: path.into(), error };
        match Identity::read(&*self.disk).map_err(failed)? {
            Some(identity) => identity.next_start(node, shards).map(Some).map_err(failed),
            None => refuse_foreign(path).map(|()| None),
        }
    }
}

/// Keeps servers out, not other readers. A directory that never had a server, a copy for example, has nothing to lock.
fn share(directory: &Path) -> Result<Option<File>, DataDirError> {
    let path = directory.join(LOCK_FILE);
    let failed = |stage, error| DataDirError::Io { stage, path: path.clone(), error };
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|error| failed("opening", error))?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(DataDirError::Locked { path: directory.into(), pid: holder(&mut file) })
        }
        Err(error) => Err(failed("locking", error.into())),
    }
}
