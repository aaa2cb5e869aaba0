//! What the oracles tell each other: the topics that exist, numbers that must be unique in the run, and which batches
//! are known to stand where.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_wire::{PartitionId, TopicId};

use crate::history::{BatchNo, Life, OperationNo, Placed, ReaderNo, TopicFacts};
use crate::rng::Rng;

/// A topic that oracles may use.
#[derive(Clone, Debug)]
pub struct TopicInfo {
    /// Its id.
    pub id: TopicId,
    /// Its full name.
    pub name: String,
    /// What to expect of it.
    pub facts: TopicFacts,
    /// Largest batch.
    pub max_batch_bytes: u32,
    /// The version that publishes name.
    pub partitioning_version: u32,
    /// The records' times are those of the broker.
    pub append_time: bool,
}

/// A batch of the run.
#[derive(Clone, Copy, Debug)]
pub struct BatchInfo {
    /// Its records.
    pub records: u32,
    /// Timestamp of its first record; each further one is a millisecond later.
    pub first_ms: i64,
}

impl BatchInfo {
    /// Timestamp of its last record.
    pub fn last_ms(&self) -> i64 {
        self.first_ms + i64::from(self.records) - 1
    }
}

/// Shared by all oracles of a run.
#[derive(Default, Debug)]
pub struct Board {
    /// The topics to work on; empty until they are founded.
    pub topics: Vec<TopicInfo>,
    /// Requests that oracles sent.
    pub operations: u64,
    /// Batches that were acknowledged.
    pub acknowledged: u64,
    /// Cursors that never go back and that nothing may take: where they stand, or later.
    pub steady_cursors: BTreeMap<String, (PartitionId, u64)>,
    /// Wire batches whose every record was compared, by the fingerprint of their bytes: what they hold.
    pub(super) looked_into: BTreeMap<u64, Vec<Placed>>,
    batches: Vec<BatchInfo>,
    places: BTreeMap<PartitionId, BTreeMap<u64, Placed>>,
    producers: BTreeSet<i64>,
    power: u32,
    readers: ReaderNo,
    operation_numbers: OperationNo,
    cursors: u32,
}

impl Board {
    /// A topic and one of its partitions.
    pub fn pick(&self, rng: &mut Rng) -> (&TopicInfo, PartitionId) {
        let topic = rng.pick(&self.topics);
        let partition = rng.below(u64::from(topic.facts.partitions)) as u32;
        (topic, PartitionId { topic: topic.id, partition })
    }

    /// The topic with this id.
    pub fn topic(&self, id: TopicId) -> Option<&TopicInfo> {
        self.topics.iter().find(|topic| topic.id == id)
    }

    /// A number for a new batch.
    pub fn new_batch(&mut self, info: BatchInfo) -> BatchNo {
        self.batches.push(info);
        self.batches.len() as BatchNo - 1
    }

    /// What was put into a batch.
    pub fn batch(&self, batch: BatchNo) -> Option<BatchInfo> {
        self.batches.get(batch as usize).copied()
    }

    /// A number for a new reader.
    pub fn new_reader(&mut self) -> ReaderNo {
        self.readers += 1;
        self.readers
    }

    /// A number for a new operation.
    pub fn new_operation(&mut self) -> OperationNo {
        self.operation_numbers += 1;
        self.operation_numbers
    }

    /// A number for a new cursor.
    pub fn new_cursor(&mut self) -> u32 {
        self.cursors += 1;
        self.cursors
    }

    /// A batch was acknowledged in its place, by this process.
    pub fn placed(&mut self, partition: PartitionId, placed: Placed, life: Life) {
        self.acknowledged += 1;
        if life.power < self.power && self.is_weak(partition) {
            return;
        }
        self.places.entry(partition).or_default().insert(placed.offset, placed);
    }

    /// The batches known to be in a partition, by offset.
    pub fn places(&self, partition: PartitionId) -> impl DoubleEndedIterator<Item = &Placed> {
        self.places.get(&partition).into_iter().flat_map(BTreeMap::values)
    }

    /// The end of what is known to be in a partition.
    pub fn known_end(&self, partition: PartitionId) -> u64 {
        self.places(partition).next_back().map_or(0, Placed::end)
    }

    /// Whether a power loss may take what was acknowledged.
    pub fn is_weak(&self, partition: PartitionId) -> bool {
        self.topic(partition.topic).is_some_and(|topic| topic.facts.interval.is_some())
    }

    /// The machine lost its power: nothing is known any more of what was not synced.
    pub fn power_lost(&mut self) {
        self.power += 1;
        let mut places = std::mem::take(&mut self.places);
        places.retain(|partition, _| !self.is_weak(*partition));
        self.places = places;
    }

    /// Takes note of a producer id. False: somebody has it already.
    pub fn is_new_producer(&mut self, id: i64) -> bool {
        self.producers.insert(id)
    }
}
