//! Starts and stops, and what the command line says when something is in the way.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{Scratch, bound, shown, wait_until};

fn error_of(output: &Output) -> String {
    assert!(output.stdout.is_empty(), "{}", shown(output));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_server_says_where_it_is_and_answers_probes() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    assert!(broker.ready.contains(&broker.client) && broker.ready.contains("data data"), "{}", broker.ready);
    assert_eq!(broker.get("/v1/system/live").0, 200);
    assert_eq!(broker.get("/v1/system/ready"), (200, r#"{"impaired":[],"ready":true,"reasons":[]}"#.into()));
    assert_eq!(broker.get("/v1/system/starting").0, 200);
    assert_eq!(broker.metric("lockgate_shards_ready"), broker.metric("lockgate_shards"));
    assert_eq!(broker.get("/nowhere").0, 404);
}

#[test]
fn sigterm_under_load_ends_with_0_in_time_and_loses_nothing_acknowledged() {
    let scratch = Scratch::new();
    let mut broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t", "--partitions", "3"]);
    let mut producer = scratch
        .lockgate(&broker, &["produce", "t", "--json", "--acks", "acks", "--timeout", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = producer.stdin.take().unwrap();
    // Ends when the producer does not take any more.
    let feeder = std::thread::spawn(move || (1_u64..).find(|n| writeln!(input, "line {n}").is_err()));
    let acks = || std::fs::read_to_string(scratch.file("acks")).unwrap_or_default();
    wait_until("lines are acknowledged", || acks().lines().count() > 1_000);

    let asked = Instant::now();
    broker.signal(Signal::TERM);
    let mut status = None;
    wait_until("the broker ends", || {
        status = broker.ended();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0), "{}", broker.log());
    assert!(asked.elapsed() < bound(12), "it took {:?}", asked.elapsed());
    let output = producer.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 3)), "{}", shown(&output));

    let broker = broker.start_again(&scratch);
    assert!(broker.log().contains("ended_cleanly=true"), "{}", broker.log());
    let partitions: Vec<Vec<String>> = (0..3)
        .map(|p| {
            scratch.run(&broker, &["consume", "t", "--partition", &p.to_string()]).lines().map(str::to_owned).collect()
        })
        .collect();
    let mut count = 0;
    for ack in acks().lines() {
        let numbers: Vec<usize> = ack.split(' ').map(|number| number.parse().unwrap()).collect();
        assert_eq!(partitions[numbers[1]][numbers[2]], format!("line {}", numbers[0]));
        count += 1;
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["acknowledged"], count, "the report and the file agree");
    // Nothing is left of the drain.
    assert_eq!(broker.get("/v1/system/ready").0, 200);
    std::fs::write(scratch.file("more"), "more\n").unwrap();
    scratch.run(&broker, &["produce", "t", "--file", "more"]);
}

#[test]
fn a_second_server_on_a_data_directory_ends_naming_the_first() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    let listen = format!("{}:0", scratch.host);
    let arguments = ["server", "--data-dir", "data", "--listen", &listen, "--admin", &listen];
    let output = scratch.command(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let error = error_of(&output);
    assert!(error.contains(&broker.pid().to_string()) && error.contains("data"), "{error}");
}

#[test]
fn a_server_on_a_taken_address_ends_naming_it() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    let arguments = ["server", "--data-dir", "other", "--listen", &broker.client, "--admin", "127.0.0.1:0"];
    let output = scratch.command(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(error_of(&output).contains(&broker.client), "{}", shown(&output));
}

#[test]
fn without_a_broker_every_command_ends_within_two_seconds_saying_how_to_start_one() {
    let scratch = Scratch::new();
    // Nobody listens on the first, and the second takes connections and never answers.
    let mute = std::net::TcpListener::bind((scratch.host.as_str(), 0)).unwrap();
    let mute = mute.local_addr().unwrap().to_string();
    let nobody = format!("{}:7400", scratch.host);
    for servers in [nobody.clone(), mute.clone(), format!("{nobody},{mute}")] {
        let commands: [&[&str]; 5] = [
            &["topic", "list"],
            &["produce", "t"],
            &["consume", "t"],
            &["cursor", "list", "t"],
            &["bench", "produce", "--seconds", "1"],
        ];
        for command in commands {
            let begin = Instant::now();
            let output = scratch.command(command).args(["--server", &servers]).output().unwrap();
            let took = begin.elapsed();
            assert_eq!(output.status.code(), Some(1), "{command:?} {servers}: {}", shown(&output));
            assert!(took < Duration::from_secs(2), "{command:?} {servers}: {took:?}");
            let error = error_of(&output);
            assert!(servers.split(',').all(|server| error.contains(server)), "{error}");
            assert!(error.contains("lockgate server"), "{error}");
        }
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "two", "--partitions", "2"]);
    let wrong: [&[&str]; 13] = [
        &["frobnicate"],
        &["topic", "create"],
        &["topic", "create", "t", "--partitions", "0"],
        &["produce", "two", "--in-flight", "6"],
        &["produce", "two", "--header", "novalue"],
        &["produce", "two", "--timeout", "0"],
        &["produce", "two", "--timeout", "86401"],
        &["consume", "two", "--json", "--format", "raw"],
        &["--json", "consume", "two", "--format", "text"],
        &["consume", "two", "--from", "yesterday"],
        &["cursor", "set", "two", "c", "--to", "offset:1"],
        &["bench", "produce", "--ack", "leader", "--idempotent", "on"],
        &["server", "--listen", "nowhere"],
    ];
    for arguments in wrong {
        let output = scratch.lockgate(&broker, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(&output));
        assert!(!error_of(&output).is_empty());
    }
}

