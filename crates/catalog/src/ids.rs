//! The counters that ids come from. They only grow, they are part of the replicated state, and a refused command takes
//! nothing from them: the one who applies works on a copy and keeps it when all went well.

use lockgate_wire::{Error, ErrorKind, GroupId, ProducerId, ReplicaId, TopicId};

use crate::limits::MAX_ID;

/// How many ids of each sort were handed out. Topics, groups and replicas count from 1 (0 is nobody, group 0 the
/// metadata), producers from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ids {
    pub(crate) topics: u64,
    pub(crate) groups: u64,
    pub(crate) replicas: u64,
    pub(crate) producers: u64,
}

impl Ids {
    pub(crate) fn topic(&mut self) -> Result<TopicId, Error> {
        take(&mut self.topics, 1, "topic").map(|before| TopicId(before + 1))
    }

    pub(crate) fn group(&mut self) -> Result<GroupId, Error> {
        take(&mut self.groups, 1, "group").map(|before| GroupId(before + 1))
    }

    pub(crate) fn replica(&mut self) -> Result<ReplicaId, Error> {
        take(&mut self.replicas, 1, "replica").map(|before| ReplicaId(before + 1))
    }

    /// A block of producer ids: its first one.
    pub(crate) fn producers(&mut self, count: u32) -> Result<ProducerId, Error> {
        let first = take(&mut self.producers, count.into(), "producer")?;
        Ok(ProducerId(i64::try_from(first).expect("no counter goes above MAX_ID, which fits")))
    }
}

/// Moves the counter on by `count` and returns where it stood.
fn take(counter: &mut u64, count: u64, what: &str) -> Result<u64, Error> {
    let before = *counter;
    let after = before.saturating_add(count);
    if after > MAX_ID {
        let message = format!("the cluster has handed out all {what} ids: {before} of at most {MAX_ID}");
        return Err(Error::new(ErrorKind::LimitReached, message).with_limit(MAX_ID));
    }
    *counter = after;
    Ok(before)
}
