//! The Raft groups of a shard and its journals: one write and one sync for everything that waits.

use lockgate_consensus::Event;
use lockgate_storage::disk::DiskResult;
use lockgate_storage::journal::JournalKind;

use super::Shard;
use crate::controller::METADATA_GROUP;
use crate::core::{FileOwner, journal_slot};
use crate::output::{Lane, Level, Output};
use lockgate_wire::MonoTime;

pub(super) const JOURNALS: [JournalKind; 2] = [JournalKind::Synced, JournalKind::Buffered];

impl Shard {
    /// Moves all groups that have something to do, until none has.
    pub(super) fn advance_groups(&mut self) {
        loop {
            let was_poisoned = self.core.host.is_poisoned();
            self.core.host.advance(&mut self.core.journals, &mut self.events);
            self.core.proposed_bytes = [0; 2];
            if self.core.host.is_poisoned() && !was_poisoned && !self.is_poisoned() {
                self.bug("a journal refused a record that was proposed to its size");
            }
            if self.events.is_empty() {
                return;
            }
            for event in std::mem::take(&mut self.events) {
                self.event(event);
            }
        }
    }

    fn event(&mut self, event: Event) {
        let group = match &event {
            Event::Persisted { group, .. }
            | Event::Committed { group, .. }
            | Event::Serving { group, .. }
            | Event::SteppedDown { group, .. } => *group,
        };
        if group == METADATA_GROUP {
            return self.metadata_event(event);
        }
        // A group whose topic was deleted may still have been at work.
        let Some(id) = self.groups.get(&group).copied() else { return };
        self.with_partition(id, |partition, core| match event {
            Event::Persisted { index, .. } => partition.persisted(core, index),
            Event::Committed { entries, .. } => partition.committed(core, entries),
            Event::Serving { term, .. } => partition.serving(core, term),
            Event::SteppedDown { .. } => partition.stepped_down(core),
        });
    }

    fn metadata_event(&mut self, event: Event) {
        let Some(controller) = &mut self.controller else {
            return self.bug("the metadata's group is on shard 0 only");
        };
        match event {
            Event::Persisted { .. } => {}
            Event::Committed { entries, .. } => {
                if let Err(why) = controller.committed(&mut self.core, entries) {
                    controller.stepped_down(&mut self.core);
                    self.core.log(Level::Error, format!("the catalog cannot go on, topics cannot be changed: {why}"));
                }
            }
            Event::Serving { .. } => controller.serving(&mut self.core),
            Event::SteppedDown { .. } => controller.stepped_down(&mut self.core),
        }
    }

    /// Starts the next write of each journal that has none in flight, and makes files ahead of need.
    pub(super) fn start_journal_writes(&mut self) {
        self.write_ahead();
        for kind in JOURNALS {
            // Asked also while one is in flight: that tells the journal the time, by which it makes files.
            if let Some(write) = self.core.journals.get_mut(kind).start_write(self.core.now.mono) {
                self.core.writing[journal_slot(kind)] = true;
                self.core.out.push(Output::Journal(write));
            }
            if self.wants_file(kind)
                && let Some(op) = self.core.journals.get_mut(kind).prepare()
            {
                self.core.file(Lane::Journal, FileOwner::Prepare(kind), op);
            }
            if let Some(op) = self.core.journals.get_mut(kind).start_removal(self.core.now.mono) {
                self.core.file(Lane::Journal, FileOwner::Remove(kind), op);
            }
        }
        if self.buffered_sync.is_due(self.core.now.mono) {
            self.sync_buffered();
        }
    }

    /// The buffered journal gets files only when a topic here uses it.
    fn wants_file(&self, kind: JournalKind) -> bool {
        kind == JournalKind::Synced
            || self.sync_interval_ms.is_some()
            || self.core.journals.buffered.pending_bytes() > 0
            || self.core.journals.buffered.is_full()
    }

