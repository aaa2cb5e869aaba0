//! Damage at rest. At a moment at which no process runs, a copy of the disk is hurt in one place and started. Whatever the
//! place: every partition gives what it gives without the damage, or says that it does not; and the same holds at the next
//! start, after others have been written to.
//!
//! Spared is what nobody can tell from a tear: a journal's writes of which nothing says that they were synced. (storage.md,
//! "Recovery decides, loudly".)

mod node;

use std::ops::Range;
use std::sync::Arc;

use lockgate_engine::NodeConfig;
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_storage::disk::{Disk, DiskResult, parent};
use lockgate_storage::journal::inspect::{self, Item};
use lockgate_wire::{ErrorKind, Now, PartitionId};

use crate::rng::Rng;
use node::{Contents, QuietNode, ReadOut};

/// The rule, as violations name it.
pub const NAME: &str = "rot_is_told_or_harmless";

const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;
/// What the paths of journals begin with.
const JOURNALS: &str = "shards";

/// How a disk may hurt what it holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A bit is turned.
    Flip,
    /// A sector is zero.
    Lost,
    /// A block has what it had before: the device said that it wrote, and did not.
    Stale,
    /// A block has what another one of the file should have.
    Misdirected,
    /// The file has lost its end.
    Short,
    /// The file is gone.
    Gone,
}

/// All files of a disk, as a process would see them.
pub fn copy(disk: &dyn Disk) -> DiskResult<MemoryDisk> {
    let copy = MemoryDisk::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in disk.list(&directory)? {
            let path = if directory.is_empty() { entry.name.clone() } else { format!("{directory}/{}", entry.name) };
            if entry.is_directory {
                copy.create_directory(&path)?;
                directories.push(path);
            } else {
                copy.set_file(&path, disk.read(&path, 0, entry.bytes as usize)?.to_vec());
            }
        }
    }
    Ok(copy)
}

/// Hurts copies of a disk, a few times. Gives what came of it, in words that count. `older`: what the disk had at an earlier
/// moment.
pub fn examine(
    (disk, older): (&MemoryDisk, Option<&MemoryDisk>),
    config: &NodeConfig,
    now: Now,
    rng: &mut Rng,
    count: &mut dyn FnMut(&'static str),
) -> Result<(), String> {
    let config = Arc::new(config.clone());
    let good = disk.clone();
    let good = QuietNode::start(&good, &config, now)?.read_out().map_err(|error| error.to_string())?;
    for _ in 0..rng.within(1..=3) {
        let hurt = disk.clone();
        let Some(what) = damage(&hurt, older, rng) else { continue };
        let outcome = start_twice(&hurt, &config, now, &good).map_err(|error| format!("{what}: {error}"))?;
        count(outcome);
    }
    Ok(())
}

fn start_twice(hurt: &MemoryDisk, config: &Arc<NodeConfig>, now: Now, good: &ReadOut) -> Result<&'static str, String> {
    let Ok(mut node) = QuietNode::start(hurt, config, now) else { return Ok("rot refused a start") };
    let first = node.read_out().map_err(|error| error.to_string())?;
    compare(&first, good)?;
    // Others are written to: what that brings must hide nothing.
    for (id, contents) in &first {
        if let Ok(Contents { batches, ends_with: None, .. }) = contents
            && let Some(batch) = batches.last()
        {
            // Refused or not: what was there before has to stay.
            let _ = node.publish(*id, batch.clone());
        }
    }
    drop(node);
    let mut node =
        QuietNode::start(hurt, config, now).map_err(|error| format!("the next start is refused: {error}"))?;
    let second = node.read_out().map_err(|error| error.to_string())?;
    for (id, before) in &first {
        match (before, second.get(id)) {
            (Err(error), _) if !matches!(error.kind, ErrorKind::StorageFailed | ErrorKind::LogDamaged) => {
                return Err(format!("partition {id} does not serve: {error}"));
            }
            (Err(_), Some(Err(_))) => {}
            (Ok(before), Some(Ok(after))) => same_beginning(*id, after, before)?,
            (Ok(_), Some(Err(error))) => {
                return Err(format!("partition {id} served, and not after the next start: {error}"));
            }
            (Err(error), _) => return Err(format!("partition {id} serves again, which was refused: {error}")),
            (Ok(_), None) => return Err(format!("partition {id} is gone after the next start")),
        }
    }
    let refused = first.values().filter(|contents| contents.is_err()).count();
    let ends = first.values().flatten().any(|contents| contents.ends_with.is_some());
    Ok(match refused {
        0 if ends => "rot ended a read",
        0 => "rot was harmless",
        _ if refused == first.len() => "rot refused all partitions",
        _ => "rot refused some partitions",
    })
}