#[test]
fn a_reader_of_the_output_that_goes_away_ends_the_command_quietly() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    std::fs::write(scratch.file("input"), "a line that is long enough to fill a pipe\n".repeat(50_000)).unwrap();
    scratch.run(&broker, &["produce", "t", "--file", "input"]);
    let mut consumer = scratch
        .lockgate(&broker, &["consume", "t", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(consumer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = consumer.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", shown(&output));
}

#[test]
fn an_interrupted_produce_says_which_lines_are_acknowledged() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    let mut producer = scratch
        .lockgate(&broker, &["produce", "t", "--acks", "acks"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = producer.stdin.take().unwrap();
    input.write_all(b"one\ntwo\nthree\nnot a whole li").unwrap();
    wait_until("three lines are acknowledged", || {
        std::fs::read_to_string(scratch.file("acks")).unwrap_or_default().lines().count() == 3
    });
    kill_process(Pid::from_child(&producer), Signal::INT).unwrap();
    let output = producer.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("3 records acknowledged") && report.contains("input lines acknowledged: 1-3"), "{report}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("SIGINT"), "{}", shown(&output));
    assert_eq!(scratch.run(&broker, &["consume", "t"]), "one\ntwo\nthree\n");
}

#[test]
fn a_broker_that_stays_away_past_the_deadline_ends_a_produce_that_accounts_for_every_line() {
    let scratch = Scratch::new();
    let mut broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    let mut producer = scratch
        .lockgate(&broker, &["produce", "t", "--json", "--acks", "acks", "--timeout", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = producer.stdin.take().unwrap();
    input.write_all(b"one\n").unwrap();
    wait_until("the line is acknowledged", || std::fs::read_to_string(scratch.file("acks")).unwrap_or_default() != "");
    broker.kill();
    input.write_all(b"two\nthree\n").unwrap();
    let output = producer.wait_with_output().unwrap();
    drop(input);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lines"]["acknowledged"], serde_json::json!([[1, 1]]));
    let of = |what: &str| report["lines"][what].as_array().unwrap().len();
    assert_eq!(of("not_applied") + of("unknown"), 1, "lines 2 and 3 are one range of one of them: {report}");
    let expected = if of("unknown") > 0 { 3 } else { 1 };
    assert_eq!(output.status.code(), Some(expected), "{}", shown(&output));
}

#[test]
fn acknowledgements_that_cannot_be_written_down_are_an_error_and_still_reported() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    std::fs::write(scratch.file("input"), "one\ntwo\nthree\n").unwrap();
    let arguments = ["produce", "t", "--file", "input", "--acks", "/dev/full"];
    let output = scratch.lockgate(&broker, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("input lines acknowledged: 1-3"), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("file for acknowledgements"), "{}", shown(&output));
    assert_eq!(scratch.run(&broker, &["consume", "t"]), "one\ntwo\nthree\n", "each once");
}

#[test]
fn a_json_line_with_a_field_that_means_nothing_is_refused_by_its_number() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    std::fs::write(scratch.file("input"), "{\"value\":\"a\"}\n{\"valu\":\"b\"}\n").unwrap();
    let arguments = ["produce", "t", "--file", "input", "--format", "json"];
    let output = scratch.lockgate(&broker, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("line 2 was not sent") && error.contains("`valu`"), "{error}");
    assert_eq!(scratch.run(&broker, &["consume", "t"]), "a\n");
}

#[test]
fn what_there_is_one_of_is_told_in_the_singular() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    std::fs::write(scratch.file("input"), "one\n").unwrap();
    let report = scratch.run(&broker, &["produce", "t", "--file", "input"]);
    assert!(report.starts_with("1 record acknowledged") && report.contains("partition 0: 1 record,"), "{report}");
    let described = scratch.run(&broker, &["topic", "describe", "t"]);
    assert!(described.contains("1 partition, 1 replica\n"), "{described}");
}

#[test]
fn a_partition_that_is_read_no_further_is_named() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t", "--partitions", "2"]);
    std::fs::write(scratch.file("input"), "{\"value\":\"a\",\"partition\":1}\n").unwrap();
    scratch.run(&broker, &["produce", "t", "--file", "input", "--format", "json"]);
    let mut consumer = scratch
        .lockgate(&broker, &["consume", "t", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(consumer.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    scratch.run(&broker, &["topic", "delete", "t"]);
    let output = consumer.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let error = String::from_utf8_lossy(&output.stderr);
    for partition in 0..2 {
        assert!(error.contains(&format!("partition {partition} is read no further: ")), "{error}");
    }
}

#[test]
fn records_go_in_and_out_in_every_format() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    for topic in ["text", "raw", "json", "keyed"] {
        scratch.run(&broker, &["topic", "create", topic, "--partitions", "1"]);
    }
    let bytes: Vec<u8> = (0..=255).cycle().take(5_000).collect();
    std::fs::write(scratch.file("bytes"), &bytes).unwrap();
    scratch.run(&broker, &["produce", "raw", "--file", "bytes", "--format", "raw"]);
    let raw = scratch.lockgate(&broker, &["consume", "raw", "--format", "raw"]).output().unwrap();
    assert_eq!(raw.stdout, bytes, "raw in, raw out: the same bytes");
    let json = scratch.run(&broker, &["consume", "raw", "--json"]);
    std::fs::write(scratch.file("json"), &json).unwrap();
    scratch.run(&broker, &["produce", "json", "--file", "json", "--format", "json"]);
    assert_eq!(
        scratch.run(&broker, &["consume", "json", "--json"]),
        json,
        "json out, json in, json out: the same records"
    );
    std::fs::write(scratch.file("keyed.txt"), "a=1\nb=2\na=3\n").unwrap();
    scratch.run(&broker, &["produce", "keyed", "--file", "keyed.txt", "--key-separator", "=", "--header", "h=v"]);
    let keyed = scratch.run(&broker, &["consume", "keyed", "--json"]);
    let keyed: Vec<serde_json::Value> = keyed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(keyed[2]["key"], "a");
    assert_eq!(keyed[2]["value"], "3");
    assert_eq!(keyed[2]["headers"], serde_json::json!([{ "name": "h", "value": "v" }]));
}

#[test]
fn a_cursor_goes_on_where_the_printing_ended() {
    let scratch = Scratch::new();
    let broker = scratch.broker();
    scratch.run(&broker, &["topic", "create", "t"]);
    std::fs::write(scratch.file("input"), "1\n2\n3\n4\n5\n").unwrap();
    scratch.run(&broker, &["produce", "t", "--file", "input"]);
    assert_eq!(scratch.run(&broker, &["consume", "t", "--from", "cursor:c", "--max", "2"]), "1\n2\n");
    assert_eq!(scratch.run(&broker, &["consume", "t", "--from", "cursor:c", "--max", "2"]), "3\n4\n");
    assert_eq!(scratch.run(&broker, &["cursor", "get", "t", "c"]), "PARTITION  OFFSET\n0          4\n");
    let back = scratch.lockgate(&broker, &["cursor", "set", "t", "c", "--to", "earliest"]).output().unwrap();
    assert_eq!(back.status.code(), Some(1), "not backwards without being forced: {}", shown(&back));
    scratch.run(&broker, &["cursor", "set", "t", "c", "--to", "offset:1", "--force"]);
    assert_eq!(scratch.run(&broker, &["consume", "t", "--from", "cursor:c"]), "2\n3\n4\n5\n");
    scratch.run(&broker, &["cursor", "delete", "t", "c"]);
    assert_eq!(scratch.run(&broker, &["cursor", "list", "t"]), "there are no cursors\n");
}
