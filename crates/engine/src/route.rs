//! Which shard a partition lives on, and whether a request can be routed at all.

use lockgate_catalog::view::{ClusterView, TopicView};
use lockgate_wire::{Error, ErrorKind, PartitionId, ShardId, TopicId};
use std::sync::Arc;

/// The shard of a partition: a written-out hash over the shard count, the same in every build and at every start.
pub fn shard_of(partition: PartitionId, shards: u16) -> ShardId {
    // The finaliser of splitmix64: every bit of the input reaches every bit of the output.
    let mut x = partition.topic.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(partition.partition));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    ShardId((x % u64::from(shards)) as u16)
}

/// The topic with this id.
pub(crate) fn topic(view: &ClusterView, id: u64) -> Result<&Arc<TopicView>, Error> {
    view.topic(TopicId(id)).ok_or_else(|| {
        let message = format!("there is no topic with id {id}; it was deleted, or the id is not of this cluster");
        Error::new(ErrorKind::TopicNotFound, message)
    })
}

/// A partition of a topic.
pub(crate) fn partition(topic: &TopicView, partition: u32) -> Result<PartitionId, Error> {
    if (partition as usize) < topic.partitions.len() {
        return Ok(PartitionId { topic: topic.id, partition });
    }
    let message = format!("topic {} has {} partitions, there is no {partition}", topic.name, topic.partitions.len());
    Err(Error::new(ErrorKind::PartitionNotFound, message).with_limit(topic.partitions.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_spread_over_shards() {
        for shards in [1_u16, 2, 3, 8] {
            let mut counts = vec![0_usize; usize::from(shards)];
            for topic in 1..=100 {
                for partition in 0..10 {
                    let id = PartitionId { topic: TopicId(topic), partition };
                    counts[usize::from(shard_of(id, shards).0)] += 1;
                }
            }
            let fair = 1000 / usize::from(shards);
            assert!(counts.iter().all(|count| count.abs_diff(fair) < fair / 3 + 1), "{shards} shards got {counts:?}");
        }
    }

    #[test]
    fn the_shard_of_a_partition_never_changes() {
        let id = |topic, partition| PartitionId { topic: TopicId(topic), partition };
        let shards = [(1, 0), (1, 1), (2, 0), (77, 3)].map(|(topic, partition)| shard_of(id(topic, partition), 8).0);
        // Where they have been since the first release: their data is found again only there.
        assert_eq!(shards, [7, 1, 4, 6]);
    }
}
