//! The producers of a load: threads with a connection each, and in each as many slots as requests may be in flight.
//!
//! Without idempotence a slot publishes the same encoded batch again and again, which costs the generator next to nothing
//! per record. With it, batches go through the library's producer, which numbers and encodes each.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockgate_client::{
    Ack, Client, ClientConfig, ClientError, Codec, Producer, ProducerConfig, Receipt, Record, Topic,
};
use lockgate_wire::batch::{self, BatchBuilder};
use tokio::task::JoinSet;

use super::options::Load;
use super::recorder::Recorder;
use super::stop;
use super::target::{Target, runtime};
use crate::failure::Failure;

/// Below this a due time is waited for by looking at the clock: the runtime's timer has a resolution of a millisecond.
const SPIN: Duration = Duration::from_millis(2);
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Told of every acknowledged batch: when it was due, where it is, how many records it has.
pub(super) type OnReceipt = dyn Fn(Instant, Receipt, u64) + Send + Sync;

/// What all slots of all producers share.
struct Plan {
    load: Load,
    topic: Topic,
    start: Instant,
    begin: Instant,
    end: Option<Instant>,
    /// Requests that were begun.
    next: AtomicU64,
    /// Of these, after the warm-up.
    measured: AtomicU64,
    /// How many of those to make.
    requests: Option<u64>,
    /// Too many errors.
    stopped: AtomicBool,
    on_receipt: Option<Box<OnReceipt>>,
}

/// Publishes until the load is done; gives what was measured.
pub(super) fn run(load: &Load, target: &Target, on_receipt: Option<Box<OnReceipt>>) -> Result<Recorder, Failure> {
    let start = Instant::now();
    let begin = start + Duration::from_secs(load.warmup);
    let plan = Arc::new(Plan {
        load: load.clone(),
        topic: target.topic.clone(),
        start,
        begin,
        end: load.duration().map(|duration| begin + duration),
        next: AtomicU64::new(0),
        measured: AtomicU64::new(0),
        requests: load.records.map(|records| records.div_ceil(u64::from(load.batch_records))),
        stopped: AtomicBool::new(false),
        on_receipt,
    });
    let producers: Vec<_> = (0..load.producers)
        .map(|_| {
            let (plan, config) = (Arc::clone(&plan), target.config.clone());
            std::thread::spawn(move || runtime()?.block_on(produce(plan, config)))
        })
        .collect();
    let mut all = Recorder::new(begin);
    let mut failure = None;
    for producer in producers {
        match producer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(recorder) => all.merge(recorder),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(all), Err)
}

async fn produce(plan: Arc<Plan>, config: ClientConfig) -> Result<Recorder, Failure> {
    let client = Client::connect(ClientConfig { call_timeout: TIMEOUT, ..config }).await?;
    let way = Arc::new(Way::open(&client, &plan).await?);
    let recorder = Arc::new(Mutex::new(Recorder::new(plan.begin)));
    let mut slots = JoinSet::new();
    for _ in 0..plan.load.in_flight {
        slots.spawn(slot(Arc::clone(&plan), Arc::clone(&way), Arc::clone(&recorder)));
    }
    while let Some(ended) = slots.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
    let empty = Recorder::new(plan.begin);
    Ok(std::mem::replace(&mut *recorder.lock().unwrap_or_else(PoisonError::into_inner), empty))
}

/// One request after the other.
async fn slot(plan: Arc<Plan>, way: Arc<Way>, recorder: Arc<Mutex<Recorder>>) {
    let records = u64::from(plan.load.batch_records);
    let mut free = Instant::now();
    while let Some((due, number)) = plan.next_due(free) {
        wait_until(due).await;
        let partition = (number % u64::from(plan.topic.partitions)) as u32;
        let answer = way.publish(partition, plan.load.batch_records).await;
        free = Instant::now();
        let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(receipt) => {
                recorder.done(due, free, records);
                if let Some(on_receipt) = &plan.on_receipt {
                    on_receipt(due, receipt, records);
                }
            }
            Err(error) => {
                if recorder.failed(error) {
                    plan.stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Plan {
    /// When the next request is due and its number; `None` when there is none any more.
    fn next_due(&self, free: Instant) -> Option<(Instant, u64)> {
        if self.stopped.load(Ordering::Relaxed) || stop::is_wanted() || self.end.is_some_and(|end| free >= end) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let due = match self.load.rate {
            None => free,
            Some(rate) => {
                let nanos = u128::from(number) * u128::from(self.load.batch_records) * 1_000_000_000 / u128::from(rate);
                self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        };
        if self.end.is_some_and(|end| due >= end) {
            return None;
        }
        let over = |requests| due >= self.begin && self.measured.fetch_add(1, Ordering::Relaxed) >= requests;
        (!self.requests.is_some_and(over)).then_some((due, number))
    }
}

async fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN { tokio::time::sleep(left - SPIN).await } else { tokio::task::yield_now().await }
    }
}

/// How requests are made.
enum Way {
    /// The same bytes every time.
    Encoded { client: Client, topic: Topic, batch: Bytes, ack: Ack },
    /// Numbered by a producer.
    Numbered { producer: Producer, record: Record },
}

impl Way {
    async fn open(client: &Client, plan: &Plan) -> Result<Self, ClientError> {
        let Plan { load, topic, .. } = plan;
        let value = value(load.size as usize);
        if !load.is_idempotent() {
            let batch = encode(&value, load.batch_records);
            return Ok(Self::Encoded { client: client.clone(), topic: topic.clone(), batch, ack: load.ack.level() });
        }
        let config = ProducerConfig {
            // A batch is whole when it has its records, and not before.
            linger: TIMEOUT / 2,
            batch_records: load.batch_records as usize,
            batch_bytes: load.max_batch_bytes() as usize,
            buffer_bytes: (2 * load.max_batch_bytes() as usize).saturating_mul(load.in_flight as usize),
            timeout: TIMEOUT,
            ..ProducerConfig::default()
        };
        let producer = client.producer(&topic.name, config).await?;
        Ok(Self::Numbered { producer, record: Record::new(value) })
    }

    /// Publishes one batch; the receipt is its first record's.
    async fn publish(&self, partition: u32, records: u32) -> Result<Receipt, ClientError> {
        match self {
            Self::Encoded { client, topic, batch, ack } => {
                client.publish_batch(topic, partition, batch.clone(), *ack).await
            }
            Self::Numbered { producer, record } => {
                let first = producer.try_send(Some(partition), record.clone())?;
                for _ in 1..records {
                    drop(producer.try_send(Some(partition), record.clone())?);
                }
                first.await
            }
        }
    }
}

/// Bytes that no compression makes smaller.
fn value(size: usize) -> Bytes {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..size).map(|_| next()).collect()
}

fn encode(value: &Bytes, records: u32) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    let record = batch::Record { value: Some(value.clone()), ..batch::Record::default() };
    for _ in 0..records {
        builder.push(&record).expect("a batch that fits a frame fits a builder");
    }
    builder.build(None)
}
