use std::collections::BTreeSet;

use proptest::prelude::*;
use prost::Message;

use super::*;

/// What a decoder makes of bytes: the message's operation and whether it took them.
type Decoder = fn(&[u8]) -> (Op, bool);

fn decoder<B: Body>() -> Decoder {
    |bytes| (B::OP, B::decode(bytes).is_ok())
}

macro_rules! decoders {
    ($($message:ident),+ $(,)?) => { [$((stringify!($message), decoder::<proto::$message>())),+] };
}

/// Every message that a frame's body can be.
fn decoders() -> impl IntoIterator<Item = (&'static str, Decoder)> {
    decoders![
        Hello,
        HelloOk,
        Ping,
        PingOk,
        GoingAway,
        Close,
        CloseOk,
        Topology,
        TopologyOk,
        Publish,
        PublishOk,
        InitProducer,
        InitProducerOk,
        Subscribe,
        SubscribeOk,
        Deliver,
        Credit,
        Unsubscribe,
        UnsubscribeOk,
        CommitCursor,
        CommitCursorOk,
        GetCursor,
        GetCursorOk,
        ListOffsets,
        ListOffsetsOk,
        Fetch,
        FetchOk,
        SubscriptionClosed,
        ListCursors,
        ListCursorsOk,
        DeleteCursor,
        DeleteCursorOk,
        CreateTopic,
        CreateTopicOk,
        DeleteTopic,
        DeleteTopicOk,
        DescribeTopic,
        DescribeTopicOk,
        ListTopics,
        ListTopicsOk,
        AlterTopic,
        AlterTopicOk,
    ]
}

#[test]
fn every_operation_has_one_number_and_one_name() {
    let numbers: BTreeSet<u16> = Op::ALL.iter().map(|op| op.number()).collect();
    let names: BTreeSet<&str> = Op::ALL.iter().map(|op| op.name()).collect();
    assert_eq!((numbers.len(), names.len()), (Op::ALL.len(), Op::ALL.len()));
    for op in Op::ALL {
        assert_eq!(Op::from_number(op.number()), Some(*op));
    }
    for number in [0, 2, 5, 7, 59, 127, 133, u16::MAX] {
        assert_eq!(Op::from_number(number), None, "{number}");
    }
}

#[test]
fn a_message_is_carried_by_the_operation_of_its_name() {
    let mut carried = BTreeSet::new();
    for (name, decode) in decoders() {
        let (op, taken) = decode(&[]);
        assert!(taken, "{name}: every field may be absent");
        assert_eq!(op.name(), name.strip_suffix("Ok").unwrap_or(name));
        carried.insert(op);
    }
    assert_eq!(carried, Op::ALL.iter().copied().collect(), "every operation has a message");
}

#[test]
fn fields_of_the_future_break_nobody() {
    // Field 1000, a varint; field 1001, eight bytes.
    let future = [0xc0, 0x3e, 0x05, 0xca, 0x3e, 0x02, b'h', b'i'];
    for (name, decode) in decoders() {
        assert!(decode(&future).1, "{name}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_message_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for (_, decode) in decoders() {
            decode(&bytes);
        }
        let _ = proto::Error::decode(&bytes[..]).map(crate::Error::from_proto);
    }
}
