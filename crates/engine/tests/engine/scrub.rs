//! The scrub: damage in sealed segments is found in time, told once, and disturbs nobody.

use lockgate_engine::{JournalSettings, NodeConfig, ScrubSettings};
use lockgate_storage::disk::Disk;
use lockgate_wire::proto::DeleteTopic;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::{ConnectionId, ErrorKind};

use crate::support::{FaultyDisk, Node, batch, config, publish};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const RATE: u64 = 1 << 20;
const EVERY_MS: u64 = 20_000;
/// Bytes that one read may take beyond what the time allows.
const READ_BYTES: u64 = 256 << 10;
const ALL: u64 = 1 << 30;

fn scrubbing() -> NodeConfig {
    let mut config = config(1);
    config.scrub = ScrubSettings { bytes_per_second: RATE, every_ms: EVERY_MS };
    config.limits.tail_bytes_per_shard = 0; // What segments have is read from there.
    config
}

/// A node whose topic has 6 MB in sealed segments of 1 MiB, and the sealed logs.
fn sealed_with(config: NodeConfig, settings: &[(&str, &str)]) -> (Node, ConnectionId, u64, Vec<String>) {
    let mut node = Node::start(FaultyDisk::default(), config);
    let c = node.connect(0);
    let topic = node.create_topic(c, "orders", 1, &[&[("segment_bytes", "1MiB")], settings].concat());
    let value = "x".repeat(50_000);
    for _ in 0..120 {
        node.publish(c, topic, 0, batch(&[&value])).unwrap();
        node.advance(25);
    }
    node.advance(40_000);
    let sealed: Vec<String> = node.disk.files(".index").iter().map(|index| index.replace(".index", ".log")).collect();
    assert!(sealed.len() >= 5, "{sealed:?}");
    (node, c, topic, sealed)
}

fn sealed() -> (Node, ConnectionId, u64, Vec<String>) {
    sealed_with(scrubbing(), &[])
}

/// Longer than a rest and a pass.
fn a_pass(node: &mut Node) {
    node.advance(EVERY_MS + 12_000);
}

/// Into the middle of a pass.
fn into_a_pass(node: &mut Node) {
    let mut read = node.metrics(0).scrub_bytes;
    let mut rests = 0;
    while rests < 10 {
        node.advance(1_000);
        let now = node.metrics(0).scrub_bytes;
        rests = if now == read { rests + 1 } else { 0 };
        read = now;
    }
    while node.metrics(0).scrub_bytes < read + (3 << 20) {
        node.advance(100);
    }
}

fn turn_a_bit(node: &Node, file: &str) {
    let mut bytes = node.disk.memory.file(file).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    node.disk.memory.set_file(file, bytes);
}

fn told(node: &Node) -> Vec<&String> {
    node.logs.iter().filter(|line| line.contains("the scrub found damage")).collect()
}

fn impairments(node: &Node) -> Vec<String> {
    node.shards[0].impairments()
}

#[test]
fn a_turned_bit_in_a_sealed_segment_is_found_in_the_time_that_the_rate_says_and_told_once() {
    let (mut node, c, topic, files) = sealed();
    a_pass(&mut node);
    assert_eq!((told(&node).len(), node.metrics(0).damaged_places, impairments(&node).len()), (0, 0, 0));
    turn_a_bit(&node, &files[3]);
    let bytes: u64 = files.iter().map(|file| node.disk.memory.file(file).unwrap().len() as u64).sum();
    // The pass may just be past it: that one, a rest, and another.
    node.advance(2 * bytes * 1_000 / RATE + EVERY_MS + 1_000);
    assert_eq!((told(&node).len(), node.metrics(0).damaged_places), (1, 1), "{:?}", node.logs);
    assert!(told(&node)[0].contains(&files[3]) && told(&node)[0].contains("at byte "), "{:?}", told(&node));
    assert!(impairments(&node)[0].contains(&files[3]), "{:?}", impairments(&node));
    for _ in 0..5 {
        a_pass(&mut node);
    }
    assert_eq!((told(&node).len(), node.metrics(0).damaged_places), (1, 1), "{:?}", node.logs);

    // Everything but the place is served.
    assert_eq!(node.publish(c, topic, 0, batch(&["more"])).unwrap().base_offset, 120);
    node.subscribe(c, 1, (topic, 0), At::Earliest(true), ALL).unwrap();
    let before = node.delivered(c).len();
    let (_, _, error) = node.ended(c).unwrap();
    assert!((60..80).contains(&before) && error.kind == ErrorKind::LogDamaged, "{before} {error}");
    node.subscribe(c, 2, (topic, 0), At::Offset(85), ALL).unwrap();
    assert_eq!(node.delivered(c).last().unwrap().1, 120);
    node.assert_idle();
}

