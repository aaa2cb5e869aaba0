//! The producer's handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockgate_wire::batch;
use tokio::sync::{Mutex, Notify, oneshot};

use super::client::Client;
use super::delivery::{Completion, Delivery};
use super::shared::State;
use crate::config::ProducerConfig;
use crate::core::{CloseReport, FlushId, ProducerKey, Ticket, Topic};
use crate::error::ClientError;
use crate::record::Record;

/// Publishes records to one topic. Made by [`Client::producer`]; share it behind an `Arc` to send from several tasks.
///
/// Records of one partition are appended in the order in which their `send`s returned. Dropping the producer leaves what
/// it took to be sent as long as the client lives; [`close`](Self::close) waits for that and tells what became of it.
pub struct Producer {
    client: Client,
    topic: Topic,
    key: ProducerKey,
    /// Sends that wait for room take turns, so that none is overtaken for ever.
    turn: Mutex<()>,
    waiting: AtomicUsize,
    freed: Arc<Notify>,
}

impl Producer {
    pub(super) fn open(client: Client, topic: Topic, config: ProducerConfig) -> Result<Self, ClientError> {
        let freed = Arc::new(Notify::new());
        let key = client.inner.shared.with(|state, now| {
            let key = state.core.open_producer(now, topic.clone(), config)?;
            state.freed.insert(key, Arc::clone(&freed));
            Ok(key)
        })?;
        Ok(Self { client, topic, key, turn: Mutex::new(()), waiting: AtomicUsize::new(0), freed })
    }

    /// The topic it publishes to.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Takes a record for the partition of its key, or without a key for the partition whose turn it is. Waits while the
    /// buffer is full. The delivery resolves when the record's batch is answered.
    ///
    /// Cancel safety: when the future is dropped before it resolved, the record was not taken.
    ///
    /// # Errors
    /// At once: [`ClientError::RecordTooLarge`], [`ClientError::Closed`]. By the delivery: [`ClientError::Unavailable`],
    /// [`ClientError::OutcomeUnknown`], [`ClientError::NotFound`], [`ClientError::Refused`], [`ClientError::Closed`].
    pub async fn send(&self, record: Record) -> Result<Delivery, ClientError> {
        self.wait_and_send(None, record).await
    }

    /// The same for a partition of the caller's choice.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] when there is no such partition; else as [`send`](Self::send).
    pub async fn send_to(&self, partition: u32, record: Record) -> Result<Delivery, ClientError> {
        self.wait_and_send(Some(partition), record).await
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// [`ClientError::BufferFull`] when there is no room; else as [`send`](Self::send).
    pub fn try_send(&self, partition: Option<u32>, record: Record) -> Result<Delivery, ClientError> {
        self.try_send_wire(partition, &record.into_wire(|| self.client.inner.shared.now().wall))
    }

    /// Sends what is gathered, and waits until everything sent before has its answer, good or bad; the deliveries and
    /// [`report`](Self::report) tell which. Cancel-safe.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub async fn flush(&self) -> Result<(), ClientError> {
        self.wait_for(|state, now| state.core.flush(now, self.key)).await
    }

    /// What was confirmed so far and what was not.
    pub fn report(&self) -> CloseReport {
        self.client.inner.shared.look(|state| state.core.producer_report(self.key)).unwrap_or_default()
    }

    /// Takes no more records, waits for all answers and tells what became of the records. If the future is dropped, what
    /// was taken is still sent.
    ///
    /// # Errors
    /// [`ClientError::Closed`] when the client was closed before.
    pub async fn close(self) -> Result<CloseReport, ClientError> {
        self.wait_for(|state, now| state.core.close_producer(now, self.key)).await?;
        Ok(self.report())
    }

    async fn wait_and_send(&self, partition: Option<u32>, record: Record) -> Result<Delivery, ClientError> {
        // A caller that only sends must let the connection's tasks run now and then.
        tokio::task::consume_budget().await;
        let record = record.into_wire(|| self.client.inner.shared.now().wall);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            match self.try_send_wire(partition, &record) {
                Err(ClientError::BufferFull { .. }) => {}
                done => return done,
            }
        }
        let _waiting = Counted::new(&self.waiting);
        let _turn = self.turn.lock().await;
        loop {
            match self.try_send_wire(partition, &record) {
                Err(ClientError::BufferFull { .. }) => self.freed.notified().await,
                done => return done,
            }
        }
    }

    fn try_send_wire(&self, partition: Option<u32>, record: &batch::Record) -> Result<Delivery, ClientError> {
        self.client.inner.shared.with(|state, now| {
            let ticket = state.core.send(now, self.key, partition, record)?;
            Ok(state.delivery(ticket))
        })
    }

    async fn wait_for(
        &self,
        start: impl FnOnce(&mut State, lockgate_wire::Now) -> Result<FlushId, ClientError>,
    ) -> Result<(), ClientError> {
        let (told, flushed) = oneshot::channel();
        self.client.inner.shared.with(|state, now| {
            let flush = start(state, now)?;
            state.flushes.insert(flush, told);
            Ok(())
        })?;
        flushed.await.map_err(|_| ClientError::Closed)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.client.inner.shared.with(|state, now| {
            state.freed.remove(&self.key);
            state.core.remove_producer(now, self.key);
        });
    }
}

impl State {
    /// The delivery of a record whose batch has no answer yet: outputs are carried out after this.
    fn delivery(&mut self, ticket: Ticket) -> Delivery {
        let completion = self.batches.entry(ticket.batch).or_insert_with(|| Arc::new(Completion::default()));
        Delivery::new(Arc::clone(completion), ticket.index)
    }
}

/// One more, as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
