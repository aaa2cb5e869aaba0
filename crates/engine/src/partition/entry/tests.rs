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
    fn no_bytes_make_it_panic(context in prop::collection::vec(any::<u8>(), 0..80), data in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = decode(context.into(), data.into());
    }
}
