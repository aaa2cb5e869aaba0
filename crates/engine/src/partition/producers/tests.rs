use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn producer(base_sequence: i32) -> Producer {
    Producer { id: ProducerId(7), epoch: 0, base_sequence }
}

fn remembered(first: i32, last: i32, base_offset: u64, time: i64) -> Remembered {
    Remembered { first, last, base_offset: Offset(base_offset), append_time: WallMs(time) }
}

fn kind(check: Check) -> (ErrorKind, Option<i32>) {
    match check {
        Check::Refused(error) => (error.kind, error.details.expected_sequence),
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn numbers_wrap_behind_the_largest_also_within_a_batch() {
    let mut producers = Producers::default();
    // A batch of four that goes over the end: MAX - 1, MAX, 0, 1.
    let (first, last) = (i32::MAX - 1, sequence_after(i32::MAX - 1, 3));
    assert_eq!(last, 1);
    producers.apply(&producer(i32::MAX - 2), remembered(i32::MAX - 2, i32::MAX - 2, 0, 0));
    assert_eq!(producers.check(&producer(first), last, 10), Check::Append);
    producers.apply(&producer(first), remembered(first, last, 1, 0));
    assert_eq!(producers.check(&producer(2), 2, 10), Check::Append);
    assert_eq!(kind(producers.check(&producer(3), 3, 10)), (ErrorKind::SequenceAhead, Some(2)));
    assert_eq!(kind(producers.check(&producer(i32::MAX), i32::MAX, 10)), (ErrorKind::SequenceInvalid, Some(2)));
    assert!(
        matches!(producers.check(&producer(first), last, 10), Check::Duplicate(batch) if batch.base_offset == Offset(1))
    );
}

#[test]
fn what_is_under_way_counts_and_what_was_untaken_does_not() {
    let mut producers = Producers::default();
    for (serial, n) in [(1, 0), (2, 1), (3, 2)] {
        assert_eq!(producers.check(&producer(n), n, 10), Check::Append);
        producers.take(&producer(n), n, Serial(serial));
    }
    assert_eq!(producers.check(&producer(1), 1, 10), Check::UnderWay(Serial(2)));
    assert_eq!(kind(producers.check(&producer(4), 4, 10)), (ErrorKind::SequenceAhead, Some(3)));
    producers.untake_from(Serial(2));
    assert_eq!(producers.check(&producer(1), 1, 10), Check::Append);
    assert_eq!(kind(producers.check(&producer(2), 2, 10)), (ErrorKind::SequenceAhead, Some(1)));
    producers.forget_overlay();
    assert_eq!(kind(producers.check(&producer(1), 1, 10)).0, ErrorKind::ProducerUnknown);
}

#[test]
fn a_new_producer_whose_batches_were_all_refused_is_ahead_and_not_unknown() {
    let mut producers = Producers::default();
    for n in 0..2 {
        producers.take(&producer(n), n, Serial(n as u64));
    }
    producers.untake_from(Serial(0));
    assert_eq!(kind(producers.check(&producer(2), 2, 10)), (ErrorKind::SequenceAhead, Some(0)));
    assert_eq!(producers.check(&producer(0), 0, 1), Check::Append, "what was refused takes nobody's place");
    producers.take(&producer(0), 0, Serial(2));
    producers.apply(&producer(0), remembered(0, 0, 0, 0));
    assert_eq!(kind(producers.check(&producer(2), 2, 10)), (ErrorKind::SequenceAhead, Some(1)));
}

#[test]
fn no_more_producers_are_known_by_their_refused_batches_than_the_bound() {
    let mut producers = Producers::default();
    let nth = |id: usize, base_sequence| Producer { id: ProducerId(id as i64), epoch: 0, base_sequence };
    for id in 0..=REFUSED_PRODUCERS {
        producers.take(&nth(id, 0), 0, Serial(id as u64));
    }
    producers.untake_from(Serial(0));
    let told = |id| kind(producers.check(&nth(id, 1), 1, u32::MAX)).0;
    assert_eq!(told(REFUSED_PRODUCERS - 1), ErrorKind::SequenceAhead);
    assert_eq!(told(REFUSED_PRODUCERS), ErrorKind::ProducerUnknown);
    assert_eq!(producers.check(&nth(REFUSED_PRODUCERS, 0), 0, u32::MAX), Check::Append);
}

#[test]
fn a_number_that_comes_again_with_other_records_is_no_duplicate() {
    let mut producers = Producers::default();
    producers.apply(&producer(0), remembered(0, 2, 0, 0));
    assert_eq!(kind(producers.check(&producer(0), 3, 10)), (ErrorKind::SequenceInvalid, Some(3)));
    assert_eq!(kind(producers.check(&producer(1), 2, 10)), (ErrorKind::SequenceInvalid, Some(3)));
}

#[test]
fn the_silent_are_forgotten_by_the_time_of_the_log() {
    let mut producers = Producers::default();
    for (id, time) in [(1, 10), (2, 20), (3, 30), (1, 40)] {
        let at = Producer { id: ProducerId(id), epoch: 0, base_sequence: 0 };
        producers.apply(&at, remembered(0, 0, 0, time));
    }
    assert_eq!(producers.oldest(), Some(WallMs(20)));
    producers.expire(WallMs(30));
    assert_eq!(producers.applied().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 3]);
}

proptest! {
    /// Against a model that remembers everything: what is appended is appended once, in order, whatever is resent, lost
    /// before it was applied, or comes out of order.
    #[test]
    fn each_number_is_appended_once_and_in_order(steps in prop::collection::vec((0..4_u8, 0..12_i32), 1..200)) {
        let mut producers = Producers::default();
        let mut under_way: BTreeMap<Serial, i32> = BTreeMap::new();
        let mut log: Vec<i32> = Vec::new();
        let mut serial = Serial(0);
        for (step, n) in steps {
            let n = n + (log.len() as i32 - 6).max(0);
            match step {
                0 | 1 => match producers.check(&producer(n), n, 10) {
                    Check::Append => {
                        prop_assert_eq!(n as usize, log.len() + under_way.len());
                        prop_assert!(under_way.len() < REMEMBERED_BATCHES);
                        producers.take(&producer(n), n, serial);
                        under_way.insert(serial, n);
                        serial = Serial(serial.0 + 1);
                    }
                    Check::UnderWay(at) => prop_assert_eq!(under_way[&at], n),
                    Check::Duplicate(batch) => {
                        prop_assert_eq!(log[batch.base_offset.0 as usize], n);
                        prop_assert!(log.len() - n as usize <= REMEMBERED_BATCHES);
                    }
                    Check::Refused(error) => {
                        let next = (log.len() + under_way.len()) as i32;
                        match error.kind {
                            ErrorKind::SequenceAhead => prop_assert!(n > next),
                            ErrorKind::SequenceInvalid => prop_assert!(n < log.len() as i32 - 5),
                            ErrorKind::LimitReached => prop_assert_eq!(under_way.len(), 5),
                            ErrorKind::ProducerUnknown => prop_assert!(log.is_empty() && under_way.is_empty()),
                            kind => prop_assert!(false, "{:?}", kind),
                        }
                    }
                },
                2 => {
                    if let Some((_, n)) = under_way.pop_first() {
                        let offset = log.len() as u64;
                        producers.apply(&producer(n), remembered(n, n, offset, 0));
                        log.push(n);
                    }
                }
                _ => {
                    // The newest of them are refused after all.
                    let from = Serial(serial.0.saturating_sub(n as u64 % 3));
                    under_way.split_off(&from);
                    producers.untake_from(from);
                }
            }
        }
        prop_assert!(log.iter().enumerate().all(|(at, n)| at as i32 == *n));
    }
}
