//! What was acknowledged is there when everything has healed, at the offset that the answer gave. A power loss may take
//! it only from a topic that syncs later, and only what is younger than the topic's interval, or was not synced when its
//! journal failed or its process was killed and no start has recovered it since; retention only what is old.

use std::collections::BTreeMap;

use lockgate_wire::PartitionId;

use super::{Invariant, Verdict};
use crate::disk::SLOWEST;
use crate::history::{BatchNo, Event, Facts, Life, Placed, What};
use crate::time::{SECOND, Time};

/// How much later than its interval a sync may be done on a disk that is not slow: it takes its time, and so do those before it.
const SYNC_SLACK: Time = 2 * SLOWEST + SECOND;

struct Acknowledgement {
    at: Time,
    life: Life,
    partition: PartitionId,
    placed: Placed,
}

#[derive(Default)]
pub(super) struct AcknowledgedIsReadOnce {
    sent: BTreeMap<BatchNo, u32>,
    acknowledged: BTreeMap<(BatchNo, u32), Acknowledgement>,
    audits: BTreeMap<PartitionId, (u64, BTreeMap<u64, Placed>)>,
}

impl Invariant for AcknowledgedIsReadOnce {
    fn name(&self) -> &'static str {
        "acknowledged_is_read_once_at_its_offset"
    }

    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        match &event.what {
            What::Sent { batch, .. } => *self.sent.entry(*batch).or_default() += 1,
            What::Acknowledged { placed, partition, duplicate } => {
                if *duplicate && self.sent.get(&placed.batch) == Some(&1) {
                    return Err(format!("batch {} was sent once and is called a duplicate", placed.batch));
                }
                let era = facts.era(*partition, event.life);
                let this = Acknowledgement { at: event.at, life: event.life, partition: *partition, placed: *placed };
                let first = self.acknowledged.entry((placed.batch, era)).or_insert(this);
                if first.placed != *placed {
                    return Err(format!(
                        "partition {partition}: acknowledged as {:?}, then as {placed:?}",
                        first.placed
                    ));
                }
            }
            What::Audited { partition, earliest, batches, .. } => {
                let places = batches.iter().map(|placed| (placed.offset, *placed)).collect();
                self.audits.insert(*partition, (*earliest, places));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, facts: &Facts) -> Verdict {
        self.acknowledged.values().try_for_each(|acknowledgement| self.check(acknowledgement, facts))
    }
}

impl AcknowledgedIsReadOnce {
    fn check(&self, acknowledgement: &Acknowledgement, facts: &Facts) -> Verdict {
        let Acknowledgement { at, life, partition, placed } = acknowledgement;
        let topic = facts.topic(partition.topic);
        if facts.is_doomed(partition.topic) || may_be_lost(acknowledgement, facts) {
            return Ok(());
        }
        let Some((earliest, places)) = self.audits.get(partition) else {
            return Err(format!("partition {partition} was never audited"));
        };
        if placed.offset < *earliest && topic.trims {
            return Ok(());
        }
        match places.get(&placed.offset) {
            Some(there) if there == placed => Ok(()),
            there => Err(format!(
                "partition {partition}: {placed:?} was acknowledged at {:.6} s by process {}, now there is {there:?} (earliest {earliest})",
                *at as f64 / 1e9,
                life.process
            )),
        }
    }
}

