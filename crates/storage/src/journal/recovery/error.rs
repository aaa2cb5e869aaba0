//! Why a journal cannot be used, in an operator's words.

use std::fmt;

use crate::disk::{DiskError, Path};
use crate::journal::format::FORMAT_VERSION;
use crate::journal::{ConfigError, JournalIdentity, JournalKind, Sequence};

/// Something that was confirmed is not there any more, or cannot be believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub file: Path,
    /// Where in it.
    pub offset: u64,
    /// What was found there, and what should have been.
    pub what: String,
    /// What that cost.
    pub lost: Lost,
}

/// What damage cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// No record is missing.
    Nothing,
    /// These records, the last one included.
    Records(Sequence, Sequence),
    /// This one and those behind it, nobody knows how many.
    From(Sequence),
}

/// Why recovery refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecoveryError {
    /// The configuration does not hold together.
    Config(ConfigError),
    /// The disk failed.
    Disk(DiskError),
    /// A journal of somebody else.
    WrongOwner {
        /// The file.
        file: Path,
        /// Whose it is.
        found: (JournalIdentity, JournalKind),
        /// Whose it should be.
        expected: (JournalIdentity, JournalKind),
    },
    /// Written by a version that this one does not know.
    UnknownVersion {
        /// The file.
        file: Path,
        /// Its format version.
        found: u32,
    },
    /// Something confirmed is lost, and nobody can go on without it.
    Damage(Damage),
}

const WHAT_TO_DO: &str = "Keep the files as they are, and restore the data directory from a copy";

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at offset {}: {}. ", self.file, self.offset, self.what)?;
        match self.lost {
            Lost::Nothing => write!(f, "No record is missing"),
            Lost::Records(first, last) => write!(f, "The records {first} to {last} are lost, which had been confirmed"),
            Lost::From(first) => write!(f, "The records from {first} on cannot be trusted"),
        }
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Disk(error) => write!(f, "the journal cannot be recovered: {error}"),
            Self::WrongOwner { file, found, expected } => write!(
                f,
                "{file} is the {} journal of {}, but this is the {} journal of {}: point the node to its own data directory",
                found.1, found.0, expected.1, expected.0
            ),
            Self::UnknownVersion { file, found } => write!(
                f,
                "{file} has journal format version {found}, this program knows version {FORMAT_VERSION}: start the version \
                 that wrote it"
            ),
            Self::Damage(damage) => write!(f, "{damage}. {WHAT_TO_DO}"),
        }
    }
}
impl std::error::Error for RecoveryError {}

impl From<DiskError> for RecoveryError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<ConfigError> for RecoveryError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<Damage> for RecoveryError {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}
