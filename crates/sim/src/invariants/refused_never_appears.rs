//! A batch of which every attempt was refused (`retry`, `redirect`, `terminal`) is in no log, then and later.

use std::collections::BTreeMap;

use super::{Invariant, Verdict};
use crate::history::{BatchNo, Event, Facts, What};

#[derive(Default)]
struct Attempts {
    sent: u32,
    refused: u32,
    was_seen: bool,
}

#[derive(Default)]
pub(super) struct RefusedNeverAppears {
    batches: BTreeMap<BatchNo, Attempts>,
}

impl Attempts {
    fn check(&self, batch: BatchNo) -> Verdict {
        if self.was_seen && self.sent == self.refused {
            return Err(format!("batch {batch} is in the log, though all its {} attempts were refused", self.sent));
        }
        Ok(())
    }
}

impl Invariant for RefusedNeverAppears {
    fn name(&self) -> &'static str {
        "refused_never_appears"
    }

    fn observe(&mut self, event: &Event, _facts: &Facts) -> Verdict {
        match &event.what {
            What::Sent { batch, .. } => self.batches.entry(*batch).or_default().sent += 1,
            What::Refused { batch, .. } => {
                let attempts = self.batches.entry(*batch).or_default();
                attempts.refused += 1;
                attempts.check(*batch)?;
            }
            _ => {}
        }
        for claim in event.claims().1 {
            let attempts = self.batches.entry(claim.batch).or_default();
            attempts.was_seen = true;
            attempts.check(claim.batch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn an_unknown_attempt_beside_a_refused_one_may_appear() {
        good::<super::RefusedNeverAppears>([sent(7, 0), sent(7, 0), refused(7), read(0, &[(0, 1, 7)])]);
    }

    #[test]
    fn a_refused_batch_in_the_log_is_found_in_either_order() {
        bad::<super::RefusedNeverAppears>([sent(7, 0), refused(7), read(0, &[(0, 1, 7)])]);
        bad::<super::RefusedNeverAppears>([sent(7, 0), read(0, &[(0, 1, 7)]), refused(7)]);
    }

    #[test]
    fn a_batch_sent_again_after_a_refusal_may_appear() {
        good::<super::RefusedNeverAppears>([sent(7, 0), refused(7), sent(7, 0), acked(0, 0, 1, 7)]);
    }
}
