//! Election timeouts that are the same for the same seed.
//!
//! The library draws them from a thread-local generator whenever a replica changes its state; whoever lets it step a
//! group sets the timeout anew from this hash afterwards.

use lockgate_wire::{GroupId, ReplicaId, Term};

/// The shortest election timeout, in ticks.
pub(crate) const ELECTION_TICKS_MIN: usize = 20;
/// The longest election timeout, in ticks.
pub(crate) const ELECTION_TICKS_MAX: usize = 32;
/// Ticks between two heartbeats of a leader.
pub(crate) const HEARTBEAT_TICKS: usize = 5;

const _: () = assert!(HEARTBEAT_TICKS < ELECTION_TICKS_MIN && ELECTION_TICKS_MIN < ELECTION_TICKS_MAX);

/// The timeout of a replica in a term, from the shortest to the longest.
pub(crate) fn timeout_ticks(seed: u64, group: GroupId, replica: ReplicaId, term: Term) -> usize {
    let hash = [group.0, replica.0, term.0].into_iter().fold(mix(seed), |hash, part| mix(hash ^ part));
    let range = (ELECTION_TICKS_MAX - ELECTION_TICKS_MIN + 1) as u64;
    ELECTION_TICKS_MIN + (hash % range) as usize
}

/// The finaliser of SplitMix64: every bit of the input moves every bit of the output.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_stay_in_their_bounds_and_reach_all_of_them() {
        let mut seen = std::collections::BTreeSet::new();
        for term in 0..1000 {
            seen.insert(timeout_ticks(7, GroupId(1), ReplicaId(1), Term(term)));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), (ELECTION_TICKS_MIN..=ELECTION_TICKS_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn a_timeout_depends_on_seed_group_replica_and_term() {
        let series = |seed, group, replica, from| {
            (from..from + 64)
                .map(|t| timeout_ticks(seed, GroupId(group), ReplicaId(replica), Term(t)))
                .collect::<Vec<_>>()
        };
        let base = series(1, 1, 1, 0);
        assert_eq!(base, series(1, 1, 1, 0));
        for other in [series(2, 1, 1, 0), series(1, 2, 1, 0), series(1, 1, 2, 0), series(1, 1, 1, 1)] {
            assert_ne!(base, other);
        }
    }
}
