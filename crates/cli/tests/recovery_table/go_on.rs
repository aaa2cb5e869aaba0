//! Rows after which the node starts and nothing is lost.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::journal::place;
use crate::node::{End, Node, ONE_SHARD, TWO_SHARDS};

#[test]
fn where_the_chain_ends_and_nothing_valid_is_beyond_the_log_goes_on() {
    let node = Node::with_records(&[&["a", "b"]], End::Killed);
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
    let start = node.goes_on_with(&["a", "b"]);
    start.warned_of_nothing();
    assert!(start.log.contains("ended_cleanly=true"), "{}", start.log);
}

#[test]
fn after_an_orderly_stop_the_log_goes_on() {
    let node = Node::with_records(&[&["a", "b"], &["c"], &[]], End::Stopped);
    let start = node.goes_on_with(&["a", "b", "c"]);
    start.warned_of_nothing();
    assert!(start.log.contains("ended_cleanly=true"), "{}", start.log);
    assert_eq!(start.announced["shards"][0]["ended_cleanly"], true);
}

#[test]
fn with_another_shard_count_the_log_goes_on_and_the_old_journals_are_gone() {
    let node = Node::with_records(&[&["a", "b"]], End::Killed).with_settings(TWO_SHARDS);
    let start = node.goes_on_with(&["a", "b"]);
    start.warned_of_nothing();
    assert_eq!(start.announced["moves_to_shards"], 2);
    assert!(start.log.contains("the data directory has 1 shards, 2 are configured"), "{}", start.log);
    assert!(!node.data().join("shards").exists() && node.data().join("shards-1/0/journal").exists());
    let start = node.goes_on_with(&["a", "b"]);
    start.warned_of_nothing();
    assert_eq!(start.announced["moves_to_shards"], serde_json::Value::Null);
}

#[test]
fn with_another_shard_count_and_a_damaged_partition_the_start_is_refused_and_the_old_count_goes_on() {
    let node = Node::with_records(&[&["a"]], End::Stopped);
    let partition = fs::read_dir(node.data().join("partitions")).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(partition.join("start")).unwrap();
    fs::write(partition.join("start"), "x").unwrap();
    let node = node.with_settings(TWO_SHARDS);
    node.is_refused(&[
        "cannot be moved to another number of shards",
        "with shards.count = 1 the node starts as before",
    ]);
    fs::write(partition.join("start"), good).unwrap();
    node.with_settings(ONE_SHARD).goes_on_with(&["a"]);
}

#[test]
fn a_mark_that_was_lost_between_writes_is_a_clean_gap_and_no_damage() {
    let node = Node::with_records(&[&["a", "b", "c"]], End::Killed);
    let file = &node.journal()[0];
    let writes: Vec<_> = file.writes().cloned().collect();
    let marks: Vec<_> = writes[..writes.len() - 1].iter().filter(|write| write["what"] == "mark").collect();
    assert!(!marks.is_empty(), "{writes:?}");
    for mark in marks {
        let (offset, bytes) = place(mark);
        file.overwrite(offset, &vec![0; bytes as usize]);
    }
    node.goes_on_with(&["a", "b", "c"]).warned_of_nothing();
}

#[test]
fn a_prepared_file_is_reused_whatever_is_in_it() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Stopped);
    let directory = node.data().join("shards/0/journal");
    let prepared: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("free-"))
        .collect();
    assert_eq!(prepared.len(), 1, "one is ready ahead of need: {prepared:?}");
    // What a file's earlier life leaves: whole writes, good checksums.
    fs::copy(&node.journal()[0].path, &prepared[0]).unwrap();
    let reused = fs::metadata(&prepared[0]).unwrap().ino();
    let files = node.journal().len();
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
    let journal = node.journal();
    assert_eq!(journal.len(), files + 1);
    assert_eq!(fs::metadata(&journal[files].path).unwrap().ino(), reused, "the same file under another name");
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}

#[test]
fn an_empty_or_short_prepared_file_is_in_nobodys_way() {
    let node = Node::with_records(&[&["a"]], End::Stopped);
    let directory = node.data().join("shards/0/journal");
    fs::write(directory.join("free-7"), b"").unwrap();
    fs::write(directory.join("free-8"), vec![0; 4096]).unwrap();
    node.goes_on_with(&["a"]).warned_of_nothing();
    assert!(!directory.join("free-7").exists() && !directory.join("free-8").exists());
}

/// The next journal file of the node, as it is when a crash comes while it is made.
fn half_made(node: &Node, bytes: &[u8]) -> String {
    let newest = node.journal().pop().unwrap();
    let number: u64 = newest.name.split('-').next().unwrap().parse().unwrap();
    let next =
        newest.writes().last().map(|last| last["first_sequence"].as_u64().unwrap() + last["count"].as_u64().unwrap());
    let name = format!("{:010}-{:020}.journal", number + 1, next.unwrap());
    fs::write(node.data().join("shards/0/journal").join(&name), bytes).unwrap();
    name
}

#[test]
fn an_empty_newest_file_was_made_and_never_used_and_is_removed() {
    let node = Node::with_records(&[&["a"]], End::Killed);
    let name = half_made(&node, b"");
    let start = node.goes_on_with(&["a"]);
    start.warned_of(&[&name, "made and never used: it has no header"]);
    node.goes_on_with(&["a"]).warned_of_nothing();
}

#[test]
fn an_all_zero_newest_file_was_made_and_never_used_and_is_removed() {
    let node = Node::with_records(&[&["a"]], End::Killed);
    let name = half_made(&node, &vec![0; 8 << 20]);
    node.goes_on_with(&["a"]).warned_of(&[&name, "made and never used: it has no header"]);
    node.goes_on_with(&["a"]).warned_of_nothing();
}

#[test]
fn the_newest_file_with_a_bad_header_and_no_later_write_is_removed() {
    let node = Node::with_records(&[&["a"], &[]], End::Killed);
    let newest = node.journal().pop().unwrap();
    let behind = newest.writes().map(place).map(|(offset, bytes)| offset + bytes).max().unwrap();
    newest.overwrite(4096, &vec![0; behind as usize - 4096]);
    newest.flip(100);
    let name = newest.name;
    node.goes_on_with(&["a"]).warned_of(&[&name, "made and never used: its header is damaged"]);
    node.goes_on_with(&["a"]).warned_of_nothing();
}

#[test]
fn a_newest_file_with_a_header_and_nothing_else_does_not_block_the_start() {
    let node = Node::with_records(&[&["a"], &[]], End::Killed);
    let newest = node.journal().pop().unwrap();
    let behind = newest.writes().map(place).map(|(offset, bytes)| offset + bytes).max().unwrap();
    newest.overwrite(4096, &vec![0; behind as usize - 4096]);
    node.goes_on_with(&["a"]).warned_of_nothing();
}
