//! What a host promises, one promise per test.

use JournalKind::{Buffered, Synced};

use super::*;
use crate::{Entry, EntryKind, Role, UNCOMMITTED_BYTES_MAX};
use paper::Paper;

mod model;
mod paper;
mod room;
mod wild;

const GROUP: GroupId = GroupId(1);
const REPLICA: ReplicaId = ReplicaId(11);

fn tag() -> Bytes {
    Bytes::from_static(b"tag")
}

fn data(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn advance(host: &mut Host, paper: &mut Paper) -> Vec<Event> {
    let mut events = Vec::new();
    host.advance(paper, &mut events);
    events
}

/// Confirms everything until nothing more happens, which takes a few rounds and not many.
fn settle(host: &mut Host, paper: &mut Paper) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..10 {
        host.persisted(Buffered, paper.end(Buffered));
        host.persisted(Synced, paper.end(Synced));
        if host.advance(paper, &mut events) == 0 {
            return events;
        }
    }
    panic!("the host does not come to rest: {events:?}");
}

/// A group that serves, with its paper.
fn serving(durability: JournalKind) -> (Host, Paper) {
    let (mut host, mut paper) = (Host::new(1), Paper::default());
    host.bootstrap(GROUP, REPLICA, tag(), durability).unwrap();
    let events = settle(&mut host, &mut paper);
    assert_eq!(events.last(), Some(&Event::Serving { group: GROUP, term: Term(2) }));
    (host, paper)
}

fn committed(events: &[Event]) -> Vec<Entry> {
    let entries = events.iter().filter_map(|event| match event {
        Event::Committed { entries, .. } => Some(entries.clone()),
        _ => None,
    });
    entries.flatten().collect()
}

fn own_first() -> Entry {
    let (index, term) = (LogIndex(2), Term(2));
    Entry { index, term, kind: EntryKind::Empty, context: Bytes::new(), data: Bytes::new() }
}

#[test]
fn a_sole_voter_leads_at_once_and_serves_when_its_first_entry_is_confirmed() {
    let (mut host, mut paper) = (Host::new(1), Paper::default());
    host.bootstrap(GROUP, REPLICA, tag(), Synced).unwrap();
    assert_eq!(advance(&mut host, &mut paper), []);
    assert_eq!(paper.kinds(Synced), [RecordKind::Bootstrap, RecordKind::HardState, RecordKind::Entry]);
    let status = host.status(GROUP).unwrap();
    assert_eq!(
        (status.role, status.term, status.last, status.committed),
        (Role::Leader, Term(2), LogIndex(2), LogIndex(1))
    );
    host.persisted(Synced, Sequence(2));
    assert_eq!(advance(&mut host, &mut paper), []);
    host.persisted(Synced, Sequence(3));
    let (group, term) = (GROUP, Term(2));
    assert_eq!(
        advance(&mut host, &mut paper),
        [
            Event::Persisted { group, term, index: LogIndex(2) },
            Event::Committed { group, entries: vec![own_first()] },
            Event::Serving { group, term },
        ]
    );
    // A commit alone is not written.
    assert_eq!(paper.end(Synced), Sequence(3));
    assert_eq!(advance(&mut host, &mut paper), []);
}

#[test]
fn a_ready_is_persisted_only_when_both_journals_confirmed_it() {
    for first in [Synced, Buffered] {
        let (mut host, mut paper) = (Host::new(1), Paper::default());
        host.bootstrap(GROUP, REPLICA, tag(), Buffered).unwrap();
        advance(&mut host, &mut paper);
        assert_eq!(paper.kinds(Synced), [RecordKind::Bootstrap, RecordKind::HardState]);
        assert_eq!(paper.kinds(Buffered), [RecordKind::Entry]);
        host.persisted(first, paper.end(first));
        assert_eq!(advance(&mut host, &mut paper), [], "confirmed by the {first} journal alone");
        let second = if first == Synced { Buffered } else { Synced };
        host.persisted(second, paper.end(second));
        assert_eq!(committed(&advance(&mut host, &mut paper)), [own_first()]);
    }
}

