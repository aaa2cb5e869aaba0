//! What the node holds stays within its named limits at every step, connection by connection, and is nothing once there is
//! nothing to do.

use std::collections::BTreeMap;

use lockgate_engine::limits::DELIVER_BELOW_BYTES;
use lockgate_engine::{ConnectionUse, NodeConfig, ShardMetrics};
use lockgate_wire::ConnectionId;

use super::Verdict;

/// The invariant's name.
pub const NAME: &str = "bounds_hold";
/// The largest frame that a broker pushes by itself, besides deliveries.
const NOTICE_BYTES: u64 = 4 << 10;

/// What connections that are gone left behind in one shard, from look to look.
#[derive(Default, Debug)]
pub struct Gone {
    /// Those that were there at the last look, with their unanswered requests and charged bytes.
    before: BTreeMap<ConnectionId, (u64, u64)>,
    /// What those that went since have left at most.
    left: (u64, u64),
}

impl Gone {
    /// Moves on to the connections of now. A connection that goes leaves no more than it may have had.
    fn follow(&mut self, now: &[ConnectionUse], most: (u64, u64)) {
        let living: BTreeMap<_, _> =
            now.iter().map(|c| (c.connection, (u64::from(c.unanswered_requests), c.charged_bytes))).collect();
        for _ in self.before.keys().filter(|id| !living.contains_key(id)) {
            self.left = (self.left.0 + most.0, self.left.1 + most.1);
        }
        self.before = living;
    }
}

/// Compares what a shard holds with its limits.
pub fn check(metrics: &ShardMetrics, connections: &[ConnectionUse], gone: &mut Gone, node: &NodeConfig) -> Verdict {
    let limits = &node.limits;
    let (frame, others) = (u64::from(limits.max_frame_bytes), u64::from(node.shards - 1));
    let requests_max = u64::from(limits.unanswered_requests);
    // The last request is taken while there is room for any.
    let charged_max = limits.unanswered_bytes + frame;
    connections.iter().try_for_each(|connection| check_connection(connection, node, requests_max, charged_max))?;
    gone.follow(connections, (requests_max, charged_max));
    let sum = |of: fn(&ConnectionUse) -> u64| connections.iter().map(of).sum::<u64>();
    let requests = metrics.unanswered_requests.checked_sub(sum(|c| c.unanswered_requests.into()));
    let charged = metrics.charged_bytes.checked_sub(sum(|c| c.charged_bytes));
    let (Some(requests), Some(charged)) = (requests, charged) else {
        return Err("connections hold more than their shard counts".into());
    };
    // Each connection's first publish is taken before it counts among those that publish, and so is the one that fills up.
    let publish_max = limits.publish_bytes_per_shard + (connections.len() as u64 + 1) * frame.min(batch_max(node));
    let bounds = [
        ("connections", metrics.connections, u64::from(limits.connections_per_shard)),
        ("requests of connections that are gone", requests, gone.left.0),
        ("charged bytes of connections that are gone", charged, gone.left.1),
        ("publish bytes in flight", metrics.publish_in_flight_bytes, publish_max),
        ("outgoing bytes", metrics.outgoing_bytes, sum(|c| c.outgoing_bytes)),
        ("mesh requests", metrics.mesh_requests, others * u64::from(limits.mesh_requests)),
        ("parked requests", metrics.mesh_parked, metrics.connections),
        ("internal errors", metrics.internal_errors, 0),
        ("misrouted mesh frames", metrics.mesh_misrouted, 0),
    ];
    gone.left = (gone.left.0.min(requests), gone.left.1.min(charged));
    within(&bounds)
}

/// A batch has to fit a write of the journal.
fn batch_max(node: &NodeConfig) -> u64 {
    node.journal.max_write_bytes.into()
}

fn check_connection(connection: &ConnectionUse, node: &NodeConfig, requests_max: u64, charged_max: u64) -> Verdict {
    let limits = &node.limits;
    // Beyond what is held up above some size: a delivery of each subscription, and what was charged and is answered.
    let delivery = u64::from(limits.delivery_bytes).max(batch_max(node)) + NOTICE_BYTES;
    let outgoing_max = DELIVER_BELOW_BYTES as u64 + (connection.subscriptions + 1) * delivery + charged_max;
    within(&[
        ("subscriptions", connection.subscriptions, limits.subscriptions_per_session.into()),
        ("unanswered requests", connection.unanswered_requests.into(), requests_max),
        ("charged bytes", connection.charged_bytes, charged_max),
        ("outgoing bytes", connection.outgoing_bytes, outgoing_max),
    ])
    .map_err(|text| format!("connection {}: {text}", connection.connection))
}

fn within(bounds: &[(&str, u64, u64)]) -> Verdict {
    match bounds.iter().find(|(_, value, limit)| value > limit) {
        Some((name, value, limit)) => Err(format!("{name}: {value}, at most {limit}")),
        None => Ok(()),
    }
}

