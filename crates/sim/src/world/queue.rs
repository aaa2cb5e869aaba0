//! What is going to happen, in the order of (time, sequence): of two things at one time the one that was planned first.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use lockgate_engine::Lane;

use lockgate_storage::journal::JournalKind;

use super::conditions::Condition;
use crate::time::Time;

/// A process of the node, by its number; what belongs to an earlier one no longer happens.
pub(super) type Process = u32;
/// A connection of the run.
pub(super) type LinkNo = u64;

/// Where bytes go on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Toward {
    Node,
    Client,
}

/// Something that happens at its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Happening {
    /// A client's timer.
    ClientWakes { client: usize },
    /// A client's connection attempt reaches the node, or does not.
    Connects { link: LinkNo },
    /// The answer to it reaches the client.
    Connected { link: LinkNo },
    /// Bytes arrive.
    Arrives { link: LinkNo, toward: Toward },
    /// A side learns that its connection is gone.
    Notices { link: LinkNo, side: Toward },
    /// The time for flushing a closing connection is over.
    FlushEnds { link: LinkNo },
    /// A shard takes what is ready.
    Round { process: Process, shard: usize },
    /// A shard's deadline may have come.
    Tick { process: Process, shard: usize },
    /// A frame of the mesh arrives.
    Mesh { process: Process, from: usize, to: usize },
    /// A view arrives.
    View { process: Process, to: usize },
    /// A journal write ends.
    JournalEnds { process: Process, shard: usize, journal: JournalKind },
    /// The operation at the front of a lane ends.
    FileEnds { process: Process, shard: usize, lane: Lane },
    /// A read ends.
    ReadEnds { process: Process, shard: usize, token: u64 },
    /// A process begins.
    NodeBegins,
    /// The process has read its disk and starts its shards.
    NodeRecovered { process: Process },
    /// An operator ends a process that is of no more use.
    NodeIsKilled { process: Process },
    /// Whatever process there is dies, or the machine loses its power.
    Crash { with_power: bool },
    /// Something that lasts begins.
    ConditionBegins { condition: Condition },
    /// It ends, unless it has ended before.
    ConditionEnds { condition: Condition },
    /// An orderly stop took too long.
    StopIsOverdue { process: Process },
    /// A fault of the network or of a client strikes.
    NetworkFault,
    /// A fault of the node strikes.
    NodeFault,
    /// The run's own plan goes on.
    PhaseEnds,
}

/// The plan of the future.
#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Planned>,
    next: u64,
}

struct Planned {
    at: Time,
    sequence: u64,
    happening: Happening,
}

impl Ord for Planned {
    /// The heap gives the greatest first: that is the one that comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Planned {}

impl Queue {
    pub(super) fn push(&mut self, at: Time, happening: Happening) {
        self.heap.push(Planned { at, sequence: self.next, happening });
        self.next += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(Time, Happening)> {
        self.heap.pop().map(|planned| (planned.at, planned.happening))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_come_by_time_and_then_in_the_order_of_planning() {
        let mut queue = Queue::default();
        for (at, client) in [(5, 1), (3, 2), (5, 3), (3, 4)] {
            queue.push(at, Happening::ClientWakes { client });
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, happening)| happening).collect();
        assert_eq!(order, [2, 4, 1, 3].map(|client| Happening::ClientWakes { client }));
    }
}
