//! A start at the bound takes the place of the file that the last start has begun and hardly used.
//!
//! Every start writes to a file of its own. Starts that end early, one after another, would leave a file each, and a
//! journal at its bound would grow with every one of them. So the little that the last file holds is written to a new file
//! of the same number, with the same records and this start's epoch, which takes its name in one step.

use bytes::Bytes;

use super::inventory::FoundFile;
use super::scan::{self, FileView, Found};
use super::{Current, Free, RecoveryError};
use crate::disk::{Disk, FileOp, Path};
use crate::journal::format::{self, BLOCK_BYTES, FileHeader, WriteHeader};
use crate::journal::layout::{Pending, lay_out};
use crate::journal::{Draft, JournalConfig, JournalKind};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What this start is and where it stands.
pub(super) struct Start {
    pub(super) epoch: u64,
    pub(super) next_sequence: u64,
    pub(super) oldest_file: u64,
    /// A prepared file, or where to make one.
    pub(super) free: Result<Free, Path>,
}

/// Writes the records of `file`, which are durable, to a file that takes its place. `None` when they fill more than half
/// of it: such a file is worth its place. One that is damaged stays as it is.
pub(super) fn take_over(
    disk: &dyn Disk,
    config: &JournalConfig,
    file: &FoundFile,
    start: &Start,
) -> Result<Option<Current>, RecoveryError> {
    let Some((old, old_chain)) = &file.header else { return Ok(None) };
    let synced = start.next_sequence - 1;
    let header = FileHeader {
        epoch: start.epoch,
        file_bytes: config.file_bytes,
        synced,
        oldest_file: start.oldest_file,
        reused: start.free.as_ref().is_ok_and(|free| free.reused),
        ..old.clone()
    };
    let block = header.encode();
    let (_, mut chain) = FileHeader::decode(&block).expect("what was encoded is decoded");
    let mut pieces: Vec<Bytes> = vec![block.into()];
    let salt = format::salt(&config.identity, config.kind);
    let view = FileView {
        disk,
        path: &file.path,
        bytes: file.bytes,
        salt,
        file_sequence: old.file_sequence,
        epoch: Some(old.epoch),
        reused: old.reused,
    };
    let (mut from, mut from_chain, mut offset) = (BLOCK, *old_chain, BLOCK);
    let mut next_sequence = old.first_sequence;
    while let Found::Write(write, records, after) = scan::write_at(&view, from, from_chain)? {
        (from, from_chain) = (from + write.padded_bytes(), after);
        next_sequence = write.next_sequence();
        if records.is_empty() {
            continue;
        }
        let write = WriteHeader {
            epoch: start.epoch,
            synced,
            oldest_file: start.oldest_file,
            chain,
            flags: 0,
            block: (offset / BLOCK) as u32,
            ..write
        };
        let records = records.into_iter().map(|record| {
            let draft =
                Draft { group: record.group, replica: record.replica, kind: record.kind, body: vec![record.body] };
            let bytes = draft.body[0].len() as u32;
            Pending::new(draft, bytes, record.sequence.0, record.counter)
        });
        let layout = lay_out(write, salt, records.collect());
        chain = layout.chain;
        offset += layout.bytes as u64;
        pieces.extend(layout.pieces);
        if offset > config.file_bytes / 2 {
            return Ok(None);
        }
    }
    // A place that only the walk over all files gets past: the file stays as it is.
    if next_sequence != start.next_sequence {
        return Ok(None);
    }
    replace(disk, config, file, start, &pieces)?;
    Ok(Some(Current { sequence: header.file_sequence, path: file.path.clone(), epoch: start.epoch, offset, chain }))
}

fn replace(
    disk: &dyn Disk,
    config: &JournalConfig,
    file: &FoundFile,
    start: &Start,
    pieces: &[Bytes],
) -> Result<(), RecoveryError> {
    let free = match &start.free {
        Ok(free) => &free.path,
        Err(free) => {
            let written = config.kind == JournalKind::Synced;
            FileOp::Zero { path: free.clone(), bytes: config.file_bytes, written }.execute(disk)?;
            free
        }
    };
    disk.write(free, 0, pieces)?;
    disk.sync(free)?;
    disk.rename(free, &file.path)?;
    disk.sync_directory(&config.directory)?;
    Ok(())
}
