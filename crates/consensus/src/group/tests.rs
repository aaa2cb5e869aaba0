//! What is confirmed of entries that went out together.

use super::*;

/// A ready with entries `first` to `last`, whose last record in the synced journal is this one.
fn ready(term: u64, first: u64, last: u64, synced: u64) -> InFlight {
    let (last, entries) = (Some((Term(term), LogIndex(last))), last + 1 - first);
    InFlight { number: synced, synced: Sequence(synced), buffered: Sequence(0), last, entries }
}

fn part(in_flight: Vec<InFlight>, synced: u64) -> Option<LogIndex> {
    let confirmed = Confirmed { synced: Sequence(synced), ..Confirmed::default() };
    confirmed_part(&in_flight.into(), JournalKind::Synced, confirmed)
}

#[test]
fn a_part_of_a_ready_is_confirmed_as_far_as_its_journal_is() {
    assert_eq!(part(vec![ready(2, 5, 8, 20)], 18), Some(LogIndex(6)));
    assert_eq!(part(vec![ready(2, 5, 8, 20), ready(2, 9, 9, 21)], 19), Some(LogIndex(7)));
    assert_eq!(part(vec![ready(2, 5, 8, 20)], 16), None);
}

#[test]
fn a_part_that_a_later_ready_has_written_over_is_not_confirmed_by_it() {
    assert_eq!(part(vec![ready(2, 5, 8, 20), ready(3, 6, 6, 22)], 18), None);
    assert_eq!(part(vec![ready(2, 5, 8, 20), ready(3, 6, 6, 22)], 17), Some(LogIndex(5)));
}
