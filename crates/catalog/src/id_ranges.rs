//! A set of ids that only grows, kept as ranges.
//!
//! Tombstones are kept for good: a node that was away for a year must still find that what it holds was deleted. Ids are
//! dense, so between two ranges of deleted ids there is at least one that lives: the set needs no more ranges than there
//! are living things, and one.

use std::collections::BTreeMap;

/// Ids as disjoint ranges that do not touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdRanges {
    /// First id → last id.
    ranges: BTreeMap<u64, u64>,
}

impl IdRanges {
    /// Whether the id is in the set.
    pub fn contains(&self, id: u64) -> bool {
        self.ranges.range(..=id).next_back().is_some_and(|(_, &last)| id <= last)
    }

    /// The ranges in order, first and last id of each.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&first, &last)| (first, last))
    }

    /// How many ids are in the set.
    pub fn count(&self) -> u64 {
        self.ranges().map(|(first, last)| last - first + 1).sum()
    }

    /// Adds an id that is not in the set, joining it with its neighbours.
    pub(crate) fn insert(&mut self, id: u64) {
        assert!(!self.contains(id), "id {id} is deleted twice");
        let last = self.ranges.remove(&(id + 1)).unwrap_or(id);
        match self.ranges.range_mut(..id).next_back() {
            Some((_, before)) if *before + 1 == id => *before = last,
            _ => {
                self.ranges.insert(id, last);
            }
        }
    }

    /// Takes stored ranges; `None` unless they ascend, do not touch, and stay within 1 to `max`.
    pub(crate) fn from_ranges(stored: impl IntoIterator<Item = (u64, u64)>, max: u64) -> Option<Self> {
        let mut ranges = BTreeMap::new();
        let mut free_from = 1;
        for (first, last) in stored {
            if first < free_from || last < first || last > max {
                return None;
            }
            ranges.insert(first, last);
            free_from = last + 2;
        }
        Some(Self { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_join_into_as_few_ranges_as_there_are_gaps() {
        let mut ids = IdRanges::default();
        for id in [5, 1, 3, 2, 9, 4] {
            ids.insert(id);
        }
        assert_eq!(ids.ranges().collect::<Vec<_>>(), [(1, 5), (9, 9)]);
        assert_eq!(ids.count(), 6);
        assert!(!ids.contains(0) && ids.contains(1) && ids.contains(5) && !ids.contains(6) && ids.contains(9));
    }

    #[test]
    fn stored_ranges_that_touch_overlap_or_leave_the_bounds_are_refused() {
        for bad in [vec![(0, 1)], vec![(2, 1)], vec![(1, 2), (3, 4)], vec![(4, 5), (1, 2)], vec![(1, 11)]] {
            assert_eq!(IdRanges::from_ranges(bad.clone(), 10), None, "{bad:?}");
        }
        assert_eq!(IdRanges::from_ranges([(1, 2), (4, 10)], 10).map(|ids| ids.count()), Some(9));
    }

    proptest::proptest! {
        #[test]
        fn the_ranges_hold_exactly_what_was_inserted(order in proptest::collection::vec(1_u64..60, 0..60)) {
            let mut ids = IdRanges::default();
            let mut model = BTreeSet::new();
            for id in order {
                if model.insert(id) {
                    ids.insert(id);
                }
            }
            for id in 0..62 {
                proptest::prop_assert_eq!(ids.contains(id), model.contains(&id));
            }
            proptest::prop_assert_eq!(IdRanges::from_ranges(ids.ranges(), 60), Some(ids));
        }
    }
}
