//! What can be wrong with stored bytes: damage, or a build that is too old for them. Refusals of a well-formed command
//! are `wire::Error`s; they go to the caller. These go to the operator.

use std::fmt;

/// Why a stored command or snapshot cannot be read.
#[derive(Clone, PartialEq, Debug)]
pub enum CatalogError {
    /// The bytes are not a message of the expected form.
    Malformed(prost::DecodeError),
    /// The command is of no kind that this build knows.
    UnknownCommand,
    /// The snapshot's format is not one that this build reads.
    UnknownFormat {
        /// The format that the snapshot names.
        found: u32,
        /// The format that this build reads.
        supported: u32,
    },
    /// A field holds what no catalog writes.
    InvalidField {
        /// The field.
        field: &'static str,
        /// What it holds, or what it breaks.
        value: String,
    },
}

impl CatalogError {
    pub(crate) fn invalid(field: &'static str, value: impl fmt::Display) -> Self {
        Self::InvalidField { field, value: value.to_string() }
    }
}

impl From<prost::DecodeError> for CatalogError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "the stored metadata is malformed: {error}"),
            Self::UnknownCommand => {
                f.write_str("a metadata command of a kind that this build does not know: upgrade this node")
            }
            Self::UnknownFormat { found, supported } => {
                write!(
                    f,
                    "a metadata snapshot of format {found}; this build reads format {supported}: upgrade this node"
                )
            }
            Self::InvalidField { field, value } => {
                write!(f, "the stored metadata holds an impossible {field}: {value}")
            }
        }
    }
}

impl std::error::Error for CatalogError {}
