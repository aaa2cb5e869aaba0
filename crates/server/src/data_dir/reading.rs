//! A data directory for tools.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use lockgate_wire::NodeId;
use rustix::fs::FlockOperation;

use super::{DataDirError, Identity, refuse_foreign, try_lock};
use crate::disk::RealDisk;

/// A data directory that no server uses meanwhile, unless that was not wanted. Nothing in it is changed, and its files are
/// opened for reading only, unless it was opened for a repair.
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
        // Keeps servers out, not other readers.
        let share = || try_lock(path, FlockOperation::NonBlockingLockShared);
        let lock = if even_if_used { None } else { Some(share()?) };
        Ok(ReadDir { disk: Arc::new(RealDisk::read_only(path)), _lock: lock })
    }

    /// Opens the directory to change it. No server and no other tool uses it meanwhile.
    pub fn open_for_repair(path: &Path) -> Result<ReadDir, DataDirError> {
        let failed = |error| DataDirError::Io { stage: "looking at", path: path.into(), error };
        if !fs::metadata(path).map_err(failed)?.is_dir() {
            return Err(DataDirError::NotADirectory(path.into()));
        }
        let lock = try_lock(path, FlockOperation::NonBlockingLockExclusive)?;
        Ok(ReadDir { disk: Arc::new(RealDisk::new(path)), _lock: Some(lock) })
    }

    /// Whose it is, if a node with this number could start in it; `None` if it is empty.
    pub fn identity(&self, path: &Path, node: NodeId) -> Result<Option<Identity>, DataDirError> {
        let failed = |error| DataDirError::Identity { path: path.into(), error };
        match Identity::read(&*self.disk).map_err(failed)? {
            Some(identity) => identity.next_start(node).map(Some).map_err(failed),
            None => refuse_foreign(path).map(|()| None),
        }
    }
}
