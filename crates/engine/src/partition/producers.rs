//! Idempotent producers: which numbers were appended, and what was answered for them.
//!
//! The applied part is replicated state: it is made only from entries, in order. The overlay knows what this leader has
//! taken and not yet applied; it is forgotten when leadership ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockgate_wire::batch::{Producer, sequence_after};
use lockgate_wire::{Error, ErrorKind, Offset, ProducerId, WallMs};

use crate::limits::{REFUSED_PRODUCERS, REMEMBERED_BATCHES};

/// Numbers a publish within its partition while it is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Serial(pub(crate) u64);

/// An appended batch of a producer, with what its answer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remembered {
    pub(crate) first: i32,
    pub(crate) last: i32,
    pub(crate) base_offset: Offset,
    pub(crate) append_time: WallMs,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Applied {
    pub(crate) epoch: i16,
    pub(crate) last_seen: WallMs,
    /// The newest batches, oldest first, at most [`REMEMBERED_BATCHES`]; never empty.
    pub(crate) batches: VecDeque<Remembered>,
}

#[derive(Debug)]
struct Taken {
    epoch: i16,
    first: i32,
    last: i32,
    serial: Serial,
}

/// The producers of one partition.
#[derive(Default, Debug)]
pub(crate) struct Producers {
    applied: BTreeMap<ProducerId, Applied>,
    /// The same producers by when they were last seen.
    by_age: BTreeSet<(WallMs, ProducerId)>,
    /// A new one of which everything was refused stays with nothing under way: what it sent behind that is ahead, not of
    /// somebody unknown.
    overlay: BTreeMap<ProducerId, VecDeque<Taken>>,
}

/// What to do with a numbered batch.
#[derive(Debug, PartialEq)]
pub(crate) enum Check {
    /// Its number is the next one.
    Append,
    /// It was appended before; this was its answer.
    Duplicate(Remembered),
    /// It is under way under this serial: answer it when that one is.
    UnderWay(Serial),
    /// It cannot be appended.
    Refused(Error),
}

impl Producers {
    /// Checks a batch against the applied state and what is under way.
    pub(crate) fn check(&self, producer: &Producer, last: i32, max: u32) -> Check {
        let (id, first) = (producer.id, producer.base_sequence);
        let under_way = self.overlay.get(&id).filter(|taken| !taken.is_empty());
        let applied = self.applied.get(&id);
        let newest = under_way.and_then(|taken| taken.back()).map(|taken| (taken.epoch, taken.last));
        let newest = newest.or_else(|| applied.map(|a| (a.epoch, a.batches.back().map_or(-1, |b| b.last))));
        let Some((epoch, newest_last)) = newest else {
            return self.check_unknown(producer, max);
        };
        if producer.epoch < epoch {
            let message =
                format!("producer {id} has epoch {epoch}; the batch came with the older epoch {}", producer.epoch);
            return Check::Refused(Error::new(ErrorKind::ProducerFenced, message));
        }
        if producer.epoch > epoch {
            return if first == 0 { Check::Append } else { Check::Refused(invalid(producer, 0)) };
        }
        if let Some(taken) =
            under_way.into_iter().flatten().find(|t| (t.epoch, t.first, t.last) == (producer.epoch, first, last))
        {
            return Check::UnderWay(taken.serial);
        }
        if let Some(applied) = applied.filter(|applied| applied.epoch == producer.epoch)
            && let Some(batch) = applied.batches.iter().find(|b| (b.first, b.last) == (first, last))
        {
            return Check::Duplicate(*batch);
        }
        let expected = sequence_after(newest_last, 1);
        if first != expected {
            return Check::Refused(if is_ahead(first, expected) {
                ahead(producer, expected)
            } else {
                invalid(producer, expected)
            });
        }
        if under_way.is_some_and(|taken| taken.len() >= REMEMBERED_BATCHES) {
            let message = format!(
                "producer {id} has {REMEMBERED_BATCHES} batches under way in this partition, the most it may have"
            );
            return Check::Refused(Error::new(ErrorKind::LimitReached, message).with_limit(REMEMBERED_BATCHES as u64));
        }
        Check::Append
    }

