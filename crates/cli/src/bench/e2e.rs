//! `lockgate bench e2e`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Args;
use lockgate_client::{Ack, Client, ClientConfig, Item, ReaderConfig, Receipt, Start};
use tokio::sync::oneshot;

use super::load;
use super::options::Load;
use super::recorder::Recorder;
use super::report::{Report, cpu_used};
use super::target::{Target, runtime};
use crate::args::Global;
use crate::failure::Failure;

/// How long the reader may stay behind when the last record was acknowledged.
const CATCH_UP: Duration = Duration::from_secs(30);
/// How often the reader looks whether it is done while nothing comes.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct EndToEnd {
    #[command(flatten)]
    load: Load,
}

pub(crate) fn run(args: &EndToEnd, global: &Global) -> Result<(), Failure> {
    let target = Target::prepare(&args.load, global)?;
    let report = measure(&args.load, &target)?;
    report.print(global)?;
    target.clean_up()
}

/// A batch, seen from one of its two ends.
enum Seen {
    Acknowledged { due: Instant, records: u64 },
    Delivered { at: Instant },
}

/// Brings acknowledgements and deliveries of the same batch together, whichever comes first.
#[derive(Default)]
struct Matcher {
    waiting: Mutex<HashMap<(u32, u64), Seen>>,
    acknowledged: AtomicU64,
}

impl Matcher {
    /// Gives when the batch was due and delivered, and its records, if this is the second of its ends.
    fn see(&self, place: (u32, u64), seen: Seen) -> Option<(Instant, Instant, u64)> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match (waiting.remove(&place), seen) {
            (Some(Seen::Acknowledged { due, records }), Seen::Delivered { at })
            | (Some(Seen::Delivered { at }), Seen::Acknowledged { due, records }) => Some((due, at, records)),
            (_, seen) => {
                waiting.insert(place, seen);
                None
            }
        }
    }
}

/// Publishes the load while a reader follows the topic's end.
pub(super) fn measure(load: &Load, target: &Target) -> Result<Report, Failure> {
    if load.ack.level() == Ack::None {
        let what = "without acknowledgements nobody knows which record was due when; use --ack quorum or leader";
        return Err(Failure::Usage(what.into()));
    }
    let before = cpu_used();
    let matcher = Arc::new(Matcher::default());
    let recorder = Arc::new(Mutex::new(Recorder::new(Instant::now() + Duration::from_secs(load.warmup))));
    let (opened, is_open) = oneshot::channel();
    let producers_ended = Arc::new(AtomicU64::new(0));
    let reader: JoinHandle<Result<(), Failure>> = {
        let (matcher, recorder, ended) = (Arc::clone(&matcher), Arc::clone(&recorder), Arc::clone(&producers_ended));
        let (config, topic) = (target.config.clone(), target.topic.name.clone());
        std::thread::spawn(move || runtime()?.block_on(follow(config, topic, opened, &matcher, &recorder, &ended)))
    };
    // An error closes the channel; the thread's result says what it was.
    drop(is_open.blocking_recv());

    let on_receipt = {
        let (matcher, recorder) = (Arc::clone(&matcher), Arc::clone(&recorder));
        move |due: Instant, receipt: Receipt, records: u64| {
            matcher.acknowledged.fetch_add(records, Ordering::Relaxed);
            let Some(offset) = receipt.offset else { return };
            if let Some((due, at, records)) =
                matcher.see((receipt.partition, offset.0), Seen::Acknowledged { due, records })
            {
                recorder.lock().unwrap_or_else(PoisonError::into_inner).done(due, at, records);
            }
        }
    };
    let published = load::run(load, target, Some(Box::new(on_receipt)));
    producers_ended.store(1, Ordering::Release);
    reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let published = published?;
    let mut delivered =
        std::mem::replace(&mut *recorder.lock().unwrap_or_else(PoisonError::into_inner), Recorder::new(Instant::now()));
    delivered.errors += published.errors;
    delivered.first_error = delivered.first_error.or(published.first_error);
    Ok(Report {
        bench: "e2e",
        asked: load.asked(),
        size: load.size,
        recorder: delivered,
        latency_of: "until delivered",
        beside: Some(("until_acknowledged", published.latency_us)),
        generator_cpu: cpu_used() - before,
    })
}

/// Reads until the producers have ended and everything acknowledged was delivered.
async fn follow(
    config: ClientConfig,
    topic: String,
    opened: oneshot::Sender<()>,
    matcher: &Matcher,
    recorder: &Mutex<Recorder>,
    producers_ended: &AtomicU64,
) -> Result<(), Failure> {
    let client = Client::connect(config).await?;
    let mut reader = client.reader(&topic, ReaderConfig { from: Start::Latest, ..ReaderConfig::default() }).await?;
    // Whoever waits for it is there, or has failed itself.
    let _ = opened.send(());
    let mut delivered = 0;
    let mut ended_at = None;
    loop {
        if producers_ended.load(Ordering::Acquire) == 1 {
            if delivered >= matcher.acknowledged.load(Ordering::Relaxed) {
                return Ok(());
            }
            if ended_at.get_or_insert_with(Instant::now).elapsed() > CATCH_UP {
                let missing = matcher.acknowledged.load(Ordering::Relaxed) - delivered;
                let what = format!("{missing} acknowledged records were not delivered within {CATCH_UP:?}");
                return Err(Failure::Incomplete { what, unknown: false });
            }
        }
        let Ok(next) = tokio::time::timeout(LOOK_EVERY, reader.next_batch()).await else { continue };
        let Some(items) = next else { return Ok(()) };
        let at = Instant::now();
        let items = items?;
        delivered += items.iter().filter(|item| matches!(item, Item::Record(_))).count() as u64;
        let Some(Item::Record(first)) = items.first() else { continue };
        if let Some((due, at, records)) = matcher.see((first.partition, first.offset.0), Seen::Delivered { at }) {
            recorder.lock().unwrap_or_else(PoisonError::into_inner).done(due, at, records);
        }
    }
}
