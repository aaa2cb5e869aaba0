//! What was measured: counts and a histogram, filled by one thread, merged at the end.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockgate_client::ClientError;

/// The longest latency that is told apart from longer ones, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// A load that meets this many errors ends.
pub(super) const ERRORS_MAX: u64 = 100;

/// See the module.
pub(super) struct Recorder {
    /// What was due before is warm-up.
    begin: Instant,
    pub(super) records: u64,
    /// The same with the warm-up's.
    pub(super) all_records: u64,
    pub(super) latency_us: Histogram<u64>,
    pub(super) errors: u64,
    pub(super) first_error: Option<ClientError>,
    last: Instant,
}

impl Recorder {
    /// Records what is due from `begin` on.
    pub(super) fn new(begin: Instant) -> Self {
        let latency_us =
            Histogram::new_with_bounds(1, LATENCY_MAX_US, DIGITS).expect("these bounds and digits are a histogram's");
        Self { begin, records: 0, all_records: 0, latency_us, errors: 0, first_error: None, last: begin }
    }

    /// Records that were due together and are done.
    pub(super) fn done(&mut self, due: Instant, done: Instant, records: u64) {
        self.all_records += records;
        if due < self.begin {
            return;
        }
        self.records += records;
        self.latency_us.saturating_record(done.saturating_duration_since(due).as_micros() as u64);
        self.last = self.last.max(done);
    }

    /// A request that failed. True when it is time to give up.
    pub(super) fn failed(&mut self, error: ClientError) -> bool {
        self.errors += 1;
        self.first_error.get_or_insert(error);
        self.errors >= ERRORS_MAX
    }

    /// From the begin to the last that was done.
    pub(super) fn took(&self) -> Duration {
        self.last.duration_since(self.begin)
    }

    /// Takes in what another thread recorded.
    pub(super) fn merge(&mut self, other: Recorder) {
        self.records += other.records;
        self.all_records += other.all_records;
        let same_bounds = "all recorders have the same bounds";
        self.latency_us.add(other.latency_us).expect(same_bounds);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.last = self.last.max(other.last);
    }
}
