//! The client: connecting, and the calls that need no handle of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_wire::batch::BatchHeader;
use lockgate_wire::op::Body;
use lockgate_wire::{HostPort, Offset, TopicId, proto};
use tokio::sync::oneshot;

use super::admin::Admin;
use super::cursors::Cursors;
use super::producer::Producer;
use super::reader::Reader;
use super::shared::{Shared, read_clocks};
use crate::config::{Ack, ClientConfig, ProducerConfig, ReaderConfig};
use crate::core::{Core, Input, MAX_BATCH_BYTES, Resend, Stats, Topic};
use crate::error::ClientError;
use crate::record::Receipt;

/// A connection to a cluster that heals by itself. Cheap to clone; all clones and all handles made from it share one
/// connection, which is closed when the last of them is gone.
///
/// Every call is retried for up to `call_timeout`, as far as that cannot apply anything twice. Cancel safety: dropping
/// a call's future leaves the call under way, so that a change may still be applied.
#[derive(Clone)]
pub struct Client {
    pub(super) inner: Arc<Inner>,
}

/// Closes the client when the last handle goes.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    call_timeout: Duration,
    timer: tokio::task::AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.with(|state, now| state.core.close(now));
        self.timer.abort();
    }
}

/// The result of a [`Client::fetch`].
#[derive(Clone, PartialEq, Debug)]
pub struct Fetched {
    /// Record batches one after the other, for [`lockgate_wire::batch::split`]. The first may begin below the asked offset.
    pub batches: Bytes,
    /// The offset after the last record of `batches`.
    pub next_offset: Offset,
    /// The first offset that is retained.
    pub earliest: Offset,
    /// The offset after the last that can be read.
    pub high_watermark: Offset,
    /// When the leader appended each batch, milliseconds since 1970.
    pub append_time_ms: Vec<i64>,
}

/// The result of a [`Client::list_offsets`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offsets {
    /// The first offset that is retained.
    pub earliest: Offset,
    /// The offset after the last that can be read.
    pub high_watermark: Offset,
    /// With a time asked for: the offset and timestamp of the first record with it or a later one.
    pub at: Option<(Offset, i64)>,
}

impl Client {
    /// Connects to the first seed that answers. Needs a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// [`ClientError::Connect`] within `connect_timeout`, naming every address and why it failed;
    /// [`ClientError::InvalidArgument`] for a configuration out of bounds.
    pub async fn connect(config: ClientConfig) -> Result<Self, ClientError> {
        let started = Instant::now();
        let core = Core::new(&config, read_clocks(started), seed())?;
        let (told, connected) = oneshot::channel();
        let shared = Shared::new(core, started, config.max_frame_bytes, told);
        let timer = tokio::spawn(keep_time(Arc::clone(&shared))).abort_handle();
        let inner = Inner { shared, call_timeout: config.call_timeout, timer };
        inner.shared.with(|state, now| state.input(now, Input::Tick));
        connected.await.map_err(|_| ClientError::Closed)??;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Every address that is a candidate for the next connection.
    pub fn endpoints(&self) -> Vec<HostPort> {
        self.inner.shared.look(|state| state.core.endpoints().to_vec())
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.inner.shared.look(|state| state.core.is_connected())
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        self.inner.shared.look(|state| state.core.stats())
    }

    /// Creating, changing, describing and deleting topics.
    pub fn admin(&self) -> Admin {
        Admin::new(self.clone())
    }

    /// The named positions of a topic's readers. Asks for the topic.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn cursors(&self, topic: &str) -> Result<Cursors, ClientError> {
        Ok(Cursors::new(self.clone(), self.topology(topic).await?))
    }

