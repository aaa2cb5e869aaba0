//! From the view to replicas: what this shard has to open, to change, to delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockgate_catalog::Catalog;
use lockgate_catalog::settings::SEGMENT_BYTES_DEFAULT;
use lockgate_catalog::view::{Assignment, ClusterView, TopicView};
use lockgate_storage::disk::FileOp;
use lockgate_storage::journal::JournalKind;
use lockgate_storage::segment::Segments;
use lockgate_wire::{GroupId, PartitionId, ReplicaId};

use super::Shard;
use crate::config::partition_directory;
use crate::controller::{Controller, METADATA_GROUP, METADATA_REPLICA, METADATA_SHARD};
use crate::core::FileOwner;
use crate::limits::CLOCK_AHEAD_MS;
use crate::mesh::Message;
use crate::output::{Lane, Level, Output};
use crate::partition::Partition;
use crate::partition::state::State;
use crate::recovery::{RecoveredFiles, RecoveredMetadata, RecoveredPartition, RecoveredSuspect, Tag, segment_config};
use crate::route::shard_of;

impl Shard {
    /// Opens what was recovered.
    pub(super) fn open(
        &mut self,
        metadata: Option<RecoveredMetadata>,
        partitions: Vec<RecoveredPartition>,
        suspects: Vec<RecoveredSuspect>,
    ) {
        if self.core.shard == METADATA_SHARD {
            self.open_metadata(metadata);
        }
        for recovered in partitions {
            let RecoveredPartition { tag, group, files, is_marked } = recovered;
            let (id, ids) = (tag.partition, (group.group, group.replica));
            let partition = match files {
                Ok(RecoveredFiles { segments, state, checkpoints, make, applied }) => {
                    let mut partition = Partition::new(id, ids, segments, state);
                    partition.found_checkpoints(checkpoints);
                    if !make.is_empty() {
                        partition.make_directory(&mut self.core, make);
                    }
                    if is_marked {
                        partition.found_mark();
                    }
                    if applied.0 < group.base.index {
                        partition.found_behind_base();
                    }
                    if let Err(error) = self.core.host.open(group, applied.0, applied.1, JournalKind::Synced) {
                        let why = format!(
                            "its files do not go with its journal, something is missing or damaged: {error}; restore the data \
                             directory from a copy, or delete the topic"
                        );
                        partition.fail(&mut self.core, why);
                    }
                    partition
                }
                Err(why) => {
                    self.core.host.hold(group);
                    let mut partition = empty(id, ids);
                    match why.disk() {
                        // The next start may be better off.
                        Some(_) => partition.fail(&mut self.core, why.to_string()),
                        None => partition.fail_for_good(&mut self.core, why.to_string()),
                    }
                    partition
                }
            };
            self.add(ids.0, partition);
        }
        for RecoveredSuspect { group, replica, partition, why } in suspects {
            self.core.host.suspect(group, replica);
            if let Some(id) = partition {
                let partition = self.refused(id, (group, replica), why.to_string());
                self.add(group, partition);
            }
        }
    }

    /// A partition that does not serve, and touches nothing that is there of it.
    fn refused(&mut self, id: PartitionId, ids: (GroupId, ReplicaId), why: String) -> Partition {
        let mut partition = empty(id, ids);
        partition.fail_for_good(&mut self.core, why);
        partition
    }

    fn open_metadata(&mut self, metadata: Option<RecoveredMetadata>) {
        let shards = self.core.node.shards;
        let result = match metadata {
            Some(RecoveredMetadata { group, catalog, applied, checkpoints }) => {
                let mut controller = Controller::new(shards, catalog, applied, checkpoints);
                if applied.0 < group.base.index {
                    controller.found_behind_base();
                }
                // Nobody may have lived to make it, or the disk had no room.
                controller.make_directory(&mut self.core);
                self.controller = Some(controller);
                self.core.host.open(group, applied.0, applied.1, JournalKind::Synced)
            }
            None => {
                let mut controller = Controller::new(shards, Catalog::default(), Default::default(), Vec::new());
                controller.make_directory(&mut self.core);
                self.controller = Some(controller);
                let tag = bytes::Bytes::new();
                self.core.host.bootstrap(METADATA_GROUP, METADATA_REPLICA, tag, JournalKind::Synced)
            }
        };
        if let Err(error) = result {
            self.core.log(Level::Error, format!("the catalog cannot be opened: {error}"));
        }
    }

    fn add(&mut self, group: GroupId, partition: Partition) {
        let id = partition.id;
        self.groups.insert(group, id);
        self.partitions.insert(id, partition);
        self.dirty.insert(id);
    }

    /// Every partition may keep the same part of the memory for the ends of logs, and gives up what is above it.
    fn share_tail(&mut self) {
        let partitions = self.partitions.len().max(1) as u64;
        let share = self.core.node.limits.tail_bytes_per_shard / partitions;
        if share < self.core.tail_share_bytes {
            self.dirty.extend(self.partitions.keys());
        }
        self.core.tail_share_bytes = share;
    }

    /// Gives a new view of the catalog to this shard and all others.
    pub(super) fn publish_view(&mut self) {
        if let Some(view) = self.controller.as_mut().and_then(Controller::new_view) {
            self.core.out.push(Output::View(view.clone()));
            self.take_view(view);
            self.advance_groups();
        }
    }