    fn check_unknown(&self, producer: &Producer, max: u32) -> Check {
        if producer.base_sequence != 0 && self.overlay.contains_key(&producer.id) {
            return Check::Refused(ahead(producer, 0));
        }
        if producer.base_sequence != 0 {
            let message = format!(
                "producer {} is not known here (it expired or is of another topic), so number {} cannot be placed; get a new producer id",
                producer.id, producer.base_sequence
            );
            return Check::Refused(Error::new(ErrorKind::ProducerUnknown, message));
        }
        let under_way = self.overlay.iter().filter(|(_, taken)| !taken.is_empty());
        let new = under_way.filter(|(id, _)| !self.applied.contains_key(id)).count();
        if self.applied.len() + new >= max as usize {
            let message = format!(
                "the partition remembers {max} producers, the most it may; idle ones expire, or raise limits.producers_per_partition"
            );
            return Check::Refused(Error::new(ErrorKind::LimitReached, message).with_limit(max.into()));
        }
        Check::Append
    }

    /// The batch was taken under this serial.
    pub(crate) fn take(&mut self, producer: &Producer, last: i32, serial: Serial) {
        let taken = Taken { epoch: producer.epoch, first: producer.base_sequence, last, serial };
        self.overlay.entry(producer.id).or_default().push_back(taken);
    }

    /// What was taken from this serial on will not be applied by this leader.
    pub(crate) fn untake_from(&mut self, serial: Serial) {
        let mut refused = 0;
        self.overlay.retain(|id, taken| {
            taken.retain(|t| t.serial < serial);
            let is_refused = taken.is_empty() && !self.applied.contains_key(id);
            refused += usize::from(is_refused);
            !taken.is_empty() || (is_refused && refused <= REFUSED_PRODUCERS)
        });
    }

    /// Leadership ended: nothing is under way any more.
    pub(crate) fn forget_overlay(&mut self) {
        self.overlay.clear();
    }

    /// An entry with this batch was applied.
    pub(crate) fn apply(&mut self, producer: &Producer, batch: Remembered) {
        if let Some(taken) = self.overlay.get_mut(&producer.id) {
            if taken.front().is_some_and(|t| (t.epoch, t.first) == (producer.epoch, batch.first)) {
                taken.pop_front();
            }
            if taken.is_empty() {
                self.overlay.remove(&producer.id);
            }
        }
        let seen = batch.append_time;
        let state = self.applied.entry(producer.id).or_insert_with(|| Applied {
            epoch: producer.epoch,
            last_seen: seen,
            batches: VecDeque::with_capacity(REMEMBERED_BATCHES),
        });
        if state.epoch != producer.epoch {
            state.epoch = producer.epoch;
            state.batches.clear();
        }
        if state.batches.len() == REMEMBERED_BATCHES {
            state.batches.pop_front();
        }
        state.batches.push_back(batch);
        self.by_age.remove(&(state.last_seen, producer.id));
        state.last_seen = seen;
        self.by_age.insert((seen, producer.id));
    }

    /// When the one that has been silent for longest was last seen.
    pub(crate) fn oldest(&self) -> Option<WallMs> {
        self.by_age.first().map(|(seen, _)| *seen)
    }

    /// Applies an expiry: forgets who was last seen before this time of the log.
    pub(crate) fn expire(&mut self, before: WallMs) {
        while let Some(&(seen, id)) = self.by_age.first()
            && seen < before
        {
            self.by_age.remove(&(seen, id));
            self.applied.remove(&id);
        }
    }

    /// Restores one from a checkpoint.
    pub(crate) fn restore(&mut self, id: ProducerId, state: Applied) {
        self.by_age.insert((state.last_seen, id));
        self.applied.insert(id, state);
    }

    /// The applied part, in the order of the ids.
    pub(crate) fn applied(&self) -> impl Iterator<Item = (&ProducerId, &Applied)> {
        self.applied.iter()
    }
}

/// Whether `first` comes after `expected`, on the circle of numbers.
fn is_ahead(first: i32, expected: i32) -> bool {
    let distance = first.wrapping_sub(expected) & i32::MAX;
    distance < 1 << 30
}

fn ahead(producer: &Producer, expected: i32) -> Error {
    let message = format!(
        "number {} of producer {} came before number {expected}, which is still missing; send that one, or wait for it",
        producer.base_sequence, producer.id
    );
    let mut error = Error::new(ErrorKind::SequenceAhead, message);
    error.details.expected_sequence = Some(expected);
    error
}

fn invalid(producer: &Producer, expected: i32) -> Error {
    let message = format!(
        "number {} of producer {} is behind {expected} and none of its last {REMEMBERED_BATCHES} batches",
        producer.base_sequence, producer.id
    );
    let mut error = Error::new(ErrorKind::SequenceInvalid, message);
    error.details.expected_sequence = Some(expected);
    error
}

#[cfg(test)]
mod tests;
