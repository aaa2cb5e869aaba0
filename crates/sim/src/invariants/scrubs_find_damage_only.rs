//! A scrub finds nothing on a disk that keeps what it was given.

use lockgate_engine::ShardMetrics;

use super::Verdict;

/// The invariant's name.
pub const NAME: &str = "scrubs_find_damage_only";

/// Looks for what a shard's scrub has found.
pub fn check(metrics: &ShardMetrics) -> Verdict {
    match metrics.damaged_places {
        0 => Ok(()),
        places => Err(format!("the disk is as it was written, and the scrub found damaged places: {places}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_found() {
        assert_eq!(check(&ShardMetrics::default()), Ok(()));
        assert!(check(&ShardMetrics { damaged_places: 1, ..ShardMetrics::default() }).is_err());
    }
}
