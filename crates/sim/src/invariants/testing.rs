//! Hand-made histories: a few words for events, and what an invariant is to say to a list of them.

use lockgate_engine::shard_of;
use lockgate_wire::error::ErrorKind;
use lockgate_wire::{PartitionId, ShardId, TopicId};

use super::Invariant;
use crate::history::{BatchNo, Event, Facts, Life, Placed, Start, TopicFacts, What};
use crate::time::{MS, Time};

pub(super) const TOPIC: TopicId = TopicId(1);

fn event(what: What) -> Event {
    Event { at: MS, client: 1, life: Life::default(), what }
}

fn partition(number: u32) -> PartitionId {
    PartitionId { topic: TOPIC, partition: number }
}

fn placed(places: &[(u64, u32, BatchNo)]) -> Vec<Placed> {
    places.iter().map(|&(offset, records, batch)| Placed { offset, records, batch }).collect()
}

pub(super) fn plain(what: What) -> Event {
    event(what)
}

pub(super) fn at(at: Time, event: Event) -> Event {
    Event { at, ..event }
}

pub(super) fn in_power(power: u32, event: Event) -> Event {
    Event { life: Life { process: power, power }, ..event }
}

fn topic(interval: Option<Time>, trims: bool) -> Event {
    event(What::TopicMade { topic: TOPIC, facts: TopicFacts { partitions: 2, interval, trims, keeps_ms: None } })
}

pub(super) fn topic_that_keeps(keeps_ms: i64) -> Event {
    let facts = TopicFacts { partitions: 2, interval: None, trims: true, keeps_ms: Some(keeps_ms) };
    event(What::TopicMade { topic: TOPIC, facts })
}

pub(super) fn stamped(offset: u64, append_time_ms: i64) -> Event {
    event(What::Stamped { partition: partition(0), offset, append_time_ms })
}

pub(super) fn weak_topic() -> Event {
    topic(Some(100 * MS), false)
}

pub(super) fn trimmed_topic() -> Event {
    topic(None, true)
}

pub(super) fn sent(batch: BatchNo, number: u32) -> Event {
    sent_by(1, batch, number)
}

pub(super) fn sent_by(chain: u64, batch: BatchNo, number: u32) -> Event {
    event(What::Sent { batch, partition: partition(number), chain })
}

pub(super) fn acked(number: u32, offset: u64, records: u32, batch: BatchNo) -> Event {
    event(What::Acknowledged {
        placed: Placed { offset, records, batch },
        partition: partition(number),
        duplicate: false,
    })
}

pub(super) fn refused(batch: BatchNo) -> Event {
    event(What::Refused { batch, kind: ErrorKind::Overloaded })
}

pub(super) fn opened(start: Start, next: u64, earliest: u64, high_watermark: u64) -> Event {
    event(What::Opened { reader: 1, partition: partition(0), start, next, earliest, high_watermark })
}

pub(super) fn read(number: u32, places: &[(u64, u32, BatchNo)]) -> Event {
    let batches = placed(places);
    let next = batches.last().map_or(0, Placed::end);
    event(What::Read { reader: 1, partition: partition(number), batches, next, high_watermark: next })
}

pub(super) fn audited(number: u32, earliest: u64, places: &[(u64, u32, BatchNo)]) -> Event {
    let batches = placed(places);
    let high_watermark = batches.last().map_or(earliest, Placed::end);
    event(What::Audited { partition: partition(number), earliest, high_watermark, batches })
}

pub(super) fn bounds(asked: Time, high_watermark: u64) -> Event {
    event(What::Bounds { partition: partition(0), asked, earliest: 0, high_watermark })
}

pub(super) fn power_lost() -> Event {
    event(What::PowerLost)
}

/// The buffered journal of the shard of partition 0 failed, or with `beside` 1 that of another shard.
pub(super) fn journal_stopped(beside: u16) -> Event {
    let shards = 4;
    let shard = ShardId((shard_of(partition(0), shards).0 + beside) % shards);
    event(What::JournalStopped { shard, shards })
}

pub(super) fn crashed() -> Event {
    event(What::Crashed)
}

fn verdict<I: Invariant + Default>(events: impl IntoIterator<Item = Event>) -> super::Verdict {
    let (mut facts, mut invariant) = (Facts::default(), I::default());
    for event in events {
        facts.observe(&event);
        invariant.observe(&event, &facts)?;
    }
    invariant.finish(&facts)
}

pub(super) fn good<I: Invariant + Default>(events: impl IntoIterator<Item = Event>) {
    assert_eq!(verdict::<I>(events), Ok(()));
}

pub(super) fn bad<I: Invariant + Default>(events: impl IntoIterator<Item = Event>) {
    assert!(verdict::<I>(events).is_err(), "a broken history was taken");
}
