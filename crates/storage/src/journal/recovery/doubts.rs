//! Of which groups a damaged journal may have lost something.
//!
//! Every group numbers its records in a journal without a hole. Where the journal has a gap, each group may have had records
//! in it; the first one that follows tells: with the next number it proves that nothing of the group was lost.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_wire::GroupId;

/// What a journal's gaps mean for the groups in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Doubts {
    has_gap: bool,
    /// The groups that have records here, and whether the first of them is the group's first.
    groups: BTreeMap<GroupId, bool>,
    /// Groups of which nothing has come since the last gap.
    open: BTreeSet<GroupId>,
    /// Groups whose numbers say that something is missing.
    lost: BTreeSet<GroupId>,
}

impl Doubts {
    /// Records are missing here, of nobody knows whom.
    pub(super) fn gap(&mut self) {
        self.has_gap = true;
        self.open.extend(self.groups.keys().copied());
    }

    /// Records are missing before the first one that is there; to be said when everything was read.
    pub(super) fn gap_at_the_front(&mut self) {
        self.has_gap = true;
        self.lost.extend(self.groups.iter().filter(|(_, is_whole)| !**is_whole).map(|(group, _)| *group));
    }

    /// A record, with its group's number for it and for the one before. False if no gap explains why it does not follow.
    pub(super) fn record(&mut self, group: GroupId, before: Option<u64>, counter: u64) -> bool {
        let was_open = self.open.remove(&group);
        self.groups.entry(group).or_insert(counter == 1);
        let (follows, is_explained) = match before {
            Some(before) => (before.checked_add(1) == Some(counter), was_open && counter > before),
            // Older records may have been freed; or they were in the gap.
            None => (counter == 1 || !self.has_gap, true),
        };
        if !follows {
            self.lost.insert(group);
        }
        follows || is_explained
    }

    /// What may have been lost of a group before is given up.
    pub(super) fn accepted(&mut self, group: GroupId) {
        self.open.remove(&group);
        self.lost.remove(&group);
        self.groups.insert(group, true);
    }

    /// Whether records are missing that may have been anybody's.
    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// Whether a group may have lost something. One that has nothing here may have lost everything, if anything is missing.
    pub fn is_suspect(&self, group: GroupId) -> bool {
        let is_unseen = !self.groups.contains_key(&group);
        self.open.contains(&group) || self.lost.contains(&group) || (self.has_gap && is_unseen)
    }
}
