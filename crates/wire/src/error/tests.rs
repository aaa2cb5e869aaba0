use std::collections::BTreeSet;

use super::*;

#[test]
fn every_cause_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = ErrorKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), ErrorKind::ALL.len());
    for kind in ErrorKind::ALL {
        assert_eq!(ErrorKind::from_name(kind.name()), Some(*kind));
        assert!(kind.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{}", kind.name());
    }
    assert_eq!(ErrorKind::from_name("of_the_future"), None);
}

/// The contract's table of errors: what each code promises about whether the request was applied.
#[test]
fn code_and_advice_promise_the_same() {
    for kind in ErrorKind::ALL {
        let expected: &[Advice] = match kind.code() {
            400 | 401 | 403 | 404 | 410 | 413 | 426 => &[Advice::Terminal],
            409 => &[Advice::Redirect, Advice::Terminal, Advice::Retry],
            412 => &[Advice::Terminal, Advice::Retry],
            429 | 503 | 507 => &[Advice::Retry],
            500 => &[Advice::Unknown, Advice::Terminal],
            504 => &[Advice::Unknown],
            code => panic!("{kind:?} has the code {code}, which the contract does not know"),
        };
        assert!(expected.contains(&kind.advice()), "{kind:?}: {} {:?}", kind.code(), kind.advice());
    }
}

#[test]
fn the_causes_that_the_contract_names_are_as_it_says() {
    let cases = [
        (ErrorKind::StalePartitioning, 409, Advice::Retry),
        (ErrorKind::NotLeader, 409, Advice::Redirect),
        (ErrorKind::TopicExists, 409, Advice::Terminal),
        (ErrorKind::SequenceAhead, 412, Advice::Retry),
        (ErrorKind::ProducerUnknown, 412, Advice::Terminal),
        (ErrorKind::OffsetOutOfRange, 410, Advice::Terminal),
        (ErrorKind::BatchTooLarge, 413, Advice::Terminal),
        (ErrorKind::FrameTooLarge, 413, Advice::Terminal),
        (ErrorKind::UnknownOp, 400, Advice::Terminal),
        (ErrorKind::ConnectionLost, 504, Advice::Unknown),
        (ErrorKind::LogDamaged, 500, Advice::Terminal),
        (ErrorKind::OutcomeUnknown, 504, Advice::Unknown),
        (ErrorKind::StorageFull, 507, Advice::Retry),
    ];
    for (kind, code, advice) in cases {
        assert_eq!((kind.code(), kind.advice()), (code, advice), "{kind:?}");
    }
    let redirects = ErrorKind::ALL.iter().filter(|kind| kind.advice() == Advice::Redirect).count();
    assert_eq!(redirects, 1, "a redirect names a leader, and only a missing leader is a reason for one");
}

#[test]
fn an_error_crosses_the_wire_whole() {
    for kind in ErrorKind::ALL {
        let details = Details {
            limit: Some(u64::MAX),
            earliest_offset: Some(0),
            high_watermark: Some(9),
            retry_after_ms: Some(250),
            expected_sequence: Some(0),
            leader_address: Some("b2.example:7400".into()),
            version: Some(3),
        };
        let error = Error { kind: *kind, message: format!("{kind:?} happened"), details: Box::new(details) };
        assert_eq!(Error::from_proto(error.to_proto()), error);
        let bare = Error::new(*kind, "");
        assert_eq!(Error::from_proto(bare.to_proto()), bare, "what is absent stays absent");
    }
}

#[test]
fn a_cause_of_the_future_keeps_its_advice() {
    for advice in [Advice::Terminal, Advice::Retry, Advice::Redirect, Advice::Unknown] {
        let received = proto::Error { kind: "of_the_future".into(), advice: advice as i32, ..Default::default() };
        assert_eq!(Error::from_proto(received).advice(), advice);
    }
}

#[test]
fn an_advice_of_the_future_promises_nothing() {
    let received = proto::Error { kind: "of_the_future".into(), advice: 99, ..Default::default() };
    assert_eq!(Error::from_proto(received).advice(), Advice::Unknown);
}

#[test]
fn an_error_reads_as_message_code_and_name() {
    let error = Error::new(ErrorKind::StorageFull, "the disk has 12 MiB left, 64 MiB are kept in reserve");
    assert_eq!(error.to_string(), "the disk has 12 MiB left, 64 MiB are kept in reserve (507 storage_full)");
}
