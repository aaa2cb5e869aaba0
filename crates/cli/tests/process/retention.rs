//! Retention while the log grows as fast as it can: it keeps up, and readers find all that is left.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::support::{Scratch, wait_until};

const MIB: u64 = 1024 * 1024;
const KEPT_BYTES: u64 = 8 * MIB;
const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1")];
const TOPIC: &[&str] = &["--set", "segment_bytes=1MiB", "--set", "retention_bytes=8MiB"];
const LINES: usize = 20_000;

fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    // A segment may go while it is looked at.
    entries.map(|path| if path.is_dir() { bytes_below(&path) } else { fs::metadata(path).map_or(0, |f| f.len()) }).sum()
}

#[test]
fn retention_keeps_up_with_a_log_that_grows_as_fast_as_it_can() {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    scratch.run(&broker, &[&["topic", "create", "t"], TOPIC].concat());
    let mut input = BufWriter::new(File::create(scratch.file("input")).unwrap());
    (0..LINES).for_each(|n| writeln!(input, "{n}:{}", "x".repeat(8_000)).unwrap());
    drop(input);
    scratch.run(&broker, &["produce", "t", "--file", "input", "--batch-bytes", "1000000"]);
    let kept = || bytes_below(&scratch.file("data/partitions"));
    // Whole segments go, so there may be one more, and the one that is written.
    wait_until("what is kept is what was asked for", || kept() <= KEPT_BYTES + 3 * MIB);
    let found = scratch.run(&broker, &["consume", "t"]);
    let numbers: Vec<usize> = found.lines().map(|line| line.split_once(':').unwrap().0.parse().unwrap()).collect();
    assert!(numbers.len() as u64 * 8_000 >= KEPT_BYTES / 2, "{} lines are left", numbers.len());
    let first = LINES - numbers.len();
    assert_eq!(numbers, (first..LINES).collect::<Vec<_>>(), "the end of the log, all of it");
    assert_eq!(broker.metric("lockgate_publish_refused_total"), 0.0, "{}", broker.log());
}