fn compare(hurt: &ReadOut, good: &ReadOut) -> Result<(), String> {
    if hurt.keys().ne(good.keys()) {
        return Err("there are other topics".into());
    }
    for (id, contents) in hurt {
        let (Ok(contents), Some(Ok(good))) = (contents, good.get(id)) else { continue };
        if contents.ends_with.is_some() {
            same_beginning(*id, good, contents)?;
        } else {
            // More is no harm: where a journal's torn end would be cut, damage before it keeps what is behind.
            same_beginning(*id, contents, good)?;
        }
    }
    Ok(())
}

/// Everything of `part` is in `whole`, in the same place.
fn same_beginning(id: PartitionId, whole: &Contents, part: &Contents) -> Result<(), String> {
    if part.ends_with.is_some() || whole.ends_with.is_some() {
        let both = whole.batches.iter().zip(&part.batches);
        let same = both.into_iter().all(|(whole, part)| whole == part);
        return if same { Ok(()) } else { Err(format!("partition {id} has other batches")) };
    }
    let has_more = whole.batches.len() > part.batches.len();
    let same = whole.earliest == part.earliest && whole.batches.starts_with(&part.batches);
    if same && (has_more || whole.cursors == part.cursors) {
        return Ok(());
    }
    let text = |contents: &Contents| format!("{} batches up to {}", contents.batches.len(), contents.high_watermark);
    Err(format!("partition {id} has {}, not {}", text(whole), text(part)))
}

/// Hurts one file. Gives what was done; nothing if there is nothing that may be hurt.
fn damage(disk: &MemoryDisk, older: Option<&MemoryDisk>, rng: &mut Rng) -> Option<String> {
    let of_journals = rng.per_mille(700);
    let is_meant = |path: &String| {
        let is_data = path.starts_with(JOURNALS) || path.starts_with("partitions/") || path.starts_with("metadata/");
        is_data && path.starts_with(JOURNALS) == of_journals && !is_prepared(path)
    };
    let paths: Vec<String> = disk.paths().into_iter().filter(is_meant).collect();
    if paths.is_empty() {
        return None;
    }
    let path = rng.pick(&paths).clone();
    let spared = if of_journals { unproven(disk, &path) } else { Vec::new() };
    let is_spared = |range: &Range<usize>| {
        spared.iter().any(|(at, spared)| *at == path && spared.start < range.end && range.start < spared.end)
    };
    let mut bytes = disk.file(&path)?;
    if bytes.is_empty() {
        return None;
    }
    let kind = *rng.pick(&[
        Kind::Flip,
        Kind::Flip,
        Kind::Lost,
        Kind::Stale,
        Kind::Stale,
        Kind::Misdirected,
        Kind::Short,
        Kind::Gone,
    ]);
    let before = match kind {
        Kind::Stale => before(older, &path, bytes.len(), rng),
        _ => Vec::new(),
    };
    // Where it had something else before.
    let changed: Vec<usize> =
        (0..before.len()).step_by(BLOCK_BYTES).filter(|at| block_of(&before, *at) != block_of(&bytes, *at)).collect();
    let at = match kind {
        Kind::Stale if changed.is_empty() => return None,
        Kind::Stale => *rng.pick(&changed),
        _ => rng.below(bytes.len() as u64) as usize,
    };
    let (sector, block) = (at / SECTOR_BYTES * SECTOR_BYTES, at / BLOCK_BYTES * BLOCK_BYTES);
    let range = match kind {
        Kind::Flip => at..at + 1,
        Kind::Lost => sector..(sector + SECTOR_BYTES).min(bytes.len()),
        Kind::Stale | Kind::Misdirected => block..(block + BLOCK_BYTES).min(bytes.len()),
        Kind::Short => at..bytes.len(),
        Kind::Gone => 0..bytes.len(),
    };
    // Nothing tells of the newest file of a journal if it is gone, or its header.
    let is_lost = matches!(kind, Kind::Gone) || (matches!(kind, Kind::Short) && at < SECTOR_BYTES);
    let is_newest = paths.iter().rfind(|other| parent(other) == parent(&path)) == Some(&path);
    if is_spared(&range) || (of_journals && is_lost && is_newest) {
        return None;
    }
    match kind {
        Kind::Flip => bytes[at] ^= 1 << rng.below(8),
        Kind::Lost => bytes[range.clone()].fill(0),
        Kind::Stale => bytes[range.clone()].copy_from_slice(&before[range.clone()]),
        Kind::Misdirected => {
            let from = rng.below((bytes.len() - range.len()) as u64 / BLOCK_BYTES as u64 + 1) as usize * BLOCK_BYTES;
            bytes.copy_within(from..from + range.len(), range.start);
        }
        Kind::Short => bytes.truncate(at),
        Kind::Gone => {
            disk.remove(&path).ok()?;
            return Some(format!("{path} is gone"));
        }
    }
    disk.set_file(&path, bytes);
    Some(format!("{path}: {kind:?} of the bytes {range:?}"))
}

