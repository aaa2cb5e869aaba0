//! Keys of what the core tracks. Each counts up and is never reused in a client's life.

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u64);
    };
}

key!(
    /// One attempt at a connection, from its dial to its end.
    LinkId
);
key!(
    /// A call that waits for its answer. It is the request id of all its attempts.
    CallId
);
key!(
    /// An open producer.
    ProducerKey
);
key!(
    /// A batch of a producer: what its records' deliveries wait for.
    BatchId
);
key!(
    /// A flush that waits.
    FlushId
);
key!(
    /// An open reader.
    ReaderKey
);
