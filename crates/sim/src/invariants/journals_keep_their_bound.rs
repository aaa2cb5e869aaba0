//! A journal has no more files than its bound allows, prepared ones included, but for the two that may be made beyond it.

use super::Verdict;

/// The invariant's name.
pub const NAME: &str = "journals_keep_their_bound";

/// Files that may be made beyond the bound: a start's own, and the one whose first write lets an older one go.
const BEYOND: u64 = 2;

/// Compares the files of a journal's directory with the bound.
pub fn check(directory: &str, files: u64, max_bytes: u64, file_bytes: u64) -> Verdict {
    let max = max_bytes / file_bytes;
    if files <= max + BEYOND {
        return Ok(());
    }
    Err(format!("{directory} has {files} files, at most {max} and {BEYOND} beyond"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_too_many_is_found() {
        assert_eq!(check("shards/0/journal", 6, 4 << 20, 1 << 20), Ok(()));
        assert!(check("shards/0/journal", 7, 4 << 20, 1 << 20).is_err());
        assert_eq!(check("shards/0/journal", 6, (5 << 20) - 1, 1 << 20), Ok(()));
    }
}