#[test]
fn entries_that_went_out_together_are_committed_as_far_as_a_write_has_them() {
    for durability in [Synced, Buffered] {
        let (mut host, mut paper) = serving(durability);
        let indexes = ["a", "b", "c"].map(|text| host.propose(GROUP, Bytes::new(), data(text)).unwrap().index);
        assert_eq!(advance(&mut host, &mut paper), []);
        let Sequence(end) = paper.end(durability);
        host.persisted(durability, Sequence(end - 3));
        assert_eq!(advance(&mut host, &mut paper), [], "none of them is confirmed");
        for (at, index) in indexes.into_iter().enumerate() {
            let up_to = Sequence(end - 2 + at as u64);
            host.persisted(durability, up_to);
            host.persisted(durability, up_to);
            let events = advance(&mut host, &mut paper);
            assert_eq!(events.first(), Some(&Event::Persisted { group: GROUP, term: Term(2), index }));
            assert_eq!(committed(&events).iter().map(|entry| entry.index).collect::<Vec<_>>(), [index]);
        }
    }
}

#[test]
fn the_payload_is_the_same_bytes_all_the_way_and_leaves_memory_when_applied() {
    let (mut host, mut paper) = serving(Synced);
    let (context, payload) = (Bytes::from(vec![1; 24]), Bytes::from(vec![7; 4096]));
    let proposed = host.propose(GROUP, context.clone(), payload.clone()).unwrap();
    assert_eq!(proposed, Proposed { term: Term(2), index: LogIndex(3) });
    let events = settle(&mut host, &mut paper);
    let body = &paper.synced.last().unwrap().body;
    assert_eq!(body.iter().map(Bytes::len).collect::<Vec<_>>(), [29, 24, 4096]);
    assert_eq!((body[1].as_ptr(), body[2].as_ptr()), (context.as_ptr(), payload.as_ptr()));
    let entry = committed(&events).pop().unwrap();
    assert_eq!((entry.context.as_ptr(), entry.data.as_ptr()), (context.as_ptr(), payload.as_ptr()));
    drop((events, entry, std::mem::take(&mut paper)));
    assert!(!payload.is_unique(), "kept until it is applied");
    host.applied(GROUP, LogIndex(3));
    assert!(payload.is_unique() && context.is_unique(), "nobody else holds the bytes");
}

#[test]
fn one_group_confirmed_does_not_commit_another() {
    let (mut host, mut paper) = (Host::new(1), Paper::default());
    for group in [1, 2] {
        host.bootstrap(GroupId(group), REPLICA, tag(), Synced).unwrap();
    }
    advance(&mut host, &mut paper);
    host.persisted(Synced, Sequence(5));
    let events = advance(&mut host, &mut paper);
    assert_eq!(events.last(), Some(&Event::Serving { group: GroupId(1), term: Term(2) }));
    assert_eq!(host.status(GroupId(2)).unwrap().committed, LogIndex(1));
    host.persisted(Synced, Sequence(6));
    let events = advance(&mut host, &mut paper);
    assert_eq!(events.last(), Some(&Event::Serving { group: GroupId(2), term: Term(2) }));
}

#[test]
fn proposals_in_flight_at_a_poison_never_commit() {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("written")).unwrap();
    advance(&mut host, &mut paper);
    host.propose(GROUP, Bytes::new(), data("waiting")).unwrap();
    host.poison();
    host.persisted(Synced, paper.end(Synced));
    assert_eq!(advance(&mut host, &mut paper), [Event::SteppedDown { group: GROUP, term: Term(2) }]);
    assert_eq!(advance(&mut host, &mut paper), []);
    assert_eq!(host.propose(GROUP, Bytes::new(), data("late")), Err(ProposeError::Poisoned));
    assert_eq!(host.bootstrap(GroupId(2), REPLICA, tag(), Synced), Err(ConsensusError::Poisoned));
    let status = host.status(GROUP).unwrap();
    assert_eq!((status.role, status.committed), (Role::Follower, LogIndex(2)));
}

