//! Merging two journals, and telling damage from what a crash may leave.

use bytes::BytesMut;

use lockgate_storage::journal::Sequence;

use super::*;
use crate::EntryKind;
use JournalKind::{Buffered, Synced};

const GROUP: GroupId = GroupId(7);
const REPLICA: ReplicaId = ReplicaId(3);

/// A record without its frame: kind and body.
type Body = (RecordKind, Vec<Bytes>);

fn bootstrap() -> Body {
    let body = record::encode_bootstrap(&Configuration::sole(REPLICA), Bytes::from_static(b"tag"));
    (RecordKind::Bootstrap, body)
}

fn hard_state(term: u64, vote: u64, commit: u64) -> Body {
    let state = HardState { term: Term(term), vote: ReplicaId(vote), commit: LogIndex(commit) };
    (RecordKind::HardState, record::encode_hard_state(state))
}

fn entry(index: u64, term: u64, data: &'static str) -> Entry {
    let data = Bytes::from_static(data.as_bytes());
    Entry { index: LogIndex(index), term: Term(term), kind: EntryKind::Normal, context: Bytes::new(), data }
}

/// An entry that a leader wrote in its own term.
fn own(index: u64, term: u64, data: &'static str) -> Body {
    written(index, term, term, data)
}

fn written(index: u64, term: u64, written_in: u64, data: &'static str) -> Body {
    let body = record::encode_entry(&mut BytesMut::new(), entry(index, term, data), Term(written_in));
    (RecordKind::Entry, body)
}

fn truncate(from: u64, term: u64) -> Body {
    let cut = Truncation { from: LogIndex(from), term: Term(term) };
    (RecordKind::Truncate, record::encode_truncation(cut))
}

fn fold_one(
    recovery: &mut Recovery,
    journal: JournalKind,
    replica: ReplicaId,
    body: Body,
) -> Result<(), ConsensusError> {
    let (kind, body) = body;
    let body = body.concat().into();
    recovery.fold(journal, RecoveredRecord { sequence: Sequence(1), group: GROUP, replica, kind, counter: 1, body })
}

fn fold(records: Vec<(JournalKind, Body)>) -> Result<Vec<RecoveredGroup>, ConsensusError> {
    let mut recovery = Recovery::new();
    for (journal, body) in records {
        fold_one(&mut recovery, journal, REPLICA, body)?;
    }
    recovery.finish()
}

fn log(records: Vec<(JournalKind, Body)>) -> Vec<(u64, u64, Bytes)> {
    let groups = fold(records).unwrap();
    let [group] = groups.as_slice() else { panic!("one group: {groups:?}") };
    group.entries.iter().map(|entry| (entry.index.0, entry.term.0, entry.data.clone())).collect()
}

#[test]
fn two_journals_are_merged_by_index_in_either_order() {
    let synced = vec![bootstrap(), hard_state(2, 3, 1), own(2, 2, "a"), own(3, 2, "b"), own(6, 2, "e")];
    let buffered = vec![own(4, 2, "c"), own(5, 2, "d")];
    let tagged = |kind, records: &[Body]| records.iter().cloned().map(|body| (kind, body)).collect::<Vec<_>>();
    let expected: Vec<_> =
        [(2, "a"), (3, "b"), (4, "c"), (5, "d"), (6, "e")].map(|(index, data)| (index, 2, Bytes::from(data))).into();
    assert_eq!(log([tagged(Synced, &synced), tagged(Buffered, &buffered)].concat()), expected);
    assert_eq!(log([tagged(Buffered, &buffered), tagged(Synced, &synced)].concat()), expected);
}

#[test]
fn a_group_comes_back_with_its_tag_vote_and_configuration() {
    let groups = fold(vec![(Synced, bootstrap()), (Synced, hard_state(4, 3, 9)), (Synced, own(2, 4, "a"))]).unwrap();
    let expected = RecoveredGroup {
        group: GROUP,
        replica: REPLICA,
        tag: Bytes::from_static(b"tag"),
        term: Term(4),
        vote: REPLICA,
        commit: LogIndex(2),
        entries: vec![entry(2, 4, "a")],
        configuration: Configuration::sole(REPLICA),
        base: Base::default(),
        kept_from: LogIndex(0),
        living: groups[0].living.clone(),
    };
    assert_eq!(groups, [expected]);
}

#[test]
fn a_recovered_log_names_its_end_and_its_terms() {
    let start = vec![(Synced, bootstrap()), (Synced, hard_state(4, 3, 1))];
    let empty = fold(start.clone()).unwrap().remove(0);
    assert_eq!((empty.last_index(), empty.term_of(LogIndex(1))), (LogIndex(1), Term(1)));
    let two = fold([start, vec![(Synced, own(2, 2, "a")), (Synced, own(3, 4, "b"))]].concat()).unwrap().remove(0);
    assert_eq!(two.last_index(), LogIndex(3));
    assert_eq!([1, 2, 3].map(|index| two.term_of(LogIndex(index)).0), [1, 2, 4]);
}

