//! Large batches go once: into their partition's segments, ahead of the journal write that refers to them.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_storage::disk::DiskResult;
use lockgate_storage::journal::Sequence;
use lockgate_wire::{GroupId, PartitionId};

use super::Shard;

/// The partitions of the journal write under way.
#[derive(Default, Debug)]
pub(super) struct WrittenAhead {
    partitions: Vec<PartitionId>,
    /// Deleted meanwhile: their directories go when nothing is written there any more.
    deleted: Vec<PartitionId>,
}

impl Shard {
    /// Has what the next write of the synced journal brings written ahead of it, for partitions for which it is much.
    pub(super) fn write_ahead(&mut self) {
        let min = self.core.node.journal.external_min_bytes;
        let journal = &self.core.journals.synced;
        if (journal.pending_bytes() as u64) < min {
            return;
        }
        let mut bytes: BTreeMap<GroupId, u64> = BTreeMap::new();
        for record in journal.due().filter(|record| record.is_entry) {
            *bytes.entry(record.group).or_default() += record.body.iter().map(|piece| piece.len() as u64).sum::<u64>();
        }
        let large = bytes.into_iter().filter(|(_, bytes)| *bytes >= min);
        for group in large.map(|(group, _)| group).collect::<Vec<_>>() {
            self.write_group_ahead(group);
        }
    }

    fn write_group_ahead(&mut self, group: GroupId) {
        let Some(id) = self.groups.get(&group).copied() else { return };
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let due = self.core.journals.synced.due().filter(|record| record.is_entry && record.group == group);
        let entries: Vec<(Sequence, Vec<Bytes>)> = due.map(|record| (record.sequence, record.body.to_vec())).collect();
        let Some(ahead) = partition.write_ahead(&self.core, entries) else { return };
        self.core.journals.synced.put_elsewhere(ahead.bodies, ahead.data);
        self.core.host.went_external(group);
        self.written_ahead.partitions.push(id);
    }

    /// The write of the synced journal ended like this.
    pub(super) fn ahead_done(&mut self, result: &DiskResult<()>) {
        let WrittenAhead { partitions, deleted } = std::mem::take(&mut self.written_ahead);
        let has_no_room = self.core.journals.synced.is_without_room(result);
        if result.is_ok() || has_no_room {
            for id in partitions {
                self.with_partition(id, |partition, _| partition.ahead_done(!has_no_room));
            }
        }
        deleted.into_iter().for_each(|id| self.remove_directory(id));
    }

    /// Whether the directory of a deleted partition has to wait until a write that goes there is done.
    pub(super) fn is_written_ahead(&mut self, id: PartitionId) -> bool {
        let waits = self.written_ahead.partitions.contains(&id);
        if waits {
            self.written_ahead.deleted.push(id);
        }
        waits
    }
}
