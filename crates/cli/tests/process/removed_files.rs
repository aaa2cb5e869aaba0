//! Files that somebody removes while the broker runs.

use std::fs;
use std::path::PathBuf;

use lockgate_wire::ErrorKind;
use rustix::process::Signal;

use crate::publisher::Publisher;
use crate::support::{Broker, Scratch, begin, bound, shown, wait_until};

const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1")];

fn running() -> (Scratch, Broker, Publisher) {
    let scratch = Scratch::new();
    let broker = scratch.broker_with(SETTINGS);
    let mut publisher = Publisher::new(&scratch, &broker);
    publisher.publish_many(30, 1000);
    (scratch, broker, publisher)
}

fn files(scratch: &Scratch, directory: &str, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.file("data").join(directory)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(end));
    files.sort();
    files
}

fn partition(scratch: &Scratch) -> String {
    let name = files(scratch, "partitions", "").remove(0);
    format!("partitions/{}", name.file_name().unwrap().to_str().unwrap())
}

fn stop(broker: &mut Broker) {
    broker.signal(Signal::TERM);
    wait_until("the broker has ended", || broker.ended().is_some());
}

#[test]
fn a_journal_file_that_is_removed_while_it_is_written_is_missed_at_the_next_start() {
    let (scratch, mut broker, _publisher) = running();
    fs::remove_file(&files(&scratch, "shards/0/journal", ".journal")[0]).unwrap();
    stop(&mut broker);
    let (status, log) = begin(&scratch, SETTINGS).outcome().err().expect("the start is refused");
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("the journal of shard 0 has no catalog"), "{log}");
}

#[test]
fn a_prepared_file_that_is_removed_stops_the_journal_with_the_reason_and_a_restart_recovers() {
    let (scratch, mut broker, mut publisher) = running();
    wait_until("a file is prepared", || {
        files(&scratch, "shards/0/journal", "").iter().any(|path| path.to_str().unwrap().contains("free-"))
    });
    for file in files(&scratch, "shards/0/journal", "") {
        if file.to_str().unwrap().contains("free-") {
            fs::remove_file(file).unwrap();
        }
    }
    let mut refusal = None;
    wait_until("the journal needs its next file", || {
        refusal = publisher.publish(900_000).err();
        refusal.is_some()
    });
    // What was on its way may be in the journal; what comes after it is refused, with the reason.
    assert_eq!(refusal.unwrap().kind, ErrorKind::OutcomeUnknown);
    let refusal = publisher.publish(1000).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::StorageFailed, "{refusal}");
    assert!(refusal.message.contains("its log says why"), "{refusal}");
    wait_until("a metric tells it", || broker.metric("lockgate_journal_poisoned") == 1.0);
    let why = "the journal stopped: open of shards/0/journal/free-";
    assert!(broker.log().contains(why), "{}", broker.log());
    let (code, body) = broker.get("/v1/system/ready");
    assert_eq!(code, 200, "readers are served: {body}");
    assert!(body.contains("shard 0 takes no writes: ") && body.contains(why), "{body}");
    publisher.fetch(0).expect("reads go on");
    broker.kill();
    let broker = broker.start_again(&scratch);
    publisher.check(&scratch, &broker);
}

#[test]
fn a_segment_that_is_removed_is_put_back_from_the_journal_or_missed_at_the_next_start() {
    let (scratch, mut broker, publisher) = running();
    let directory = partition(&scratch);
    wait_until("the log is in its segment", || !files(&scratch, &directory, ".log").is_empty());
    fs::remove_file(&files(&scratch, &directory, ".log")[0]).unwrap();
    broker.kill();
    let broker = broker.start_again(&scratch);
    // Not sealed: everything in it is in the journal too.
    publisher.check(&scratch, &broker);
}

#[test]
fn a_lock_file_that_is_removed_does_not_let_a_second_server_in() {
    let (scratch, broker, publisher) = running();
    fs::remove_file(scratch.file("data/LOCK")).unwrap();
    let listen = format!("{}:0", scratch.host);
    let arguments = ["server", "--data-dir", "data", "--listen", &listen, "--admin", &listen];
    let mut second = scratch.command(&arguments);
    second.envs(SETTINGS.iter().copied()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut second = second.spawn().unwrap();
    let begin = std::time::Instant::now();
    while second.try_wait().unwrap().is_none() && begin.elapsed() < bound(10) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    second.kill().unwrap();
    let output = second.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use by"), "{}", shown(&output));
    publisher.check(&scratch, &broker);
}

#[test]
fn a_data_directory_that_is_removed_under_a_running_server_makes_no_acknowledged_lie() {
    let (scratch, mut broker, mut publisher) = running();
    fs::remove_dir_all(scratch.file("data")).unwrap();
    let mut refusal = None;
    wait_until("a write needs a file that is gone", || {
        refusal = publisher.publish(900_000).err();
        refusal.is_some()
    });
    assert!(!scratch.file("data").exists(), "nothing is made anew in secret: {}", refusal.unwrap());
    assert_eq!(broker.ended(), None, "{}", broker.log());
    broker.kill();
}
