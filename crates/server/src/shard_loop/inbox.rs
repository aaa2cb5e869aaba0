//! A shard's inbox: the one way in for everything that other threads have for it.

use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use lockgate_engine::{ClusterView, FileToken, MeshFrame};
use lockgate_storage::disk::DiskResult;
use lockgate_storage::journal::JournalKind;
use lockgate_wire::{ConnectionId, ShardId};

use crate::driver::{Signal, Wake};

/// Messages that an inbox holds. A sender that finds it full waits, or keeps its message and tries again.
pub(crate) const INBOX_CAPACITY: usize = 1024;

#[derive(Debug)]
pub(crate) enum Message {
    /// A connection for this shard; no byte of it has been read.
    Accepted {
        connection: ConnectionId,
        stream: TcpStream,
        peer: Arc<str>,
    },
    Mesh {
        from: ShardId,
        frame: MeshFrame,
    },
    View(Arc<ClusterView>),
    JournalWritten {
        journal: JournalKind,
        result: DiskResult<()>,
    },
    FileDone {
        token: FileToken,
        result: DiskResult<Bytes>,
    },
    /// A helper thread of this shard panicked.
    WorkerPanicked(String),
    /// Stop in order.
    Stop,
    /// Wait for no client any more: close all connections. The flush of what was taken goes on.
    Abandon,
}

/// The sending end; clones share the inbox.
#[derive(Debug)]
pub(crate) struct InboxSender<S = mio::Waker> {
    channel: Sender<Message>,
    wake: Arc<Wake<S>>,
}

pub(crate) fn inbox<S: Signal>(wake: Arc<Wake<S>>) -> (InboxSender<S>, Receiver<Message>) {
    inbox_of(wake, INBOX_CAPACITY)
}

pub(super) fn inbox_of<S: Signal>(wake: Arc<Wake<S>>, capacity: usize) -> (InboxSender<S>, Receiver<Message>) {
    let (channel, receiver) = bounded(capacity);
    (InboxSender { channel, wake }, receiver)
}

impl<S> Clone for InboxSender<S> {
    fn clone(&self) -> Self {
        Self { channel: self.channel.clone(), wake: self.wake.clone() }
    }
}

impl<S: Signal> InboxSender<S> {
    /// Waits for room. Not for shard threads: two that wait for each other would wait for ever. False if the shard is
    /// gone.
    pub(crate) fn send(&self, message: Message) -> bool {
        let sent = self.channel.send(message).is_ok();
        self.wake.wake();
        sent
    }

    /// Never waits; gives the message back when there is no room, and drops it when the shard is gone.
    pub(crate) fn try_send(&self, message: Message) -> Option<Message> {
        match self.channel.try_send(message) {
            Ok(()) => self.wake.wake(),
            Err(TrySendError::Full(message)) => return Some(message),
            Err(TrySendError::Disconnected(_)) => {}
        }
        None
    }
}
