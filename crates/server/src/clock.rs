//! The node's two clocks, read together.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockgate_wire::{MonoTime, Now, WallMs};

/// Monotonic time begins here, so that "a minute ago" is a time even at the start.
const START: Duration = Duration::from_secs(3600);

/// Both clocks; copies agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        // A clock before 1970 is as good as one at 1970: nothing is decided by it.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: self.mono(), wall: WallMs(wall.as_millis() as i64) }
    }

    pub(crate) fn mono(&self) -> MonoTime {
        MonoTime((START + self.started.elapsed()).as_nanos() as u64)
    }
}

/// From `now` until `then`; nothing if that has passed.
pub(crate) fn until(now: MonoTime, then: MonoTime) -> Duration {
    Duration::from_nanos(then.0.saturating_sub(now.0))
}