/// What a file had before: at the earlier moment, or what a file in that directory had that this one may have been then, or
/// nothing but zeros, as one that replaced another as a whole.
fn before(older: Option<&MemoryDisk>, path: &str, len: usize, rng: &mut Rng) -> Vec<u8> {
    let older = older.filter(|_| path.starts_with(JOURNALS) || path.ends_with(".log"));
    let others: Vec<String> = older.map(MemoryDisk::paths).unwrap_or_default();
    let others: Vec<String> = others.into_iter().filter(|other| parent(other) == parent(path)).collect();
    let earlier = if others.is_empty() || !path.starts_with(JOURNALS) { None } else { Some(rng.pick(&others).clone()) };
    let bytes = older.and_then(|older| older.file(path).or_else(|| older.file(&earlier?)));
    let mut bytes = bytes.unwrap_or_default();
    bytes.resize(len, 0);
    bytes
}

/// The block that begins there, or what the file has of it.
fn block_of(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..(at + BLOCK_BYTES).min(bytes.len())]
}

/// Whether a journal's file did not get its name yet, or lost it.
fn is_prepared(path: &str) -> bool {
    path.starts_with(JOURNALS) && path.rsplit('/').next().is_some_and(inspect::is_free_name)
}

/// The writes of a file's journal of which nothing says that they were synced: where they are.
fn unproven(disk: &MemoryDisk, path: &str) -> Vec<(String, Range<usize>)> {
    let directory = parent(path);
    let mut stated = 0;
    let mut writes = Vec::new();
    // What such a file says is not looked at by a start.
    let counts = |other: &String| other.starts_with(directory) && !is_prepared(other);
    for path in disk.paths().into_iter().filter(counts) {
        // One whose header cannot be read says nothing.
        let _ = inspect::inspect(disk, &path, &mut |item| match item {
            Item::File(file) => stated = stated.max(file.synced.0),
            Item::Write(write) => {
                stated = stated.max(write.synced.0);
                let place = write.offset as usize..(write.offset + write.bytes) as usize;
                writes.push((write.last_sequence().0, path.clone(), place));
            }
            Item::Void { .. } => {}
        });
    }
    let unproven = writes.into_iter().filter(|(last, ..)| *last > stated);
    unproven.map(|(_, path, place)| (path, place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_every_file() {
        let disk = MemoryDisk::new();
        disk.create_directory("a/b").unwrap();
        disk.set_file("a/b/c", b"c".to_vec());
        disk.set_file("d", b"d".to_vec());
        let copy = copy(&disk).unwrap();
        assert_eq!(copy.paths(), disk.paths());
        assert_eq!(copy.file("a/b/c").unwrap(), b"c");
    }
}