    /// Takes a view. An older one than the newest is nothing.
    pub(super) fn take_view(&mut self, view: Arc<ClusterView>) {
        if view.version < self.view.version {
            return;
        }
        for topic in view.topics() {
            for assignment in &topic.partitions {
                self.take_assignment(topic, assignment);
            }
        }
        let deleted: Vec<PartitionId> = self
            .partitions
            .iter()
            .filter(|(_, partition)| view.is_deleted(partition.group))
            .map(|(id, _)| *id)
            .collect();
        for id in deleted {
            self.delete(id);
        }
        // Whose partition nobody knew.
        let suspects: Vec<GroupId> = self.core.host.suspects().filter(|group| view.is_deleted(*group)).collect();
        suspects.into_iter().for_each(|group| self.core.host.remove(group));
        self.doubts = None;
        // Directories that a crash left behind after their topic's deletion. One without a tombstone is never touched.
        let leftover = std::mem::take(&mut self.leftover);
        let (gone, kept) = leftover.into_iter().partition(|(id, _)| view.deleted_topics().contains(id.topic.0));
        self.leftover = kept;
        let gone: BTreeMap<PartitionId, bool> = gone;
        gone.into_keys().for_each(|id| self.remove_directory(id));
        self.sync_interval_ms = self.partitions.values().filter_map(Partition::sync_interval_ms).min();
        // A shorter interval, or a topic that waits to leave the buffered journal, does not wait out a longer one.
        self.buffered_sync.not_after(self.next_sync());
        self.share_tail();
        self.unreported_view = Some(view.version);
        self.view = view;
    }

    fn take_assignment(&mut self, topic: &Arc<TopicView>, assignment: &Arc<Assignment>) {
        let id = assignment.partition;
        let Some(replica) = assignment.replica_on(self.core.node.node) else { return };
        if shard_of(id, self.core.node.shards) != self.core.shard {
            return;
        }
        match self.partitions.get_mut(&id) {
            Some(partition) => {
                if partition.topic_version().is_none_or(|old| old < topic.version) {
                    partition.place(&mut self.core, assignment.clone(), topic.clone());
                    self.dirty.insert(id);
                }
            }
            None => self.make(topic, assignment, replica),
        }
    }

    /// A partition that was never here.
    fn make(&mut self, topic: &Arc<TopicView>, assignment: &Arc<Assignment>, replica: ReplicaId) {
        let (id, group) = (assignment.partition, assignment.group);
        if self.doubts.as_ref().is_some_and(|doubts| doubts.is_suspect(group)) {
            let why = "the journal is damaged and does not have it any more: everything that was in it may be lost; restore \
                       the data directory from a copy, or delete the topic";
            self.core.host.suspect(group, replica);
            let partition = self.refused(id, (group, replica), why.into());
            return self.add(group, partition);
        }
        if self.leftover.get(&id) == Some(&true) {
            let why = "it has segments, but the journal knows nothing of it: the shard's journal was lost or emptied; \
                       restore it from a copy, or delete the topic";
            let partition = self.refused(id, (group, replica), why.into());
            return self.add(group, partition);
        }
        let (segments, make) = Segments::create(segment_config(id, topic.config.segment_bytes));
        let mut partition = Partition::new(id, (group, replica), segments, State::default());
        partition.make_directory(&mut self.core, make);
        let tag = Tag { partition: id, generation: assignment.generation };
        if let Err(error) = self.core.host.bootstrap(group, replica, tag.encode(), Partition::journal_of(topic)) {
            partition.fail(&mut self.core, error.to_string());
        }
        partition.place(&mut self.core, assignment.clone(), topic.clone());
        self.add(group, partition);
    }

    /// The catalog says that the topic was deleted: replica, readers and files go.
    fn delete(&mut self, id: PartitionId) {
        let Some(mut partition) = self.partitions.remove(&id) else { return };
        partition.deleted(&mut self.core);
        self.groups.remove(&partition.group);
        self.core.host.remove(partition.group);
        if !self.is_written_ahead(id) {
            self.remove_directory(id);
        }
    }

    pub(super) fn remove_directory(&mut self, id: PartitionId) {
        let op = FileOp::RemoveDirectory { path: partition_directory(id) };
        self.core.file(Lane::Background, FileOwner::Deletion, op);
    }

    /// Says that a view was taken, once everything that it brought is open.
    pub(super) fn report_view(&mut self) {
        let Some(version) = self.unreported_view else { return };
        if !self.is_poisoned() && self.partitions.values().any(Partition::is_opening) {
            return;
        }
        self.unreported_view = None;
        match &mut self.controller {
            Some(controller) => {
                controller.view_taken(0, version);
                controller.look_after(&mut self.core, false);
            }
            None => self.send_mesh(METADATA_SHARD, Message::ViewTaken { version }),
        }
        if !self.was_ready {
            self.was_ready = true;
            self.compare_clocks();
            self.core.out.push(Output::Ready);
        }
    }

    /// Leaves a line when the wall clock does not follow on from the logs: it is taken as it is, and retention goes by it.
    fn compare_clocks(&mut self) {
        let Some(newest) = self.partitions.values().filter_map(Partition::last_append_time).max() else { return };
        let wall = self.core.now.wall;
        if wall >= newest && wall.0.saturating_sub(newest.0) <= CLOCK_AHEAD_MS {
            return;
        }
        let message = format!(
            "the wall clock says {wall}, the newest append time in the logs is {newest} (milliseconds since 1970); if \
             nobody stopped writing that long ago, check the clock: retention goes by it"
        );
        self.core.log(Level::Warn, message);
    }
}

/// A partition over nothing.
fn empty(id: PartitionId, ids: (GroupId, ReplicaId)) -> Partition {
    let (nothing, _) = Segments::create(segment_config(id, SEGMENT_BYTES_DEFAULT));
    Partition::new(id, ids, nothing, State::default())
}
