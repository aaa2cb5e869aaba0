//! An offset of a partition stands for one record for ever: all answers, all readers, before and after every crash.
//! Only a power loss under a topic that syncs later begins anew.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, Placed};

#[derive(Default)]
pub(super) struct OneValuePerOffset {
    places: BTreeMap<(PartitionId, u32), BTreeMap<u64, Placed>>,
}

impl Invariant for OneValuePerOffset {
    fn name(&self) -> &'static str {
        "one_value_per_offset"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        let (Some(partition), claims) = event.claims() else { return Ok(()) };
        let places = self.places.entry((partition, facts.era(partition, event.life))).or_default();
        for claim in claims {
            match places.range(..claim.end()).next_back() {
                Some((_, other)) if other == claim => {}
                Some((_, other)) if other.end() > claim.offset => {
                    return Err(format!("partition {partition}: {claim:?} and {other:?} share offsets"));
                }
                _ => drop(places.insert(claim.offset, *claim)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn the_same_batch_may_be_seen_at_its_offset_by_everybody() {
        good::<super::OneValuePerOffset>([
            acked(0, 0, 3, 7),
            read(0, &[(0, 3, 7), (3, 1, 8)]),
            read(0, &[(0, 3, 7)]),
            acked(0, 3, 1, 8),
        ]);
    }

    #[test]
    fn two_batches_at_one_offset_are_found() {
        bad::<super::OneValuePerOffset>([acked(0, 0, 3, 7), read(0, &[(0, 3, 8)])]);
        bad::<super::OneValuePerOffset>([read(0, &[(4, 2, 7)]), acked(0, 5, 1, 8)]);
        bad::<super::OneValuePerOffset>([read(0, &[(4, 1, 7)]), acked(0, 3, 3, 8)]);
    }

    #[test]
    fn another_partition_has_offsets_of_its_own() {
        good::<super::OneValuePerOffset>([acked(0, 0, 3, 7), acked(1, 0, 3, 8)]);
    }

    #[test]
    fn only_a_topic_that_syncs_later_may_rewrite_and_only_after_a_power_loss() {
        good::<super::OneValuePerOffset>([
            weak_topic(),
            acked(0, 0, 1, 7),
            power_lost(),
            in_power(1, acked(0, 0, 1, 8)),
        ]);
        bad::<super::OneValuePerOffset>([weak_topic(), acked(0, 0, 1, 7), crashed(), acked(0, 0, 1, 8)]);
        bad::<super::OneValuePerOffset>([acked(0, 0, 1, 7), power_lost(), in_power(1, acked(0, 0, 1, 8))]);
    }
}
