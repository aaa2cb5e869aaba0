//! Something that was confirmed is gone or changed. Whoever may have lost something is refused: a partition, or with the
//! catalog the whole start. What is damaged is told, and stays as it is.

use std::fs;

use crate::journal::place;
use crate::node::{End, Node, TWO_SHARDS, stop};
use crate::support::shown;

const WHAT_TO_DO: &str = "Keep the files as they are";

#[test]
fn a_bad_record_that_a_later_write_states_as_synced_is_damage() {
    let node = Node::with_records(&[&["a", "b", "c"]], End::Killed);
    let file = &node.journal()[0];
    let (offset, _) = file.entries()[file.entries().len() - 2];
    file.flip(offset + 200);
    let damaged = format!("{} is damaged at offset {offset}: ", file.name);
    let start = node.is_refused(&[&damaged, "The records ", "lost, which had been confirmed", WHAT_TO_DO]);
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

/// A node on which a record of the topic was lost in an earlier start, and what is damaged.
fn with_a_lost_record() -> (Node, String) {
    let node = Node::with_records(&[&["a", "b"], &["c"]], End::Killed);
    let file = &node.journal()[0];
    let b = file.entries_of_partitions().pop().unwrap();
    file.flip(b + 200);
    let damaged = format!("{} is damaged at offset {b}: ", file.name);
    (node, damaged)
}

#[test]
fn damage_refuses_the_partition_that_may_have_lost_something_and_nothing_else() {
    let (node, damaged) = with_a_lost_record();
    // The catalog's next record proves that nothing of it was lost.
    for _ in 0..2 {
        node.goes_on_without_the_partition(&["records of its group", &damaged, "delete the topic"]);
    }
}

#[test]
fn a_partition_that_may_have_lost_something_ends_with_its_topic_and_the_node_goes_on() {
    let (node, damaged) = with_a_lost_record();
    let broker = node.start().broker.take().unwrap();
    node.scratch.run(&broker, &["topic", "delete", "t"]);
    node.scratch.run(&broker, &["topic", "create", "t"]);
    node.produce(&broker, "d");
    stop(broker);
    node.goes_on_with(&["d"]).warned_of(&[&damaged]);
}

#[test]
fn a_partition_that_lost_something_serves_what_is_left_once_it_was_repaired() {
    let (node, damaged) = with_a_lost_record();
    let asked = node.tool(&["repair"]);
    assert_eq!(asked.status.code(), Some(2), "{}", shown(&asked));
    for word in ["partition 1-0: keeps its log up to entry", "gives up what was lost", &damaged, "give --yes"] {
        assert!(shown(&asked).contains(word), "{word:?} is not in {}", shown(&asked));
    }
    node.goes_on_without_the_partition(&["lockgate storage repair"]);
    let repaired = node.tool(&["repair", "--yes"]);
    assert!(repaired.status.success() && shown(&repaired).contains("done"), "{}", shown(&repaired));
    for _ in 0..2 {
        // What the journal lost was in the segments and in a checkpoint already.
        node.goes_on_with(&["a", "b", "c"]).warned_of(&[&damaged]);
    }
    let again = shown(&node.tool(&["repair"]));
    assert!(
        again.contains(&damaged) && again.contains("no partition is refused for that: nothing to repair"),
        "{again}"
    );
}

#[test]
fn a_repair_gives_up_nothing_before_somebody_has_typed_yes() {
    let (node, _) = with_a_lost_record();
    let before = node.contents();
    for answer in ["y", "no", ""] {
        let refused = node.tool_with_typed(&["repair"], answer);
        assert_eq!(refused.status.code(), Some(2), "{}", shown(&refused));
        assert!(shown(&refused).contains("Give this up for good, 1 in all?"), "{}", shown(&refused));
    }
    assert!(node.contents() == before, "nothing was to be changed");
    let repaired = node.tool_with_typed(&["repair"], "yes");
    assert!(repaired.status.success() && shown(&repaired).contains("done"), "{}", shown(&repaired));
    node.goes_on_with(&["a", "b", "c"]);
}

#[test]
fn what_cannot_be_repaired_is_said_fails_and_stays_as_it_is() {
    let (node, damaged) = with_a_lost_record();
    // With the record that the journal lost, the segments lose what they had.
    for file in fs::read_dir(node.data().join("partitions/1-0")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            fs::remove_file(path).unwrap();
        }
    }
    let before = node.contents();
    for arguments in [&["repair"][..], &["repair", "--yes"]] {
        let output = node.tool(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        for word in ["partition 1-0: cannot be repaired: ", &damaged, "nothing can be repaired", "delete the topic"] {
            assert!(shown(&output).contains(word), "{word:?} is not in {}", shown(&output));
        }
    }
    assert!(node.contents() == before, "nothing was to be changed");
    node.goes_on_without_the_partition(&["records of its group"]);
}

#[test]
fn a_catalog_that_lost_something_is_not_repaired_and_then_nothing_else_is() {
    let node = Node::with_topic(TWO_SHARDS, &["--partitions", "4"], &[&["a", "b", "c"]], End::Killed);
    for (directory, from_the_end) in [("shards/0/journal", 1), ("shards/1/journal", 2)] {
        let file = &node.journal_in(directory)[0];
        let (offset, _) = file.entries()[file.entries().len() - from_the_end];
        // In the write's header, whatever is in it.
        file.flip(offset + 60);
    }
    let before = node.contents();
    let refused = node.tool(&["repair", "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{}", shown(&refused));
    for word in ["shard 0: cannot be repaired: the catalog may have lost records", "Restore the data directory"] {
        assert!(shown(&refused).contains(word), "{word:?} is not in {}", shown(&refused));
    }
    assert!(node.contents() == before, "nothing was to be changed");
    assert!(node.start().broker.is_none());
}

#[test]
fn a_bad_header_of_a_file_that_has_writes_is_told_and_nothing_in_the_file_is_lost() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Killed);
    let file = &node.journal()[0];
    file.flip(100);
    let start = node.goes_on_with(&["a", "b"]);
    start.warned_of(&[&file.name, "is damaged at offset 0: its header is damaged. No record is missing"]);
}

