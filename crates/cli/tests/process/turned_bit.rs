//! A bit that turns on the device is found: nobody ever reads what was not published.

use std::fs;
use std::os::unix::fs::FileExt;

use lockgate_wire::ErrorKind;
use rustix::process::Signal;

use crate::publisher::Publisher;
use crate::support::{Scratch, wait_until};

const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1"), ("LOCKGATE_LIMITS_TAIL_BYTES_PER_SHARD", "1MiB")];

const SCRUB: &[(&str, &str)] = &[
    ("LOCKGATE_SHARDS_COUNT", "1"),
    ("LOCKGATE_SCRUB_BYTES_PER_SECOND", "64MiB"),
    ("LOCKGATE_SCRUB_EVERY", "1s"),
    // Batches of this size are durable in their segment at once, which is sealed without a pause then.
    ("LOCKGATE_JOURNAL_EXTERNAL_MIN_BYTES", "64KiB"),
];

#[test]
fn a_scrub_finds_a_turned_bit_that_nobody_reads() {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SCRUB);
    let mut publisher = Publisher::with(&scratch, &broker, &["--set", "segment_bytes=1MiB"]);
    publisher.publish_many(40, 100_000);
    let partition = fs::read_dir(scratch.file("data/partitions")).unwrap().next().unwrap().unwrap().path();
    let log = partition.join(format!("{:020}.log", 0));
    wait_until("the first segment is sealed", || log.with_extension("index").exists());
    let bytes = fs::read(&log).unwrap();
    assert_eq!(broker.metric("lockgate_scrub_damaged_places"), 0.0, "{}", broker.log());
    let turned = 300_000;
    fs::OpenOptions::new().write(true).open(&log).unwrap().write_all_at(&[bytes[turned] ^ 4], turned as u64).unwrap();

    wait_until("a metric counts it", || broker.metric("lockgate_scrub_damaged_places") == 1.0);
    wait_until("ready names it", || broker.get("/v1/system/ready").1.contains("are damaged (places: 1)"));
    assert_eq!(broker.log().matches("is damaged at byte").count(), 1, "told once: {}", broker.log());
    // Others go on, and so does the scrub.
    publisher.publish(1000).unwrap();
    assert_eq!(publisher.fetch(39).unwrap()[0], publisher.acknowledged[39]);
}

#[test]
fn a_turned_bit_in_a_segment_is_never_served() {
    let scratch = Scratch::new();
    let mut broker = scratch.broker_with(SETTINGS);
    let mut publisher = Publisher::new(&scratch, &broker);
    publisher.publish_many(100, 100_000);
    wait_until("everything is in segments", || broker.metric("lockgate_unflushed_bytes") == 0.0);
    let partition = fs::read_dir(scratch.file("data/partitions")).unwrap().next().unwrap().unwrap().path();
    let log = partition.join(format!("{:020}.log", 0));
    let mut bytes = fs::read(&log).unwrap();
    let turned = 20 * 100_000 + 777;
    bytes[turned] ^= 4;
    fs::write(&log, &bytes).unwrap();

    let mut offset = 0;
    let refusal = loop {
        match publisher.fetch(offset) {
            Ok(values) => {
                assert!(!values.is_empty() && offset + values.len() as u64 <= 20, "read beyond the damage at {offset}");
                for value in values {
                    assert!(value == publisher.acknowledged[offset as usize], "offset {offset} is something else");
                    offset += 1;
                }
            }
            Err(refusal) => break refusal,
        }
    };
    assert!(offset >= 18, "what is whole is served: {offset}");
    assert_eq!(refusal.kind, ErrorKind::LogDamaged);
    assert!(refusal.message.contains("is damaged at byte"), "{refusal}");
    assert!(broker.log().contains("is damaged at byte"), "{}", broker.log());
    let output = scratch.lockgate(&broker, &["consume", "t"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is damaged at byte"));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count() as u64, offset, "all that is whole, no more");
    // Others go on, and so do publishes and the reading of what is whole.
    publisher.publish(1000).unwrap();
    assert_eq!(publisher.fetch(99).unwrap()[0], publisher.acknowledged[99]);
    assert_eq!(broker.ended(), None);
    broker.signal(Signal::TERM);
    wait_until("the broker has ended", || broker.ended().is_some());
}
