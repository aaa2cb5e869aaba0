//! What a group needs, record by record.

use super::*;
use crate::EntryKind;

const SYNCED: JournalKind = JournalKind::Synced;

fn written(index: u64, bytes: usize) -> Written {
    let data = Bytes::from(vec![7; bytes]);
    let entry = Entry { index: LogIndex(index), term: Term(2), kind: EntryKind::Normal, context: Bytes::new(), data };
    Written { written_in: Term(2), entry }
}

fn base(index: u64) -> Base {
    Base { index: LogIndex(index), term: Term(2), next_offset: Offset(index) }
}

/// Entries 2 to 9, three to a file, each at the sequence of ten times its index.
fn living(bytes: usize) -> Living {
    let mut living = Living::default();
    for index in 2..10 {
        living.appended(SYNCED, (Sequence(10 * index), index / 3), written(index, bytes));
    }
    living
}

#[test]
fn the_floor_follows_the_base_file_by_file_and_vanishes_behind_the_last_entry() {
    let mut living = living(10);
    assert_eq!(living.floor(SYNCED), Some(Sequence(20)));
    for (at, floor) in [(2, 30), (4, 30), (5, 60), (7, 60), (8, 90)] {
        living.set_base(base(at), Sequence(0));
        assert_eq!(living.entries_floor(SYNCED), Some(Sequence(floor)), "base {at}");
    }
    living.set_base(base(9), Sequence(95));
    assert_eq!((living.entries_floor(SYNCED), living.floor(SYNCED)), (None, Some(Sequence(95))));
    assert_eq!(living.floor(JournalKind::Buffered), None);
}

#[test]
fn a_long_tail_is_not_carried_before_the_base_reaches_what_is_kept_of_it() {
    assert!(living(10).can_carry());
    let mut long = living(CARRY_BYTES_MAX / 3);
    assert!(!long.can_carry());
    long.set_base(base(8), Sequence(95));
    assert!(long.can_carry());
}

#[test]
fn what_recovery_reads_twice_is_needed_as_long_as_its_first_copy() {
    let mut living = Living::default();
    for (index, sequence) in [(2, 1), (3, 100), (4, 200), (2, 300), (3, 301)] {
        living.read(SYNCED, LogIndex(index), Sequence(sequence));
    }
    living.set_base(base(2), Sequence(0));
    assert_eq!(living.entries_floor(SYNCED), Some(Sequence(100)));
    living.set_base(base(3), Sequence(0));
    assert_eq!(living.entries_floor(SYNCED), Some(Sequence(200)));
}

#[test]
fn entries_that_are_written_anew_replace_those_above_them() {
    let mut living = living(10);
    living.appended(SYNCED, (Sequence(200), 5), written(4, 10));
    living.set_base(base(2), Sequence(0));
    assert_eq!(living.entries_floor(SYNCED), Some(Sequence(30)));
    living.set_base(base(3), Sequence(0));
    assert_eq!(living.entries_floor(SYNCED), Some(Sequence(200)));
    living.set_base(base(4), Sequence(0));
    assert_eq!(living.entries_floor(SYNCED), None);
}
