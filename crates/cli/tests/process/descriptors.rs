//! File descriptors run out: clients are turned away, files are not.

use std::net::TcpStream;

use crate::publisher::Publisher;
use crate::support::raw::Raw;
use crate::support::{Scratch, begin_under, wait_until};

const FEW: &[&str] = &["prlimit", "--nofile=256:256"];
const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1")];

#[test]
fn with_few_descriptors_connections_are_refused_and_those_that_are_there_are_served() {
    let scratch = Scratch::new();
    let broker = begin_under(&scratch, FEW, SETTINGS).wait_ready();
    let mut publisher = Publisher::new(&scratch, &broker);
    let others: Vec<TcpStream> = (0..400).filter_map(|_| TcpStream::connect(&broker.client).ok()).collect();
    wait_until("some are turned away", || broker.metric("lockgate_connections_refused_total") > 0.0);
    // The journal goes through several files meanwhile.
    publisher.publish_many(40, 900_000);
    publisher.fetch(0).unwrap();
    assert_eq!(broker.metric("lockgate_journal_poisoned"), 0.0, "{}", broker.log());
    drop(others);
    wait_until("there is room for others", || broker.metric("lockgate_connections") < 10.0);
    Raw::hello(&broker.client).assert_alive();
    publisher.check(&scratch, &broker);
}

#[test]
fn with_few_descriptors_more_partitions_than_descriptors_are_served_all_the_same() {
    let scratch = Scratch::new();
    let mut broker = begin_under(&scratch, FEW, SETTINGS).wait_ready();
    let input: String = (0..6_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(scratch.file("input"), &input).unwrap();
    scratch.run(&broker, &["topic", "create", "many", "--partitions", "600"]);
    for part in 0..3 {
        scratch.run(&broker, &["produce", "many", "--file", "input", "--batch-bytes", "64"]);
        let count = || scratch.run(&broker, &["consume", "many"]).lines().count();
        assert_eq!(count(), 6_000 * (part + 1), "{}", broker.log());
    }
    wait_until("everything is in segments", || broker.metric("lockgate_unflushed_bytes") == 0.0);
    assert_eq!(broker.metric("lockgate_file_failures_total"), 0.0, "{}", broker.log());
    assert_eq!(broker.metric("lockgate_journal_poisoned"), 0.0, "{}", broker.log());
    broker.kill();
    let broker = broker.start_again(&scratch);
    assert_eq!(scratch.run(&broker, &["consume", "many"]).lines().count(), 18_000, "{}", broker.log());
}
