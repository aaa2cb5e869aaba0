use proptest::prelude::*;

use super::*;

fn stamp(base_offset: u64, bytes: u32) -> Stamp {
    Stamp { base_offset: Offset(base_offset), append_time: WallMs(5), count: 2, bytes }
}

#[test]
fn batches_come_back_with_their_stamps_as_slices_of_the_data() {
    let stamps = [stamp(0, 3), stamp(2, 0), stamp(4, 2)];
    let data = Bytes::from_static(b"abcde");
    let content = decode(batches_context(&stamps), data.clone()).unwrap();
    let batches: Vec<(Stamp, Bytes)> =
        stamps.into_iter().zip([data.slice(..3), data.slice(3..3), data.slice(3..)]).collect();
    assert_eq!(content, Content::Batches(batches));
}

#[test]
fn commands_come_back() {
    let commit = CommitCursor { name: "c".into(), offset: 7, force: true, time_ms: 9 };
    for change in [
        Change::CommitCursor(commit),
        Change::DeleteCursor(DeleteCursor { name: "d".into() }),
        Change::ExpireProducers(-1),
    ] {
        let (context, data) = command(change.clone());
        assert_eq!(decode(context, data), Ok(Content::Command(change)));
    }
}

#[test]
fn batches_that_are_in_the_segments_leave_their_places_and_headers() {
    let batch = |n: u8| External {
        stamp: stamp(n.into(), 300),
        place: Place { segment: Offset(5), byte: 4096, bytes: 348, crc: n.into() },
        header: Bytes::from(vec![n; 300]),
    };
    let batches = [batch(1), batch(2)];
    let (context, data) = external(&batches);
    let headers = batches.clone().map(|batch| External { header: batch.header.slice(..HEADER_BYTES), ..batch });
    assert_eq!(decode(context.clone(), data.clone()), Ok(Content::External(headers.to_vec())));
    assert!(decode(context.clone(), data.slice(1..)).is_err());
    assert!(decode(context.slice(..context.len() - STAMP_BYTES), data).is_err());
}

#[test]
fn stamps_and_data_that_do_not_fit_each_other_are_refused() {
    let data = Bytes::from_static(b"abc");
    assert!(decode(batches_context(&[stamp(0, 4)]), data.clone()).is_err());
    assert!(decode(batches_context(&[stamp(0, 2)]), data.clone()).is_err());
    assert!(decode(batches_context(&[stamp(0, 3)]).slice(..20), data.clone()).is_err());
    assert!(decode(Bytes::new(), data.clone()).is_err());
    assert!(decode(Bytes::from_static(&[9]), data).is_err());
    assert!(decode(Bytes::from_static(&[COMMAND]), Bytes::new()).is_err(), "a command that says nothing");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        kind in 0u8..5, stamps in prop::collection::vec(any::<u8>(), 0..80),
        data in prop::collection::vec(any::<u8>(), 0..200), cut in any::<bool>(),
    ) {
        let mut context = vec![kind];
        context.extend(&stamps[..if cut { stamps.len() } else { stamps.len() / STAMP_BYTES * STAMP_BYTES }]);
        let _ = decode(context.into(), data.into());
    }
}
