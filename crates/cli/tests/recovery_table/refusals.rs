//! Files that are somebody else's, or of another time: refused, with the values that do not fit.

use std::fs;

use crate::node::{End, Node, ONE_SHARD, TWO_SHARDS};

const NODE_SEVEN: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1"), ("LOCKGATE_NODE_ID", "7")];

fn identity(node: &Node) -> String {
    fs::read_to_string(node.data().join("identity")).unwrap()
}

fn value(identity: &str, key: &str) -> String {
    let line = identity.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    line.unwrap().to_owned()
}

#[test]
fn a_journal_of_another_cluster_is_refused_with_both_ids() {
    let (ours, theirs) = (Node::with_records(&[&["a"]], End::Stopped), Node::with_records(&[&["b"]], End::Stopped));
    fs::rename(ours.data().join("shards"), ours.data().join("own-shards")).unwrap();
    fs::rename(theirs.data().join("shards"), ours.data().join("shards")).unwrap();
    let (our_id, their_id) = (value(&identity(&ours), "cluster"), value(&identity(&theirs), "cluster"));
    ours.is_refused(&[&our_id, &their_id, "point the node to its own data directory"]);
    fs::remove_dir_all(ours.data().join("shards")).unwrap();
    fs::rename(ours.data().join("own-shards"), ours.data().join("shards")).unwrap();
    ours.goes_on_with(&["a"]).warned_of_nothing();
}

#[test]
fn a_journal_of_another_node_is_refused_with_both_numbers() {
    let (ours, theirs) =
        (Node::with_records(&[&["a"]], End::Stopped), Node::with_topic(NODE_SEVEN, &[], &[&["b"]], End::Stopped));
    // Of one cluster, as far as the header says.
    let cluster = u128::from_str_radix(&value(&identity(&ours), "cluster"), 16).unwrap().to_be_bytes();
    let file = &theirs.journal()[0];
    file.forge_header(|sector| sector[16..32].copy_from_slice(&cluster));
    fs::copy(&file.path, &ours.journal()[0].path).unwrap();
    ours.is_refused(&["node 7", "node 1", "point the node to its own data directory"]);
}

#[test]
fn a_journal_of_another_shard_is_refused_with_both_numbers() {
    let node = Node::with_topic(TWO_SHARDS, &[], &[&["a"]], End::Stopped);
    let shards = node.data().join("shards");
    for (from, to) in [("0", "x"), ("1", "0"), ("x", "1")] {
        fs::rename(shards.join(from), shards.join(to)).unwrap();
    }
    node.is_refused(&["shard 0, but this is the synced journal of", "shard 1, but this is the synced journal of"]);
}

#[test]
fn a_data_directory_of_another_node_is_refused_with_both_numbers() {
    let node = Node::with_records(&[&["a"]], End::Stopped);
    let listen = format!("{}:0", node.scratch.host);
    let mut command = node.scratch.command(&["server", "--data-dir", "data", "--listen", &listen, "--admin", &listen]);
    let output = command.envs(NODE_SEVEN.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("it belongs to node 1, but node.id is 7"), "{error}");
}

#[test]
fn an_unknown_format_version_is_refused_with_the_known_ones() {
    let node = Node::with_topic(ONE_SHARD, &[], &[&["a"], &["b"]], End::Stopped);
    for file in node.journal() {
        let good = file.bytes(0, 4096);
        file.forge_header(|sector| sector[8..12].copy_from_slice(&2_u32.to_le_bytes()));
        node.is_refused(&[&file.name, "has journal format version 2, this program knows version 1"]);
        file.overwrite(0, &good);
    }
    node.goes_on_with(&["a", "b"]).warned_of_nothing();
}

#[test]
fn data_without_a_readable_identity_is_refused_and_nothing_is_made_anew() {
    let node = Node::with_records(&[&["a"]], End::Stopped);
    let path = node.data().join("identity");
    let good = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    node.is_refused(&["no identity of a node"]);
    assert!(!path.exists());
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    node.is_refused(&["its identity file is damaged"]);
    fs::write(&path, good).unwrap();
    node.goes_on_with(&["a"]);
}
