//! A bad or missing record in the last write, and no later write that states that it was synced: cut, for good, and said
//! so.

use crate::journal::SECTOR_BYTES;
use crate::node::{End, Node};

/// Damages the last write of a journal so, and expects its record to be cut, once.
fn is_cut(tear: impl FnOnce(&crate::journal::JournalFile, u64, u64)) {
    let long = "c".repeat(20_000);
    let node = Node::with_records(&[&["a"], &["b", &long]], End::Killed);
    let files = node.journal();
    let (file, torn) = (files.last().unwrap(), files.last().unwrap().last_entry_alone());
    assert!(torn.1 >= 5 * 4096, "the write spans blocks: {torn:?}");
    tear(file, torn.0, torn.1);
    let [what, place] = file.cut_at(torn.0);
    let start = node.goes_on_with(&["a", "b"]);
    start.warned_of(&[&what, &place]);
    assert!(file.bytes(torn.0, torn.1).iter().all(|byte| *byte == 0), "what was cut cannot come back");
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}

#[test]
fn a_last_write_without_its_first_sector_is_cut() {
    is_cut(|file, offset, _| file.overwrite(offset, &[0; SECTOR_BYTES as usize]));
}

#[test]
fn a_last_write_without_a_sector_in_its_middle_is_cut() {
    is_cut(|file, offset, _| file.overwrite(offset + 5 * SECTOR_BYTES, &[0; SECTOR_BYTES as usize]));
}

#[test]
fn a_last_write_of_which_only_the_header_arrived_is_cut() {
    is_cut(|file, offset, bytes| file.overwrite(offset + SECTOR_BYTES, &vec![0; (bytes - SECTOR_BYTES) as usize]));
}

#[test]
fn a_last_write_with_a_bit_turned_in_its_body_is_cut() {
    is_cut(|file, offset, _| file.flip(offset + 4096 + 77));
}

#[test]
fn a_last_write_of_which_nothing_arrived_leaves_nothing_to_cut() {
    let node = Node::with_records(&[&["a", "b", "c"]], End::Killed);
    let files = node.journal();
    let (offset, bytes) = files[0].last_entry_alone();
    files[0].overwrite(offset, &vec![0; bytes as usize]);
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}

#[test]
fn after_a_cut_the_log_goes_on_and_the_gap_in_the_file_is_no_damage_later() {
    let node = Node::with_records(&[&["a", "b"]], End::Killed);
    let files = node.journal();
    let (offset, _) = files[0].last_entry_alone();
    files[0].flip(offset + 200);
    let mut start = node.start();
    let broker = start.broker.take().unwrap();
    node.produce(&broker, "b again");
    crate::node::stop(broker);
    node.goes_on_with(&["a", "b again"]).warned_of_nothing();
    node.goes_on_with(&["a", "b again"]).warned_of_nothing();
}

#[test]
fn a_torn_mark_loses_nothing() {
    let node = Node::with_records(&[&["a", "b"]], End::Killed);
    let files = node.journal();
    let mark = files[0].writes().last().unwrap();
    assert_eq!(mark["what"], "mark");
    let offset = mark["offset"].as_u64().unwrap();
    files[0].flip(offset + 20);
    let [what, place] = files[0].cut_at(offset);
    node.goes_on_with(&["a", "b"]).warned_of(&[&what, &place]);
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}
