use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::metrics::{METRICS, MetricKind, documentation};
use super::*;
use crate::status::{LoopMetrics, Published};

fn start(shards: u16) -> (Admin, Arc<NodeStatus>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::new(NodeStatus::new(shards));
    let admin = Admin::start(listener, status.clone(), None, |error| panic!("{error}")).unwrap();
    (admin, status, address)
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn probes_tell_a_nodes_life() {
    let (admin, status, address) = start(2);
    assert_eq!(get(address, "/v1/system/live"), (200, r#"{"live":true}"#.into()));
    assert_eq!(get(address, "/v1/system/starting"), (503, r#"{"starting":true,"shards":2,"recovered":0}"#.into()));
    status.shards[0].recovered.store(true, Ordering::Release);
    let ready = |code: u16, reasons: &[&str], impaired: &[&str]| {
        let (found, body) = get(address, "/v1/system/ready");
        assert_eq!(found, code);
        let expected = json!({ "ready": code == 200, "reasons": reasons, "impaired": impaired });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap(), expected);
    };
    ready(503, &["shard 0 opens its partitions", "shard 1 is recovering"], &[]);
    status.enter(Phase::Ready);
    ready(200, &[], &[]);
    // A path may have any character.
    let impairments = vec![r#"sync of "a\b" failed"#.to_owned()];
    status.shards[1].published.store(Arc::new(Published { impairments: impairments.clone(), ..Published::default() }));
    ready(200, &[], &[&impairments[0]]);
    assert_eq!(get(address, "/v1/system/starting").0, 200);
    status.enter(Phase::Draining);
    status.enter(Phase::Ready);
    ready(503, &["draining"], &[&impairments[0]]);
    assert_eq!(get(address, "/v1/system/live").0, 200);
    assert_eq!(get(address, "/nothing").0, 404);
    admin.stop();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn every_metric_of_the_table_is_shown_with_its_help_and_shards_are_summed() {
    let (admin, status, address) = start(2);
    for (shard, requests) in status.shards.iter().zip([3, 4]) {
        let mut published =
            Published { io: LoopMetrics { rounds: 10, ..LoopMetrics::default() }, ..Published::default() };
        published.engine.publish_requests = requests;
        published.engine.journal.writes = 1;
        published.engine.view_version = requests;
        shard.published.store(Arc::new(published));
        shard.synced_writes.record(Duration::from_micros(90));
    }
    let (code, text) = get(address, "/metrics");
    assert_eq!(code, 200);
    for metric in METRICS {
        let family = metric.name.strip_suffix("_total").unwrap_or(metric.name);
        assert!(text.contains(&format!("# HELP {family} {}\n", metric.help)), "{} has no help\n{text}", metric.name);
        let shown = text.lines().filter(|line| !line.starts_with('#') && line.starts_with(metric.name)).count();
        assert!(shown > 0, "{} is not shown", metric.name);
    }
    for line in [
        "lockgate_publish_requests_total 7",
        "lockgate_shard_rounds_total 20",
        "lockgate_view_version 3",
        "lockgate_journal_writes_total{journal=\"synced\"} 2",
        "lockgate_journal_writes_total{journal=\"buffered\"} 0",
        "lockgate_journal_synced_write_seconds_count 2",
        "lockgate_journal_synced_write_seconds_bucket{le=\"0.00005\"} 0",
        "lockgate_journal_synced_write_seconds_bucket{le=\"0.0001\"} 2",
        "lockgate_journal_synced_write_seconds_bucket{le=\"+Inf\"} 2",
        "lockgate_shards 2",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} is missing in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    admin.stop();
}

#[test]
fn names_follow_the_rules() {
    let mut seen = BTreeSet::new();
    for metric in METRICS {
        assert!(seen.insert(metric.name), "{} twice", metric.name);
        assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(metric.help.ends_with('.'), "{}", metric.name);
    }
    assert_eq!(documentation().lines().count(), METRICS.len() + 2);
}