#[test]
fn a_later_terms_write_voids_what_earlier_terms_wrote_there_and_above() {
    let records = vec![
        (Synced, bootstrap()),
        (Synced, hard_state(5, 3, 1)),
        (Synced, own(2, 2, "a")),
        (Synced, own(3, 2, "b")),
        (Synced, own(4, 2, "c")),
        // Term 5's leader brought an entry of term 2 that this replica had never had.
        (Synced, written(3, 2, 5, "B")),
    ];
    let expected = [(2, 2, Bytes::from("a")), (3, 2, Bytes::from("B"))];
    assert_eq!(log(records.clone()), expected);
    // The other journal's stale rest does not come back, whichever is folded first.
    let stale = (Buffered, own(5, 2, "stale"));
    assert_eq!(log([records.clone(), vec![stale.clone()]].concat()), expected);
    assert_eq!(log([vec![stale], records].concat()), expected);
}

#[test]
fn entries_that_the_engine_has_are_not_kept_and_void_what_they_voided() {
    let records = [
        (Synced, own(2, 2, "a")),
        (Synced, own(3, 2, "b")),
        (Synced, own(4, 2, "stale")),
        (Synced, own(3, 3, "B")),
        (Buffered, own(5, 2, "stale")),
    ];
    // The engine says so before, between or after the records: the outcome is the same.
    for told_at in 0..=records.len() {
        let mut recovery = Recovery::new();
        fold_one(&mut recovery, Synced, REPLICA, bootstrap()).unwrap();
        assert_eq!(recovery.tag(GROUP, REPLICA), Some(Bytes::from_static(b"tag")));
        for (at, (journal, body)) in records.iter().cloned().enumerate() {
            if at == told_at {
                recovery.keep_from(GROUP, REPLICA, LogIndex(4));
            }
            fold_one(&mut recovery, journal, REPLICA, body).unwrap();
        }
        recovery.keep_from(GROUP, REPLICA, LogIndex(4));
        let kept = recovery.finish().unwrap().remove(0);
        assert_eq!((kept.entries.as_slice(), kept.term), ([].as_slice(), Term(3)), "told at {told_at}");
        assert_eq!(kept.kept_from, LogIndex(4));
    }
    // Less than was said before, as by a head that was carried forward: what was dropped is dropped.
    let mut recovery = Recovery::new();
    fold_one(&mut recovery, Synced, REPLICA, bootstrap()).unwrap();
    recovery.keep_from(GROUP, REPLICA, LogIndex(4));
    recovery.keep_from(GROUP, REPLICA, LogIndex(2));
    fold_one(&mut recovery, Synced, REPLICA, own(2, 2, "a")).unwrap();
    let kept = recovery.finish().unwrap().remove(0);
    assert_eq!((kept.entries, kept.kept_from), (vec![], LogIndex(4)));
}

#[test]
fn a_truncation_voids_both_journals() {
    let start = vec![(Synced, bootstrap()), (Synced, hard_state(5, 3, 1)), (Synced, own(2, 2, "a"))];
    let stale = vec![(Buffered, own(3, 2, "b")), (Buffered, own(4, 2, "c"))];
    let cut = vec![(Synced, truncate(3, 5))];
    let expected = [(2, 2, Bytes::from("a"))];
    assert_eq!(log([start.clone(), stale.clone(), cut.clone()].concat()), expected);
    assert_eq!(log([start.clone(), cut.clone(), stale].concat()), expected);
    let after = vec![(Buffered, own(3, 5, "B"))];
    assert_eq!(log([start, cut, after].concat()), [(2, 2, Bytes::from("a")), (3, 5, Bytes::from("B"))]);
}

#[test]
fn a_hole_is_damage() {
    let error = fold(vec![
        (Synced, bootstrap()),
        (Synced, hard_state(2, 3, 1)),
        (Synced, own(2, 2, "a")),
        (Buffered, own(4, 2, "c")),
    ]);
    assert_eq!(error, Err(ConsensusError::Hole { group: GROUP, after: LogIndex(2), next: LogIndex(4) }));
}

#[test]
fn two_different_entries_of_one_term_at_one_index_are_damage() {
    let start = [(Synced, bootstrap()), (Synced, hard_state(2, 3, 1)), (Synced, own(2, 2, "a"))];
    let same = fold([start.to_vec(), vec![(Synced, own(2, 2, "a"))]].concat()).unwrap();
    assert_eq!(same[0].entries.len(), 1);
    let other = fold([start.to_vec(), vec![(Buffered, own(2, 2, "b"))]].concat());
    assert_eq!(other, Err(ConsensusError::Conflict { group: GROUP, index: LogIndex(2), written_in: Term(2) }));
}

