//! Making room in the journals: from half of their bound on, the oldest file is made unnecessary and let go, one file after
//! another, early enough that publishes meet the bound only when something is wrong.
//!
//! What a partition needs of the file, it either writes down (its batches to synced segments, its state to a checkpoint,
//! a few partitions at a time), or it is little and is carried forward: appended to the journal once more. Carrying comes
//! last, so that nothing is carried for a file that somebody else holds.

use lockgate_consensus::Laggard;
use lockgate_storage::journal::{JournalKind, Sequence};
use lockgate_wire::{GroupId, MonoTime};

use super::Shard;
use super::groups::JOURNALS;
use crate::controller::METADATA_GROUP;
use crate::core::journal_slot;
use crate::limits::{BOUND_TOLD_EVERY_MS, CARRIED_AT_ONCE, ROOM_EVERY_MS, WRITTEN_DOWN_AT_ONCE};
use crate::output::Level;

/// The records before `floor` are not needed, once everything that was appended when that was found is durable.
#[derive(Clone, Copy, Debug)]
struct Decision {
    floor: Sequence,
    synced: Sequence,
    buffered: Sequence,
}

/// What making room has under way.
#[derive(Default, Debug)]
pub(super) struct Room {
    next_look: MonoTime,
    /// When the log may say again that a journal is at its bound.
    next_word: MonoTime,
    decisions: [Option<Decision>; 2],
}

impl Shard {
    /// Does the next steps towards a journal with fewer files, if it has too many.
    pub(super) fn make_room(&mut self) {
        let (now, next_look) = (self.core.now.mono, self.room.next_look);
        for kind in JOURNALS {
            self.release(kind);
        }
        self.tell_of_the_bound();
        if now < next_look || !self.wants_room() || self.core.host.is_poisoned() {
            return;
        }
        self.room.next_look = now.plus_ms(ROOM_EVERY_MS);
        // Files and decisions may wait for the buffered journal, however long its topics would let it wait.
        if !self.buffered_is_synced() {
            self.sync_buffered();
        }
        if self.core.host.has_unwritten_removals() {
            return;
        }
        for kind in JOURNALS {
            let journal = self.core.journals.get(kind);
            if journal.wants_room() && self.room.decisions[journal_slot(kind)].is_none() {
                self.empty_oldest(kind);
            }
        }
    }

    /// Who publishes is told by each refusal; who operates, by the log.
    fn tell_of_the_bound(&mut self) {
        let now = self.core.now.mono;
        if now < self.room.next_word {
            return;
        }
        let words = self.at_bound().next().map(|kind| self.bound_in_words(kind));
        if let Some(words) = words {
            self.room.next_word = now.plus_ms(BOUND_TOLD_EVERY_MS);
            self.core.log(Level::Warn, words);
        }
    }

    /// When the next step is due, while there is one.
    pub(super) fn room_deadline(&self) -> Option<MonoTime> {
        (!self.core.host.is_poisoned() && self.wants_room()).then_some(self.room.next_look)
    }

    /// Never where something may be lost: for what that was, the journals are kept as they are.
    pub(super) fn wants_room(&self) -> bool {
        let keeps_all = self.doubts.is_some() || self.core.host.suspects().next().is_some();
        !keeps_all && JOURNALS.iter().any(|kind| self.core.journals.get(*kind).wants_room())
    }

    /// Lets files go whose time has come.
    fn release(&mut self, kind: JournalKind) {
        let slot = journal_slot(kind);
        let Some(decision) = self.room.decisions[slot] else { return };
        let journals = &mut self.core.journals;
        let is_durable = journals.synced.synced_sequence() >= decision.synced
            && (kind == JournalKind::Synced || journals.buffered.synced_sequence() >= decision.buffered);
        if is_durable {
            journals.get_mut(kind).release(decision.floor);
            self.room.decisions[slot] = None;
        }
    }

    /// Makes the oldest file unnecessary, or finds that it is.
    fn empty_oldest(&mut self, kind: JournalKind) {
        let Some(end) = self.core.journals.get(kind).oldest_ends() else { return };
        let behind = self.behind_base();
        if !behind.is_empty() {
            return self.write_down(&behind);
        }
        let mut to_carry = Vec::new();
        let mut to_write_down = Vec::new();
        for (group, how) in self.core.host.laggards(kind, end) {
            match how {
                Laggard::Carry => to_carry.push(group),
                Laggard::WriteDown => to_write_down.push(group),
            }
        }
        if !to_write_down.is_empty() {
            return self.write_down(&to_write_down);
        }
        for group in to_carry.iter().take(CARRIED_AT_ONCE) {
            match self.core.host.carry(*group, kind, end, &mut self.core.journals) {
                Ok(records) => self.core.metrics.journal_carried += records,
                Err(_) => return, // The journal failed or ends: it says so itself.
            }
        }
        if to_carry.len() <= CARRIED_AT_ONCE {
            self.decide(kind);
        }
    }

    /// The groups whose files have less than their base says.
    fn behind_base(&self) -> Vec<GroupId> {
        let catalog = self.controller.as_ref().filter(|controller| controller.is_behind_base()).map(|_| METADATA_GROUP);
        let partitions = self.partitions.values().filter(|partition| partition.is_behind_base());
        catalog.into_iter().chain(partitions.map(|partition| partition.group)).collect()
    }

    fn decide(&mut self, kind: JournalKind) {
        let journals = &self.core.journals;
        let next = journals.get(kind).next_sequence();
        let floor = self.core.host.floor(kind).unwrap_or(next);
        let last = |kind| Sequence(journals.get(kind).next_sequence().0 - 1);
        let decision = Decision { floor, synced: last(JournalKind::Synced), buffered: last(JournalKind::Buffered) };
        self.room.decisions[journal_slot(kind)] = Some(decision);
    }

    /// Has partitions written down: those that are at it count.
    fn write_down(&mut self, groups: &[GroupId]) {
        let mut under_way = 0;
        for group in groups {
            if under_way == WRITTEN_DOWN_AT_ONCE {
                return;
            }
            if *group == METADATA_GROUP {
                if let Some(controller) = &mut self.controller {
                    controller.write_down();
                    under_way += 1;
                }
                continue;
            }
            let Some(id) = self.groups.get(group).copied() else { continue };
            let Some(partition) = self.partitions.get_mut(&id) else { continue };
            if partition.write_down(self.core.now.mono) {
                under_way += 1;
                self.dirty.insert(id);
            }
        }
    }
}
