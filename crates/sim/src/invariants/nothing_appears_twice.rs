//! A batch has one place. An idempotent producer may have sent it often; any other batch was sent once.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::history::{BatchNo, Event, Facts, What};

#[derive(Default)]
pub(super) struct NothingAppearsTwice {
    sent_to: BTreeMap<BatchNo, PartitionId>,
    places: BTreeMap<(BatchNo, u32), u64>,
}

impl Invariant for NothingAppearsTwice {
    fn name(&self) -> &'static str {
        "nothing_appears_twice"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        if let What::Sent { batch, partition, .. } = event.what {
            self.sent_to.insert(batch, partition);
        }
        let (Some(partition), claims) = event.claims() else { return Ok(()) };
        let era = facts.era(partition, event.life);
        for claim in claims {
            match self.sent_to.get(&claim.batch) {
                Some(target) if *target == partition => {}
                target => return Err(format!("partition {partition} shows {claim:?}, which was sent to {target:?}")),
            }
            let place = *self.places.entry((claim.batch, era)).or_insert(claim.offset);
            if place != claim.offset {
                return Err(format!("partition {partition}: {claim:?} stands at offset {place} as well"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn a_resent_batch_with_one_place_is_fine() {
        good::<super::NothingAppearsTwice>([sent(7, 0), sent(7, 0), acked(0, 5, 1, 7), read(0, &[(5, 1, 7)])]);
    }

    #[test]
    fn a_second_place_is_found() {
        bad::<super::NothingAppearsTwice>([sent(7, 0), sent(7, 0), acked(0, 5, 1, 7), read(0, &[(6, 1, 7)])]);
        bad::<super::NothingAppearsTwice>([sent(7, 0), read(0, &[(5, 1, 7), (6, 1, 7)])]);
    }

    #[test]
    fn a_batch_that_nobody_sent_there_is_found() {
        bad::<super::NothingAppearsTwice>([read(0, &[(5, 1, 7)])]);
        bad::<super::NothingAppearsTwice>([sent(7, 1), read(0, &[(5, 1, 7)])]);
    }

    #[test]
    fn what_a_power_loss_took_may_be_sent_again_where_that_is_allowed() {
        let again = [sent(7, 0), acked(0, 5, 1, 7), power_lost(), sent(7, 0), in_power(1, acked(0, 4, 1, 7))];
        bad::<super::NothingAppearsTwice>(again.clone());
        good::<super::NothingAppearsTwice>([weak_topic()].into_iter().chain(again));
    }
}
