//! Publishes under way: taken, then proposed, then answered.
//!
//! Owns the order of a partition's publishes and the offsets it gives out. A publish is checked when it is taken; it is
//! proposed when the journal has room for it, together with others, and answered when its entry is persisted (`leader`)
//! or applied (`quorum`).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use lockgate_catalog::settings::Timestamps;
use lockgate_consensus::ProposeError;
use lockgate_storage::journal::{JournalKind, Purpose};
use lockgate_wire::batch::{BatchHeader, rewrite_append_time};
use lockgate_wire::proto::{Ack, PublishOk};
use lockgate_wire::{Error, ErrorKind, GroupId, LogIndex, Offset, Term, WallMs};

use super::clock::AppendClock;
use super::entry::{self, STAMP_BYTES, Stamp};
use super::producers::Serial;
use crate::core::{Core, journal_slot};
use crate::limits::{COPY_BELOW_BYTES, SHARED_ENTRY_BYTES};
use crate::mesh::Origin;

/// A publish as it came through the door.
pub(crate) struct Publish {
    pub(crate) origin: Origin,
    pub(crate) ack: Ack,
    pub(crate) header: BatchHeader,
    pub(crate) batch: Bytes,
}

/// Taken and not yet proposed.
struct Taken {
    serial: Serial,
    publish: Publish,
    /// Resends of the same batch that came meanwhile.
    resends: Vec<Origin>,
}

/// Proposed and not yet applied.
struct Proposed {
    serial: Serial,
    index: LogIndex,
    term: Term,
    stamp: Stamp,
    ack: Ack,
    /// `None` once answered at level `leader`.
    origin: Option<Origin>,
    resends: Vec<Origin>,
}

/// The publishes of one partition.
#[derive(Default)]
pub(crate) struct Pipeline {
    next_serial: Serial,
    waiting: VecDeque<Taken>,
    waiting_bytes: usize,
    proposed: VecDeque<Proposed>,
    /// How many at the front of `proposed` were answered at level `leader` already.
    persisted: usize,
    /// The offset of the next record to be proposed.
    next_offset: Offset,
}

