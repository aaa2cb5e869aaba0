//! Memory stays within bounds, whoever does not read and however much there is to recover.

use std::process::Stdio;

use lockgate_wire::proto;

use crate::support::raw::Raw;
use crate::support::{Scratch, begin_under, wait_until};

const MIB: u64 = 1024 * 1024;

/// Bounds that are small, so that what is above them shows.
const SETTINGS: &[(&str, &str)] = &[
    ("LOCKGATE_SHARDS_COUNT", "1"),
    ("LOCKGATE_JOURNAL_FILE_BYTES", "64MiB"),
    ("LOCKGATE_LIMITS_TAIL_BYTES_PER_SHARD", "16MiB"),
    ("LOCKGATE_LIMITS_PUBLISH_BYTES", "64MiB"),
    ("LOCKGATE_LIMITS_UNANSWERED_BYTES", "8MiB"),
];

/// The program itself, what is published and not yet answered, ends of logs, what is not yet in segments, and as much
/// again for what an allocator keeps.
const PEAK_BYTES_MAX: u64 = 512 * MIB;

fn produce(scratch: &Scratch, broker: &crate::support::Broker, mib: usize) {
    let line = format!("{}\n", "x".repeat(8191)).repeat(128);
    let input = scratch.file("input");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&input).unwrap());
    (0..mib).for_each(|_| std::io::Write::write_all(&mut file, line.as_bytes()).unwrap());
    drop(file);
    scratch.run(broker, &["produce", "t", "--file", "input", "--batch-bytes", "1000000"]);
    std::fs::remove_file(input).unwrap();
}

#[test]
fn readers_that_do_not_read_cost_a_bounded_amount_of_memory() {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    scratch.run(&broker, &["topic", "create", "t"]);
    let described = scratch.run(&broker, &["topic", "describe", "t", "--json"]);
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    let topic_id = described["topic_id"].as_u64().unwrap();
    let readers = 50;
    let start = proto::StartPosition { at: Some(proto::start_position::At::Offset(0)) };
    let mut slow: Vec<Raw> = (0..readers).map(|_| Raw::hello(&broker.client)).collect();
    for reader in &mut slow {
        let subscribe = proto::Subscribe {
            subscription_id: 1,
            topic_id,
            start: Some(start.clone()),
            credit_bytes: 1 << 40,
            ..proto::Subscribe::default()
        };
        let _: proto::SubscribeOk = reader.ask(&subscribe).unwrap();
    }
    produce(&scratch, &broker, 400);
    let unsent = broker.metric("lockgate_outgoing_bytes") as u64;
    assert!(unsent <= readers * 9 * MIB, "{unsent} bytes wait for {readers} readers");
    let peak = broker.peak_bytes();
    assert!(peak < PEAK_BYTES_MAX + readers * 9 * MIB, "{} MiB in use", peak / MIB);
    let mut fast = scratch.lockgate(&broker, &["consume", "t"]).stdout(Stdio::null()).spawn().unwrap();
    assert!(fast.wait().unwrap().success(), "a reader that reads is not held up");
    drop(slow);
    wait_until("what they held is free", || broker.metric("lockgate_outgoing_bytes") == 0.0);
}

#[test]
fn a_gibibyte_of_journal_is_recovered_in_bounded_memory() {
    let scratch = Scratch::new();
    let mut broker = scratch.broker_with(SETTINGS);
    scratch.run(&broker, &["topic", "create", "t"]);
    for _ in 0..4 {
        produce(&scratch, &broker, 256);
    }
    let peak = broker.peak_bytes();
    assert!(peak < PEAK_BYTES_MAX, "{} MiB in use while it was written", peak / MIB);
    broker.kill();
    let broker = broker.start_again(&scratch);
    let peak = broker.peak_bytes();
    println!("recovered with {} MiB at most", peak / MIB);
    assert!(peak < PEAK_BYTES_MAX, "{} MiB in use\n{}", peak / MIB, broker.log());
    let found = scratch.lockgate(&broker, &["consume", "t", "--from", "last:1"]).output().unwrap();
    assert_eq!(found.stdout.len(), 8192, "{}", broker.log());
}

#[test]
fn a_broker_that_gets_no_more_memory_than_its_bounds_ask_for_serves_and_recovers() {
    let scratch = Scratch::new();
    let limit = format!("--data={PEAK_BYTES_MAX}");
    let mut broker = begin_under(&scratch, &["prlimit", &limit], SETTINGS).wait_ready();
    scratch.run(&broker, &["topic", "create", "t"]);
    produce(&scratch, &broker, 300);
    broker.kill();
    let mut broker = broker.start_again(&scratch);
    let found = scratch.lockgate(&broker, &["consume", "t", "--from", "last:1"]).output().unwrap();
    assert_eq!(found.stdout.len(), 8192, "{}", broker.log());
    produce(&scratch, &broker, 100);
    assert_eq!(broker.ended(), None, "{}", broker.log());
}
