use super::*;
use crate::{Catalog, Command, NodeView};
use lockgate_wire::{LogIndex, Uid, WallMs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn brokers(nodes: impl IntoIterator<Item = u32>) -> ClusterView {
    let mut view = ClusterView::default();
    view.nodes = Arc::new(nodes.into_iter().map(|node| (NodeId(node), NodeView { registered: WallMs(0) })).collect());
    view
}

fn place_stream(view: &ClusterView, partitions: u32, replicas: u32) -> Result<Vec<Vec<NodeId>>, Error> {
    place(view, "default/default/orders", TopicKind::Stream, partitions, replicas)
}

#[test]
fn a_single_broker_takes_everything() {
    let mut catalog = Catalog::default();
    let init = Command::InitCluster { cluster_id: Uid([1; 16]), node: NodeId(1), time: WallMs(0) };
    catalog.apply(LogIndex(1), &init).unwrap();
    assert_eq!(place_stream(&catalog.view(), 3, 1), Ok(vec![vec![NodeId(1)]; 3]));
}

#[test]
fn more_replicas_than_brokers_are_refused_with_the_number_of_brokers() {
    for (live, replicas) in [(1, 2), (3, 4), (0, 1)] {
        let error = place_stream(&brokers(1..=live), 1, replicas).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotSupported);
        assert!(error.message.contains(&format!("{live} live broker")), "{error}");
    }
    assert!(place_stream(&brokers(1..=3), 1, 3).is_ok());
}

#[test]
fn kinds_that_are_not_served_yet_are_refused() {
    for kind in [TopicKind::Queue, TopicKind::Cache] {
        let error = place(&brokers([1]), "default/default/q", kind, 1, 1).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotSupported);
        assert!(error.message.contains("queues and caches are not served yet"), "{error}");
    }
}

#[test]
fn counts_outside_of_their_bounds_are_refused() {
    let view = brokers(1..=8);
    assert_eq!(place_stream(&view, 1024, 7).unwrap().len(), 1024);
    for (partitions, replicas, limit) in [(0, 1, 1024), (1025, 1, 1024), (1, 0, 7), (1, 8, 7)] {
        let error = place_stream(&view, partitions, replicas).unwrap_err();
        assert_eq!((error.kind, error.details.limit), (ErrorKind::InvalidRequest, Some(limit)));
    }
}

#[test]
fn a_score_never_changes() {
    assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    let leaders: Vec<u32> = place_stream(&brokers(1..=5), 12, 1).unwrap().iter().map(|nodes| nodes[0].0).collect();
    assert_eq!(leaders, [3, 1, 2, 1, 3, 1, 5, 4, 3, 5, 2, 5]);
}

#[test]
fn partitions_spread_evenly_over_brokers_and_never_twice_onto_one() {
    let view = brokers(1..=5);
    let placed = place_stream(&view, 1000, 3).unwrap();
    let mut held = BTreeMap::new();
    let mut led = BTreeMap::new();
    for nodes in &placed {
        assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 3);
        *led.entry(nodes[0]).or_insert(0) += 1;
        nodes.iter().for_each(|node| *held.entry(*node).or_insert(0) += 1);
    }
    // Of 1000 partitions a fifth is led by each and three fifths are held by each, give or take four deviations.
    assert!(led.values().all(|count| (150..=250).contains(count)), "{led:?}");
    assert!(held.values().all(|count| (540..=660).contains(count)), "{held:?}");
}

#[test]
fn topics_do_not_all_begin_at_the_same_broker() {
    let first = |topic: u32| place(&brokers(1..=4), &format!("t/n/{topic}"), TopicKind::Stream, 1, 1).unwrap()[0][0];
    assert_eq!((0..40).map(first).collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn a_broker_that_joins_takes_its_share_and_moves_nothing_else() {
    let before = place_stream(&brokers(1..=4), 500, 1).unwrap();
    let after = place_stream(&brokers(1..=5), 500, 1).unwrap();
    let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    assert!(moved.iter().all(|(_, after)| after[0] == NodeId(5)));
    assert!((60..=140).contains(&moved.len()), "{}", moved.len());
}
