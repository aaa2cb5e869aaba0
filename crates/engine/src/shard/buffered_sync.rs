//! When the buffered journal is synced: everything written is on the device, or a sync of it was begun, within the
//! interval.

use lockgate_storage::journal::Sequence;
use lockgate_wire::MonoTime;

/// The syncs of a shard's buffered journal, one after another.
#[derive(Default, Debug)]
pub(super) struct BufferedSync {
    /// When the oldest write that no sync has taken on has to be synced.
    due: Option<MonoTime>,
    /// The sync under way: when it began, and what it has to cover.
    under_way: Option<(MonoTime, Sequence)>,
}

impl BufferedSync {
    /// Something was written that has to be synced by `due`. While a sync is under way its end looks after it.
    pub(super) fn written(&mut self, due: MonoTime) {
        if self.under_way.is_none() {
            self.due = self.due.or(Some(due));
        }
    }

    /// A topic asks for a shorter interval.
    pub(super) fn not_after(&mut self, due: MonoTime) {
        self.due = self.due.map(|at| at.min(due));
    }

    pub(super) fn is_due(&self, now: MonoTime) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn deadline(&self) -> Option<MonoTime> {
        self.due
    }

    /// Begins to sync everything up to `written`. False: a sync is under way.
    pub(super) fn begin(&mut self, now: MonoTime, written: Sequence) -> bool {
        if self.under_way.is_some() {
            return false;
        }
        self.due = None;
        self.under_way = Some((now, written));
        true
    }

    /// Whether the sync under way has what it began for, now that everything up to `synced` is on the device.
    pub(super) fn covers(&self, synced: Sequence) -> bool {
        self.under_way.is_none_or(|(_, written)| synced >= written)
    }

    /// The sync is complete. With an interval: more was written since it began, and may be as old as that.
    pub(super) fn ended(&mut self, interval_ms: Option<u64>) {
        if let Some((began, _)) = self.under_way.take() {
            self.due = interval_ms.map(|ms| began.plus_ms(ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> MonoTime {
        MonoTime(ms * 1_000_000)
    }

    #[test]
    fn a_sync_goes_on_until_it_covers_what_was_written_when_it_began() {
        let mut sync = BufferedSync::default();
        sync.written(ms(100));
        sync.written(ms(150));
        assert!(!sync.is_due(ms(99)) && sync.is_due(ms(100)));
        assert!(sync.begin(ms(100), Sequence(9)));
        assert!(!sync.begin(ms(101), Sequence(12)), "one at a time");
        assert!(!sync.covers(Sequence(5)), "a file of several is synced");
        assert!(sync.covers(Sequence(9)));
    }

    #[test]
    fn what_is_written_during_a_sync_waits_no_longer_than_the_interval_from_its_beginning() {
        let mut sync = BufferedSync::default();
        sync.written(ms(100));
        sync.begin(ms(100), Sequence(9));
        sync.written(ms(250));
        assert_eq!(sync.deadline(), None);
        sync.ended(Some(100));
        assert_eq!(sync.deadline(), Some(ms(200)));
        sync.begin(ms(200), Sequence(10));
        sync.ended(None);
        assert_eq!(sync.deadline(), None);
    }
}
