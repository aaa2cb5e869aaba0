//! What is in the directory: the journal files in order, each with a header that can be believed, and the prepared files.
//!
//! Refuses what is not this journal's, and what a crash cannot have left: files are opened and removed one at a time,
//! each step made durable before the next.

use super::error::{Damage, RecoveryError};
use super::scan::{self, FileView};
use crate::disk::{Disk, Path};
use crate::journal::format::{self, BLOCK_BYTES, FileHeader, FileHeaderFault, Name, SECTOR_BYTES};
use crate::journal::{JournalConfig, Sequence};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// No journal counts its files and starts further than this: what says so is damaged, and counting on cannot overflow.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// A journal file whose header is good.
pub(super) struct FoundFile {
    pub(super) path: Path,
    pub(super) header: FileHeader,
    /// The header's CRC, with which the chain starts.
    pub(super) chain: u32,
}

/// A journal file whose header is not good.
pub(super) struct BadFile {
    pub(super) path: Path,
    pub(super) bytes: u64,
    file_sequence: u64,
    pub(super) first_sequence: u64,
    pub(super) why: &'static str,
}

/// A prepared file.
pub(super) struct FreeFile {
    pub(super) number: u64,
    pub(super) path: Path,
    pub(super) bytes: u64,
}

pub(super) struct Inventory {
    /// In order of their numbers, which have no gap.
    pub(super) files: Vec<FoundFile>,
    /// Files before a gap in the numbers, and what that gap is unless those files were freed.
    pub(super) before_gap: Option<(Vec<FoundFile>, Damage)>,
    /// The newest file, if it was made and never used.
    pub(super) unused: Option<BadFile>,
    /// In order of their numbers.
    pub(super) free: Vec<FreeFile>,
}

pub(super) fn take(disk: &dyn Disk, config: &JournalConfig) -> Result<Inventory, RecoveryError> {
    let entries = match disk.list(&config.directory) {
        Err(error) if error.is_missing() => Vec::new(),
        other => other?,
    };
    if entries.is_empty() {
        // One that is there may have been made by a process that did not live to sync its name.
        disk.create_directory(&config.directory)?;
    }
    let mut named = Vec::new();
    let mut free = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.is_directory) {
        let path = config.path(&entry.name);
        match format::parse_name(&entry.name) {
            Name::File(file_sequence, first_sequence) => named.push((file_sequence, first_sequence, path, entry.bytes)),
            Name::Free(number) => free.push(FreeFile { number, path, bytes: entry.bytes }),
            Name::Other => {}
        }
    }
    named.sort();
    free.sort_by_key(|file| file.number);
    let newest = named.last().map(|(file_sequence, ..)| *file_sequence);
    let mut files: Vec<FoundFile> = Vec::with_capacity(named.len());
    let mut unused = None;
    let mut before_gap = None;
    for (file_sequence, first_sequence, path, bytes) in named {
        check_name(file_sequence, first_sequence, &path)?;
        if let Some(gap) = gap(&files, file_sequence, &path) {
            before_gap.get_or_insert((Vec::new(), gap)).0.append(&mut files);
        }
        match open(disk, config, &path, file_sequence, first_sequence, bytes)? {
            Ok(file) => {
                epoch_grows(&files, &file)?;
                files.push(file);
            }
            Err(why) => {
                let bad = BadFile { path, bytes, file_sequence, first_sequence, why };
                if files.is_empty() && file_sequence > 1 {
                    let what = format!("{}, and the files before it are missing", bad.why);
                    return Err(damage(&bad.path, 0, what, 1, None).into());
                }
                never_used(disk, config, &bad, newest == Some(file_sequence))?;
                unused = Some(bad);
            }
        }
    }
    Ok(Inventory { files, before_gap, unused, free })
}

fn damage(path: &Path, offset: u64, what: String, first_lost: u64, last_lost: Option<u64>) -> Damage {
    let (first_lost, last_lost) = (Sequence(first_lost), last_lost.map(Sequence));
    Damage { file: path.clone(), offset, what, first_lost, last_lost }
}