/// Whether a power loss came before the sync that the topic's interval promises; where the disk refused that or the
/// process did not live to do it, before the next start.
fn may_be_lost(acknowledgement: &Acknowledgement, facts: &Facts) -> bool {
    let Acknowledgement { at, life, partition, .. } = acknowledgement;
    let Some(interval) = facts.topic(partition.topic).interval else { return false };
    let durable_at = facts.durable_at(*partition, *life, facts.done_by(*at, interval + SYNC_SLACK));
    facts.power_loss_after(*life).is_some_and(|lost| lost < durable_at)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use crate::history::{Event, Life, What};
    use crate::time::SECOND;

    #[test]
    fn what_is_read_where_it_was_acknowledged_is_fine() {
        good::<super::AcknowledgedIsReadOnce>([sent(7, 0), acked(0, 2, 1, 7), audited(0, 0, &[(0, 2, 6), (2, 1, 7)])]);
    }

    #[test]
    fn an_acknowledged_batch_that_is_lost_moved_or_replaced_is_found() {
        for left in [&[][..], &[(3, 1, 7)], &[(2, 1, 8)], &[(2, 2, 7)]] {
            bad::<super::AcknowledgedIsReadOnce>([sent(7, 0), acked(0, 2, 1, 7), audited(0, 0, left)]);
        }
        bad::<super::AcknowledgedIsReadOnce>([sent(7, 0), acked(0, 2, 1, 7)]);
    }

    #[test]
    fn a_second_answer_must_be_the_first_one() {
        bad::<super::AcknowledgedIsReadOnce>([
            sent(7, 0),
            sent(7, 0),
            acked(0, 2, 1, 7),
            acked(0, 3, 1, 7),
            audited(0, 0, &[(2, 1, 7)]),
        ]);
    }

    #[test]
    fn a_power_loss_takes_only_what_the_interval_had_not_reached() {
        let run = |lost_at| {
            [weak_topic(), sent(7, 0), acked(0, 0, 1, 7), at(lost_at, power_lost()), in_power(1, audited(0, 0, &[]))]
        };
        good::<super::AcknowledgedIsReadOnce>(run(SECOND));
        bad::<super::AcknowledgedIsReadOnce>(run(60 * SECOND));
        bad::<super::AcknowledgedIsReadOnce>([
            sent(7, 0),
            acked(0, 0, 1, 7),
            at(SECOND, power_lost()),
            audited(0, 0, &[]),
        ]);
        bad::<super::AcknowledgedIsReadOnce>([
            weak_topic(),
            sent(7, 0),
            acked(0, 0, 1, 7),
            crashed(),
            audited(0, 0, &[]),
        ]);
    }

    #[test]
    fn a_disk_that_refuses_a_sync_leaves_what_was_not_synced_open_to_a_power_loss_until_the_next_start() {
        let run = |events: &[Event]| {
            let begin = [weak_topic(), sent(7, 0), at(SECOND, acked(0, 0, 1, 7))];
            let end = in_power(1, audited(0, 0, &[]));
            begin.into_iter().chain(events.iter().cloned()).chain([end]).collect::<Vec<_>>()
        };
        let stopped = |time| at(time, journal_stopped(0));
        let recovered = |time| at(time, plain(What::Recovered));
        let lost = |time| at(time, power_lost());
        good::<super::AcknowledgedIsReadOnce>(run(&[stopped(2 * SECOND), lost(60 * SECOND)]));
        good::<super::AcknowledgedIsReadOnce>(run(&[stopped(2 * SECOND), lost(60 * SECOND), recovered(61 * SECOND)]));
        // A start has made it durable.
        bad::<super::AcknowledgedIsReadOnce>(run(&[stopped(2 * SECOND), recovered(50 * SECOND), lost(60 * SECOND)]));
        // It had been synced before.
        bad::<super::AcknowledgedIsReadOnce>(run(&[stopped(30 * SECOND), lost(60 * SECOND)]));
        // The journal of another shard, and of another process.
        bad::<super::AcknowledgedIsReadOnce>(run(&[at(2 * SECOND, journal_stopped(1)), lost(60 * SECOND)]));
        let other = Event { life: Life { process: 3, power: 0 }, ..stopped(2 * SECOND) };
        bad::<super::AcknowledgedIsReadOnce>(run(&[other, lost(60 * SECOND)]));
    }

    #[test]
    fn what_a_killed_process_had_not_synced_is_open_to_a_power_loss_until_the_next_start() {
        let run = |events: &[Event]| {
            let begin = [weak_topic(), sent(7, 0), at(SECOND, acked(0, 0, 1, 7))];
            let end = in_power(1, audited(0, 0, &[]));
            begin.into_iter().chain(events.iter().cloned()).chain([end]).collect::<Vec<_>>()
        };
        let (killed, lost) = (|time| at(time, crashed()), at(60 * SECOND, power_lost()));
        good::<super::AcknowledgedIsReadOnce>(run(&[killed(2 * SECOND), lost.clone()]));
        // A start has made it durable.
        bad::<super::AcknowledgedIsReadOnce>(run(&[
            killed(2 * SECOND),
            at(50 * SECOND, plain(What::Recovered)),
            lost.clone(),
        ]));
        // It had been synced before.
        bad::<super::AcknowledgedIsReadOnce>(run(&[killed(30 * SECOND), lost]));
    }

    #[test]
    fn the_time_in_which_the_disk_is_slow_does_not_count() {
        let run = |lost: u64| {
            let begin = [weak_topic(), sent(7, 0), at(SECOND, acked(0, 0, 1, 7))];
            let slow = at(2 * SECOND, plain(What::DiskIsSlow { until: 40 * SECOND }));
            let end = [slow, at(lost * SECOND, power_lost()), in_power(1, audited(0, 0, &[]))];
            begin.into_iter().chain(end).collect::<Vec<_>>()
        };
        good::<super::AcknowledgedIsReadOnce>(run(40));
        bad::<super::AcknowledgedIsReadOnce>(run(60));
    }

    #[test]
    fn retention_takes_only_from_topics_that_have_one() {
        good::<super::AcknowledgedIsReadOnce>([trimmed_topic(), sent(7, 0), acked(0, 0, 1, 7), audited(0, 5, &[])]);
        bad::<super::AcknowledgedIsReadOnce>([sent(7, 0), acked(0, 0, 1, 7), audited(0, 5, &[])]);
    }
}
