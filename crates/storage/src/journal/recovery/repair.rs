//! Making the decision last: what counts is durable, what was cut is zero, what was never used is gone.
//!
//! Any of this may be interrupted by the next crash: each step only makes void what was void, so the next recovery decides
//! the same.

use bytes::Bytes;

use super::error::RecoveryError;
use super::inventory::Inventory;
use super::walk::LogEnd;
use super::{Cut, Free};
use crate::disk::{Disk, DiskResult, Path};
use crate::journal::JournalConfig;
use crate::journal::format::BLOCK_BYTES;

/// How many zeros are written at once.
const ZERO_CHUNK_BYTES: usize = 1024 * 1024;

/// Files that do not count and tell something.
pub(super) struct Keeps {
    /// The newest one, which was never used: it tells of damage before it.
    pub(super) unused: bool,
    /// Those that were freed before: the gap behind them has who reads the journal look for what says so.
    pub(super) freed: bool,
}

/// What `keeps` stays, as the next start needs it to decide the same.
pub(super) fn repair(
    disk: &dyn Disk,
    config: &JournalConfig,
    inventory: &Inventory,
    end: &LogEnd,
    keeps: Keeps,
) -> Result<Vec<Cut>, RecoveryError> {
    let mut cuts = Vec::new();
    for file in inventory.freed.iter().filter(|_| !keeps.freed) {
        let why = "it was freed before, and its removal got lost".into();
        cuts.push(remove(disk, config, &file.path, file.bytes, why)?);
    }
    if let Some(unused) = inventory.unused.as_ref().filter(|_| !keeps.unused) {
        let (_, what) = unused.fault.as_ref().expect("that is why it is unused");
        cuts.push(remove(disk, config, &unused.path, unused.bytes, format!("made and never used: {what}"))?);
    }
    for index in end.removed(inventory) {
        let file = &inventory.files[index];
        let why = "nothing in it follows what was kept, and none of it had been synced".into();
        cuts.push(remove(disk, config, &file.path, file.bytes, why)?);
    }
    if let Some(tail) = end.tail.as_ref().filter(|tail| tail.end > tail.offset) {
        let file = &inventory.files[tail.file];
        let bytes = tail.end - tail.offset;
        zero(disk, &file.path, tail.offset, bytes)?;
        cuts.push(Cut { file: file.path.clone(), offset: tail.offset, bytes, why: tail.why.clone() });
    }
    // A process may have died, or a sync failed, between a write and its sync. Writing the same bytes again makes the sync
    // below mean something even where the kernel gave up on them; where they are durable nothing changes.
    for write in &end.doubtful {
        let path = &inventory.files[write.file].path;
        let bytes = disk.read(path, write.offset, usize::try_from(write.bytes).unwrap_or(usize::MAX))?;
        disk.write(path, write.offset, &[bytes])?;
    }
    let kept = inventory.files.len() - end.removed(inventory).count();
    for file in &inventory.files[..kept] {
        disk.sync(&file.path)?;
    }
    disk.sync_directory(&config.directory)?;
    Ok(cuts)
}

/// Keeps one prepared file of the right size, with whatever is in it: bytes of an earlier life never count. Its end is
/// written again, so that its size is durable even if the one who made it did not get that far.
pub(super) fn tidy_free_files(
    disk: &dyn Disk,
    config: &JournalConfig,
    inventory: &Inventory,
) -> Result<Option<Free>, RecoveryError> {
    let keep = inventory.free.iter().find(|file| file.bytes == config.file_bytes).map(|file| &file.path);
    for file in inventory.free.iter().filter(|file| Some(&file.path) != keep) {
        disk.remove(&file.path)?;
        disk.sync_directory(&config.directory)?;
    }
    let Some(path) = keep.cloned() else { return Ok(None) };
    let last = config.file_bytes - BLOCK_BYTES as u64;
    zero(disk, &path, last, BLOCK_BYTES as u64)?;
    // One that was only made has no header.
    let reused = disk.read(&path, 0, BLOCK_BYTES)?.iter().any(|byte| *byte != 0);
    Ok(Some(Free { path, reused }))
}

/// One at a time and durably, so that a crash leaves no gap in the files' numbers.
fn remove(disk: &dyn Disk, config: &JournalConfig, file: &Path, bytes: u64, why: String) -> DiskResult<Cut> {
    disk.remove(file)?;
    disk.sync_directory(&config.directory)?;
    Ok(Cut { file: file.clone(), offset: 0, bytes, why })
}

fn zero(disk: &dyn Disk, path: &Path, offset: u64, bytes: u64) -> DiskResult<()> {
    let chunk = Bytes::from(vec![0; bytes.min(ZERO_CHUNK_BYTES as u64) as usize]);
    let mut done = 0;
    while done < bytes {
        let len = (bytes - done).min(ZERO_CHUNK_BYTES as u64);
        disk.write(path, offset + done, &[chunk.slice(..len as usize)])?;
        done += len;
    }
    disk.sync(path)
}