    /// The topic's id, partitions and bounds, as the cluster knows them now.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn topology(&self, topic: &str) -> Result<Topic, ClientError> {
        let asked = proto::Topology { topics: vec![topic.to_owned()] };
        let answer: proto::TopologyOk = self.call(&asked, Resend::Safe).await?;
        let topic = answer.topics.into_iter().next();
        let topic = topic.ok_or_else(|| ClientError::Protocol("a Topology was answered without the topic".into()))?;
        if let Some(error) = topic.error {
            return Err(ClientError::from_terminal(lockgate_wire::Error::from_proto(error)));
        }
        Ok(Topic {
            name: topic.name,
            id: TopicId(topic.topic_id),
            partitions: topic.partitions.len() as u32,
            partitioning_version: topic.partitioning_version,
            max_batch_bytes: topic.max_batch_bytes,
        })
    }

    /// The first and last offsets of a partition, and the offset of a time (milliseconds since 1970) if one is given.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn list_offsets(
        &self,
        topic: &Topic,
        partition: u32,
        timestamp_ms: Option<i64>,
    ) -> Result<Offsets, ClientError> {
        let asked = proto::ListOffsets { topic_id: topic.id.0, partition, timestamp_ms };
        let ok: proto::ListOffsetsOk = self.call(&asked, Resend::Safe).await?;
        let at = ok.offset.zip(ok.timestamp_ms).map(|(offset, timestamp)| (Offset(offset), timestamp));
        Ok(Offsets { earliest: Offset(ok.earliest_offset), high_watermark: Offset(ok.high_watermark), at })
    }

    /// One read of a partition from `offset` on: batches of up to `max_bytes` together (0: 1 MiB; one batch is always
    /// given), after waiting up to `max_wait` (at most 30 s) for the first. For following a partition use a [`Reader`].
    ///
    /// # Errors
    /// [`ClientError::OffsetOutOfRange`], [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn fetch(
        &self,
        topic: &Topic,
        partition: u32,
        offset: Offset,
        max_bytes: u32,
        max_wait: Duration,
    ) -> Result<Fetched, ClientError> {
        let max_wait_ms = u32::try_from(max_wait.as_millis()).unwrap_or(u32::MAX);
        let asked = proto::Fetch { topic_id: topic.id.0, partition, offset: offset.0, max_bytes, max_wait_ms };
        let timeout = self.inner.call_timeout.saturating_add(max_wait);
        let answer = self.exchange::<proto::Fetch, proto::FetchOk>(&asked, None, timeout, Resend::Safe).await;
        let (ok, batches) = answer.map_err(|error| out_of_range(error, partition))?;
        Ok(Fetched {
            batches,
            next_offset: Offset(ok.next_offset),
            earliest: Offset(ok.earliest_offset),
            high_watermark: Offset(ok.high_watermark),
            append_time_ms: ok.append_time_ms,
        })
    }

    /// Opens a producer for a topic.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`], [`ClientError::InvalidArgument`].
    pub async fn producer(&self, topic: &str, config: ProducerConfig) -> Result<Producer, ClientError> {
        config.check()?;
        let topic = self.topology(topic).await?;
        Producer::open(self.clone(), topic, config)
    }

    /// Opens a reader of a topic. It covers every partition asked for, or this fails naming those that could not be
    /// reached within `call_timeout`.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::OffsetOutOfRange`], [`ClientError::Unavailable`],
    /// [`ClientError::InvalidArgument`].
    pub async fn reader(&self, topic: &str, config: ReaderConfig) -> Result<Reader, ClientError> {
        let topic = self.topology(topic).await?;
        Reader::open(self.clone(), topic, &config, self.inner.call_timeout).await
    }

    /// Publishes one encoded batch as it is, without copying it. Sent again only while the broker says that nothing was
    /// applied; numbering is the caller's affair. The receipt is the first record's.
    ///
    /// # Errors
    /// [`ClientError::OutcomeUnknown`] when an attempt was not answered; [`ClientError::RecordTooLarge`] above what a frame
    /// takes; else as [`Producer::send`].
    pub async fn publish_batch(
        &self,
        topic: &Topic,
        partition: u32,
        batch: Bytes,
        ack: Ack,
    ) -> Result<Receipt, ClientError> {
        BatchHeader::parse(&batch).map_err(|error| ClientError::InvalidArgument(error.to_string()))?;
        let limit = MAX_BATCH_BYTES.min(topic.max_batch_bytes as usize);
        if batch.len() > limit {
            return Err(ClientError::RecordTooLarge { bytes: batch.len(), limit });
        }
        let publish = proto::Publish {
            topic_id: topic.id.0,
            partition,
            ack: ack.to_proto() as i32,
            partitioning_version: topic.partitioning_version,
        };
        if ack == Ack::None {
            self.tell(&publish, batch).await?;
            return Ok(Receipt { partition, offset: None, append_time_ms: None, duplicate: false });
        }
        let timeout = self.inner.call_timeout;
        let (ok, _) =
            self.exchange::<proto::Publish, proto::PublishOk>(&publish, Some(batch), timeout, Resend::Never).await?;
        Ok(Receipt {
            partition,
            offset: Some(Offset(ok.base_offset)),
            append_time_ms: Some(ok.append_time_ms),
            duplicate: ok.duplicate,
        })
    }

    /// Ends the client for all its clones and handles: what is not answered fails, the connection is closed in order.
    pub fn close(&self) {
        self.inner.shared.with(|state, now| state.core.close(now));
    }

    /// Sends what nobody answers; waits while too much waits to be written.
    async fn tell<B: Body>(&self, message: &B, payload: Bytes) -> Result<(), ClientError> {
        tokio::task::consume_budget().await;
        let shared = &self.inner.shared;
        loop {
            let mut written = std::pin::pin!(shared.written.notified());
            written.as_mut().enable();
            match shared.with(|state, now| state.core.tell(now, message, Some(payload.clone()))) {
                Err(ClientError::BufferFull { .. }) => written.await,
                told => return told,
            }
        }
    }

    /// A call without payloads.
    pub(super) async fn call<B: Body, A: Body>(&self, message: &B, resend: Resend) -> Result<A, ClientError> {
        Ok(self.exchange(message, None, self.inner.call_timeout, resend).await?.0)
    }

    /// A call; gives the answer's body and payload.
    async fn exchange<B: Body, A: Body>(
        &self,
        message: &B,
        payload: Option<Bytes>,
        timeout: Duration,
        resend: Resend,
    ) -> Result<(A, Bytes), ClientError> {
        let (told, answer) = oneshot::channel();
        self.inner.shared.with(|state, now| {
            let call = state.core.call(now, message, payload, timeout, resend)?;
            state.calls.insert(call, told);
            Ok(())
        })?;
        let frame = answer.await.map_err(|_| ClientError::Closed)??;
        let body = frame.message().map_err(|error| ClientError::Protocol(error.message))?;
        Ok((body, frame.payload))
    }
}

/// The offsets of a refused Fetch, in the caller's terms.
fn out_of_range(error: ClientError, partition: u32) -> ClientError {
    match error {
        ClientError::Refused(error) if error.kind == lockgate_wire::ErrorKind::OffsetOutOfRange => {
            ClientError::OffsetOutOfRange {
                partition,
                earliest: Offset(error.details.earliest_offset.unwrap_or(0)),
                high_watermark: Offset(error.details.high_watermark.unwrap_or(0)),
            }
        }
        error => error,
    }
}

/// Ticks the core when it is due.
async fn keep_time(shared: Arc<Shared>) {
    loop {
        let until = shared.look(|state| state.sleeps_until);
        match until {
            Some(until) => {
                let _ = tokio::time::timeout_at(shared.instant(until).into(), shared.deadline_moved.notified()).await;
            }
            None => shared.deadline_moved.notified().await,
        }
        shared.with(|state, now| {
            if state.core.next_deadline().is_some_and(|deadline| deadline <= now.mono) {
                state.input(now, Input::Tick);
            }
            state.sleeps_until = state.core.next_deadline();
        });
    }
}

/// A number that no other client has, from what the standard library seeds its maps with.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
