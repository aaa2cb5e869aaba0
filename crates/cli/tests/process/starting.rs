//! A long recovery is neither killed by a probe nor reported as ready.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::publisher::Publisher;
use crate::support::{Broker, Scratch, wait_until};

/// The status of a probe, if anybody answers.
fn probe(address: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1"), ("LOCKGATE_JOURNAL_FILE_BYTES", "64MiB")];

/// A broker that was killed with much to recover.
fn killed() -> (Scratch, Broker, Publisher) {
    let scratch = Scratch::new();
    let mut broker = scratch.broker_with(SETTINGS);
    let mut publisher = Publisher::new(&scratch, &broker);
    publisher.publish_many(300, 900_000);
    broker.kill();
    (scratch, broker, publisher)
}

/// Starts it again without waiting for it; with where its clients and its probes are.
fn start(scratch: &Scratch) -> (Child, String, String) {
    let (listen, admin) = (format!("{}:7400", scratch.host), format!("{}:7480", scratch.host));
    let arguments = ["server", "--data-dir", "data", "--listen", &listen, "--admin", &admin];
    let log = std::fs::File::create(scratch.file("second.log")).unwrap();
    let server = scratch.command(&arguments).envs(SETTINGS.iter().copied()).stdout(Stdio::null()).stderr(log).spawn();
    (server.unwrap(), listen, admin)
}

#[test]
fn a_long_recovery_is_neither_killed_by_a_probe_nor_reported_as_ready() {
    let (scratch, broker, publisher) = killed();
    let (mut server, listen, admin) = start(&scratch);
    let (mut while_starting, mut ready) = (0, false);
    wait_until("the broker is ready", || {
        let Some(live) = probe(&admin, "/v1/system/live") else { return false };
        assert_eq!(live, 200, "whoever kills by this probe leaves a recovery alone");
        let before = probe(&admin, "/v1/system/starting");
        let connected = TcpStream::connect(&listen).is_ok();
        let is_ready = probe(&admin, "/v1/system/ready");
        ready = is_ready == Some(200);
        if before == Some(503) && is_ready == Some(503) && probe(&admin, "/v1/system/starting") == Some(503) {
            while_starting += 1;
            assert!(!connected, "nobody is let in");
        }
        ready
    });
    assert!(while_starting > 0, "the recovery was too short to be seen");
    assert_eq!(probe(&admin, "/v1/system/starting"), Some(200));
    kill_process(Pid::from_child(&server), Signal::KILL).unwrap();
    server.wait().unwrap();
    publisher.check(&scratch, &broker.start_again(&scratch));
}

#[test]
fn a_start_that_is_told_to_stop_ends_in_order_and_the_next_one_has_everything() {
    let (scratch, broker, publisher) = killed();
    let (mut server, _, admin) = start(&scratch);
    wait_until("the broker is starting", || probe(&admin, "/v1/system/starting") == Some(503));
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert_eq!(
        server.wait().unwrap().code(),
        Some(0),
        "{}",
        std::fs::read_to_string(scratch.file("second.log")).unwrap()
    );
    publisher.check(&scratch, &broker.start_again(&scratch));
}
