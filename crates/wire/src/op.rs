//! The operations: their numbers on the wire, and which message belongs to which.

use crate::proto;

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal),+ $(,)?) => {
        /// What a frame asks for or answers. The number is the wire's.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $name = $number),+ }

        impl Op {
            /// Every operation, in the order of the numbers.
            pub const ALL: &'static [Op] = &[$(Op::$name),+];

            /// The operation with this number, if there is one.
            pub fn from_number(number: u16) -> Option<Op> {
                match number { $($number => Some(Op::$name),)+ _ => None }
            }
            /// The operation's name, for logs and metrics.
            pub fn name(self) -> &'static str {
                match self { $(Op::$name => stringify!($name)),+ }
            }
            /// The number on the wire.
            pub fn number(self) -> u16 {
                self as u16
            }
        }
    };
}

ops! {
    /// Opens a connection.
    Hello = 1,
    /// Asks for life, any answer is life.
    Ping = 3,
    /// Push: the broker will stop.
    GoingAway = 4,
    /// Orderly end.
    Close = 6,
    /// Brokers and partitions.
    Topology = 16,
    /// One batch to one partition.
    Publish = 32,
    /// A producer id and epoch.
    InitProducer = 33,
    /// Starts a reader on a partition.
    Subscribe = 48,
    /// Push: batches of a subscription.
    Deliver = 49,
    /// More bytes that a reader can take; never answered.
    Credit = 50,
    /// Ends a subscription.
    Unsubscribe = 51,
    /// Stores a named position.
    CommitCursor = 52,
    /// Reads a named position.
    GetCursor = 53,
    /// First and last offsets, or the offset of a time.
    ListOffsets = 54,
    /// One read of a range.
    Fetch = 55,
    /// Push: a subscription ended.
    SubscriptionClosed = 56,
    /// The named positions of a partition.
    ListCursors = 57,
    /// Removes a named position.
    DeleteCursor = 58,
    /// Makes a topic.
    CreateTopic = 128,
    /// Removes a topic and its data.
    DeleteTopic = 129,
    /// A topic's settings and partitions.
    DescribeTopic = 130,
    /// The topics.
    ListTopics = 131,
    /// Changes a topic's settings.
    AlterTopic = 132,
}

/// Ties a message to its operation, so that a body can only be sent under the number it belongs to.
pub trait Body: prost::Message + Default {
    /// The operation whose frames carry this message.
    const OP: Op;
}

macro_rules! bodies {
    ($($op:ident: $($message:ident),+);+ $(;)?) => { $($(impl Body for proto::$message { const OP: Op = Op::$op; })+)+ };
}

bodies! {
    Hello: Hello, HelloOk;
    Ping: Ping, PingOk;
    GoingAway: GoingAway;
    Close: Close, CloseOk;
    Topology: Topology, TopologyOk;
    Publish: Publish, PublishOk;
    InitProducer: InitProducer, InitProducerOk;
    Subscribe: Subscribe, SubscribeOk;
    Deliver: Deliver;
    Credit: Credit;
    Unsubscribe: Unsubscribe, UnsubscribeOk;
    CommitCursor: CommitCursor, CommitCursorOk;
    GetCursor: GetCursor, GetCursorOk;
    ListOffsets: ListOffsets, ListOffsetsOk;
    Fetch: Fetch, FetchOk;
    SubscriptionClosed: SubscriptionClosed;
    ListCursors: ListCursors, ListCursorsOk;
    DeleteCursor: DeleteCursor, DeleteCursorOk;
    CreateTopic: CreateTopic, CreateTopicOk;
    DeleteTopic: DeleteTopic, DeleteTopicOk;
    DescribeTopic: DescribeTopic, DescribeTopicOk;
    ListTopics: ListTopics, ListTopicsOk;
    AlterTopic: AlterTopic, AlterTopicOk;
}

#[cfg(test)]
mod tests;
