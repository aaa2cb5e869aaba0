//! A journal has no more files than its bound allows, prepared ones included, but for one that is being made.

use super::Verdict;

/// The invariant's name.
pub const NAME: &str = "journals_keep_their_bound";

/// A file may be made beyond the bound: a start's own, or the one whose first write lets an older one go.
const BEING_MADE: u64 = 1;

/// Compares the files of a journal's directory with the bound.
pub fn check(directory: &str, files: u64, max_bytes: u64, file_bytes: u64) -> Verdict {
    let max = max_bytes / file_bytes;
    if files <= max + BEING_MADE {
        return Ok(());
    }
    Err(format!("{directory} has {files} files, at most {max} and {BEING_MADE} that is being made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_too_many_is_found() {
        assert_eq!(check("shards/0/journal", 5, 4 << 20, 1 << 20), Ok(()));
        assert!(check("shards/0/journal", 6, 4 << 20, 1 << 20).is_err());
        assert_eq!(check("shards/0/journal", 5, (5 << 20) - 1, 1 << 20), Ok(()));
    }
}