#[test]
fn a_scrub_keeps_its_rate_reads_all_of_it_and_rests_after_a_pass() {
    let (mut node, _, _, files) = sealed();
    let size = |file: &String| node.disk.memory.file(file).unwrap().len() as u64;
    let pass: u64 = files.iter().map(|file| size(file) + size(&file.replace(".log", ".index"))).sum();
    let mut seconds = Vec::new();
    for _ in 0..150 {
        let before = node.metrics(0).scrub_bytes;
        node.advance(1_000);
        seconds.push(node.metrics(0).scrub_bytes - before);
    }
    assert!(seconds.iter().all(|bytes| *bytes <= RATE + READ_BYTES), "{seconds:?}");
    // Of those that are cut off by the beginning and the end nothing can be said.
    let mut runs: Vec<&[u64]> = seconds.chunk_by(|a, b| (*a > 0) == (*b > 0)).collect();
    runs.pop();
    runs.remove(0);
    let (passes, rests): (Vec<&[u64]>, Vec<&[u64]>) = runs.into_iter().partition(|run| run[0] > 0);
    assert!(passes.len() >= 3 && rests.len() >= 3, "{seconds:?}");
    // A frame that a read ends in is read again with the next.
    let is_all = |run: &&[u64]| (pass..pass + pass / 8).contains(&run.iter().sum());
    assert!(passes.iter().all(is_all), "{pass} bytes: {passes:?}");
    assert!(rests.iter().all(|run| (19..=21).contains(&run.len())), "{rests:?}");
}

#[test]
fn one_read_is_under_way_at_a_time_and_a_late_one_is_not_made_up_for() {
    let (mut node, ..) = sealed();
    a_pass(&mut node);
    node.hold_background = true;
    node.advance(EVERY_MS + 60_000);
    assert_eq!(node.held(), 1);
    let before = node.metrics(0).scrub_bytes;
    node.release();
    node.advance(1_000);
    assert!(node.metrics(0).scrub_bytes - before <= RATE + 2 * READ_BYTES);
}

/// A turned bit in this segment is found only once nothing fails any more.
fn nothing_is_read_until_the_disk_heals(mut node: Node, segment: &str) {
    turn_a_bit(&node, segment);
    let before = node.metrics(0).scrub_bytes;
    for _ in 0..4 {
        a_pass(&mut node);
    }
    assert_eq!((node.metrics(0).scrub_bytes, told(&node).len()), (before, 0));
    node.disk.heal();
    a_pass(&mut node);
    a_pass(&mut node);
    assert_eq!(told(&node).len(), 1);
}

#[test]
fn a_scrub_gives_way_while_the_disk_is_full_and_goes_on_by_itself() {
    let (mut node, c, topic, files) = sealed();
    node.disk.fail("grow", "partitions/", ENOSPC);
    node.publish(c, topic, 0, batch(&["waits"])).unwrap();
    node.advance(2_000);
    assert_eq!(node.metrics(0).disk_full, 1);
    nothing_is_read_until_the_disk_heals(node, &files[1]);
}

#[test]
fn a_scrub_gives_way_while_a_journal_wants_room_and_goes_on_by_itself() {
    let mut config = scrubbing();
    config.journal = JournalSettings {
        file_bytes: 256 << 10,
        max_write_bytes: 128 << 10,
        max_bytes: 6 * (256 << 10),
        ..JournalSettings::default()
    };
    let (mut node, c, topic, files) = sealed_with(config, &[("max_batch_bytes", "64KiB")]);
    node.disk.fail("write", "partitions/", EIO);
    let value = "x".repeat(50_000);
    while node.publish(c, topic, 0, batch(&[&value])).is_ok() {
        node.advance(25);
    }
    assert_eq!(node.metrics(0).journal_at_bound, 1);
    node.advance(1_000);
    nothing_is_read_until_the_disk_heals(node, &files[1]);
}

#[test]
fn a_stop_reads_no_further() {
    let (mut node, c, topic, _) = sealed();
    into_a_pass(&mut node);
    // What waits for its answer holds the stop up.
    node.hold_journal = true;
    node.send_and_run(c, &publish(topic, 0), batch(&["late"]));
    node.begin_stop();
    let before = node.metrics(0).scrub_bytes;
    node.advance(5_000);
    assert_eq!((node.stopped, node.metrics(0).scrub_bytes), (0, before));
    node.release();
    node.stop();
    assert_eq!(node.metrics(0).scrub_bytes, before);
}

