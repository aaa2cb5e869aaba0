//! The decoders give back what the encoders wrote, and judge everything else.

use proptest::prelude::*;

use super::*;

fn joined(pieces: Vec<Bytes>) -> Bytes {
    pieces.concat().into()
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let ids = || proptest::collection::btree_set(1u64.., 0..5);
    let voters = proptest::collection::btree_set(1u64.., 1..5);
    (voters, ids(), ids(), ids()).prop_map(|(voters, learners, voters_outgoing, learners_next)| {
        let list = |ids: std::collections::BTreeSet<u64>| ids.into_iter().map(ReplicaId).collect();
        Configuration {
            voters: list(voters),
            learners: list(learners),
            voters_outgoing: list(voters_outgoing),
            learners_next: list(learners_next),
        }
    })
}

fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 1..40).prop_map(Bytes::from)
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(
        configuration in configuration(),
        tag in bytes(),
        (context, data) in (bytes(), bytes()),
        index in 2..=LOG_INDEX_MAX.0,
        term in 1..=TERM_MAX.0,
        vote in any::<u64>(),
        later in 0..1000u64,
    ) {
        let (index, term) = (LogIndex(index), Term(term));
        let body = joined(encode_bootstrap(&configuration, tag.clone()));
        prop_assert_eq!(decode_bootstrap(body), Ok((configuration, tag)));

        let state = HardState { term, vote: ReplicaId(vote), commit: index };
        prop_assert_eq!(decode_hard_state(joined(encode_hard_state(state))), Ok(state));

        let cut = Truncation { from: index, term };
        prop_assert_eq!(decode_truncation(joined(encode_truncation(cut))), Ok(cut));

        let below = LogIndex(index.0 - 1);
        for base in [Base::default(), Base { index: below.max(SNAPSHOT_INDEX), term, next_offset: Offset(vote) }] {
            if base == Base::default() || base.index > SNAPSHOT_INDEX {
                let accepted = Acceptance { base, cut };
                prop_assert_eq!(decode_acceptance(joined(encode_acceptance(accepted))), Ok(accepted));
            }
        }

        let written_in = Term((term.0 + later).min(TERM_MAX.0));
        for (kind, context, data) in [
            (EntryKind::Normal, context.clone(), data.clone()),
            (EntryKind::External, context.clone(), data.clone()),
            (EntryKind::Normal, context, Bytes::new()),
            (EntryKind::Configuration, Bytes::new(), data),
            (EntryKind::Empty, Bytes::new(), Bytes::new()),
        ] {
            let entry = Entry { index, term, kind, context, data };
            let body = joined(encode_entry(&mut BytesMut::new(), entry.clone(), written_in));
            prop_assert_eq!(decode_entry(body), Ok(Written { written_in, entry }));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..120)) {
        judge(body.into());
    }

    /// Random bytes rarely get past the first check; changed ones of a real body do.
    #[test]
    fn damaged_bodies_never_panic(
        configuration in configuration(),
        tag in bytes(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let entry = Entry {
            index: LogIndex(2),
            term: Term(1),
            kind: EntryKind::Normal,
            context: tag.clone(),
            data: tag.clone(),
        };
        for body in [
            joined(encode_bootstrap(&configuration, tag)),
            joined(encode_entry(&mut BytesMut::new(), entry, Term(1))),
            joined(encode_hard_state(HardState { term: Term(1), vote: ReplicaId(1), commit: LogIndex(1) })),
        ] {
            let mut damaged = body.to_vec();
            let at = at.index(damaged.len());
            damaged[at] = value;
            judge(damaged.clone().into());
            damaged.truncate(cut.index(damaged.len()));
            judge(damaged.into());
        }
    }
}

/// Lets every decoder judge the bytes; what passes must be within the bounds that the rest of the crate relies on.
fn judge(body: Bytes) {
    if let Ok(Written { written_in, entry }) = decode_entry(body.clone()) {
        assert!(entry.index > SNAPSHOT_INDEX && entry.index <= LOG_INDEX_MAX);
        assert!(entry.term >= SNAPSHOT_TERM && entry.term <= written_in && written_in <= TERM_MAX);
    }
    if let Ok((configuration, _)) = decode_bootstrap(body.clone()) {
        assert!(!configuration.voters.is_empty() && configuration.voters.len() <= REPLICAS_MAX);
    }
    if let Ok((index, configuration)) = decode_configuration(body.clone()) {
        assert!(index > SNAPSHOT_INDEX && configuration.voters.iter().all(|replica| replica.0 > 0));
    }
    if let Ok(state) = decode_hard_state(body.clone()) {
        assert!(state.term >= SNAPSHOT_TERM && state.term <= TERM_MAX && state.commit <= LOG_INDEX_MAX);
    }
    if let Ok(cut) = decode_truncation(body.clone()) {
        assert!(cut.from > SNAPSHOT_INDEX && cut.term <= TERM_MAX);
    }
    if let Ok(Acceptance { base, cut }) = decode_acceptance(body) {
        assert!(base.index >= SNAPSHOT_INDEX && base.index < cut.from && cut.term <= TERM_MAX);
    }
}