#[test]
fn a_falling_term_is_damage() {
    let error = fold(vec![(Synced, bootstrap()), (Synced, hard_state(3, 3, 1)), (Synced, hard_state(2, 3, 1))]);
    assert_eq!(error, Err(ConsensusError::TermFell { group: GROUP, from: Term(3), to: Term(2) }));
}

#[test]
fn a_term_that_anything_was_written_in_is_used_up() {
    let groups = fold(vec![(Synced, bootstrap()), (Synced, hard_state(2, 9, 1)), (Buffered, own(2, 4, "a"))]).unwrap();
    assert_eq!((groups[0].term, groups[0].vote), (Term(4), REPLICA));
    let groups = fold(vec![(Synced, bootstrap()), (Synced, hard_state(2, 9, 1)), (Synced, truncate(2, 5))]).unwrap();
    assert_eq!((groups[0].term, groups[0].vote), (Term(5), REPLICA));
}

#[test]
fn records_before_a_bootstrap_was_confirmed_are_no_group() {
    assert_eq!(fold(vec![(Buffered, own(2, 2, "a"))]), Ok(vec![]));
    let error = fold(vec![(Synced, hard_state(2, 3, 1))]);
    assert_eq!(error, Err(ConsensusError::NoBootstrap { group: GROUP, replica: REPLICA }));
}

#[test]
fn a_removed_replica_does_not_come_back_and_its_successor_does() {
    let mut recovery = Recovery::new();
    let successor = ReplicaId(9);
    let mut fold = |journal, replica, body| fold_one(&mut recovery, journal, replica, body).unwrap();
    fold(Synced, REPLICA, bootstrap());
    fold(Synced, REPLICA, (RecordKind::Removed, vec![]));
    fold(Buffered, REPLICA, own(2, 2, "late"));
    fold(Synced, successor, bootstrap());
    let groups = recovery.finish().unwrap();
    assert_eq!(groups.iter().map(|group| group.replica).collect::<Vec<_>>(), [successor]);
}

#[test]
fn two_living_replicas_of_a_group_are_damage() {
    let mut recovery = Recovery::new();
    fold_one(&mut recovery, Synced, REPLICA, bootstrap()).unwrap();
    fold_one(&mut recovery, Synced, ReplicaId(9), bootstrap()).unwrap();
    let error = ConsensusError::TwoReplicas { group: GROUP, first: REPLICA, second: ReplicaId(9) };
    assert_eq!(recovery.finish(), Err(error));
}

#[test]
fn what_was_freed_in_one_journal_alone_is_no_hole_below_the_base_and_is_one_above_it() {
    let base = |index| {
        let base = Base { index: LogIndex(index), term: Term(2), next_offset: lockgate_wire::Offset(0) };
        (Synced, (RecordKind::CheckpointMark, record::encode_base(base)))
    };
    // Entries 4 and 5 were in a file of the buffered journal that is gone.
    let start =
        [(Synced, bootstrap()), (Synced, hard_state(2, 3, 1)), (Synced, own(2, 2, "a")), (Synced, own(3, 2, "b"))];
    let rest = [(Synced, own(6, 2, "e"))];
    let with_base = |index| fold([&start[..], &[base(index)], &rest].concat());
    let group = with_base(5).unwrap().remove(0);
    assert_eq!(group.entries, [entry(6, 2, "e")]);
    assert_eq!(with_base(4), Err(ConsensusError::Hole { group: GROUP, after: LogIndex(3), next: LogIndex(6) }));
    // Behind a base, the log ends there if nothing else is left of it.
    let group = fold([&start[..], &[base(5)]].concat()).unwrap().remove(0);
    assert_eq!((group.entries.len(), group.last_index()), (0, LogIndex(5)));
}

