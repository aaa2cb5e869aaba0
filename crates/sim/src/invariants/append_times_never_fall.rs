//! In a partition's log no append time is earlier than one before it, whatever the broker's wall clock does.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, What};

/// The append times by offset, for each partition and era.
#[derive(Default)]
pub(super) struct AppendTimesNeverFall(BTreeMap<(PartitionId, u32), BTreeMap<u64, i64>>);

impl Invariant for AppendTimesNeverFall {
    fn name(&self) -> &'static str {
        "append_times_never_fall"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        let What::Stamped { partition, offset, append_time_ms } = &event.what else { return Ok(()) };
        let times = self.0.entry((*partition, facts.era(*partition, event.life))).or_default();
        let before = times.range(..offset).next_back().filter(|(_, time)| *time > append_time_ms);
        let same = times.get_key_value(offset).filter(|(_, time)| *time != append_time_ms);
        let after = times.range(offset..).next().filter(|(_, time)| *time < append_time_ms);
        if let Some((other, time)) = before.or(same).or(after) {
            return Err(format!(
                "partition {partition}: offset {offset} was appended at {append_time_ms}, offset {other} at {time}"
            ));
        }
        times.insert(*offset, *append_time_ms);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::AppendTimesNeverFall;

    #[test]
    fn times_that_stay_or_grow_with_the_offsets_are_fine_however_they_become_known() {
        good::<AppendTimesNeverFall>([stamped(0, 5), stamped(7, 9), stamped(3, 5), stamped(7, 9)]);
    }

    #[test]
    fn a_time_that_falls_is_found_from_both_sides() {
        bad::<AppendTimesNeverFall>([stamped(0, 5), stamped(3, 4)]);
        bad::<AppendTimesNeverFall>([stamped(3, 4), stamped(0, 5)]);
        bad::<AppendTimesNeverFall>([stamped(3, 4), stamped(3, 5)]);
    }

    #[test]
    fn a_power_loss_may_take_the_times_of_a_topic_that_syncs_later_with_it() {
        good::<AppendTimesNeverFall>([weak_topic(), stamped(0, 5), power_lost(), in_power(1, stamped(0, 4))]);
        bad::<AppendTimesNeverFall>([stamped(0, 5), power_lost(), in_power(1, stamped(0, 4))]);
    }
}
