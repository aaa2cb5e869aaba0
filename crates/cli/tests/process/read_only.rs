//! A data directory that cannot be written.

use crate::mount::Mount;
use crate::publisher::Publisher;
use crate::support::{Scratch, begin, shown, wait_until};

#[test]
fn a_start_in_a_read_only_directory_is_refused_with_the_reason_and_can_be_verified() {
    let scratch = Scratch::new();
    let disk = Mount::new(&scratch.file("data"), 128 << 20);
    let mut broker = scratch.broker();
    let mut publisher = Publisher::new(&scratch, &broker);
    publisher.publish_many(5, 100);
    broker.signal(rustix::process::Signal::TERM);
    wait_until("the broker has ended", || broker.ended().is_some());
    disk.read_only(true);

    let (status, log) = begin(&scratch, &[]).outcome().err().unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("Read-only file system") && log.contains("data"), "{log}");
    for command in ["verify", "inspect"] {
        let output = scratch.command(&["storage", command, "--data-dir", "data"]).output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
    }
    disk.read_only(false);
    let broker = scratch.broker();
    publisher.check(&scratch, &broker);
    drop(broker);
}
