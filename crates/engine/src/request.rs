//! Requests after the door: decoded, bounded and checked against the view, so that what they reach may trust them.

use bytes::Bytes;
use lockgate_wire::batch::BatchHeader;
use lockgate_wire::proto::{self, Ack};
use lockgate_wire::{Offset, SubscriptionId, WallMs};
use std::collections::BTreeMap;

/// Where a reader wants to start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    Earliest,
    Latest,
    Offset(Offset),
    Time(WallMs),
    Last(u64),
    Cursor(String),
}

/// For one partition.
#[derive(Debug)]
pub(crate) enum PartitionRequest {
    /// A validated batch.
    Publish {
        ack: Ack,
        partitioning_version: u32,
        header: BatchHeader,
        batch: Bytes,
    },
    Subscribe {
        subscription: SubscriptionId,
        start: Start,
        credit: u64,
    },
    Credit {
        subscription: SubscriptionId,
        bytes: u64,
    },
    Unsubscribe {
        subscription: SubscriptionId,
    },
    Fetch {
        offset: Offset,
        max_bytes: usize,
        max_wait_ms: u32,
    },
    ListOffsets {
        time: Option<WallMs>,
    },
    CommitCursor {
        name: String,
        offset: Offset,
        force: bool,
    },
    GetCursor {
        name: String,
    },
    ListCursors {
        after: String,
        limit: usize,
    },
    DeleteCursor {
        name: String,
    },
}

/// For the controller.
#[derive(Debug)]
pub(crate) enum ControllerRequest {
    CreateTopic(proto::CreateTopic),
    DeleteTopic { name: String },
    AlterTopic { name: String, set: BTreeMap<String, String>, if_version: Option<u64> },
    InitProducer,
}
