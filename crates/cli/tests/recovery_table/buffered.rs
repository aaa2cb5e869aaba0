//! The rows once more for the buffered journal: what is torn is cut, what was synced and is gone refuses the partition. The
//! catalog is in the synced journal, so that the node always starts.

use std::fs;

use crate::node::{End, Node};

#[test]
fn a_torn_tail_of_the_buffered_journal_is_cut_once_and_for_good() {
    let node = Node::with_buffered_records(&[&["a"], &["b", "c"]], End::Killed);
    let files = node.journal();
    let (file, torn) = (files.last().unwrap(), files.last().unwrap().last_entry_alone());
    file.flip(torn.0 + 100);
    let [what, place] = file.cut_at(torn.0);
    node.goes_on_with(&["a", "b"]).warned_of(&[&what, &place]);
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}

#[test]
fn a_bad_record_of_the_buffered_journal_that_a_later_write_states_as_synced_is_damage() {
    let node = Node::with_buffered_records(&[&["a", "b", "c"]], End::Killed);
    let file = &node.journal()[0];
    let (offset, _) = file.entries()[file.entries().len() - 2];
    file.flip(offset + 200);
    let damaged = format!("{} is damaged at offset {offset}: ", file.name);
    for _ in 0..2 {
        node.goes_on_without_the_partition(&["records of its group", &damaged, "delete the topic"]);
    }
}

#[test]
fn anything_bad_before_an_end_mark_of_the_buffered_journal_is_damage() {
    let node = Node::with_buffered_records(&[&["a", "b"]], End::Stopped);
    let file = &node.journal()[0];
    assert_eq!(file.writes().last().unwrap()["what"], "end");
    let (offset, _) = *file.entries().last().unwrap();
    file.flip(offset + 200);
    node.goes_on_without_the_partition(&[&format!("{} is damaged at offset {offset}: ", file.name)]);
}

#[test]
fn a_short_file_of_the_buffered_journal_is_damage() {
    let node = Node::with_buffered_records(&[&["a"], &["b"]], End::Stopped);
    let file = &node.journal()[1];
    let (offset, _) = *file.entries().last().unwrap();
    fs::OpenOptions::new().write(true).open(&file.path).unwrap().set_len(offset).unwrap();
    let short = format!("{} is damaged at offset {offset}: the file ends: it was made with ", file.name);
    node.goes_on_without_the_partition(&[&short]);
}

#[test]
fn no_buffered_journal_where_there_is_data_of_it_is_damage() {
    let node = Node::with_buffered_records(&[&["a"], &["b"]], End::Stopped);
    fs::remove_dir_all(node.data().join("shards/0/buffered")).unwrap();
    for _ in 0..2 {
        node.goes_on_without_the_partition(&["its files go up to entry", "its journal only to"]);
    }
}

#[test]
fn a_gap_in_the_file_sequence_of_the_buffered_journal_is_damage() {
    let node = Node::with_buffered_records(&[&["a"], &["b"], &["c"]], End::Stopped);
    let files = node.journal();
    fs::remove_file(&files[1].path).unwrap();
    node.goes_on_without_the_partition(&[&files[2].name, "it is file 3 of the journal, but file 2 should come next"]);
}

#[test]
fn a_header_that_is_damaged_in_an_older_file_of_the_buffered_journal_is_told() {
    let node = Node::with_buffered_records(&[&["a"], &["b"]], End::Stopped);
    let file = &node.journal()[0];
    file.flip(40);
    let start = node.goes_on_with(&["a", "b"]);
    start.warned_of(&[&file.name, "its header is damaged", "No record is missing"]);
}