fn check_name(file_sequence: u64, first_sequence: u64, path: &Path) -> Result<(), RecoveryError> {
    if first_sequence > 0 && (1..=NUMBER_MAX).contains(&file_sequence) {
        return Ok(());
    }
    Err(damage(path, 0, format!("a name with numbers outside 1 to {NUMBER_MAX}"), 1, None).into())
}

/// A gap before a file. Files are freed one after another, but a removal may get lost although a later one did not.
fn gap(files: &[FoundFile], file_sequence: u64, path: &Path) -> Option<Damage> {
    let previous = files.last().filter(|previous| previous.header.file_sequence + 1 != file_sequence)?;
    let expected = previous.header.file_sequence + 1;
    let what = format!("it is file {file_sequence} of the journal, but file {expected} should come next");
    Some(damage(path, 0, what, previous.header.first_sequence, None))
}

fn epoch_grows(files: &[FoundFile], file: &FoundFile) -> Result<(), RecoveryError> {
    let previous = files.last().map_or(0, |previous| previous.header.epoch);
    if file.header.epoch >= previous.max(1) && file.header.epoch <= NUMBER_MAX {
        return Ok(());
    }
    let what = format!("it was opened in start {}, after a file of start {previous}", file.header.epoch);
    Err(damage(&file.path, 0, what, file.header.first_sequence, None).into())
}

/// Reads a file's header. `Ok(Err)` says what is wrong with a header that was perhaps never written.
fn open(
    disk: &dyn Disk,
    config: &JournalConfig,
    path: &Path,
    file_sequence: u64,
    first_sequence: u64,
    bytes: u64,
) -> Result<Result<FoundFile, &'static str>, RecoveryError> {
    let (header, chain) = match FileHeader::decode(&disk.read(path, 0, SECTOR_BYTES)?) {
        Ok(good) => good,
        Err(FileHeaderFault::UnknownVersion(found)) => {
            return Err(RecoveryError::UnknownVersion { file: path.clone(), found });
        }
        Err(FileHeaderFault::Empty) => return Ok(Err("it has no header")),
        Err(FileHeaderFault::Bad) => return Ok(Err("its header is damaged")),
    };
    let (found, expected) = ((header.identity, header.kind), (config.identity, config.kind));
    if found != expected {
        return Err(RecoveryError::WrongOwner { file: path.clone(), found, expected });
    }
    if (header.file_sequence, header.first_sequence) != (file_sequence, first_sequence) {
        let (file, first) = (header.file_sequence, header.first_sequence);
        let what = format!("its header says file {file} from record {first}, its name does not");
        return Err(damage(path, 0, what, first_sequence.min(first), None).into());
    }
    if bytes < header.file_bytes {
        let what = format!("it was made with {} bytes and has {bytes}", header.file_bytes);
        return Err(damage(path, bytes, what, first_sequence, None).into());
    }
    Ok(Ok(FoundFile { path: path.clone(), header, chain }))
}

/// A file is named once its header is durable, and used after that: a bad header is harmless only in the newest file, and
/// only if nothing was ever written behind it.
fn never_used(disk: &dyn Disk, config: &JournalConfig, file: &BadFile, is_newest: bool) -> Result<(), RecoveryError> {
    if !is_newest {
        let what = format!("{}, and later files exist", file.why);
        return Err(damage(&file.path, 0, what, file.first_sequence, None).into());
    }
    let view = FileView {
        disk,
        path: &file.path,
        bytes: file.bytes,
        salt: format::salt(&config.identity, config.kind),
        file_sequence: file.file_sequence,
        epoch: None,
    };
    let Some(synced) = scan::beyond(&view, BLOCK, BLOCK, None)?.synced else { return Ok(()) };
    let what = format!("{}, but there are writes behind it", file.why);
    Err(damage(&file.path, 0, what, file.first_sequence, (synced >= file.first_sequence).then_some(synced)).into())
}
