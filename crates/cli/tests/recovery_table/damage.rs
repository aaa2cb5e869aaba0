//! Something that was confirmed is gone or changed: the node does not start, says what is lost, and touches nothing.

use std::fs;

use crate::journal::place;
use crate::node::{End, Node};

const WHAT_TO_DO: &str = "Keep the files as they are";

#[test]
fn a_bad_record_that_a_later_write_states_as_synced_is_damage() {
    let node = Node::with_records(&[&["a", "b", "c"]], End::Killed);
    let file = &node.journal()[0];
    let (offset, _) = file.entries()[file.entries().len() - 2];
    file.flip(offset + 200);
    let damaged = format!("{} is damaged at offset {offset}: ", file.name);
    let start = node.is_refused(&[&damaged, "At least the records ", "lost, which had been confirmed", WHAT_TO_DO]);
    let announced = start.announced["shards"][0]["refused"][0].as_str().unwrap();
    assert!(announced.contains(&damaged), "{announced}");
}

#[test]
fn a_write_that_is_missing_before_others_is_damage() {
    let node = Node::with_records(&[&["a", "b", "c"]], End::Killed);
    let file = &node.journal()[0];
    let (offset, bytes) = file.entries()[file.entries().len() - 2];
    file.overwrite(offset, &vec![0; bytes as usize]);
    node.is_refused(&[&format!("{} is damaged at offset {offset}: nothing was written", file.name), WHAT_TO_DO]);
}

#[test]
fn a_bad_last_write_that_its_mark_states_as_synced_is_damage() {
    let node = Node::with_records(&[&["a", "b"]], End::Killed);
    let file = &node.journal()[0];
    let (offset, _) = *file.entries().last().unwrap();
    file.flip(offset + 200);
    node.is_refused(&[&format!("{} is damaged at offset {offset}: ", file.name), WHAT_TO_DO]);
}

#[test]
fn anything_bad_before_an_end_mark_is_damage() {
    let node = Node::with_records(&[&["a", "b"]], End::Stopped);
    let file = &node.journal()[0];
    assert_eq!(file.writes().last().unwrap()["what"], "end");
    let before: Vec<_> = file.writes().filter(|write| write["count"] != 0).map(place).collect();
    let (offset, _) = *before.last().unwrap();
    file.flip(offset + 60);
    node.is_refused(&[&format!("{} is damaged at offset {offset}: ", file.name), WHAT_TO_DO]);
}

#[test]
fn a_torn_tail_in_an_older_file_that_a_later_start_has_built_on_is_damage() {
    let node = Node::with_records(&[&["a", "b"], &["c"]], End::Killed);
    let files = node.journal();
    let (offset, _) = files[0].last_entry_alone();
    files[0].flip(offset + 200);
    node.is_refused(&[&format!("{} is damaged at offset {offset}: ", files[0].name), WHAT_TO_DO]);
}

#[test]
fn a_bad_header_of_a_file_that_has_writes_is_damage() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Killed);
    for file in node.journal() {
        let good = file.bytes(0, 4096);
        file.flip(100);
        node.is_refused(&[&format!("{} is damaged at offset 0: its header is damaged", file.name), WHAT_TO_DO]);
        file.overwrite(0, &good);
    }
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}

#[test]
fn a_short_file_is_damage() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Stopped);
    let file = &node.journal()[0];
    let whole = fs::metadata(&file.path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&file.path).unwrap().set_len(whole / 2).unwrap();
    node.is_refused(&[&file.name, &format!("it was made with {whole} bytes and has {}", whole / 2), WHAT_TO_DO]);
}

#[test]
fn a_gap_in_the_file_sequence_is_damage() {
    let node = Node::with_records(&[&["a"], &["b"], &["c"]], End::Stopped);
    let files = node.journal();
    fs::remove_file(&files[1].path).unwrap();
    node.is_refused(&[&files[2].name, "it is file 3 of the journal, but file 2 should come next", WHAT_TO_DO]);
}

#[test]
fn a_journal_that_lost_its_newest_file_is_behind_the_files_and_refused() {
    let node = Node::with_records(&[&["a"], &["b"], &["c"]], End::Stopped);
    let newest = node.journal().pop().unwrap();
    fs::remove_file(&newest.path).unwrap();
    node.is_refused(&["its files go up to entry", "its journal only to"]);
}

#[test]
fn no_journal_where_there_is_an_identity_and_data_is_damage() {
    let node = Node::with_records(&[&["a"]], End::Stopped);
    for file in fs::read_dir(node.data().join("shards/0/journal")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let start = node.is_refused(&["the journal of shard 0 has no catalog, but there are partitions or checkpoints"]);
    assert_eq!(start.announced["shards"][0]["starts"], false);
}

#[test]
fn no_journal_where_there_is_an_identity_is_damage_even_if_nothing_was_published() {
    for end in [End::Stopped, End::Killed] {
        let node = Node::with_records(&[&[]], end);
        fs::remove_dir_all(node.data().join("shards")).unwrap();
        node.is_refused(&["the journal of shard 0 has no catalog"]);
    }
}
