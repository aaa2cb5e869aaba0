//! Many seeds, several at a time, and what came of them together.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockgate_sim::run;

/// How often a long search says that it lives.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Tally {
    seeds: u64,
    nanoseconds: u64,
    operations: u64,
    processes: u64,
    power_losses: u64,
    /// With the violation, or the panic.
    failures: Vec<(u64, String)>,
    said_at: Duration,
}

/// Runs a range of seeds. True: nothing was broken.
pub(crate) fn range(seeds: Range<u64>, jobs: usize) -> bool {
    search(seeds, None, jobs)
}

/// Runs fresh seeds for so many minutes. True: nothing was broken.
pub(crate) fn fresh(minutes: u64, jobs: usize) -> bool {
    let entropy = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Leaves room behind it and keeps seeds short to write.
    let start = entropy / 1000 % 1_000_000_000_000;
    println!("searching from seed {start} for {minutes} min, {jobs} at a time");
    search(start..u64::MAX, Some(Duration::from_secs(60 * minutes)), jobs)
}

fn search(seeds: Range<u64>, limit: Option<Duration>, jobs: usize) -> bool {
    let (next, tally, began) = (AtomicU64::new(seeds.start), Mutex::new(Tally::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while limit.is_none_or(|limit| began.elapsed() < limit) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    run_one(seed, &tally, began);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.say(began.elapsed());
    for (seed, text) in &tally.failures {
        println!("seed {seed} FAILED: {text}\n  replay: cargo sim --seed {seed} --trace");
    }
    tally.failures.is_empty()
}

fn run_one(seed: u64, tally: &Mutex<Tally>, began: Instant) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
    let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.seeds += 1;
    let failure = match outcome {
        Ok(outcome) => {
            tally.nanoseconds += outcome.time;
            tally.operations += outcome.operations;
            tally.processes += u64::from(outcome.processes);
            tally.power_losses += u64::from(outcome.power_losses);
            outcome.violation.map(|violation| violation.to_string())
        }
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    };
    if let Some(text) = failure {
        println!("seed {seed} FAILED: {text}");
        tally.failures.push((seed, text));
    }
    if began.elapsed() > tally.said_at + PROGRESS_EVERY {
        tally.said_at = began.elapsed();
        tally.say(began.elapsed());
    }
}

impl Tally {
    fn say(&self, elapsed: Duration) {
        println!(
            "{} seeds in {:.1} s ({:.1} a second), {:.2} simulated hours, {} operations, {} processes, {} power losses, {} failures",
            self.seeds,
            elapsed.as_secs_f64(),
            self.seeds as f64 / elapsed.as_secs_f64(),
            self.nanoseconds as f64 / 3.6e12,
            self.operations,
            self.processes,
            self.power_losses,
            self.failures.len()
        );
    }
}
