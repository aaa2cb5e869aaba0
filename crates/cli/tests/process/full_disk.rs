//! Full disk: writes are refused with the reason, reads and settles go on, everything resumes by itself, nothing is wiped,
//! no crash loop.

use std::fs;

use lockgate_wire::ErrorKind;
use lockgate_wire::error::Advice;

use crate::mount::Mount;
use crate::publisher::Publisher;
use crate::support::{Broker, Scratch, wait_until};

const MIB: u64 = 1024 * 1024;
const SETTINGS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1")];

/// A broker whose data directory has little room, most of it taken by something else.
struct Small {
    scratch: Scratch,
    disk: Mount,
}

impl Small {
    fn new() -> Self {
        let scratch = Scratch::new();
        let disk = Mount::new(&scratch.file("data"), 64 * MIB);
        Self { scratch, disk }
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.scratch.file("data/lost+found")
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut ballast = fs::read(self.ballast()).unwrap_or_default();
        ballast.resize(ballast.len() + self.disk.free_bytes() as usize, 1);
        // The last write of it fails for want of room: that is how it knows.
        drop(fs::write(self.ballast(), ballast));
        assert!(self.disk.free_bytes() < 64 * 1024, "{} bytes are left", self.disk.free_bytes());
    }

    fn publish_until_refused(publisher: &mut Publisher) -> lockgate_wire::Error {
        let mut refusal = None;
        wait_until("a publish is refused", || {
            refusal = publisher.publish(100_000).err();
            refusal.is_some()
        });
        refusal.unwrap()
    }
}

fn resumes(publisher: &mut Publisher, broker: &Broker) {
    let mut refused = String::new();
    wait_until("publishes are taken again", || match publisher.publish(1000) {
        Ok(()) => true,
        Err(error) => {
            refused = error.to_string();
            assert_eq!(error.kind, ErrorKind::StorageFull, "{}", broker.log());
            false
        }
    });
}

#[test]
fn on_a_full_disk_writes_are_refused_with_the_reason_reads_go_on_and_all_resumes_by_itself() {
    let small = Small::new();
    let mut broker = small.scratch.broker_with(SETTINGS);
    let mut publisher = Publisher::new(&small.scratch, &broker);
    publisher.publish_many(20, 1000);
    small.fill();
    let refusal = Small::publish_until_refused(&mut publisher);
    assert_eq!((refusal.kind, refusal.kind.code()), (ErrorKind::StorageFull, 507), "{refusal}");
    assert_eq!(refusal.kind.advice(), Advice::Retry);
    assert!(refusal.message.contains("no room"), "{refusal}");

    // The refused one can see why: in the answer, in the log, in the metrics.
    wait_until("the log says it", || broker.log().contains("the journal's next file cannot be made"));
    wait_until("a metric counts it", || broker.metric("lockgate_publish_refused_total") > 0.0);
    wait_until("a metric tells it", || broker.metric("lockgate_disk_full") == 1.0);
    let (code, body) = broker.get("/v1/system/ready");
    assert_eq!(code, 200, "readers are served: {body}");
    assert!(body.contains("shard 0: the disk has no room for the journal's next file"), "{body}");
    for offset in [0, publisher.acknowledged.len() as u64 - 1] {
        publisher.fetch(offset).unwrap();
    }
    publisher.check(&small.scratch, &broker);
    // Cursors, which are small and let others go on, have room where publishes have none.
    small.scratch.run(&broker, &["cursor", "set", "t", "billing", "--to", "offset:7"]);
    assert!(small.scratch.run(&broker, &["cursor", "get", "t", "billing"]).contains('7'));
    assert_eq!(broker.get("/v1/system/live").0, 200);
    assert_eq!(broker.ended(), None);

    fs::remove_file(small.ballast()).unwrap();
    resumes(&mut publisher, &broker);
    publisher.check(&small.scratch, &broker);
    wait_until("it is over", || broker.metric("lockgate_disk_full") == 0.0);
    assert!(broker.get("/v1/system/ready").1.contains(r#""impaired":[]"#));
    assert_eq!(broker.metric("lockgate_journal_poisoned"), 0.0, "{}", broker.log());
    let broker = {
        broker.kill();
        broker.start_again(&small.scratch)
    };
    publisher.check(&small.scratch, &broker);
}

#[test]
fn starts_on_a_full_disk_one_after_another_serve_what_is_there_and_take_more_once_there_is_room() {
    let small = Small::new();
    let mut broker = small.scratch.broker_with(SETTINGS);
    let mut publisher = Publisher::new(&small.scratch, &broker);
    publisher.publish_many(20, 1000);
    broker.kill();
    small.fill();
    // As somebody does who restarts what is not well.
    for start in 0..4 {
        broker = broker.start_again(&small.scratch);
        publisher = Publisher::again(&small.scratch, &broker, publisher.acknowledged);
        publisher.check(&small.scratch, &broker);
        if start < 3 {
            broker.kill();
        }
    }
    Small::publish_until_refused(&mut publisher);
    fs::remove_file(small.ballast()).unwrap();
    resumes(&mut publisher, &broker);
    publisher.check(&small.scratch, &broker);
}
