//! The benchmarks run and print what programs expect of them. What they measure is nobody's test.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{Scratch, shown, wait_until};

fn bench(scratch: &Scratch, broker: &support::Broker, arguments: &[&str]) -> Value {
    let mut all = vec!["bench"];
    all.extend(arguments);
    all.push("--json");
    serde_json::from_str(&scratch.run(broker, &all)).unwrap()
}

#[test]
fn every_benchmark_prints_what_it_was_asked_and_what_it_found() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    let common = ["--seconds", "1", "--warmup", "0", "--size", "100", "--producers", "2", "--partitions", "3"];
    let loads: [(&str, &[&str]); 6] = [
        ("produce", &[]),
        ("produce", &["--idempotent", "off", "--in-flight", "64", "--fsync", "interval:50"]),
        ("produce", &["--ack", "leader", "--batch-records", "10", "--rate", "2000"]),
        ("produce", &["--ack", "none"]),
        ("consume", &["--records", "5000"]),
        ("e2e", &["--batch-records", "10"]),
    ];
    for (name, options) in loads {
        let found = bench(&scratch, &broker, &[&[name], &common[..], options].concat());
        assert!(found["records"].as_u64().unwrap() > 0, "{found}");
        for rate in ["records_per_second", "bytes_per_second"] {
            assert!(found[rate].as_f64().unwrap() > 0.0, "{found}");
        }
        let latency = |name: &str| found["latency_us"][name].as_u64().unwrap();
        assert!(latency("p50") <= latency("p99") && latency("p99") <= latency("p999"), "{found}");
        assert!(latency("p999") <= latency("max"), "{found}");
        assert_eq!((&found["errors"], &found["asked"]["size"]), (&Value::from(0), &Value::from(100)), "{found}");
    }
    assert_eq!(scratch.run(&broker, &["topic", "list", "--json"]), "[]\n", "what they made they removed");
}

#[test]
fn a_number_of_records_is_published_exactly_and_a_topic_that_was_there_stays() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "mine"]);
    let load = ["produce", "--topic", "mine", "--records", "1000", "--warmup", "0", "--size", "10", "--in-flight", "7"];
    let found = bench(&scratch, &broker, &load);
    assert_eq!(found["records"], 1000);
    let described: Value =
        serde_json::from_str(&scratch.run(&broker, &["topic", "describe", "mine", "--json"])).unwrap();
    assert_eq!(described["partitions"][0]["high_watermark"], 1000);
}

#[test]
fn errors_are_counted_and_end_a_benchmark() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "small", "--set", "max_batch_bytes=1KiB"]);
    let load = ["bench", "produce", "--topic", "small", "--size", "2000", "--idempotent", "off", "--json"];
    let output = scratch.lockgate(&broker, &load).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["records"], 0);
    assert!(found["errors"].as_u64().unwrap() >= 100, "{found}");
}

#[test]
fn the_machines_limits_are_measured_without_a_broker() {
    let scratch = Scratch::new();
    let limits = ["bench", "limits", "--seconds", "1", "--size", "5000", "--directory", ".", "--json"];
    let output = scratch.command(&limits).output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["append_and_sync", "tcp_sink"] {
        assert!(found["loops"][name]["bytes_per_second"].as_f64().unwrap() > 0.0, "{found}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn an_interrupted_benchmark_tells_what_it_has_and_leaves_nothing_behind() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.file("tmp")).unwrap();
    let load = ["bench", "produce", "--own", "--seconds", "3600", "--warmup", "0", "--json"];
    let mut command = scratch.command(&load);
    command.env("TMPDIR", "tmp").env("LOCKGATE_JOURNAL_FILE_BYTES", "8MiB");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let journals = || walk(&scratch.file("tmp")).iter().any(|path| path.to_string_lossy().contains("partitions/"));
    wait_until("records are written", journals);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["errors"], 0, "{found}");
    assert_eq!(walk(&scratch.file("tmp")), Vec::<PathBuf>::new());
}

/// All files below a directory; what vanishes meanwhile is not there.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}
