//! What the node holds stays within its named limits at every step, and is nothing once there is nothing to do.

use lockgate_engine::{NodeConfig, ShardMetrics};

use super::Verdict;

/// The invariant's name.
pub const NAME: &str = "bounds_hold";

/// Compares a shard's gauges with its limits.
pub fn check(metrics: &ShardMetrics, node: &NodeConfig) -> Verdict {
    let limits = &node.limits;
    let (frame, others) = (u64::from(limits.max_frame_bytes), u64::from(node.shards - 1));
    // A connection that is gone may have requests under way.
    let users = metrics.connections_opened;
    let bounds = [
        ("connections", metrics.connections, u64::from(limits.connections_per_shard)),
        ("unanswered requests", metrics.unanswered_requests, users * u64::from(limits.unanswered_requests)),
        ("charged bytes", metrics.charged_bytes, users * (limits.unanswered_bytes + frame)),
        ("publish bytes in flight", metrics.publish_in_flight_bytes, limits.publish_bytes_per_shard + frame),
        ("mesh requests", metrics.mesh_requests, others * u64::from(limits.mesh_requests)),
        ("parked requests", metrics.mesh_parked, metrics.connections),
        ("internal errors", metrics.internal_errors, 0),
        ("misrouted mesh frames", metrics.mesh_misrouted, 0),
    ];
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
    use super::*;

    #[test]
    fn what_is_left_when_there_is_nothing_to_do_is_found() {
        assert_eq!(check_drained(&ShardMetrics::default()), Ok(()));
        assert!(check_drained(&ShardMetrics { outgoing_bytes: 1, ..ShardMetrics::default() }).is_err());
        assert!(check_drained(&ShardMetrics { mesh_requests: 1, ..ShardMetrics::default() }).is_err());
    }
}