impl Pipeline {
    /// Starts a term as leader: offsets go on from the log's end.
    pub(crate) fn lead_from(&mut self, end: Offset) {
        assert!(self.proposed.is_empty(), "a new leader has proposed nothing");
        self.next_offset = end;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.proposed.is_empty()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Bytes that were proposed and are not applied yet.
    pub(crate) fn proposed_bytes(&self) -> u64 {
        self.proposed.iter().map(|proposed| u64::from(proposed.stamp.bytes)).sum()
    }

    /// The serial that the next publish gets.
    pub(crate) fn next_serial(&self) -> Serial {
        self.next_serial
    }

    /// Takes a publish that was checked.
    pub(crate) fn take(&mut self, publish: Publish) {
        self.waiting_bytes += publish.batch.len();
        let serial = self.next_serial;
        self.next_serial = Serial(serial.0 + 1);
        self.waiting.push_back(Taken { serial, publish, resends: Vec::new() });
    }

    /// A resend of a publish that is under way: it is answered with it.
    pub(crate) fn join(&mut self, serial: Serial, origin: Origin) {
        let resends = match self.proposed.binary_search_by_key(&serial, |p| p.serial) {
            Ok(at) => &mut self.proposed[at].resends,
            Err(_) => {
                let at = self
                    .waiting
                    .binary_search_by_key(&serial, |t| t.serial)
                    .expect("the overlay names what is under way");
                &mut self.waiting[at].resends
            }
        };
        resends.push(origin);
    }

    /// Proposes what waits, as far as the group takes it. With `timestamps = append` records get the time that is answered.
    /// An error means that this replica does not lead.
    pub(crate) fn propose(
        &mut self,
        core: &mut Core,
        (group, journal): (GroupId, JournalKind),
        clock: &mut AppendClock,
        timestamps: Timestamps,
    ) -> Result<(), ProposeError> {
        // Half a write of the journal leaves room for everything that goes with an entry.
        let shared_bytes = SHARED_ENTRY_BYTES.min(core.node.journal.max_write_bytes as usize / 2);
        // What a journal at its bound takes beyond it is one entry at most: the reserve has room for that.
        while self.has_waiting() && core.room_refusal(journal, Purpose::Publish).is_none() {
            let take = self.together(shared_bytes);
            let append_time = clock.stamp(core.now);
            if timestamps == Timestamps::Append {
                for Taken { publish, .. } in self.waiting.range_mut(..take) {
                    publish.batch = rewrite_append_time(std::mem::take(&mut publish.batch), append_time.0);
                }
            }
            let data = self.data(take);
            let mut offset = self.next_offset;
            let stamps: Vec<Stamp> = self
                .waiting
                .range(..take)
                .map(|taken| {
                    let count = taken.publish.header.count as u32;
                    let stamp =
                        Stamp { base_offset: offset, append_time, count, bytes: taken.publish.batch.len() as u32 };
                    offset = offset.plus(u64::from(count));
                    stamp
                })
                .collect();
            let bytes = data.len() as u64;
            let proposed = match core.host.propose(group, entry::batches_context(&stamps), data) {
                Ok(proposed) => proposed,
                Err(ProposeError::TooManyUncommitted { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            core.proposed_bytes[journal_slot(journal)] += bytes;
            self.next_offset = offset;
            for (taken, stamp) in self.waiting.drain(..take).zip(stamps) {
                let publish = taken.publish;
                self.waiting_bytes -= publish.batch.len();
                self.proposed.push_back(Proposed {
                    serial: taken.serial,
                    index: proposed.index,
                    term: proposed.term,
                    stamp,
                    ack: publish.ack,
                    origin: Some(publish.origin),
                    resends: taken.resends,
                });
            }
        }
        Ok(())
    }

    /// How many batches at the front share an entry: a large one has its own, small ones fill one up to `max_bytes`.
    fn together(&self, max_bytes: usize) -> usize {
        if self.waiting.front().is_some_and(|front| front.publish.batch.len() >= COPY_BELOW_BYTES) {
            return 1;
        }
        let mut bytes = 0;
        let small = |taken: &&Taken| {
            bytes += taken.publish.batch.len() + STAMP_BYTES;
            taken.publish.batch.len() < COPY_BELOW_BYTES && bytes <= max_bytes
        };
        self.waiting.iter().take_while(small).count()
    }

    /// The bytes of the first `take` batches: of a large one as they are, of small ones copied together.
    fn data(&self, take: usize) -> Bytes {
        let batches = || self.waiting.range(..take).map(|taken| &taken.publish.batch);
        if let Some(large) = batches().next().filter(|batch| batch.len() >= COPY_BELOW_BYTES) {
            return large.clone();
        }
        let mut data = BytesMut::with_capacity(batches().map(Bytes::len).sum());
        batches().for_each(|batch| data.extend_from_slice(batch));
        data.freeze()
    }

    /// The log is durable here up to this entry: answers level `leader`.
    pub(crate) fn persisted(&mut self, core: &mut Core, partition: u32, index: LogIndex) {
        while let Some(proposed) = self.proposed.get_mut(self.persisted)
            && proposed.index <= index
        {
            self.persisted += 1;
            if proposed.ack == Ack::Leader
                && let Some(origin) = proposed.origin.take()
            {
                answer_appended(core, origin, partition, &proposed.stamp, proposed.term);
            }
        }
    }

    /// An entry was applied: answers what it holds. Entries of other leaders hold nothing of ours.
    pub(crate) fn applied(&mut self, core: &mut Core, partition: u32, index: LogIndex, term: Term) {
        while let Some(front) = self.proposed.front()
            && front.index <= index
        {
            assert_eq!((front.index, front.term), (index, term), "a leader's own entries are applied in order");
            let Some(done) = self.proposed.pop_front() else { break };
            self.persisted = self.persisted.saturating_sub(1);
            if let Some(origin) = done.origin {
                answer_appended(core, origin, partition, &done.stamp, done.term);
            }
            for origin in done.resends {
                core.metrics.publish_duplicates += 1;
                answer(core, origin, partition, &done.stamp, done.term, true);
            }
        }
    }

    /// Refuses everything that waits: none of it will be applied. Gives the first serial of it.
    pub(crate) fn refuse_waiting(&mut self, core: &mut Core, error: &Error) -> Serial {
        let first = self.waiting.front().map_or(self.next_serial, |taken| taken.serial);
        self.waiting_bytes = 0;
        for taken in self.waiting.drain(..) {
            for origin in std::iter::once(taken.publish.origin).chain(taken.resends) {
                core.refuse(origin, error);
            }
        }
        first
    }

    /// Leadership ended: what was proposed has an unknown outcome.
    pub(crate) fn lose_proposed(&mut self, core: &mut Core) {
        let error = Error::new(
            ErrorKind::OutcomeUnknown,
            "the partition's leader stopped before the publish was committed; it may or may not be in the log",
        );
        self.persisted = 0;
        for proposed in self.proposed.drain(..) {
            for origin in proposed.origin.into_iter().chain(proposed.resends) {
                core.refuse(origin, &error);
            }
        }
    }
}

fn answer_appended(core: &mut Core, origin: Origin, partition: u32, stamp: &Stamp, term: Term) {
    core.metrics.publish_records += u64::from(stamp.count);
    core.metrics.publish_bytes += u64::from(stamp.bytes);
    answer(core, origin, partition, stamp, term, false);
}

fn answer(core: &mut Core, origin: Origin, partition: u32, stamp: &Stamp, term: Term, duplicate: bool) {
    answer_remembered(core, origin, partition, (stamp.base_offset, stamp.append_time), term, duplicate);
}

/// The answer to a publish, or once more to one that was appended before.
pub(crate) fn answer_remembered(
    core: &mut Core,
    origin: Origin,
    partition: u32,
    (base_offset, append_time): (Offset, WallMs),
    term: Term,
    duplicate: bool,
) {
    let leader_epoch = term.0 as u32;
    let body =
        PublishOk { partition, base_offset: base_offset.0, append_time_ms: append_time.0, leader_epoch, duplicate };
    core.answer(origin, &body);
}