    /// Syncs the buffered journal as far as it is written now, unless that is under way.
    pub(super) fn sync_buffered(&mut self) {
        let written = self.core.journals.buffered.written_sequence();
        if self.buffered_sync.begin(self.core.now.mono, written) {
            self.sync_next_file();
        }
    }

    /// A sync covers one file, and writes may have gone to several.
    fn sync_next_file(&mut self) {
        match self.core.journals.buffered.start_sync(self.core.now.mono) {
            Some(op) => drop(self.core.file(Lane::Journal, FileOwner::SyncBuffered, op)),
            None => self.buffered_sync.ended(None),
        }
    }

    /// A journal write ended.
    pub(super) fn journal_written(&mut self, kind: JournalKind, result: DiskResult<()>) {
        self.core.writing[journal_slot(kind)] = false;
        if kind == JournalKind::Synced {
            self.ahead_done(&result);
        }
        match self.core.journals.get_mut(kind).finished(result, self.core.now.mono) {
            Ok(up_to) => {
                self.core.host.persisted(kind, up_to);
                if kind == JournalKind::Buffered {
                    self.buffered_sync.written(self.next_sync());
                }
            }
            Err(_) => self.poisoned(),
        }
    }

    /// A sync of the buffered journal ended.
    pub(super) fn buffered_synced(&mut self, result: DiskResult<bytes::Bytes>) {
        match self.core.journals.buffered.synced(result.map(drop), self.core.now.mono) {
            Ok(up_to) => {
                self.core.host.buffered_synced(up_to);
                if !self.buffered_sync.covers(up_to) {
                    return self.sync_next_file();
                }
                // Also by a statement without records: a file that it lets go waits for it.
                let is_behind = self.core.journals.buffered.needs_sync();
                self.buffered_sync.ended(is_behind.then_some(self.sync_interval_ms.unwrap_or(0)));
            }
            Err(_) => self.poisoned(),
        }
    }

    pub(super) fn prepared(&mut self, kind: JournalKind, result: DiskResult<bytes::Bytes>) {
        let was_full = self.core.journals.get(kind).is_full();
        if let Err(error) = &result
            && !was_full
        {
            self.core.log(Level::Error, format!("the journal's next file cannot be made: {error}"));
        }
        self.core.journals.get_mut(kind).prepared(result.map(drop));
        if self.core.journals.get(kind).poison().is_some() {
            self.poisoned();
        }
    }

    /// A journal's oldest file is gone, or is not.
    pub(super) fn removed(&mut self, kind: JournalKind, result: DiskResult<bytes::Bytes>) {
        if let Err(error) = &result {
            self.core.log(Level::Error, format!("a journal file that nobody needs cannot be removed: {error}"));
        }
        self.core.journals.get_mut(kind).removed(result.map(drop));
        if self.core.journals.get(kind).poison().is_some() {
            self.poisoned();
        }
    }

    /// When a write of the buffered journal that is done now has to be synced: the shortest interval that a topic of this
    /// shard asks for; at once when the last such topic just changed.
    pub(super) fn next_sync(&self) -> MonoTime {
        self.core.now.mono.plus_ms(self.sync_interval_ms.unwrap_or(0))
    }

    /// A journal failed: nothing more is appended or answered here, what was read before is still read.
    fn poisoned(&mut self) {
        let journals = &self.core.journals;
        let Some(poison) = journals.synced.poison().or(journals.buffered.poison()).cloned() else { return };
        self.core.log(
            Level::Error,
            format!(
                "the journal of shard {} failed: {poison}. Its partitions take no writes until the broker is restarted",
                self.core.shard
            ),
        );
        self.core.host.poison();
    }

    /// Whether the buffered journal is on the device as far as it was written.
    pub(super) fn buffered_is_synced(&self) -> bool {
        let journal = &self.core.journals.buffered;
        journal.synced_sequence() >= journal.written_sequence() || journal.poison().is_some()
    }
}