#[test]
fn nothing_is_written_or_told_after_a_poison_whatever_is_called() {
    let (mut host, mut paper) = serving(Buffered);
    host.bootstrap(GroupId(2), REPLICA, tag(), Synced).unwrap();
    settle(&mut host, &mut paper);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    advance(&mut host, &mut paper);
    host.propose(GROUP, Bytes::new(), data("b")).unwrap();
    host.poison();
    assert_eq!(advance(&mut host, &mut paper).len(), 2);
    let ends = (paper.end(Synced), paper.end(Buffered));
    host.set_durability(GROUP, Synced);
    host.buffered_synced(paper.end(Buffered));
    host.persisted(Buffered, paper.end(Buffered));
    host.remove(GroupId(2));
    host.poison();
    assert_eq!(advance(&mut host, &mut paper), []);
    assert_eq!((paper.end(Synced), paper.end(Buffered)), ends);
}

#[test]
fn what_was_confirmed_and_not_told_at_a_poison_is_not_told() {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    advance(&mut host, &mut paper);
    host.persisted(Synced, paper.end(Synced));
    host.poison();
    assert_eq!(advance(&mut host, &mut paper), [Event::SteppedDown { group: GROUP, term: Term(2) }]);
}

#[test]
fn a_journal_that_refuses_poisons_the_host() {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    paper.refuses = true;
    assert_eq!(advance(&mut host, &mut paper), [Event::SteppedDown { group: GROUP, term: Term(2) }]);
    assert_eq!(host.propose(GROUP, Bytes::new(), data("b")), Err(ProposeError::Poisoned));
}