#[test]
fn what_was_accepted_is_the_log_that_comes_back_and_goes_on() {
    let log = vec![
        (Synced, bootstrap()),
        (Synced, hard_state(2, 3, 1)),
        (Synced, own(2, 2, "a")),
        (Buffered, own(4, 2, "c")),
        (Synced, own(5, 2, "d")),
        (Buffered, own(7, 2, "f")),
        (Buffered, own(8, 2, "g")),
    ];
    let at = |index| Base { index: LogIndex(index), term: Term(2), next_offset: lockgate_wire::Offset(9) };
    for (base, end, expected) in [
        (Base::default(), 2, vec![entry(2, 2, "a")]),
        (at(3), 5, vec![entry(4, 2, "c"), entry(5, 2, "d")]),
        (at(4), 5, vec![entry(4, 2, "c"), entry(5, 2, "d")]),
        (at(6), 6, vec![]),
        (at(6), 7, vec![entry(7, 2, "f")]),
    ] {
        let mut recovery = Recovery::new();
        for (journal, body) in log.clone() {
            fold_one(&mut recovery, journal, REPLICA, body).unwrap();
        }
        let mut accepted = recovery.take_suspects(&|_| true).remove(0).left.unwrap();
        let Draft { kind, body, .. } = accepted.accept(base, LogIndex(end));
        assert_eq!((&accepted.entries, accepted.last_index()), (&expected, LogIndex(end)));
        let again = (kind, accepted.accept_buffered().body);
        // In either order of the journals, and said twice.
        let said = [(Synced, (kind, body)), (Buffered, again)];
        for records in [[&log[..], &said, &said].concat(), [&log[..3], &said, &log[3..]].concat()] {
            let found = fold(records).unwrap().remove(0);
            let state = |group: &RecoveredGroup| (group.entries.clone(), group.base, group.term, group.commit);
            assert_eq!(state(&found), state(&accepted), "{base:?} to {end}");
            // What the record says lives on when its file goes.
            assert_eq!(found.living.truncations.len(), 1);
            assert_eq!(found.living.base_mark > Sequence(0), base != Base::default());
        }
        let next = (Buffered, written(end + 1, 4, 4, "new"));
        let found = fold([&log[..], &said, &[next]].concat()).unwrap().remove(0);
        assert_eq!(found.entries.last(), Some(&entry(end + 1, 4, "new")));
    }
}

#[test]
fn a_newer_configuration_replaces_the_bootstraps() {
    let newer = Configuration { learners: vec![ReplicaId(8)], ..Configuration::sole(REPLICA) };
    let mut body = 5u64.to_le_bytes().to_vec();
    body.extend(record::encode_bootstrap(&newer, Bytes::new()).concat());
    let groups = fold(vec![(Synced, bootstrap()), (Synced, (RecordKind::Configuration, vec![body.into()]))]).unwrap();
    assert_eq!(groups[0].configuration, newer);
}

#[test]
fn an_entry_that_was_carried_forward_before_its_data_went_elsewhere_is_one_entry() {
    let external = |index, term, data| {
        let entry = Entry { kind: EntryKind::External, ..entry(index, term, data) };
        (RecordKind::ExternalEntry, record::encode_entry(&mut BytesMut::new(), entry, Term(term)))
    };
    for (first, second) in [(own(2, 2, "data"), external(2, 2, "place")), (external(2, 2, "place"), own(2, 2, "data"))]
    {
        let groups =
            fold(vec![(Synced, bootstrap()), (Synced, first), (Synced, second), (Synced, own(3, 2, "b"))]).unwrap();
        assert_eq!(groups[0].entries.len(), 2);
    }
    let places = vec![(Synced, bootstrap()), (Synced, external(2, 2, "here")), (Synced, external(2, 2, "there"))];
    assert!(matches!(fold(places), Err(ConsensusError::Conflict { .. })), "two places are two entries");
    let groups =
        fold(vec![(Synced, bootstrap()), (Synced, own(2, 2, "a")), (Synced, external(3, 2, "place"))]).unwrap();
    let kinds: Vec<RecordKind> = groups[0].clone().into_drafts().map(|draft| draft.kind).collect();
    assert_eq!(kinds[2..], [RecordKind::Entry, RecordKind::ExternalEntry], "a move keeps what it is");
}

#[test]
fn bad_and_unknown_records_are_refused_with_their_place() {
    let error = fold(vec![(Buffered, (RecordKind::Entry, vec![Bytes::from_static(b"short")]))]);
    let what = "it is shorter than an entry's head";
    let (group, journal, sequence) = (GROUP, Buffered, Sequence(1));
    assert_eq!(error, Err(ConsensusError::BadRecord { group, journal, sequence, kind: RecordKind::Entry, what }));
    let kind = RecordKind::SnapshotMark;
    let error = fold(vec![(Buffered, (kind, vec![]))]);
    assert_eq!(error, Err(ConsensusError::UnknownRecord { group, journal, sequence, kind }));
    let kind = RecordKind::CheckpointMark;
    let (error, what) = (fold(vec![(Synced, (kind, vec![]))]), "it is not 24 bytes long");
    assert_eq!(error, Err(ConsensusError::BadRecord { group, journal: Synced, sequence, kind, what }));
    // The mark of the buffered journal may be all that a crash left of a group.
    assert_eq!(fold(vec![(Synced, (kind, vec![Bytes::from_static(BUFFERED_MARK)]))]), Ok(vec![]));
}
