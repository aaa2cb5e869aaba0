//! Retention by age goes by the log's clock: it takes nothing that is younger than the topic keeps. That clock is the
//! broker's wall clock as a process took it at its beginning, and follows its later jumps at a bounded rate only.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, What};
use crate::time::{MS, Time};

/// How much faster than time the log's clock may go, besides the time itself.
const RATE: i64 = 2;
/// Ahead of that.
const SLACK_MS: i64 = 2_000;

#[derive(Default)]
pub(super) struct OnlyTheOldExpires {
    /// Append times by offset.
    stamped: BTreeMap<PartitionId, BTreeMap<u64, (Time, i64)>>,
    /// Wall clocks as processes took them, and when.
    taken: Vec<(Time, i64)>,
}

impl Invariant for OnlyTheOldExpires {
    fn name(&self) -> &'static str {
        "only_the_old_expires"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        match &event.what {
            What::ClockTaken { wall_ms } => self.taken.push((event.at, *wall_ms)),
            What::Stamped { partition, offset, append_time_ms } => {
                self.stamped.entry(*partition).or_default().insert(*offset, (event.at, *append_time_ms));
            }
            What::Bounds { partition, earliest, .. } | What::Audited { partition, earliest, .. } => {
                return self.check(*partition, *earliest, event.at, facts);
            }
            _ => {}
        }
        Ok(())
    }
}

impl OnlyTheOldExpires {
    fn check(&self, partition: PartitionId, earliest: u64, at: Time, facts: &Facts) -> Verdict {
        let topic = facts.topic(partition.topic);
        // A topic that syncs later may have lost the batch, and its offset to another one.
        let Some(keeps_ms) = topic.keeps_ms.filter(|_| topic.interval.is_none()) else { return Ok(()) };
        let gone = self.stamped.get(&partition).and_then(|times| times.range(..earliest).next_back());
        let Some((offset, (_, append_time_ms))) = gone else { return Ok(()) };
        let shown =
            |(taken, wall_ms): &(Time, i64)| wall_ms + RATE * (at.saturating_sub(*taken) / MS) as i64 + SLACK_MS;
        let latest = self.taken.iter().map(shown).max().unwrap_or(i64::MIN);
        if latest.saturating_sub(*append_time_ms) >= keeps_ms {
            return Ok(());
        }
        Err(format!(
            "partition {partition} begins at {earliest}: offset {offset}, appended at {append_time_ms}, is gone; the topic \
             keeps {keeps_ms} ms, and no clock was beyond {latest}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::OnlyTheOldExpires;
    use crate::history::{Event, What};
    use crate::time::SECOND;

    fn run(clock: i64, after: u64, earliest: u64) -> [Event; 5] {
        let end = at(after * SECOND, audited(0, earliest, &[]));
        let taken = |wall_ms| plain(What::ClockTaken { wall_ms });
        [topic_that_keeps(60_000), taken(1_000), stamped(4, 1_000), taken(clock), end]
    }

    #[test]
    fn what_is_old_by_a_clock_that_a_process_took_may_go() {
        good::<OnlyTheOldExpires>(run(61_000, 1, 5));
        good::<OnlyTheOldExpires>(run(1_000, 30, 5));
        good::<OnlyTheOldExpires>(run(1_000, 1, 4));
    }

    #[test]
    fn what_is_young_by_every_clock_must_stay() {
        bad::<OnlyTheOldExpires>(run(50_000, 1, 5));
        bad::<OnlyTheOldExpires>(run(1_000, 20, 5));
    }
}
