//! Many seeds, several at a time, and what came of them together.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockgate_sim::{Counts, Outcome, run};

use crate::report_shrunk;

/// How often a long search says that it lives.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);
/// So many failures are made smaller in the end; more are rarely different ones.
const SHRUNK_MAX: usize = 2;

#[derive(Default)]
struct Tally {
    seeds: u64,
    nanoseconds: u64,
    operations: u64,
    processes: u64,
    faults: Counts,
    failures: Vec<Outcome>,
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
    for failed in &tally.failures {
        println!("{}\n  replay: cargo sim --seed {} --trace", told(failed), failed.seed);
    }
    tally.failures.iter().take(SHRUNK_MAX).for_each(report_shrunk);
    tally.failures.is_empty()
}

fn run_one(seed: u64, tally: &Mutex<Tally>, began: Instant) {
    let outcome = run(seed, false);
    let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.seeds += 1;
    tally.nanoseconds += outcome.time;
    tally.operations += outcome.operations;
    tally.processes += u64::from(outcome.processes);
    tally.faults += &outcome.faults;
    if outcome.violation.is_some() {
        println!("{}", told(&outcome));
        tally.failures.push(outcome);
    }
    if began.elapsed() > tally.said_at + PROGRESS_EVERY {
        tally.said_at = began.elapsed();
        tally.say(began.elapsed());
    }
}

/// A failure in a line.
fn told(failed: &Outcome) -> String {
    let text = failed.violation.as_ref().map(ToString::to_string);
    format!("seed {} FAILED: {}", failed.seed, text.unwrap_or_default())
}

impl Tally {
    fn say(&self, elapsed: Duration) {
        println!(
            "{} seeds in {:.1} s ({:.1} a second), {:.2} simulated hours, {} operations, {} processes, {}, {} failures",
            self.seeds,
            elapsed.as_secs_f64(),
            self.seeds as f64 / elapsed.as_secs_f64(),
            self.nanoseconds as f64 / 3.6e12,
            self.operations,
            self.processes,
            self.faults,
            self.failures.len()
        );
    }
}
