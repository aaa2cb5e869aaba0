//! Well-formed records that no host would write, in any combination: recovery and opening refuse them or come to a log
//! that can be led. Nothing panics, in the library or here.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::record::{self, Truncation};

/// A record, and whether it is in the buffered journal.
fn wild_record() -> impl Strategy<Value = (bool, RecordKind, Vec<Bytes>)> {
    let entry = (2..9u64, 1..5u64, 0..2u64, 1..4u8, any::<bool>()).prop_map(|(index, term, later, kind, other)| {
        let kind = [EntryKind::Normal, EntryKind::Empty, EntryKind::Configuration][usize::from(kind) - 1];
        let data = if kind == EntryKind::Empty { Bytes::new() } else { data(if other { "other" } else { "one" }) };
        let entry = Entry { index: LogIndex(index), term: Term(term), kind, context: Bytes::new(), data };
        (RecordKind::Entry, record::encode_entry(&mut BytesMut::new(), entry, Term(term + later)))
    });
    let state = (1..6u64, 0..3u64, 0..12u64).prop_map(|(term, vote, commit)| {
        let state = HardState { term: Term(term), vote: ReplicaId(vote), commit: LogIndex(commit) };
        (RecordKind::HardState, record::encode_hard_state(state))
    });
    let cut = (2..9u64, 1..6u64).prop_map(|(from, term)| {
        let cut = Truncation { from: LogIndex(from), term: Term(term) };
        (RecordKind::Truncate, record::encode_truncation(cut))
    });
    let record = prop_oneof![8 => entry, 2 => state, 1 => cut];
    (any::<bool>(), record).prop_map(|(buffered, (kind, body))| (buffered, kind, body))
}

/// A run of entries as a leader writes them, so that many cases get past the checks.
fn plain_run() -> impl Strategy<Value = Vec<(bool, RecordKind, Vec<Bytes>)>> {
    proptest::collection::vec(any::<bool>(), 0..6).prop_map(|buffered| {
        let entry = |(at, buffered): (usize, bool)| {
            let (index, kind) = (LogIndex(at as u64 + 2), EntryKind::Normal);
            let entry = Entry { index, term: Term(1), kind, context: Bytes::new(), data: data("one") };
            (buffered, RecordKind::Entry, record::encode_entry(&mut BytesMut::new(), entry, Term(1)))
        };
        buffered.into_iter().enumerate().map(entry).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn whatever_the_journals_say_is_refused_or_led(
        run in plain_run(),
        wild in proptest::collection::vec(wild_record(), 0..4),
        (applied, applied_term) in (0..9u64, 0..4u64),
    ) {
        let mut paper = Paper::default();
        let bootstrap = record::encode_bootstrap(&Configuration::sole(REPLICA), tag());
        let first = (false, RecordKind::Bootstrap, bootstrap);
        for (buffered, kind, body) in std::iter::once(first).chain(run).chain(wild) {
            let journal = if buffered { Buffered } else { Synced };
            paper.append(journal, Draft { group: GROUP, replica: REPLICA, kind, body }).unwrap();
        }
        let Ok(mut groups) = paper.recover() else { return Ok(()) };
        let recovered = groups.remove(0);
        let above = |entry: &&Entry| entry.index.0 > applied;
        let mut expected: Vec<_> = recovered.entries.iter().filter(above).cloned().collect();
        let mut host = Host::new(1);
        if host.open(recovered.clone(), LogIndex(applied), Term(applied_term), Synced).is_err() {
            return Ok(());
        }
        let mut events = settle(&mut host, &mut paper);
        let term = Term(recovered.term.0 + 1);
        let index = LogIndex(recovered.last_index().0 + 1);
        expected.push(Entry { index, term, kind: EntryKind::Empty, context: Bytes::new(), data: Bytes::new() });
        prop_assert_eq!(committed(&events), expected);
        prop_assert_eq!(events.pop(), Some(Event::Serving { group: GROUP, term }));
        // And what was written on top is recovered again.
        prop_assert_eq!(paper.recover().unwrap()[0].last_index(), index);
    }
}