/// Looks for what a shard still holds when everything was answered and delivered.
pub fn check_drained(metrics: &ShardMetrics) -> Verdict {
    let gauges = [
        ("publish bytes in flight", metrics.publish_in_flight_bytes),
        ("unanswered requests", metrics.unanswered_requests),
        ("charged bytes", metrics.charged_bytes),
        ("outgoing bytes", metrics.outgoing_bytes),
        ("mesh requests", metrics.mesh_requests),
        ("parked requests", metrics.mesh_parked),
        ("paused connections", metrics.connections_paused),
    ];
    match gauges.iter().find(|(_, value)| *value > 0) {
        Some((name, value)) => Err(format!("{name}: {value} are left")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use lockgate_engine::{JournalSettings, Limits, ScrubSettings};
    use lockgate_wire::{NodeId, Uid};

    use super::*;

    fn node() -> NodeConfig {
        let limits =
            Limits { unanswered_requests: 5, unanswered_bytes: 1_000, max_frame_bytes: 100, ..Limits::default() };
        NodeConfig {
            node: NodeId(1),
            cluster: Uid([7; 16]),
            shards: 2,
            journals: 0,
            incarnation: 1,
            journal: JournalSettings {
                file_bytes: 4 << 20,
                max_write_bytes: 2 << 20,
                max_bytes: 64 << 20,
                ..Default::default()
            },
            scrub: ScrubSettings::default(),
            limits,
            advertise: Vec::new(),
            version: "test".into(),
        }
    }

    fn uses(connection: u64, unanswered_requests: u32, charged_bytes: u64) -> ConnectionUse {
        let connection = ConnectionId(connection);
        ConnectionUse { connection, unanswered_requests, charged_bytes, outgoing_bytes: 0, subscriptions: 0 }
    }

    fn metrics(unanswered_requests: u64, charged_bytes: u64) -> ShardMetrics {
        ShardMetrics { unanswered_requests, charged_bytes, ..ShardMetrics::default() }
    }

    #[test]
    fn a_connection_at_its_bounds_is_fine_and_one_beyond_any_of_them_is_found() {
        let look = |connection: ConnectionUse| {
            let sums = metrics(connection.unanswered_requests.into(), connection.charged_bytes);
            check(&sums, &[connection], &mut Gone::default(), &node())
        };
        assert_eq!(look(uses(1, 5, 1_100)), Ok(()));
        assert!(look(uses(1, 6, 0)).is_err());
        assert!(look(uses(1, 1, 1_101)).is_err());
        assert!(look(ConnectionUse { outgoing_bytes: 1 << 30, ..uses(1, 0, 0) }).is_err());
        assert!(look(ConnectionUse { subscriptions: 1_001, ..uses(1, 0, 0) }).is_err());
    }

    #[test]
    fn connections_that_are_gone_leave_no_more_than_they_may_have_had() {
        let mut gone = Gone::default();
        assert_eq!(check(&metrics(4, 300), &[uses(1, 4, 300)], &mut gone, &node()), Ok(()));
        assert_eq!(check(&metrics(5, 1_100), &[], &mut gone, &node()), Ok(()), "it got more before it went");
        assert_eq!(check(&metrics(2, 200), &[], &mut gone, &node()), Ok(()));
        assert!(check(&metrics(3, 200), &[], &mut gone, &node()).is_err(), "those that are gone ask for nothing more");
        assert!(check(&metrics(0, 1), &[], &mut Gone::default(), &node()).is_err());
        assert!(check(&metrics(0, 0), &[uses(1, 1, 0)], &mut Gone::default(), &node()).is_err());
    }

    #[test]
    fn a_shard_beyond_a_bound_is_found() {
        let look = |metrics: ShardMetrics| check(&metrics, &[], &mut Gone::default(), &node());
        let fine = ShardMetrics { mesh_requests: 1_024, connections: 10_000, ..ShardMetrics::default() };
        assert_eq!(look(fine), Ok(()));
        assert!(look(ShardMetrics { mesh_requests: 1_025, ..ShardMetrics::default() }).is_err());
        assert!(look(ShardMetrics { connections: 10_001, ..ShardMetrics::default() }).is_err());
        assert!(look(ShardMetrics { publish_in_flight_bytes: (512 << 20) + 101, ..ShardMetrics::default() }).is_err());
        assert!(look(ShardMetrics { mesh_parked: 1, ..ShardMetrics::default() }).is_err());
        assert!(look(ShardMetrics { outgoing_bytes: 1, ..ShardMetrics::default() }).is_err());
        assert!(look(ShardMetrics { internal_errors: 1, ..ShardMetrics::default() }).is_err());
        assert!(look(ShardMetrics { mesh_misrouted: 1, ..ShardMetrics::default() }).is_err());
    }

    #[test]
    fn what_is_left_when_there_is_nothing_to_do_is_found() {
        assert_eq!(check_drained(&ShardMetrics::default()), Ok(()));
        assert!(check_drained(&ShardMetrics { outgoing_bytes: 1, ..ShardMetrics::default() }).is_err());
        assert!(check_drained(&ShardMetrics { mesh_requests: 1, ..ShardMetrics::default() }).is_err());
    }
}
