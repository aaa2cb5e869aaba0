//! What is in the directory: the journal files in order, each with what is wrong with it as a whole, and the prepared files.
//!
//! Refuses what is not this journal's. What a crash cannot have left is a *fault*: files are opened and removed one at a
//! time, each step made durable before the next.

use super::error::{Damage, Lost, RecoveryError};
use super::scan::{self, FileView};
use crate::disk::{Disk, Path};
use crate::journal::format::{self, BLOCK_BYTES, FileHeader, FileHeaderFault, Name, SECTOR_BYTES};
use crate::journal::{JournalConfig, Sequence};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// No journal counts its files and starts further than this: what says so is damaged, and counting on cannot overflow.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// A journal file that may hold records.
pub(super) struct FoundFile {
    pub(super) path: Path,
    /// How many there are to be read.
    pub(super) bytes: u64,
    /// The numbers of its name.
    pub(super) number: u64,
    pub(super) first_sequence: u64,
    /// The header and its CRC, with which the chain starts; `None` if it cannot be believed.
    pub(super) header: Option<(FileHeader, u32)>,
    /// What is wrong with the file as a whole, and where.
    pub(super) fault: Option<(u64, String)>,
}

/// A prepared file.
pub(super) struct FreeFile {
    pub(super) number: u64,
    pub(super) path: Path,
    pub(super) bytes: u64,
}

pub(super) struct Inventory {
    /// In order of their numbers.
    pub(super) files: Vec<FoundFile>,
    /// Files that were freed before, whose removal got lost.
    pub(super) freed: Vec<FoundFile>,
    /// Files before this one are not needed, say those behind a gap in the numbers; 1 if there is no gap.
    pub(super) needed: u64,
    /// The newest file, if it was made and never used.
    pub(super) unused: Option<FoundFile>,
    /// In order of their numbers.
    pub(super) free: Vec<FreeFile>,
}

impl Inventory {
    /// What the next file begins with; nothing limits the last one.
    pub(super) fn limit(&self, index: usize) -> u64 {
        self.files.get(index + 1).map_or(u64::MAX, |next| next.first_sequence)
    }
}

impl FoundFile {
    /// Whether nobody knows what came behind `offset`, the end of what is there: the file is short, or has neither a header
    /// nor a write.
    pub(super) fn has_lost_its_end(&self, offset: u64) -> bool {
        self.fault.is_some() && (self.header.is_some() || offset == BLOCK)
    }
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
    let mut files: Vec<FoundFile> = Vec::with_capacity(named.len());
    for (number, first_sequence, path, bytes) in named {
        check_name(number, first_sequence, &path)?;
        let mut file = FoundFile { path, bytes, number, first_sequence, header: None, fault: None };
        match open(disk, config, &file)? {
            Ok(header) => file.header = Some(header),
            Err(why) => file.fault = Some((0, why)),
        }
        check_size_and_place(&mut file, files.last());
        files.push(file);
    }
    let (freed, needed) = freed(disk, config, &mut files)?;
    let unused = match files.pop_if(|newest| newest.header.is_none()) {
        Some(newest) if files.is_empty() && newest.number > 1 => {
            files.push(newest);
            None
        }
        Some(newest) if scan::next_write(&view(disk, config, &newest), BLOCK, BLOCK)?.write.is_some() => {
            files.push(newest);
            None
        }
        other => other,
    };
    Ok(Inventory { files, freed, needed, unused, free })
}

/// How a file's writes are looked at.
pub(super) fn view<'a>(disk: &'a dyn Disk, config: &JournalConfig, file: &'a FoundFile) -> FileView<'a> {
    FileView {
        disk,
        path: &file.path,
        bytes: file.bytes,
        salt: format::salt(&config.identity, config.kind),
        file_sequence: file.number,
        epoch: file.header.as_ref().map(|(header, _)| header.epoch),
        reused: file.header.as_ref().is_some_and(|(header, _)| header.reused),
    }
}

