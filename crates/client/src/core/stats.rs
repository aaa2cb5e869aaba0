//! Counters of one client, since it was made. They only grow, but for the gauges at the end.

/// What a client did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Connections that came as far as the broker's Hello.
    pub connections: u64,
    /// Established connections that were lost.
    pub disconnections: u64,
    /// Requests that were sent, attempts again included.
    pub requests: u64,
    /// Requests and batches that were sent again.
    pub retries: u64,
    /// Records whose batch was acknowledged (or, with ack none, handed to the connection).
    pub records_acknowledged: u64,
    /// Bytes of these batches.
    pub bytes_acknowledged: u64,
    /// Records that failed, known not to be applied.
    pub records_refused: u64,
    /// Records whose outcome stayed unknown.
    pub records_unknown: u64,
    /// Bytes of batches that were delivered to readers.
    pub bytes_delivered: u64,
    /// Subscriptions that were lost and asked for again.
    pub subscriptions_lost: u64,
    /// Answers that nobody waited for any more.
    pub late_answers: u64,
    /// Now: calls that wait for answers.
    pub calls_open: u64,
    /// Now: bytes of records that wait for answers, over all producers.
    pub bytes_buffered: u64,
}
