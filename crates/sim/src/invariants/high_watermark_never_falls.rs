//! An answer to a question that was asked after another answer came shows no older state: neither the high watermark nor
//! the first retained offset falls, and what was acknowledged is below the high watermark.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, What};
use crate::time::Time;

/// The largest value known at each time at which it grew.
#[derive(Default)]
struct Floor(BTreeMap<Time, u64>);

impl Floor {
    fn raise(&mut self, at: Time, value: u64) {
        if self.0.range(..=at).next_back().is_none_or(|(_, known)| *known < value) {
            self.0.insert(at, value);
        }
    }

    fn known_before(&self, time: Time) -> u64 {
        self.0.range(..time).next_back().map_or(0, |(_, value)| *value)
    }
}

#[derive(Default)]
pub(super) struct HighWatermarkNeverFalls {
    partitions: BTreeMap<(PartitionId, u32), (Floor, Floor)>,
}

impl Invariant for HighWatermarkNeverFalls {
    fn name(&self) -> &'static str {
        "high_watermark_never_falls"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        let partitions = &mut self.partitions;
        let key = |partition| (partition, facts.era(partition, event.life));
        match &event.what {
            What::Bounds { partition, asked, earliest, high_watermark } => {
                let (first, end) = partitions.entry(key(*partition)).or_default();
                let (first_known, end_known) = (first.known_before(*asked), end.known_before(*asked));
                if *high_watermark < end_known || *earliest < first_known || earliest > high_watermark {
                    return Err(format!(
                        "partition {partition} is said to hold {earliest} to {high_watermark}, {first_known} to {end_known} was known before that was asked"
                    ));
                }
                first.raise(event.at, *earliest);
                end.raise(event.at, *high_watermark);
            }
            What::Acknowledged { placed, partition, .. } => {
                partitions.entry(key(*partition)).or_default().1.raise(event.at, placed.end())
            }
            What::Read { partition, high_watermark, .. } => {
                partitions.entry(key(*partition)).or_default().1.raise(event.at, *high_watermark)
            }
            What::Audited { partition, high_watermark, .. } if !facts.is_doomed(partition.topic) => {
                let known = partitions.entry(key(*partition)).or_default().1.known_before(event.at);
                if *high_watermark < known {
                    return Err(format!("partition {partition} ends at {high_watermark}, it reached {known} before"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::HighWatermarkNeverFalls as This;

    #[test]
    fn an_answer_may_be_older_than_one_that_came_after_it_was_asked() {
        good::<This>([at(5, bounds(1, 10)), at(6, bounds(2, 8)), at(9, bounds(7, 10))]);
    }

    #[test]
    fn a_fallen_high_watermark_is_found() {
        bad::<This>([at(5, bounds(1, 10)), at(9, bounds(6, 9))]);
        bad::<This>([at(5, acked(0, 3, 2, 7)), at(9, bounds(6, 4))]);
        bad::<This>([at(5, bounds(1, 10)), at(9, audited(0, 0, &[(0, 9, 1)]))]);
    }

    #[test]
    fn a_power_loss_lowers_it_only_where_that_is_allowed() {
        let fall = [at(5, bounds(1, 10)), at(6, power_lost()), in_power(1, at(9, bounds(7, 9)))];
        bad::<This>(fall.clone());
        good::<This>([weak_topic()].into_iter().chain(fall));
    }
}