fn check_name(number: u64, first_sequence: u64, path: &Path) -> Result<(), RecoveryError> {
    if (1..=NUMBER_MAX).contains(&first_sequence) && (1..=NUMBER_MAX).contains(&number) {
        return Ok(());
    }
    let what = format!("a name with numbers outside 1 to {NUMBER_MAX}");
    Err(Damage { file: path.clone(), offset: 0, what, lost: Lost::From(Sequence(1)) }.into())
}

/// Reads a file's header. `Ok(Err)` says what is wrong with one that cannot be believed.
fn open(
    disk: &dyn Disk,
    config: &JournalConfig,
    file: &FoundFile,
) -> Result<Result<(FileHeader, u32), String>, RecoveryError> {
    let (header, chain) = match FileHeader::decode(&disk.read(&file.path, 0, SECTOR_BYTES)?) {
        Ok(good) => good,
        Err(FileHeaderFault::UnknownVersion(found)) => {
            return Err(RecoveryError::UnknownVersion { file: file.path.clone(), found });
        }
        Err(FileHeaderFault::Empty) => return Ok(Err("it has no header".into())),
        Err(FileHeaderFault::Bad) => return Ok(Err("its header is damaged".into())),
    };
    let (found, expected) = ((header.identity, header.kind), (config.identity, config.kind));
    if found != expected {
        return Err(RecoveryError::WrongOwner { file: file.path.clone(), found, expected });
    }
    let (number, first) = (header.file_sequence, header.first_sequence);
    if (number, first) != (file.number, file.first_sequence) {
        return Ok(Err(format!("its header says file {number} from record {first}, its name does not")));
    }
    // A file that was taken over has the writes of the start that did it, and no crash leaves an older header before them.
    let epoch = scan::first_epoch(&view(disk, config, file))?;
    if epoch.is_some_and(|epoch| epoch > header.epoch) {
        return Ok(Err(format!("its header is older than what is written behind it, of start {}", header.epoch)));
    }
    Ok(Ok((header, chain)))
}

/// Finds what no crash leaves: files are made whole, and opened one after another.
fn check_size_and_place(file: &mut FoundFile, previous: Option<&FoundFile>) {
    let Some((header, _)) = &file.header else { return };
    if file.bytes < header.file_bytes {
        let what = format!("it was made with {} bytes and has {}", header.file_bytes, file.bytes);
        file.fault = Some((file.bytes, what));
    }
    file.bytes = file.bytes.min(header.file_bytes);
    let epoch_before = previous.and_then(|previous| previous.header.as_ref()).map_or(1, |(header, _)| header.epoch);
    if header.epoch < epoch_before || header.epoch > NUMBER_MAX {
        let what = format!("it was opened in start {}, after a file of start {epoch_before}", header.epoch);
        (file.header, file.fault) = (None, Some((0, what)));
    }
}

/// Takes out the files before a gap in the numbers, if something behind it says that nobody needed them any more: files are
/// freed one after another, but the removal of one may get lost although that of a later one did not.
/// Gives them, and the file that is said to be the first one needed.
fn freed(
    disk: &dyn Disk,
    config: &JournalConfig,
    files: &mut Vec<FoundFile>,
) -> Result<(Vec<FoundFile>, u64), RecoveryError> {
    let gaps = |files: &[FoundFile]| -> Vec<usize> {
        (1..files.len()).filter(|at| files[at - 1].number + 1 != files[*at].number).collect()
    };
    let Some(first_gap) = gaps(files).first().copied() else { return Ok((Vec::new(), 1)) };
    let mut needed = 1;
    for file in &files[first_gap..] {
        needed = needed.max(file.header.as_ref().map_or(1, |(header, _)| header.oldest_file));
        needed = needed.max(scan::beyond(&view(disk, config, file), BLOCK, BLOCK)?.oldest_file);
    }
    let last = gaps(files).into_iter().rfind(|at| files[*at].number <= needed).unwrap_or(0);
    Ok((files.drain(..last).collect(), needed))
}
