//! What one producer sends to one partition, one after another, stands there in that order: over everything for an
//! idempotent producer, within one connection for any other. Batches are numbered in the order of their first sending.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::history::{BatchNo, Event, Facts, What};

#[derive(Default)]
pub(super) struct OrderPerProducer {
    chains: BTreeMap<BatchNo, u64>,
    places: BTreeMap<(PartitionId, u32, u64), BTreeMap<BatchNo, u64>>,
}

impl Invariant for OrderPerProducer {
    fn name(&self) -> &'static str {
        "order_per_producer"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        if let What::Sent { batch, chain, .. } = event.what {
            self.chains.entry(batch).or_insert(chain);
        }
        let (Some(partition), claims) = event.claims() else { return Ok(()) };
        let era = facts.era(partition, event.life);
        for claim in claims {
            let Some(chain) = self.chains.get(&claim.batch) else { continue };
            let places = self.places.entry((partition, era, *chain)).or_default();
            let before = places.range(..claim.batch).next_back().filter(|(_, offset)| **offset >= claim.offset);
            let after = places.range(claim.batch + 1..).next().filter(|(_, offset)| **offset <= claim.offset);
            if let Some((other, offset)) = before.or(after) {
                return Err(format!(
                    "partition {partition}: {claim:?} is out of order with batch {other} at offset {offset}"
                ));
            }
            places.insert(claim.batch, claim.offset);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn batches_in_order_with_gaps_are_fine() {
        good::<super::OrderPerProducer>([sent(7, 0), sent(8, 0), sent(9, 0), read(0, &[(3, 1, 7), (9, 1, 9)])]);
    }

    #[test]
    fn an_overtaken_batch_is_found() {
        bad::<super::OrderPerProducer>([sent(7, 0), sent(8, 0), acked(0, 3, 1, 8), acked(0, 4, 1, 7)]);
        bad::<super::OrderPerProducer>([sent(7, 0), sent(8, 0), acked(0, 4, 1, 7), acked(0, 3, 1, 8)]);
    }

    #[test]
    fn other_producers_stand_in_any_order() {
        good::<super::OrderPerProducer>([sent(7, 0), sent_by(2, 8, 0), acked(0, 3, 1, 8), acked(0, 4, 1, 7)]);
    }
}
