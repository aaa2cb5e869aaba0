//! `lockgate storage`: what it shows is what was written, it keeps out of a running server's way, and it changes nothing.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

mod support;

use std::fs;
use std::process::Output;

use lockgate_server::RealDisk;
use lockgate_storage::segment::{INDEX_INTERVAL_BYTES, Limit, SegmentConfig, Segments};
use rustix::process::Signal;
use serde_json::Value;
use support::{Broker, Scratch, shown, wait_until};

const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1")];
/// Small enough that some thousands of records fill several.
const SMALL_SEGMENTS: &str = "segment_bytes=1048576";

fn storage(scratch: &Scratch, arguments: &[&str]) -> Output {
    let mut command = scratch.command(&["storage", arguments[0], "--data-dir", "data"]);
    command.args(&arguments[1..]).envs(SETTINGS.iter().copied()).output().unwrap()
}

fn text(scratch: &Scratch, arguments: &[&str]) -> String {
    let output = storage(scratch, arguments);
    assert!(output.status.success(), "{}", shown(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn json(scratch: &Scratch, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(scratch, &[arguments, &["--json"]].concat())).unwrap()
}

/// A file for each line.
fn lines(scratch: &Scratch, path: &str) -> Vec<Value> {
    let text = text(scratch, &["inspect", "--json", path]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn fill(scratch: &Scratch, broker: &Broker, records: usize) {
    let input: String = (0..records).map(|n| format!("record {n} {}\n", "x".repeat(1000))).collect();
    fs::write(scratch.file("input"), input).unwrap();
    scratch.run(broker, &["produce", "t", "--file", "input", "--batch-bytes", "65536"]);
}

fn stop(mut broker: Broker) {
    broker.signal(Signal::TERM);
    wait_until("the broker has ended", || broker.ended().is_some());
}

/// A node with a topic of several sealed segments, stopped in order.
fn stopped(records: usize) -> Scratch {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    scratch.run(&broker, &["topic", "create", "t", "--set", SMALL_SEGMENTS]);
    fill(&scratch, &broker, records);
    stop(broker);
    seal(&scratch);
    scratch
}

/// Seals what a server seals half a minute after a segment has rolled over.
fn seal(scratch: &Scratch) {
    let disk = RealDisk::new(scratch.file("data"));
    let (directory, index_interval_bytes) = (partition(scratch).into(), INDEX_INTERVAL_BYTES);
    let config = SegmentConfig { directory, segment_bytes: 1 << 20, index_interval_bytes };
    let (mut segments, _) = Segments::open(&disk, config, Limit::None).unwrap();
    while let Some(ops) = segments.next_seal() {
        ops.iter().for_each(|op| drop(op.execute(&disk).unwrap()));
        segments.sealed(Ok(()));
    }
}

fn partition(scratch: &Scratch) -> String {
    let name = fs::read_dir(scratch.file("data/partitions")).unwrap().next().unwrap().unwrap().file_name();
    format!("partitions/{}", name.into_string().unwrap())
}

fn of_kind<'a>(files: &'a Value, kind: &str) -> Vec<&'a Value> {
    files.as_array().unwrap().iter().filter(|file| file["kind"] == kind).collect()
}

#[test]
fn inspect_shows_every_file_of_a_node_in_short() {
    let scratch = stopped(5_000);
    let files = json(&scratch, &["inspect"]);
    let logs = of_kind(&files, "log");
    assert!(logs.len() > 3, "{files}");
    let mut next = 0;
    for log in &logs {
        assert_eq!(log["content"]["first"]["base_offset"], next, "{log}");
        let last = &log["content"]["last"];
        next = last["base_offset"].as_u64().unwrap() + last["count"].as_u64().unwrap();
        assert_eq!(log["content"]["fault"], Value::Null);
    }
    assert_eq!(next, 5_000);
    let seals = of_kind(&files, "seal");
    assert_eq!(seals.len(), logs.len() - 1, "the newest takes more");
    assert_eq!(seals[0]["content"]["log_bytes"], logs[0]["bytes"]);
    assert_eq!(of_kind(&files, "start")[0]["content"]["offset"], 0);
    assert!(!of_kind(&files, "checkpoint").is_empty());
    let journal = &of_kind(&files, "journal")[0]["content"];
    assert_eq!((&journal["ended"], &journal["first_sequence"]), (&Value::Bool(true), &Value::from(1)));
    assert!(journal["records"]["entry"].as_u64().unwrap() > 70, "{journal}");
    assert!(journal["groups"].as_object().unwrap().len() >= 2, "the catalog and the partition: {journal}");

    let shown = text(&scratch, &["inspect"]);
    for words in ["shards/0/journal\n", "ended in order", "offsets 0-", "seal of ", "checkpoint of group"] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    assert!(!shown.contains("DAMAGED") && !shown.contains("FAULT"), "{shown}");
}

#[test]
fn inspect_shows_a_journal_file_write_by_write_without_a_gap() {
    let scratch = stopped(300);
    let files = json(&scratch, &["inspect", "shards/0/journal"]);
    let journal = of_kind(&files, "journal")[0];
    let items = lines(&scratch, journal["path"].as_str().unwrap());
    assert_eq!((&items[0]["what"], &items[0]["file"], &items[0]["start"]), (&"file".into(), &1.into(), &1.into()));
    let (mut offset, mut sequence) = (4096, 1);
    for item in &items[1..] {
        assert_eq!(item["offset"].as_u64().unwrap(), offset, "{item}");
        offset += item["bytes"].as_u64().unwrap();
        if item["what"] != "void" {
            assert_eq!(item["first_sequence"].as_u64().unwrap(), sequence, "{item}");
            sequence += item["count"].as_u64().unwrap();
            assert_eq!(item["fault"], Value::Null, "{item}");
        }
    }
    assert_eq!(offset, journal["bytes"].as_u64().unwrap());
    assert_eq!(sequence - 1, journal["content"]["last_sequence"].as_u64().unwrap());
    let what: Vec<&str> = items.iter().map(|item| item["what"].as_str().unwrap()).collect();
    assert_eq!(&what[what.len() - 2..], ["end", "void"], "{what:?}");
}

#[test]
fn inspect_shows_frames_seals_and_checkpoints_of_a_partition() {
    let scratch = stopped(3_000);
    let directory = partition(&scratch);
    let files = json(&scratch, &["inspect", &directory]);
    let path = |kind: &str| of_kind(&files, kind)[0]["path"].as_str().unwrap().to_owned();
    let frames = lines(&scratch, &path("log"));
    assert_eq!(frames.len() as u64, of_kind(&files, "log")[0]["content"]["frames"].as_u64().unwrap());
    assert_eq!((&frames[0]["position"], &frames[0]["base_offset"]), (&0.into(), &0.into()));
    let seal = &lines(&scratch, &path("seal"))[0]["content"];
    let positions: Vec<&Value> = frames.iter().map(|frame| &frame["position"]).collect();
    let marks = seal["marks"].as_array().unwrap();
    assert!(!marks.is_empty() && marks.iter().all(|mark| positions.contains(&&mark["position"])), "{seal}");
    assert!(lines(&scratch, &path("checkpoint"))[0]["content"]["index"].as_u64().unwrap() > 0);
    assert!(text(&scratch, &["inspect", &path("start")]).contains("the log begins at offset 0"));
}

#[test]
fn what_is_not_there_is_named() {
    let scratch = stopped(1);
    let output = storage(&scratch, &["inspect", "shards/9/journal"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("shards/9/journal"), "{}", shown(&output));
    let output = storage(&scratch, &["inspect", "../secret"]);
    assert_eq!(output.status.code(), Some(1), "outside of the data directory: {}", shown(&output));
    fs::rename(scratch.file("data"), scratch.file("moved")).unwrap();
    let output = storage(&scratch, &["verify"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!scratch.file("data").exists(), "nothing is made");
}

#[test]
fn both_refuse_while_a_server_runs_unless_forced_and_then_only_read() {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    scratch.run(&broker, &["topic", "create", "t"]);
    fill(&scratch, &broker, 10);
    for command in ["inspect", "verify"] {
        let output = storage(&scratch, &[command]);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(&format!("in use by process {}", broker.pid())), "{error}");
        assert!(output.stdout.is_empty(), "{}", shown(&output));
        let output = storage(&scratch, &[command, "--force-read"]);
        assert!(!output.stdout.is_empty(), "{}", shown(&output));
    }
    fill(&scratch, &broker, 10);
    assert_eq!(scratch.run(&broker, &["consume", "t"]).lines().count(), 20);
    stop(broker);
}

#[test]
fn repair_refuses_while_a_server_runs() {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    for arguments in [&["repair"][..], &["repair", "--yes"]] {
        let output = storage(&scratch, arguments);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(&format!("in use by process {}", broker.pid())), "{error}");
    }
    stop(broker);
    let output = text(&scratch, &["repair"]);
    assert!(output.contains("no journal has lost anything"), "{output}");
}

#[test]
fn verify_finds_nothing_wrong_after_a_stop_nor_after_a_kill() {
    let scratch = stopped(3_000);
    let report = json(&scratch, &["verify"]);
    assert_eq!(report["shards"][0]["ended_cleanly"], true, "{report}");
    assert_eq!((&report["next_start"], &report["node"]), (&2.into(), &1.into()));
    let mut broker = scratch.broker_with(SETTINGS);
    fill(&scratch, &broker, 1_000);
    broker.kill();
    let report = json(&scratch, &["verify"]);
    assert_eq!(report["shards"][0]["starts"], true, "{report}");
    assert_eq!((&report["shards"][0]["refused"], &report["damage"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}

#[test]
fn verify_reads_what_a_start_trusts_and_finds_a_turned_bit_in_a_sealed_segment() {
    let scratch = stopped(3_000);
    let files = json(&scratch, &["inspect", &partition(&scratch)]);
    let path = of_kind(&files, "log")[0]["path"].as_str().unwrap().to_owned();
    let file = scratch.file("data").join(&path);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let output = storage(&scratch, &["verify"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains(&format!("DAMAGED: {path} is sealed, and damaged at byte ")), "{report}");
}

#[test]
fn verify_tells_a_checkpoint_that_is_not_used() {
    let scratch = stopped(3_000);
    let files = json(&scratch, &["inspect", &partition(&scratch)]);
    let path = of_kind(&files, "checkpoint").last().unwrap()["path"].as_str().unwrap().to_owned();
    let file = scratch.file("data").join(&path);
    let mut bytes = fs::read(&file).unwrap();
    bytes[70] ^= 1;
    fs::write(&file, bytes).unwrap();
    let output = storage(&scratch, &["verify"]);
    assert!(output.status.success(), "an older one and the journal stand in: {}", shown(&output));
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains(&format!("{path} is not used: ")), "{report}");
}
