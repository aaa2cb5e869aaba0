//! SIGSTOP and SIGCONT: the process is there and does nothing, then goes on as if nothing had been.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Scratch, bound, shown, wait_until};

/// Three missed heartbeats of this are the end of a connection.
const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SESSIONS_HEARTBEAT", "200ms")];

#[test]
fn a_broker_that_stands_still_under_load_loses_and_doubles_nothing() {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    scratch.run(&broker, &["topic", "create", "t"]);
    let lines = 200_000;
    let input: String = (1..=lines).map(|n| format!("line {n}\n")).collect();
    std::fs::write(scratch.file("input"), &input).unwrap();
    let arguments = ["produce", "t", "--file", "input", "--acks", "acks", "--json", "--batch-bytes", "2048"];
    let producer = scratch
        .lockgate(&broker, &arguments)
        .args(["--timeout", "600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let acknowledged = || std::fs::read_to_string(scratch.file("acks")).unwrap_or_default().lines().count();
    for stop in 1..=3 {
        let before = acknowledged();
        wait_until("lines are acknowledged", || acknowledged() > before.max(stop * lines / 10));
        broker.signal(Signal::STOP);
        // Long enough for everybody to take it for dead.
        std::thread::sleep(Duration::from_millis(1_000));
        broker.signal(Signal::CONT);
    }
    let output = producer.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{}", shown(&output), broker.log());
    assert_eq!(acknowledged(), lines);
    assert_eq!(scratch.run(&broker, &["consume", "t"]), input, "each line once, in order");
    assert_eq!(broker.metric("lockgate_internal_errors_total"), 0.0, "{}", broker.log());
}

#[test]
fn a_broker_that_stands_still_is_told_from_one_that_answers_by_its_probe() {
    let scratch = Scratch::new();
    let mut broker = scratch.broker_with(SETTINGS);
    broker.signal(Signal::STOP);
    let output = scratch.lockgate(&broker, &["topic", "list"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    broker.signal(Signal::CONT);
    wait_until("it answers again", || scratch.lockgate(&broker, &["topic", "list"]).output().unwrap().status.success());
    broker.signal(Signal::STOP);
    broker.signal(Signal::TERM);
    let asked = Instant::now();
    broker.signal(Signal::CONT);
    wait_until("a stop that was asked for meanwhile comes", || broker.ended().is_some());
    assert!(asked.elapsed() < bound(12));
    assert_eq!(broker.ended().unwrap().code(), Some(0), "{}", broker.log());
}
