//! A planned write and what carrying it out means.

use bytes::Bytes;

use super::{JournalKind, Sequence};
use crate::disk::{Disk, DiskResult, Path, parent};

/// One write of a journal. At most one per journal is under way at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalWrite {
    /// Which journal.
    pub kind: JournalKind,
    /// What its records refer to, in other files: durable, one after the other, before anything else is done.
    pub data: Vec<DataWrite>,
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

/// Bytes that go to another file than the journal's, at its end, and are durable before the journal refers to them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataWrite {
    /// The file.
    pub path: Path,
    /// Where in it. Mostly a multiple of the block size, at or beyond the file's end; else somebody else may write the same
    /// bytes at the same time.
    pub offset: u64,
    /// The bytes, in order. None: the file is to be made durable as it is.
    pub pieces: Vec<Bytes>,
    /// How many bytes: a multiple of the block size if the offset is one.
    pub bytes: usize,
    /// All that the file has before them is durable already.
    pub is_whole: bool,
    /// The file's name may not be durable yet.
    pub is_new: bool,
}

impl DataWrite {
    /// Carries it out. What else does it must do the same; with `is_whole` it may make durable these bytes alone.
    pub fn execute(&self, disk: &dyn Disk) -> DiskResult<()> {
        if !self.pieces.is_empty() {
            disk.write(&self.path, self.offset, &self.pieces)?;
        }
        disk.sync(&self.path)?;
        if self.is_new { disk.sync_directory(parent(&self.path)) } else { Ok(()) }
    }
}

impl JournalWrite {
    /// Carries the write out. What else does it (direct I/O in the server) must do the same in the same order.
    pub fn execute(&self, disk: &dyn Disk) -> DiskResult<()> {
        self.data.iter().try_for_each(|data| data.execute(disk))?;
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