#[test]
fn a_short_file_is_damage_and_refuses_whom_it_may_concern() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Stopped);
    let file = &node.journal()[1];
    let whole = fs::metadata(&file.path).unwrap().len();
    let (offset, _) = *file.entries().last().unwrap();
    fs::OpenOptions::new().write(true).open(&file.path).unwrap().set_len(offset).unwrap();
    let short =
        format!("{} is damaged at offset {offset}: the file ends: it was made with {whole} bytes and has", file.name);
    let start = node.is_refused(&[&short, WHAT_TO_DO]);
    assert!(start.announced.to_string().contains(&short), "{}", start.announced);
}

#[test]
fn an_empty_or_all_zero_file_before_others_is_damage() {
    let node = Node::with_records(&[&["a"], &["b"], &["c"]], End::Stopped);
    let file = &node.journal()[1];
    let whole = fs::metadata(&file.path).unwrap().len();
    for bytes in [0, whole] {
        fs::write(&file.path, vec![0; bytes as usize]).unwrap();
        node.is_refused(&[&file.name, "it has no header", "The records ", WHAT_TO_DO]);
    }
}

#[test]
fn the_newest_file_with_a_bad_header_and_writes_is_kept_and_told() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Killed);
    let file = node.journal().pop().unwrap();
    file.flip(40);
    for _ in 0..2 {
        node.goes_on_with(&["a", "b"]).warned_of(&[&file.name, "its header is damaged. No record is missing"]);
        assert!(file.path.exists());
    }
}

#[test]
fn a_short_file_whose_records_are_all_there_is_told() {
    let node = Node::with_records(&[&["a"], &["b"]], End::Stopped);
    let file = &node.journal()[0];
    let whole = fs::metadata(&file.path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&file.path).unwrap().set_len(whole / 2).unwrap();
    let start = node.goes_on_with(&["a", "b"]);
    let short = format!("it was made with {whole} bytes and has {}", whole / 2);
    start.warned_of(&[&file.name, &short, "No record is missing"]);
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

#[test]
fn no_journal_on_one_of_several_shards_refuses_its_partitions_and_nothing_else() {
    let node = Node::with_topic(
        TWO_SHARDS,
        &["--partitions", "4"],
        &[&["a", "b", "c", "d", "e", "f", "g", "h"]],
        End::Stopped,
    );
    fs::remove_dir_all(node.data().join("shards/1")).unwrap();
    for _ in 0..2 {
        let mut start = node.start();
        let broker = start.broker.take().expect("the catalog is on the other shard");
        let described = node.scratch.lockgate(&broker, &["topic", "describe", "t"]).output().unwrap();
        assert!(shown(&described).contains("the journal knows nothing of it"), "{}", shown(&described));
        let consumed = node.scratch.lockgate(&broker, &["consume", "t"]).output().unwrap();
        assert!(!consumed.status.success(), "{}", shown(&consumed));
        stop(broker);
    }
}
