//! Directories and files of another user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::publisher::Publisher;
use crate::support::{Scratch, begin, begin_under};

/// A user that owns nothing: `nobody`.
const NOBODY: u32 = 65_534;
const AS_NOBODY: &[&str] = &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

#[test]
fn a_data_directory_of_another_user_is_refused_with_both_user_ids() {
    let scratch = Scratch::new();
    let user = rustix::process::geteuid().as_raw();
    fs::create_dir(scratch.file("data")).unwrap();
    chown(scratch.file("data"), Some(NOBODY), None).expect("giving a directory away takes root");
    let (status, log) = begin(&scratch, &[]).outcome().err().unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(&format!("belongs to user id {NOBODY}, this process runs as {user}")), "{log}");
    assert_eq!(fs::read_dir(scratch.file("data")).unwrap().count(), 0, "nothing was made in it");
}

#[test]
fn a_journal_file_that_may_not_be_read_is_named_and_left_alone() {
    let scratch = Scratch::new();
    // The scratch directory must let another user through, and that user must be able to run the binary.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(scratch.file("data")).unwrap();
    chown(scratch.file("data"), Some(NOBODY), Some(NOBODY)).expect("giving a directory away takes root");
    let settings = &[("LOCKGATE_SHARDS_COUNT", "1")];
    let mut broker = begin_under(&scratch, AS_NOBODY, settings).wait_ready();
    let mut publisher = Publisher::new(&scratch, &broker);
    publisher.publish_many(5, 100);
    broker.kill();
    let journal = fs::read_dir(scratch.file("data/shards/0/journal")).unwrap();
    let file = journal.map(|entry| entry.unwrap().path()).find(|path| path.to_str().unwrap().ends_with(".journal"));
    let file = file.unwrap();
    chown(&file, Some(0), Some(0)).unwrap();
    let (status, log) = begin_under(&scratch, AS_NOBODY, settings).outcome().err().unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(log.contains(name) && log.contains("Permission denied"), "{log}");
    chown(&file, Some(NOBODY), Some(NOBODY)).unwrap();
    let broker = begin_under(&scratch, AS_NOBODY, settings).wait_ready();
    publisher.check(&scratch, &broker);
}
