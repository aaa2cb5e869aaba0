//! One ordered set of times, so that the next deadline of everything is its first.

use std::collections::BTreeSet;

use lockgate_wire::MonoTime;

use super::ids::{CallId, ProducerKey, ReaderKey};

/// Whose time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum TimerKey {
    Call(CallId),
    /// A producer's partition.
    Producer(ProducerKey, u32),
    /// A reader's partition, by its place in the reader.
    Reader(ReaderKey, u32),
    /// A reader that is opening.
    Opening(ReaderKey),
}

/// The armed times. At most one a key, which an [`Alarm`] beside the key's owner sees to.
#[derive(Debug, Default)]
pub(super) struct Timers {
    armed: BTreeSet<(MonoTime, TimerKey)>,
}

impl Timers {
    pub(super) fn next(&self) -> Option<MonoTime> {
        self.armed.first().map(|(at, _)| *at)
    }

    /// Takes one key whose time has come. Its owner calls [`Alarm::fired`].
    pub(super) fn take_due(&mut self, now: MonoTime) -> Option<TimerKey> {
        let (at, key) = *self.armed.first()?;
        (at <= now).then(|| {
            self.armed.pop_first();
            key
        })
    }
}

/// One key's place in the timers.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    at: Option<MonoTime>,
}

impl Alarm {
    /// Rings at `at` or earlier. An earlier ring costs its owner a look at what is due and no more, which is cheaper
    /// than moving the alarm with every batch.
    pub(super) fn arm(&mut self, timers: &mut Timers, key: TimerKey, at: MonoTime) {
        if self.at.is_some_and(|armed| armed <= at) {
            return;
        }
        self.disarm(timers, key);
        timers.armed.insert((at, key));
        self.at = Some(at);
    }

    pub(super) fn disarm(&mut self, timers: &mut Timers, key: TimerKey) {
        if let Some(at) = self.at.take() {
            timers.armed.remove(&(at, key));
        }
    }

    pub(super) fn fired(&mut self) {
        self.at = None;
    }
}
