//! A journal's settings and the relations that must hold between them.

use std::fmt;

use super::format::{BLOCK_BYTES, RECORD_HEADER_BYTES, WRITE_HEADER_BYTES};
use super::{JournalIdentity, JournalKind};
use crate::disk::Path;

/// Where a journal lives and how large its parts are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalConfig {
    /// Synced or buffered.
    pub kind: JournalKind,
    /// Its directory, which holds nothing else.
    pub directory: Path,
    /// Whose it is.
    pub identity: JournalIdentity,
    /// Size of a file.
    pub file_bytes: u64,
    /// Most bytes in one write, header and padding included.
    pub max_write_bytes: u32,
    /// Most bytes in all files together. At the bound only what makes room is still taken.
    pub max_bytes: u64,
    /// How long after a write that nothing follows a mark is written.
    pub mark_after_ms: u64,
    /// From this size on a record's data will mostly go elsewhere: its checksum waits until that is decided.
    pub external_min_bytes: u64,
}

/// A setting out of its bounds, or two that do not fit each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The setting.
    pub setting: &'static str,
    /// Its value.
    pub value: u64,
    /// What must hold, in words.
    pub rule: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but it must be {}", self.setting, self.value, self.rule)
    }
}
impl std::error::Error for ConfigError {}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl JournalConfig {
    /// Size of a file unless configured.
    pub const DEFAULT_FILE_BYTES: u64 = 64 * 1024 * 1024;
    /// Most bytes in one write unless configured.
    pub const DEFAULT_MAX_WRITE_BYTES: u32 = 4 * 1024 * 1024;
    /// Most bytes in all files unless configured.
    pub const DEFAULT_MAX_BYTES: u64 = 1024 * 1024 * 1024;
    /// The fewest files that the bound may be: two to be filled and emptied in turn, two in reserve.
    pub const FILES_MIN: u64 = 4;
    /// The largest bound.
    pub const MAX_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
    /// Time until a mark unless configured.
    pub const DEFAULT_MARK_AFTER_MS: u64 = 10;
    /// Bounds of a file's size.
    pub const FILE_BYTES_MIN: u64 = 2 * BLOCK;
    /// Bounds of a file's size.
    pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
    /// Bounds of a write's size.
    pub const MAX_WRITE_BYTES_MAX: u64 = 256 * 1024 * 1024;
    /// Bounds of the time until a mark.
    pub const MARK_AFTER_MS_MAX: u64 = 10_000;

    /// A journal with the default sizes.
    pub fn new(kind: JournalKind, directory: impl Into<Path>, identity: JournalIdentity) -> Self {
        Self {
            kind,
            directory: directory.into(),
            identity,
            file_bytes: Self::DEFAULT_FILE_BYTES,
            max_write_bytes: Self::DEFAULT_MAX_WRITE_BYTES,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            mark_after_ms: Self::DEFAULT_MARK_AFTER_MS,
            external_min_bytes: u64::MAX,
        }
    }

    /// Checks bounds and relations.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let require = |holds: bool, setting, value, rule: String| {
            if holds { Ok(()) } else { Err(ConfigError { setting, value, rule }) }
        };
        let (file, write) = (self.file_bytes, u64::from(self.max_write_bytes));
        let in_blocks = |value: u64, min: u64, max: u64| value.is_multiple_of(BLOCK) && (min..=max).contains(&value);
        let blocks = |min: u64, max: u64| format!("a multiple of {BLOCK} from {min} to {max}");
        let (file_min, file_max) = (Self::FILE_BYTES_MIN, Self::FILE_BYTES_MAX);
        require(in_blocks(file, file_min, file_max), "journal.file_bytes", file, blocks(file_min, file_max))?;
        let write_max = Self::MAX_WRITE_BYTES_MAX.min(file - BLOCK);
        let rule = blocks(BLOCK, write_max) + ", so that it fits a file beside the file's header";
        require(in_blocks(write, BLOCK, write_max), "journal.max_write_bytes", write, rule)?;
        let (bound_min, bound_max) = (Self::FILES_MIN * file, Self::MAX_BYTES_MAX);
        let rule = format!("from {bound_min} ({} files) to {bound_max}", Self::FILES_MIN);
        require((bound_min..=bound_max).contains(&self.max_bytes), "journal.max_bytes", self.max_bytes, rule)?;
        let (mark, mark_max) = (self.mark_after_ms, Self::MARK_AFTER_MS_MAX);
        require((1..=mark_max).contains(&mark), "journal.mark_after_ms", mark, format!("from 1 to {mark_max}"))
    }

    /// The largest body of one record: header and record fill one write exactly.
    pub fn max_body_bytes(&self) -> usize {
        (self.max_write_bytes as usize).saturating_sub(WRITE_HEADER_BYTES + RECORD_HEADER_BYTES)
    }

    /// How many files there may be.
    pub(super) fn max_files(&self) -> usize {
        usize::try_from(self.max_bytes / self.file_bytes).unwrap_or(usize::MAX)
    }

    /// The path of a file of this journal.
    pub(super) fn path(&self, name: &str) -> Path {
        format!("{}/{name}", self.directory).into()
    }
}
