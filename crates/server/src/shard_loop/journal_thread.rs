//! The thread that carries out one journal's writes, one at a time.
//!
//! The synced journal is written past the page cache, each write durable when it returns (`O_DIRECT|O_DSYNC`), where the
//! file system takes that; elsewhere by a plain write and fdatasync. The meaning is [`JournalWrite::execute`]'s; a test
//! compares the two. What a write has for other files goes the same way.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

use bytes::Bytes;
use lockgate_storage::disk::{Disk, DiskResult, Path, parent};
use lockgate_storage::journal::{DataWrite, JournalWrite};
use rustix::fs::OFlags;

use super::aligned::{ALIGNMENT, AlignedBuffer};
use crate::disk::{RealDisk, error, write_all_at};

/// How a journal reaches the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteMode {
    /// `O_DIRECT|O_DSYNC`: past the page cache, durable on return.
    Direct,
    /// Through the page cache, with fdatasync where a write must be durable.
    Buffered,
}

impl std::fmt::Display for WriteMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "O_DIRECT|O_DSYNC",
            Self::Buffered => "write and fdatasync",
        })
    }
}

/// The file that the probe writes; removed again.
const PROBE_FILE: &str = "probe";

/// Tries which way the file system of the data directory takes.
pub(crate) fn probe(disk: &RealDisk) -> DiskResult<WriteMode> {
    let place = disk.locate("probe", PROBE_FILE)?;
    let direct = open(&place, WriteMode::Direct, true)
        .and_then(|file| file.write_all_at(AlignedBuffer::default().fill(&[], ALIGNMENT), 0))
        .map_or(WriteMode::Buffered, |()| WriteMode::Direct);
    // Opening with O_DIRECT may fail before or after the file is made.
    disk.remove(PROBE_FILE).or_else(|e| if e.is_missing() { Ok(()) } else { Err(e) })?;
    Ok(direct)
}

fn open(place: &std::path::Path, mode: WriteMode, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(create).truncate(false).mode(0o600);
    if mode == WriteMode::Direct {
        options.custom_flags((OFlags::DIRECT | OFlags::DSYNC).bits() as i32);
    }
    options.open(place)
}

/// A journal's file in use, and the buffer that its writes pass through.
pub(crate) struct JournalFiles {
    disk: Arc<RealDisk>,
    mode: WriteMode,
    buffer: AlignedBuffer,
    current: Option<(Path, File)>,
}

impl JournalFiles {
    pub(crate) fn new(disk: Arc<RealDisk>, mode: WriteMode) -> Self {
        Self { disk, mode, buffer: AlignedBuffer::default(), current: None }
    }

    /// Carries out one write.
    pub(crate) fn execute(&mut self, write: &JournalWrite) -> DiskResult<()> {
        for data in &write.data {
            self.put_data(data)?;
        }
        if let Some(next) = &write.open {
            let file = self.open(&next.free)?;
            self.put(&next.free, &file, 0, std::slice::from_ref(&next.header), next.header.len(), true)?;
            self.disk.rename(&next.free, &write.path)?;
            self.disk.sync_directory(parent(&write.path))?;
            self.current = Some((write.path.clone(), file));
        }
        let file = match self.current.take() {
            Some((path, file)) if path == write.path => file,
            _ => self.open(&write.path)?,
        };
        self.put(&write.path, &file, write.offset, &write.pieces, write.bytes, write.sync)?;
        self.current = Some((write.path.clone(), file));
        Ok(())
    }

    fn open(&self, path: &Path) -> DiskResult<File> {
        let place = self.disk.locate("open", path)?;
        open(&place, self.mode, false).map_err(|e| error("open", path, &e))
    }

    /// What the write refers to, at the end of another file. Past the page cache it shares no block with what is there, so
    /// that nobody who reads that can have a block of it in memory.
    fn put_data(&mut self, data: &DataWrite) -> DiskResult<()> {
        let is_in_blocks = data.bytes.is_multiple_of(ALIGNMENT) && data.offset.is_multiple_of(ALIGNMENT as u64);
        if self.mode == WriteMode::Buffered || data.pieces.is_empty() || !is_in_blocks {
            return data.execute(&*self.disk);
        }
        let place = self.disk.locate("open", &data.path)?;
        let file = open(&place, self.mode, true).map_err(|e| error("open", &data.path, &e))?;
        self.put(&data.path, &file, data.offset, &data.pieces, data.bytes, true)?;
        if !data.is_whole {
            file.sync_data().map_err(|e| error("sync", &data.path, &e))?;
        }
        if data.is_new { self.disk.sync_directory(parent(&data.path)) } else { Ok(()) }
    }

    /// The pieces, and zeros up to `len`, at `offset`.
    fn put(
        &mut self,
        path: &str,
        file: &File,
        offset: u64,
        pieces: &[Bytes],
        len: usize,
        sync: bool,
    ) -> DiskResult<()> {
        match self.mode {
            WriteMode::Direct => {
                let bytes = self.buffer.fill(pieces, len);
                file.write_all_at(bytes, offset).map_err(|e| error("write", path, &e))
            }
            WriteMode::Buffered => {
                let used: usize = pieces.iter().map(Bytes::len).sum();
                let padding = Bytes::from_static(&[0; ALIGNMENT]).slice(..len - used);
                let padded: Vec<Bytes> = pieces.iter().cloned().chain([padding]).collect();
                write_all_at(file, offset, &padded).map_err(|e| error("write", path, &e))?;
                if sync { file.sync_data().map_err(|e| error("sync", path, &e)) } else { Ok(()) }
            }
        }
    }
}
