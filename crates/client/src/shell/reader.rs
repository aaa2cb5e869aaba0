//! The reader's handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lockgate_wire::Offset;
use tokio::sync::{Notify, oneshot};

use super::client::Client;
use crate::config::ReaderConfig;
use crate::core::{ReaderKey, Take, Taken, Topic, Unpacker};
use crate::error::ClientError;
use crate::record::ReceivedRecord;

/// One thing that a reader gives.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// A record. Records of one partition come in the order of their offsets, each once.
    Record(ReceivedRecord),
    /// Everything that was committed in the partition has been given; more may follow unless the reader stops at the end.
    /// Once a partition.
    EndOfPartition {
        /// The partition.
        partition: u32,
        /// The offset after the last record.
        offset: Offset,
    },
    /// The partition gives nothing for now. The reader goes on by itself, after the last record it took in.
    PartitionLost {
        /// The partition.
        partition: u32,
        /// Why, for people.
        error: String,
    },
    /// The partition gives records again.
    PartitionRecovered {
        /// The partition.
        partition: u32,
    },
}

/// Reads partitions of a topic, each in order. Made by [`Client::reader`].
///
/// Connections may come and go: nothing is skipped and nothing is given twice. A reader that is not asked for more stops
/// the flow when `credit_bytes` are delivered.
pub struct Reader {
    client: Client,
    topic: Topic,
    key: ReaderKey,
    ready: Arc<Notify>,
    unpacker: Unpacker,
    failed: Option<u32>,
}

impl Reader {
    pub(super) async fn open(
        client: Client,
        topic: Topic,
        config: &ReaderConfig,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let (told, opened) = oneshot::channel();
        let ready = Arc::new(Notify::new());
        let key = client.inner.shared.with(|state, now| {
            let key = state.core.open_reader(now, topic.clone(), config, timeout)?;
            state.opened.insert(key, told);
            state.ready.insert(key, Arc::clone(&ready));
            Ok(key)
        })?;
        // From here on a dropped future ends the reader, too.
        let mut reader = Self { client, topic, key, ready, unpacker: Unpacker::new(BTreeMap::new()), failed: None };
        opened.await.map_err(|_| ClientError::Closed)??;
        let positions = reader.client.inner.shared.look(|state| state.core.start_positions(key));
        reader.unpacker = Unpacker::new(positions);
        Ok(reader)
    }

    /// The topic it reads.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// For each partition the offset after the last record that was given: what to commit, and what
    /// [`ReaderConfig::resume_from`] takes.
    pub fn positions(&self) -> &BTreeMap<u32, Offset> {
        self.unpacker.positions()
    }

    /// The partition that the last error was about.
    pub fn failed_partition(&self) -> Option<u32> {
        self.failed
    }

    /// The next item; waits for one. `None` when every partition came to its end. Cancel-safe: nothing is lost when the
    /// future is dropped.
    ///
    /// # Errors
    /// Each ends the one partition that it is about: [`ClientError::OffsetOutOfRange`] when retention passed the reader,
    /// [`ClientError::NotFound`], [`ClientError::Corrupt`], [`ClientError::Refused`]. The other partitions go on.
    pub async fn next(&mut self) -> Option<Result<Item, ClientError>> {
        loop {
            if let Some(record) = self.unpacker.next() {
                return Some(Ok(Item::Record(record)));
            }
            match self.take().await? {
                Ok(Some(item)) => return Some(Ok(item)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// All records of the next batch at once (never mixed with other partitions), or one other item. Otherwise as
    /// [`next`](Self::next), with which it can be mixed.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_batch(&mut self) -> Option<Result<Vec<Item>, ClientError>> {
        loop {
            let records: Vec<Item> = self.unpacker.by_ref().map(Item::Record).collect();
            if !records.is_empty() {
                return Some(Ok(records));
            }
            match self.take().await? {
                Ok(Some(item)) => return Some(Ok(vec![item])),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Takes the next thing; `Ok(None)` when it was a batch, which the unpacker has now.
    async fn take(&mut self) -> Option<Result<Option<Item>, ClientError>> {
        // A caller that only reads must let the connection's tasks run now and then.
        tokio::task::consume_budget().await;
        loop {
            let taken = match self.client.inner.shared.with(|state, now| state.core.take(now, self.key)) {
                Take::Item(taken) => taken,
                Take::Finished => return None,
                Take::Empty => {
                    self.ready.notified().await;
                    continue;
                }
            };
            return Some(match taken {
                Taken::Chunk(chunk) => {
                    let partition = chunk.partition;
                    self.unpacker.load(chunk).map(|()| None).inspect_err(|_| {
                        self.abandon(partition);
                        self.failed = Some(partition);
                    })
                }
                Taken::EndOfPartition { partition, offset } => Ok(Some(Item::EndOfPartition { partition, offset })),
                Taken::Lost { partition, reason } => Ok(Some(Item::PartitionLost { partition, error: reason })),
                Taken::Recovered { partition } => Ok(Some(Item::PartitionRecovered { partition })),
                Taken::Failed { partition, error } => {
                    self.failed = Some(partition);
                    Err(error)
                }
            });
        }
    }

    fn abandon(&self, partition: u32) {
        self.client.inner.shared.with(|state, now| state.core.abandon_partition(now, self.key, partition));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.client.inner.shared.with(|state, now| {
            state.opened.remove(&self.key);
            state.ready.remove(&self.key);
            state.core.remove_reader(now, self.key);
        });
    }
}
