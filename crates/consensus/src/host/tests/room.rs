//! What a host says of records that are not needed, and what a start makes of the rest.

use lockgate_wire::Offset;

use super::*;
use crate::Base;

/// Everything of the synced journal up to its end is not needed after this, but for what is carried.
fn carry(host: &mut Host, paper: &mut Paper, kind: JournalKind) -> usize {
    let end = paper.end(kind);
    for (group, how) in host.laggards(kind, end) {
        assert_eq!(how, Laggard::Carry);
        host.carry(group, kind, end, paper).unwrap();
    }
    assert!(host.floor(kind).is_none_or(|floor| floor > end), "nothing below {end} is needed");
    end.0 as usize
}

#[test]
fn what_is_carried_forward_means_the_same_without_the_older_records() {
    for durability in [Synced, Buffered] {
        let (mut host, mut paper) = serving(durability);
        host.mark_buffered(GROUP, &mut paper).unwrap();
        for text in ["a", "b"] {
            host.propose(GROUP, Bytes::new(), data(text)).unwrap();
            settle(&mut host, &mut paper);
        }
        let before = paper.recover().unwrap().remove(0);
        for kind in [Synced, Buffered] {
            let end = carry(&mut host, &mut paper, kind);
            paper.free(kind, end);
        }
        let after = paper.recover().unwrap().remove(0);
        let content = |group: &RecoveredGroup| (group.term, group.vote, group.entries.clone(), group.tag.clone());
        assert_eq!(content(&after), content(&before), "{durability}");
        assert!(paper.synced.iter().rev().any(|draft| draft.body.concat() == b"buffered"));
    }
}

#[test]
fn entries_below_a_base_may_go_and_the_log_goes_on_behind_it() {
    let (mut host, mut paper) = serving(Synced);
    host.propose(GROUP, Bytes::new(), Bytes::from(vec![7; 8192])).unwrap();
    settle(&mut host, &mut paper);
    let end = paper.end(Synced);
    assert_eq!(host.laggards(Synced, end), [(GROUP, Laggard::WriteDown)]);
    let base = Base { index: LogIndex(3), term: Term(2), next_offset: Offset(1) };
    host.mark_base(GROUP, base, &mut paper).unwrap();
    let end = carry(&mut host, &mut paper, Synced);
    paper.free(Synced, end);

    let recovered = paper.recover().unwrap().remove(0);
    assert_eq!((recovered.base, recovered.last_index()), (base, LogIndex(3)));
    assert_eq!((recovered.entries.len(), recovered.term_of(LogIndex(3))), (0, Term(2)));
    let mut host = Host::new(1);
    let behind = host.open(recovered.clone(), LogIndex(2), Term(2), Synced);
    assert_eq!(behind, Err(ConsensusError::Hole { group: GROUP, after: LogIndex(2), next: LogIndex(4) }));
    let mut host = Host::new(1);
    host.open(recovered, LogIndex(3), Term(2), Synced).unwrap();
    let events = settle(&mut host, &mut paper);
    assert_eq!(events.last(), Some(&Event::Serving { group: GROUP, term: Term(3) }));
    assert_eq!(committed(&events)[0].index, LogIndex(4));
}

#[test]
fn a_replica_that_is_not_opened_keeps_its_records_until_it_is_removed() {
    let (_, mut paper) = serving(Synced);
    let mut host = Host::new(1);
    host.hold(paper.recover().unwrap().remove(0));
    assert_eq!(host.floor(Synced), Some(Sequence(1)));
    host.remove(GROUP);
    assert!(host.has_unwritten_removals());
    advance(&mut host, &mut paper);
    assert_eq!((host.floor(Synced), host.has_unwritten_removals()), (None, false));
    assert_eq!(paper.kinds(Synced).last(), Some(&RecordKind::Removed));
    assert_eq!(paper.recover(), Ok(Vec::new()));
}
