//! Where a new topic's partitions go: rendezvous hashing over the brokers.
//!
//! Every (topic, partition, node) has a score; a partition goes to the nodes with the highest ones, the first is its
//! preferred leader. No state, no round robin: the same view gives the same answer, and a node that comes or goes moves
//! only what has to move. The hash is written out here because its values are a promise: they must not change with a
//! library.

use std::cmp::Reverse;

use lockgate_wire::{Error, ErrorKind, NodeId};

use crate::limits::{MAX_PARTITIONS_PER_TOPIC, MAX_REPLICATION_FACTOR};
use crate::settings::kind_word;
use crate::{ClusterView, TopicKind};

/// The nodes of each partition of a new topic, the preferred leader first. `name` is the full name: it spreads topics.
pub fn place(
    view: &ClusterView,
    name: &str,
    kind: TopicKind,
    partitions: u32,
    replication_factor: u32,
) -> Result<Vec<Vec<NodeId>>, Error> {
    check_served(kind)?;
    check_counts(partitions, replication_factor)?;
    let live = view.nodes.len();
    if replication_factor as usize > live {
        let brokers = if live == 1 { "1 live broker" } else { &format!("{live} live brokers") };
        let message = format!("{replication_factor} replicas need as many brokers; the cluster has {brokers}");
        return Err(Error::new(ErrorKind::NotSupported, message).with_limit(live as u64));
    }
    let place_one = |partition| {
        let mut nodes: Vec<NodeId> = view.nodes.keys().copied().collect();
        nodes.sort_by_cached_key(|&node| (Reverse(score(name, partition, node)), node));
        nodes.truncate(replication_factor as usize);
        nodes
    };
    Ok((0..partitions).map(place_one).collect())
}

/// The kinds that this build serves.
fn check_served(kind: TopicKind) -> Result<(), Error> {
    if kind != TopicKind::Stream {
        let message =
            format!("{} topics: this build serves streams; queues and caches are not served yet", kind_word(kind));
        return Err(Error::new(ErrorKind::NotSupported, message));
    }
    Ok(())
}

/// Partitions and replicas are within the bounds that hold in every cluster.
pub(crate) fn check_counts(partitions: u32, replication_factor: u32) -> Result<(), Error> {
    let within = |what: &str, count: u32, max: u32| {
        if (1..=max).contains(&count) {
            return Ok(());
        }
        let message = format!("{count} {what}; allowed: 1 to {max}");
        Err(Error::new(ErrorKind::InvalidRequest, message).with_limit(max.into()))
    };
    within("partitions", partitions, MAX_PARTITIONS_PER_TOPIC)?;
    within("replicas", replication_factor, MAX_REPLICATION_FACTOR)
}

/// How much this node wants the partition. Key and node are hashed apart and then mixed, so that nodes with neighbouring
/// numbers have nothing in common.
fn score(name: &str, partition: u32, node: NodeId) -> u64 {
    let key = mix(fnv1a(name.as_bytes()) ^ mix(u64::from(partition)));
    mix(key ^ mix(u64::from(node.0)).rotate_left(32))
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finaliser of SplitMix64: every bit of the input moves every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests;