#[test]
fn a_poison_is_told_in_the_order_of_groups() {
    let (mut host, mut paper) = (Host::new(1), Paper::default());
    for group in [5, 3, 900, 1, 77] {
        host.bootstrap(GroupId(group), REPLICA, tag(), Synced).unwrap();
    }
    host.poison();
    let groups: Vec<_> = advance(&mut host, &mut paper)
        .into_iter()
        .map(|event| match event {
            Event::SteppedDown { group, .. } => group.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(groups, [1, 3, 5, 77, 900]);
}

#[test]
fn a_thousand_idle_groups_cost_no_work() {
    let (mut host, mut paper) = (Host::new(1), Paper::default());
    for group in 1..=1000 {
        host.bootstrap(GroupId(group), REPLICA, tag(), Synced).unwrap();
    }
    assert_eq!(host.advance(&mut paper, &mut Vec::new()), 1000);
    settle(&mut host, &mut paper);
    assert_eq!(host.advance(&mut paper, &mut Vec::new()), 0);
    host.propose(GroupId(500), Bytes::new(), data("a")).unwrap();
    host.propose(GroupId(500), Bytes::new(), data("b")).unwrap();
    assert_eq!(host.advance(&mut paper, &mut Vec::new()), 1);
    host.persisted(Synced, paper.end(Synced));
    assert_eq!(host.advance(&mut paper, &mut Vec::new()), 1);
    assert_eq!(host.advance(&mut paper, &mut Vec::new()), 0);
}

#[test]
fn uncommitted_bytes_are_bounded_and_a_commit_makes_room() {
    let (mut host, mut paper) = serving(Synced);
    let overhead = 256;
    let all_but_one = Bytes::from(vec![0; UNCOMMITTED_BYTES_MAX - 2 * overhead - 1]);
    host.propose(GROUP, Bytes::new(), all_but_one).unwrap();
    let refused = host.propose(GROUP, data("a"), data("b"));
    let (waiting_bytes, bytes) = (UNCOMMITTED_BYTES_MAX - overhead - 1, overhead + 2);
    let limit_bytes = UNCOMMITTED_BYTES_MAX;
    assert_eq!(refused, Err(ProposeError::TooManyUncommitted { waiting_bytes, bytes, limit_bytes }));
    host.propose(GROUP, data("a"), Bytes::new()).unwrap();
    settle(&mut host, &mut paper);
    // Alone, one of any size is taken.
    host.propose(GROUP, Bytes::new(), Bytes::from(vec![0; UNCOMMITTED_BYTES_MAX + 1])).unwrap();
    assert!(host.propose(GROUP, data("a"), Bytes::new()).is_err());
}

#[test]
fn proposals_are_refused_for_a_reason() {
    let (mut host, _) = serving(Synced);
    assert_eq!(host.propose(GroupId(9), data("a"), data("b")), Err(ProposeError::NoSuchGroup));
    assert_eq!(host.propose(GROUP, Bytes::new(), Bytes::new()), Err(ProposeError::Empty));
}

#[test]
fn a_removed_group_is_gone_for_good() {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    host.remove(GROUP);
    assert_eq!(host.status(GROUP), None);
    assert_eq!(advance(&mut host, &mut paper), []);
    assert_eq!(paper.kinds(Synced).last(), Some(&RecordKind::Removed));
    assert_eq!(paper.recover(), Ok(vec![]));
    // The group comes back under another replica id.
    host.bootstrap(GROUP, ReplicaId(12), tag(), Synced).unwrap();
    settle(&mut host, &mut paper);
    let recovered = paper.recover().unwrap();
    assert_eq!(recovered.iter().map(|group| group.replica).collect::<Vec<_>>(), [ReplicaId(12)]);
}

#[test]
fn a_group_removed_before_it_was_written_leaves_no_trace() {
    let (mut host, mut paper) = (Host::new(1), Paper::default());
    host.bootstrap(GROUP, REPLICA, tag(), Synced).unwrap();
    host.remove(GROUP);
    assert_eq!(advance(&mut host, &mut paper), []);
    assert_eq!(paper.end(Synced), Sequence(0));
}

#[test]
fn a_change_of_journal_waits_until_it_can_leave_no_hole() {
    let (mut host, mut paper) = serving(Buffered);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    advance(&mut host, &mut paper);
    let before = paper.end(Synced);
    host.set_durability(GROUP, Synced);
    host.propose(GROUP, Bytes::new(), data("b")).unwrap();
    assert_eq!(advance(&mut host, &mut paper), []);
    // "a" is confirmed and committed, and "b" still waits for the sync of the journal that holds "a".
    host.persisted(Buffered, Sequence(2));
    let (group, term, index) = (GROUP, Term(2), LogIndex(3));
    assert_eq!(advance(&mut host, &mut paper), [Event::Persisted { group, term, index }]);
    host.buffered_synced(Sequence(1));
    assert_eq!(advance(&mut host, &mut paper), []);
    assert_eq!((paper.end(Synced), paper.end(Buffered)), (before, Sequence(2)));
    host.buffered_synced(Sequence(2));
    let events = settle(&mut host, &mut paper);
    assert_eq!(committed(&events).iter().map(|entry| &entry.data[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    assert_eq!((paper.end(Synced), paper.end(Buffered)), (Sequence(before.0 + 1), Sequence(2)));
    // Back again: only what is on its way has to be confirmed.
    host.propose(GROUP, Bytes::new(), data("c")).unwrap();
    advance(&mut host, &mut paper);
    host.set_durability(GROUP, Buffered);
    host.propose(GROUP, Bytes::new(), data("d")).unwrap();
    advance(&mut host, &mut paper);
    assert_eq!(paper.end(Buffered), Sequence(2));
    settle(&mut host, &mut paper);
    assert_eq!(paper.end(Buffered), Sequence(3));
    assert_eq!(host.status(GROUP).unwrap().committed, LogIndex(6));
}

/// Three entries in the log, of which the engine has applied up to `applied`; then a restart.
fn reopened(applied: u64) -> (Host, Paper) {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    host.propose(GROUP, Bytes::new(), data("b")).unwrap();
    settle(&mut host, &mut paper);
    let recovered = paper.recover().unwrap().remove(0);
    let mut host = Host::new(1);
    host.open(recovered, LogIndex(applied), Term(2), Synced).unwrap();
    (host, paper)
}

#[test]
fn a_restart_gives_what_was_not_applied_again_before_it_serves() {
    for applied in 2..=4 {
        let (mut host, mut paper) = reopened(applied);
        let status = host.status(GROUP).unwrap();
        assert_eq!((status.role, status.term, status.applied), (Role::Leader, Term(3), LogIndex(applied)));
        let written = paper.end(Synced).0 as usize;
        let mut events = settle(&mut host, &mut paper);
        assert_eq!(paper.kinds(Synced)[written..], [RecordKind::HardState, RecordKind::Entry]);
        assert_eq!(events.pop(), Some(Event::Serving { group: GROUP, term: Term(3) }));
        let indices: Vec<_> = committed(&events).iter().map(|entry| entry.index.0).collect();
        assert_eq!(indices, (applied + 1..=5).collect::<Vec<_>>());
        host.applied(GROUP, LogIndex(5));
        assert_eq!(host.status(GROUP).unwrap().applied, LogIndex(5));
    }
}

#[test]
fn nothing_recovered_is_handed_out_before_the_new_term_is_confirmed() {
    let (mut host, mut paper) = reopened(2);
    assert_eq!(advance(&mut host, &mut paper), []);
    host.persisted(Synced, Sequence(paper.end(Synced).0 - 1));
    assert_eq!(advance(&mut host, &mut paper), []);
}

#[test]
fn only_what_the_library_can_take_is_opened() {
    let (mut host, paper) = serving(Synced);
    let recovered = paper.recover().unwrap().remove(0);
    let exists = ConsensusError::GroupExists { group: GROUP };
    assert_eq!(host.open(recovered.clone(), LogIndex(0), Term(0), Synced), Err(exists.clone()));
    assert_eq!(host.bootstrap(GROUP, REPLICA, tag(), Synced), Err(exists));
    let mut host = Host::new(1);
    let invalid = Err(ConsensusError::InvalidReplica { group: GROUP });
    assert_eq!(host.bootstrap(GROUP, ReplicaId(0), tag(), Synced), invalid);

    let configuration = Configuration { voters: vec![REPLICA, ReplicaId(12)], ..Configuration::default() };
    let three = RecoveredGroup { configuration, ..recovered.clone() };
    let error = ConsensusError::NotSoleVoter { group: GROUP, replica: REPLICA, voters: 2 };
    assert_eq!(host.open(three, LogIndex(0), Term(0), Synced), Err(error));

    let exhausted = RecoveredGroup { term: TERM_MAX, ..recovered.clone() };
    let error = ConsensusError::TermsExhausted { group: GROUP, term: TERM_MAX };
    assert_eq!(host.open(exhausted, LogIndex(0), Term(0), Synced), Err(error));

    let above = ConsensusError::AppliedAboveLog { group: GROUP, applied: LogIndex(3), last: LogIndex(2) };
    assert_eq!(host.open(recovered.clone(), LogIndex(3), Term(2), Synced), Err(above));
    // A refusal leaves nothing behind.
    assert_eq!(host.status(GROUP), None);
    let ahead = RecoveredGroup { commit: LogIndex(99), ..recovered };
    assert_eq!(host.open(ahead, LogIndex(0), Term(0), Synced), Ok(()));
    assert_eq!(host.status(GROUP).unwrap().committed, LogIndex(2));
}

#[test]
#[should_panic(expected = "3 applied, 2 handed out")]
fn applying_what_was_not_handed_out_is_a_broken_invariant() {
    let (mut host, _) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    host.applied(GROUP, LogIndex(3));
}

#[test]
fn an_applied_index_that_comes_again_changes_nothing() {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), data("a")).unwrap();
    settle(&mut host, &mut paper);
    for applied in [3, 2, 3, 0] {
        host.applied(GROUP, LogIndex(applied));
        assert_eq!(host.status(GROUP).unwrap().applied, LogIndex(3));
    }
}
