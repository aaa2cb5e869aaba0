//! What a writer answers when it does not take or confirm a record, and what it counts.

use std::fmt;

use crate::disk::{DiskError, Path};

/// Why a journal stopped. Kept until the process ends; a restart recovers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Poison {
    /// The operation that failed.
    pub stage: &'static str,
    /// The operating system's number.
    pub errno: i32,
    /// The file.
    pub path: Path,
    /// The operating system's words.
    pub message: String,
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, errno, path, message } = self;
        write!(
            f,
            "the journal stopped: {stage} of {path} failed: {message} (errno {errno}); restart the node to recover"
        )
    }
}
impl std::error::Error for Poison {}

impl From<DiskError> for Poison {
    fn from(error: DiskError) -> Self {
        Self { stage: error.stage, errno: error.errno, path: error.path, message: error.message }
    }
}

/// Why a record was not taken. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppendRefused {
    /// It would never fit one write.
    TooLarge {
        /// Size of the body.
        bytes: usize,
        /// The largest body that fits.
        limit: usize,
    },
    /// The journal failed earlier.
    Poisoned(Poison),
    /// An orderly stop has begun.
    Ending,
}

impl fmt::Display for AppendRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => write!(
                f,
                "a record of {bytes} bytes does not fit one journal write, the limit is {limit}: raise journal.max_write_bytes"
            ),
            Self::Poisoned(poison) => poison.fmt(f),
            Self::Ending => f.write_str("the journal is being closed"),
        }
    }
}
impl std::error::Error for AppendRefused {}

/// What a journal has done since the start, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalCounters {
    /// Finished writes, marks included.
    pub writes: u64,
    /// Records in them.
    pub records: u64,
    /// Their bytes with padding.
    pub bytes: u64,
    /// Of the records, those whose data went elsewhere.
    pub external_records: u64,
    /// The bytes of that data, with padding.
    pub external_bytes: u64,
    /// Syncs that succeeded: with each write, or on their own.
    pub syncs: u64,
    /// Files opened.
    pub files: u64,
    /// Files that went, as nobody needed them any more.
    pub files_freed: u64,
}