#[test]
fn damage_that_retention_removes_is_over_before_the_next_pass() {
    let mut config = scrubbing();
    config.scrub.every_ms = 10 * EVERY_MS;
    let (mut node, c, topic, files) = sealed_with(config, &[("retention_bytes", "8MiB")]);
    turn_a_bit(&node, &files[0]);
    node.advance(10 * EVERY_MS);
    assert_eq!((told(&node).len(), node.metrics(0).damaged_places, impairments(&node).len()), (1, 1, 1));
    let value = "x".repeat(50_000);
    let read = node.metrics(0).scrub_bytes;
    for _ in 0..120 {
        node.publish(c, topic, 0, batch(&[&value])).unwrap();
        node.advance(500);
    }
    assert!(node.disk.memory.file(&files[0]).is_none() && node.metrics(0).scrub_bytes == read);
    assert_eq!((node.metrics(0).damaged_places, impairments(&node)), (0, Vec::new()));
    for _ in 0..3 {
        node.advance(10 * EVERY_MS);
    }
    assert_eq!(told(&node).len(), 1, "{:?}", told(&node));
}

#[test]
fn a_topic_that_is_deleted_under_a_read_is_no_damage_and_hides_none_of_others() {
    let (mut node, c, topic, _) = sealed();
    let other = node.create_topic(c, "others", 1, &[("segment_bytes", "1MiB")]);
    let value = "x".repeat(50_000);
    for _ in 0..60 {
        node.publish(c, other, 0, batch(&[&value])).unwrap();
    }
    node.advance(40_000);
    into_a_pass(&mut node);
    node.hold_background = true;
    node.advance(300);
    assert!(node.held() > 0);
    let delete = node.send_and_run(c, &DeleteTopic { name: "orders".into() }, Default::default());
    let directory = node.disk.files(&format!("partitions/{topic}-0/"));
    directory.iter().for_each(|file| node.disk.memory.remove(file).unwrap());
    node.release();
    node.answer(c, delete).unwrap().unwrap();
    assert_eq!((told(&node).len(), node.metrics(0).damaged_places), (0, 0), "{:?}", told(&node));
    // The same pass goes on with the others, from their beginning.
    turn_a_bit(&node, &format!("partitions/{other}-0/{:020}.log", 0));
    node.advance(5_000);
    assert_eq!(told(&node).len(), 1);
}

#[test]
fn a_place_that_is_good_again_is_forgotten_and_told_anew_when_it_is_not() {
    let (mut node, _, _, files) = sealed();
    let good = node.disk.memory.file(&files[2]).unwrap();
    for times in 1..3 {
        turn_a_bit(&node, &files[2]);
        a_pass(&mut node);
        a_pass(&mut node);
        assert_eq!((told(&node).len(), node.metrics(0).damaged_places), (times, 1));
        node.disk.memory.set_file(&files[2], good.clone());
        a_pass(&mut node);
        a_pass(&mut node);
        assert_eq!((node.metrics(0).damaged_places, impairments(&node)), (0, Vec::new()));
    }
}

#[test]
fn a_damaged_seal_is_told_as_what_no_reader_needs_and_a_start_makes_it_anew() {
    let (mut node, c, topic, files) = sealed();
    turn_a_bit(&node, &files[1].replace(".log", ".index"));
    a_pass(&mut node);
    a_pass(&mut node);
    assert!(told(&node)[0].contains("No reader needs it") && told(&node).len() == 1, "{:?}", told(&node));
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 120);
    let mut node = node.crash();
    node.advance(60_000);
    a_pass(&mut node);
    assert_eq!((told(&node).len(), node.metrics(0).damaged_places), (0, 0));
    let c = node.connect(0);
    assert_eq!(node.read_all(c, topic, 0, 0).len(), 120);
}

#[test]
fn a_disk_that_cannot_read_a_segment_is_told_and_the_partition_serves() {
    let (mut node, c, topic, files) = sealed();
    node.disk.fail("read", &files[2], EIO);
    a_pass(&mut node);
    a_pass(&mut node);
    let places = node.metrics(0).damaged_places;
    assert!((1..=4).contains(&places) && told(&node).len() as u64 == places, "{:?}", told(&node));
    assert!(told(&node)[0].contains("(errno 5)"), "{:?}", told(&node));
    assert_eq!(node.publish(c, topic, 0, batch(&["more"])).unwrap().base_offset, 120);
}

#[test]
fn a_scrub_that_is_off_reads_nothing() {
    let off = NodeConfig { scrub: ScrubSettings { bytes_per_second: 0, every_ms: 1 }, ..scrubbing() };
    let (mut node, ..) = sealed_with(off, &[]);
    a_pass(&mut node);
    assert_eq!(node.metrics(0).scrub_bytes, 0);
}
