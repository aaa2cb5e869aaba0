//! The body of every operation: what is decoded means the same when it is written and read again.

use bytes::Bytes;
use lockgate_wire::op::Body;
use lockgate_wire::{Error, proto};
use prost::Message;

fn decode<B: Body + PartialEq>(bytes: &Bytes) {
    if let Ok(body) = B::decode(bytes.clone()) {
        let again = B::decode(Bytes::from(body.encode_to_vec())).unwrap();
        assert!(body == again, "{:?} changes when it is written and read", B::OP);
    }
}

macro_rules! bodies {
    ($($body:ident),+ $(,)?) => {
        /// One function for each message.
        const BODIES: &[fn(&Bytes)] = &[$(decode::<proto::$body>),+];

        pub(crate) fn seeds() -> Vec<Vec<u8>> {
            // Names and numbers under the low tags, which every message uses for something.
            let fields = [8, 150, 1, 16, 2, 26, 3, b'a', b'/', b'b', 34, 2, 8, 1, 40, 255, 255, 3];
            let count = [$(stringify!($body)),+].len() as u8;
            (0..count).map(|body| [&[body], &fields[..]].concat()).collect()
        }
    };
}

bodies! {
    Hello, HelloOk, Ping, PingOk, GoingAway, Close, CloseOk, Topology, TopologyOk, Publish, PublishOk, InitProducer,
    InitProducerOk, Subscribe, SubscribeOk, Deliver, Credit, Unsubscribe, UnsubscribeOk, CommitCursor, CommitCursorOk,
    GetCursor, GetCursorOk, ListOffsets, ListOffsetsOk, Fetch, FetchOk, SubscriptionClosed, ListCursors, ListCursorsOk,
    DeleteCursor, DeleteCursorOk, CreateTopic, CreateTopicOk, DeleteTopic, DeleteTopicOk, DescribeTopic,
    DescribeTopicOk, ListTopics, ListTopicsOk, AlterTopic, AlterTopicOk,
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    BODIES[usize::from(*which) % BODIES.len()](&body);
    if let Ok(error) = proto::Error::decode(body) {
        // An error of a later build is told as well as possible.
        let error = Error::from_proto(error);
        assert!(!error.to_string().is_empty());
    }
}
