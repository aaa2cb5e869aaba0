//! A planned write and what carrying it out means.

use bytes::Bytes;

use super::{JournalKind, Sequence};
use crate::disk::{Disk, DiskResult, Path, parent};

/// One write of a journal. At most one per journal is under way at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalWrite {
    /// Which journal.
    pub kind: JournalKind,
    /// The file.
    pub path: Path,
    /// The file is to be opened first, out of a prepared one.
    pub open: Option<OpenFile>,
    /// Where in the file, a multiple of the block size.
    pub offset: u64,
    /// The bytes, in order.
    pub pieces: Vec<Bytes>,
    /// How many bytes: a multiple of the block size.
    pub bytes: usize,
    /// Whether the bytes must be durable before the write counts as finished.
    pub sync: bool,
    /// The last record in it, or before it if it holds none.
    pub last: Sequence,
}

/// How a prepared file becomes a journal file: write the header into `free`, sync, rename to the write's path, sync the
/// directory. Until all of that is done nothing is written behind the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// The prepared file.
    pub free: Path,
    /// The header, one block.
    pub header: Bytes,
}

impl JournalWrite {
    /// Carries the write out. What else does it (direct I/O in the server) must do the same in the same order.
    pub fn execute(&self, disk: &dyn Disk) -> DiskResult<()> {
        if let Some(open) = &self.open {
            disk.write(&open.free, 0, std::slice::from_ref(&open.header))?;
            disk.sync(&open.free)?;
            disk.rename(&open.free, &self.path)?;
            disk.sync_directory(parent(&self.path))?;
        }
        disk.write(&self.path, self.offset, &self.pieces)?;
        if self.sync { disk.sync(&self.path) } else { Ok(()) }
    }
}
