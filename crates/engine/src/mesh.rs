//! What shards of one node say to each other.
//!
//! A request for a partition of another shard crosses once, its answer once. Every request holds one of its sender's
//! slots for that target until it is answered, and a subscription has at most one delivery under way, so the frames in
//! flight are bounded without anybody dropping one.

use std::fmt;

use lockgate_wire::{ConnectionId, Op, OutFrame, PartitionId, ShardId, SubscriptionId};

use crate::request::{ControllerRequest, PartitionRequest};

/// Who asked, and what is given back when the request is answered. Lives with the request, wherever it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The shard that the connection lives on.
    pub(crate) shard: ShardId,
    /// The connection.
    pub(crate) connection: ConnectionId,
    /// The request's id; 0: no answer is wanted, but the charge is still given back.
    pub(crate) request_id: u64,
    /// The request's operation.
    pub(crate) op: u16,
    /// Bytes charged to the connection until the answer.
    pub(crate) charge: u32,
    /// Whether the charge counts as publish memory of the shard too.
    pub(crate) publish: bool,
    /// The subscription that the request wants to start or to end.
    pub(crate) subscription: Option<SubscriptionId>,
}

/// A frame between two shards. Only the engine looks inside.
pub struct MeshFrame(pub(crate) Message);

#[derive(Debug)]
pub(crate) enum Message {
    /// For a partition of the target. Answered once by `Answer`.
    Partition { origin: Origin, partition: PartitionId, request: PartitionRequest },
    /// For the controller, which is on shard 0. Answered once by `Answer`.
    Controller { origin: Origin, request: ControllerRequest },
    /// The answer to either; frees the slot. No frame where none was wanted.
    Answer { origin: Origin, frame: Option<OutFrame> },
    /// A delivery, in the subscription's slot.
    Deliver { connection: ConnectionId, subscription: SubscriptionId, frame: OutFrame },
    /// The delivery was taken: the slot is free.
    DeliveryTaken { partition: PartitionId, connection: ConnectionId, subscription: SubscriptionId },
    /// The partition ended the subscription; `frame` says why.
    SubscriptionEnded { connection: ConnectionId, subscription: SubscriptionId, frame: OutFrame },
    /// The connection is gone: its subscriptions and waiting fetches end.
    ConnectionGone { connection: ConnectionId },
    /// The sender has opened what this version of the view gives it.
    ViewTaken { version: u64 },
    /// Asks what a partition of the target looks like; answered by `Described`.
    Describe { gather: u64, partition: PartitionId },
    /// The answer.
    Described { gather: u64, description: lockgate_wire::proto::PartitionDescription },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{} #{} {}", self.connection, self.request_id, Op::from_number(self.op).map_or("unknown", Op::name))
    }
}

/// In a line without payloads: who asked, what, and how much.
impl fmt::Debug for MeshFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |frame: &OutFrame| frame.size();
        match &self.0 {
            Message::Partition { origin, partition, .. } => write!(f, "{origin} for partition {partition}"),
            Message::Controller { origin, .. } => write!(f, "{origin} for the controller"),
            Message::Answer { origin, frame } => {
                write!(f, "answer to {origin}, {} bytes", frame.as_ref().map_or(0, bytes))
            }
            Message::Deliver { connection, subscription, frame } => {
                write!(f, "delivery to c{connection} subscription {subscription}, {} bytes", bytes(frame))
            }
            Message::DeliveryTaken { partition, connection, subscription } => {
                write!(f, "c{connection} subscription {subscription} took its delivery of partition {partition}")
            }
            Message::SubscriptionEnded { connection, subscription, .. } => {
                write!(f, "c{connection} subscription {subscription} ended")
            }
            Message::ConnectionGone { connection } => write!(f, "c{connection} is gone"),
            Message::ViewTaken { version } => write!(f, "view {version} is taken"),
            Message::Describe { gather, partition } => write!(f, "describe partition {partition} (gather {gather})"),
            Message::Described { gather, .. } => write!(f, "description for gather {gather}"),
        }
    }
}
