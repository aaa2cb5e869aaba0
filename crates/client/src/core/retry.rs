//! How long to pause before another attempt: full jitter below a ceiling that doubles.

use lockgate_wire::{Error, ErrorKind, MonoTime};

/// The first pause's ceiling.
pub const PAUSE_CEILING_FIRST_MS: u64 = 50;
/// No pause's ceiling is above this.
pub const PAUSE_CEILING_MAX_MS: u64 = 2_000;
/// The ceiling while all that is missing is a leader.
pub const PAUSE_CEILING_LEADER_MS: u64 = 200;
/// The longest `retry_after` of a broker that is heeded.
pub const RETRY_AFTER_MAX_MS: u64 = 60_000;
/// An attempt that was sent may be answered for this long, however short the deadline.
pub const ATTEMPT_MIN_MS: u64 = 1_000;

const _: () = assert!(PAUSE_CEILING_FIRST_MS <= PAUSE_CEILING_LEADER_MS);
const _: () = assert!(PAUSE_CEILING_LEADER_MS <= PAUSE_CEILING_MAX_MS);

/// A small generator of pseudo-random numbers (splitmix64); the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `most`, both included; `most` is far below 2^64, so that the bias is nothing.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        self.next() % (most + 1)
    }
}

/// The pauses of one thing that is tried again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// When to try again after a failure that came with this error, if with any.
    pub(super) fn failed(&mut self, now: MonoTime, error: Option<&Error>, rng: &mut Rng) -> MonoTime {
        let doubled = PAUSE_CEILING_FIRST_MS << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let most = match error.map(|error| error.kind) {
            Some(ErrorKind::LeaderUnknown | ErrorKind::NotLeader) => PAUSE_CEILING_LEADER_MS,
            _ => PAUSE_CEILING_MAX_MS,
        };
        let jitter = now.plus_ms(rng.up_to(doubled.min(most)));
        let asked = error.and_then(|error| error.details.retry_after_ms).map_or(0, u64::from);
        jitter.max(now.plus_ms(asked.min(RETRY_AFTER_MAX_MS)))
    }

    /// The next pause is a first one again.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_below_a_ceiling_that_doubles_to_its_bound() {
        let mut rng = Rng::new(1);
        let mut longest = [0; 8];
        for _ in 0..2_000 {
            let mut backoff = Backoff::default();
            for longest in &mut longest {
                let pause = backoff.failed(MonoTime(0), None, &mut rng).ms_since(MonoTime(0));
                *longest = pause.max(*longest);
            }
        }
        for (longest, ceiling) in longest.into_iter().zip([50, 100, 200, 400, 800, 1600, 2000, 2000]) {
            assert!(longest <= ceiling && longest >= ceiling * 9 / 10, "{longest} of {ceiling}");
        }
    }

    #[test]
    fn a_missing_leader_is_asked_for_again_soon() {
        let (mut rng, mut backoff) = (Rng::new(2), Backoff::default());
        let error = Error::new(ErrorKind::LeaderUnknown, "none now");
        for _ in 0..1_000 {
            let pause = backoff.failed(MonoTime(0), Some(&error), &mut rng).ms_since(MonoTime(0));
            assert!(pause <= PAUSE_CEILING_LEADER_MS);
        }
    }

    #[test]
    fn the_brokers_retry_after_is_heeded_up_to_a_bound() {
        let (mut rng, mut backoff) = (Rng::new(3), Backoff::default());
        let mut error = Error::new(ErrorKind::Overloaded, "full");
        for (asked, least, most) in [(5_000, 5_000, 5_000), (u32::MAX, RETRY_AFTER_MAX_MS, RETRY_AFTER_MAX_MS)] {
            error.details.retry_after_ms = Some(asked);
            let pause = backoff.failed(MonoTime(0), Some(&error), &mut rng).ms_since(MonoTime(0));
            assert!((least..=most).contains(&pause), "{pause}");
        }
    }
}