#[test]
fn every_bound_of_a_body_is_checked() {
    let entry = |index: u64, term: u64, written: u64, kind: u8, context: u32, rest: &[u8]| {
        let mut body = BytesMut::new();
        for number in [index, term, written] {
            body.put_u64_le(number);
        }
        body.put_u8(kind);
        body.put_u32_le(context);
        body.put_slice(rest);
        decode_entry(body.freeze())
    };
    assert!(entry(2, 1, 1, 1, 0, b"x").is_ok());
    assert_eq!(entry(1, 1, 1, 1, 0, b"x"), Err("its index is out of bounds"));
    assert!(entry(LOG_INDEX_MAX.0, 1, 1, 1, 0, b"x").is_ok());
    assert_eq!(entry(LOG_INDEX_MAX.0 + 1, 1, 1, 1, 0, b"x"), Err("its index is out of bounds"));
    assert_eq!(entry(2, 0, 1, 1, 0, b"x"), Err("its term is out of bounds"));
    assert_eq!(entry(2, 1, TERM_MAX.0 + 1, 1, 0, b"x"), Err("its term is out of bounds"));
    assert_eq!(entry(2, 2, 1, 1, 0, b"x"), Err("it was written before its own term"));
    assert!(entry(2, 1, 1, 4, 0, b"x").is_ok());
    assert_eq!(entry(2, 1, 1, 4, 0, b""), Err("its kind does not fit what it carries"));
    assert_eq!(entry(2, 1, 1, 5, 0, b"x"), Err("its entry kind is unknown"));
    assert!(entry(2, 1, 1, 1, 1, b"x").is_ok());
    assert_eq!(entry(2, 1, 1, 1, 2, b"x"), Err("its context is longer than the body"));
    assert_eq!(entry(2, 1, 1, 2, 0, b"x"), Err("its kind does not fit what it carries"));
    assert_eq!(entry(2, 1, 1, 1, 0, b""), Err("its kind does not fit what it carries"));

    let configuration = |counts: &[(u16, &[u64])]| {
        let mut body = BytesMut::new();
        for (count, ids) in counts {
            body.put_u16_le(*count);
            ids.iter().for_each(|id| body.put_u64_le(*id));
        }
        decode_bootstrap(body.freeze()).map(|(configuration, _)| configuration)
    };
    assert_eq!(configuration(&[(1, &[7]), (0, &[]), (0, &[]), (0, &[])]), Ok(Configuration::sole(ReplicaId(7))));
    assert_eq!(configuration(&[(0, &[]), (0, &[]), (0, &[]), (0, &[])]), Err("its configuration has no voter"));
    assert_eq!(configuration(&[(2, &[7])]), Err("it ends within its configuration"));
    assert_eq!(configuration(&[(2, &[7, 7])]), Err("its replica ids are not ascending from 1 on"));
    assert_eq!(configuration(&[(1, &[0])]), Err("its replica ids are not ascending from 1 on"));
    assert_eq!(configuration(&[(65, &[0; 65])]), Err("its configuration has too many replicas"));
}

#[test]
fn the_record_of_an_external_entry_has_what_the_engine_put_in_its_place() {
    let (context, data) = (Bytes::from_static(b"stamps"), Bytes::from_static(b"a large batch"));
    let entry = Entry { index: LogIndex(7), term: Term(2), kind: EntryKind::Normal, context, data };
    let body = encode_entry(&mut BytesMut::new(), entry.clone(), Term(3));
    assert_eq!(entry_of(&body), Some(entry.clone()));
    let (context, data) = (Bytes::from_static(b"there"), Bytes::from_static(b"at byte 9"));
    let external = external_body(&body, context.clone(), data.clone()).map(joined).unwrap();
    let expected = Written { written_in: Term(3), entry: Entry { kind: EntryKind::External, context, data, ..entry } };
    assert_eq!(decode_entry_of(RecordKind::ExternalEntry, external.clone()), Ok(expected));
    assert!(decode_entry_of(RecordKind::Entry, external).is_err(), "the record says what it has");
    assert!(decode_entry_of(RecordKind::ExternalEntry, joined(body)).is_err());
    assert_eq!(entry_of(&[Bytes::from_static(b"something else")]), None);
}
