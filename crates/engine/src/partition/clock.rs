//! Append times: the leader's wall clock, clamped so that they never go back and only move forward at a bounded rate.

use lockgate_wire::{MonoTime, Now, WallMs};

/// How much faster than the monotonic clock append times may move.
const RATE: u64 = 2;
/// Ahead of that rate, so that small corrections of the clock pass at once.
const SLACK_MS: u64 = 1_000;

/// The append times of one partition under one leader.
#[derive(Debug)]
pub(crate) struct AppendClock {
    last: WallMs,
    /// A wall clock that was followed, and when. `None` before the first stamp of this process. While a jump is being
    /// caught up with, it stays: otherwise every stamp would get the slack anew.
    followed: Option<(WallMs, MonoTime)>,
}

impl AppendClock {
    /// Continues after the newest append time in the log.
    pub(crate) fn after(last: WallMs) -> Self {
        Self { last, followed: None }
    }

    /// The append time for now.
    pub(crate) fn stamp(&mut self, now: Now) -> WallMs {
        let ceiling = match self.followed {
            None => WallMs(i64::MAX),
            Some((wall, at)) => {
                let allowed = now.mono.ms_since(at).saturating_mul(RATE).saturating_add(SLACK_MS);
                WallMs(wall.0.saturating_add(i64::try_from(allowed).unwrap_or(i64::MAX)))
            }
        };
        self.last = self.last.max(now.wall.min(ceiling));
        if self.followed.is_none() || self.last == now.wall {
            self.followed = Some((self.last, now.mono));
        }
        self.last
    }

    /// An append time of the log was applied: none before it is given from now on.
    pub(crate) fn applied(&mut self, time: WallMs) {
        self.last = self.last.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(mono_ms: u64, wall: i64) -> Now {
        Now { mono: MonoTime(mono_ms * 1_000_000), wall: WallMs(wall) }
    }

    #[test]
    fn append_times_never_go_back() {
        let mut clock = AppendClock::after(WallMs(1_000));
        assert_eq!(clock.stamp(now(0, 900)), WallMs(1_000));
        assert_eq!(clock.stamp(now(10, 1_500)), WallMs(1_500));
        assert_eq!(clock.stamp(now(20, 0)), WallMs(1_500));
    }

    #[test]
    fn a_jump_of_the_wall_clock_is_followed_at_a_bounded_rate() {
        let mut clock = AppendClock::after(WallMs(0));
        assert_eq!(
            clock.stamp(now(0, 10_000)),
            WallMs(10_000),
            "the first stamp of a process takes the clock as it is"
        );
        assert_eq!(clock.stamp(now(100, 9_000_000)), WallMs(10_000 + 200 + 1_000));
        assert_eq!(
            clock.stamp(now(1_100, 10_900)),
            WallMs(11_200),
            "back from the jump: it waits until time has caught up"
        );
        assert_eq!(clock.stamp(now(2_000, 12_000)), WallMs(12_000));
    }

    #[test]
    fn many_stamps_follow_a_jump_no_faster_than_few() {
        let mut clock = AppendClock::after(WallMs(0));
        clock.stamp(now(0, 10_000));
        for ms in 0..1_000 {
            clock.stamp(now(ms, 9_000_000));
        }
        assert_eq!(clock.stamp(now(1_000, 9_000_000)), WallMs(10_000 + 2_000 + 1_000));
    }
}
