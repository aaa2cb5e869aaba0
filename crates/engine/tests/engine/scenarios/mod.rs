//! The stories in `scenarios/*.txt`: a line is something that is done and what must come of it. What comes and is not
//! written in a story fails it. `scenarios/README.md` tells the words.

mod client;
mod told;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use lockgate_engine::{NodeConfig, follow_shard_count};
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_wire::ConnectionId;

use crate::support::{FaultyDisk, Node, config};

struct Story {
    node: Option<Node>,
    connections: BTreeMap<String, ConnectionId>,
    topics: BTreeMap<String, u64>,
    /// The journals' files as they were when somebody copied them.
    copy: Option<FaultyDisk>,
}

/// The words of a line and its `key=value` options.
struct Line<'a> {
    words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Self {
        let (options, words) = text.split_whitespace().partition::<Vec<_>, _>(|w| w.contains('=') && *w != "==");
        Self { words, options: options.into_iter().filter_map(|option| option.split_once('=')).collect() }
    }

    fn option<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.options.get(name).map_or(default, |value| value.parse().ok().expect("an option's value"))
    }

    /// What stands in quotes.
    fn values(&self) -> Vec<&'a str> {
        self.words.iter().filter(|word| word.starts_with('"')).map(|word| word.trim_matches('"')).collect()
    }

    /// The word at this place as a number.
    fn number<T: std::str::FromStr>(&self, at: usize) -> T {
        self.words[at].parse().ok().expect("a number")
    }
}

impl Story {
    fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("a story begins with its node")
    }

    fn partition(&self, text: &str) -> (u64, u32) {
        let (topic, partition) = text.split_once('/').expect("topic/partition");
        (self.topics[topic], partition.parse().unwrap())
    }

    fn run(&mut self, text: &str) {
        let (done, expected) = match text.split_once("->").or_else(|| text.split_once("<-")) {
            Some((done, expected)) => (done, Some(expected.trim())),
            None => (text, None),
        };
        let line = Line::parse(done);
        match line.words[0] {
            "node" => self.node = Some(start(&line)),
            "connect" => {
                let c = self.node().connect(line.option("shard", 0));
                self.connections.insert(line.words[1].into(), c);
            }
            "topic" => self.create_topic(&line),
            "hold" => match line.words[1] {
                "journal" => self.node().hold_journal = true,
                "reads" => self.node().hold_reads = true,
                other => panic!("{other} cannot be held"),
            },
            "release" => self.node().release(),
            "advance" => self.node().advance(line.number(1)),
            "disk" | "journal" | "segments" => self.disk(&line),
            "crash" | "restart" => self.start_again(&line),
            "stop" => self.node().begin_stop(),
            "stopped" => {
                let node = self.node();
                assert_eq!(node.stopped, node.shards.len(), "shards that have stopped");
            }
            "read" => self.read(&line),
            "log" => {
                let is_meant = |said: &String| line.words[2..].iter().all(|word| said.contains(word));
                let logs = &self.node().logs;
                assert!(logs.iter().any(is_meant), "{logs:?}");
            }
            name => self.client(self.connections[name], &line, expected),
        }
    }

    fn create_topic(&mut self, line: &Line) {
        let c = *self.connections.values().next().expect("somebody is connected");
        let partitions = line.option("partitions", 1);
        let settings: Vec<(&str, &str)> =
            line.options.iter().map(|(k, v)| (*k, *v)).filter(|(k, _)| *k != "partitions").collect();
        let topic = self.node().create_topic(c, line.words[1], partitions, &settings);
        self.topics.insert(line.words[1].into(), topic);
    }

    fn disk(&mut self, line: &Line) {
        match line.words[..] {
            ["disk", "fails", "sync", "of", path] => self.node().disk.fail("sync", path, EIO),
            ["disk", "fails", "write", "of", path] => self.node().disk.fail("write", path, EIO),
            ["journal", "freed", files] => {
                let freed = self.node().metrics(0).journal.files_freed;
                assert!(freed >= files.parse().expect("a number"), "{freed} files were freed");
            }
            ["journal", "refers", "to", batches] => {
                let referred = self.node().metrics(0).journal.external_records;
                assert_eq!(referred, batches.parse::<u64>().expect("a number"), "batches that went once");
            }
            ["journal", "damaged", _] => self.turn_a_bit("shards/", line.values()[0]),
            ["segments", "damaged", _] => self.turn_a_bit("partitions/", line.values()[0]),
            ["disk", "full"] => self.node().disk.fail("grow", "", DiskError::ENOSPC),
            ["disk", "heals"] => self.node().disk.heal(),
            ["journal", "copied"] => self.copy = Some(self.node().disk.copy()),
            ["journal", "put", "back"] => {
                let copy = self.copy.take().expect("a copy");
                self.node().disk.lose_since(&copy, "shards/");
            }
            _ => panic!("{:?} is not known", line.words),
        }
    }

    /// In the first letter of this value, wherever these files have it.
    fn turn_a_bit(&mut self, files: &str, value: &str) {
        let disk = &self.node().disk;
        let mut turned = 0;
        for path in disk.files(files) {
            let bytes = disk.memory.file(&path).expect("a file that is listed");
            let is_here = |at: &usize| bytes[*at..].starts_with(value.as_bytes());
            for at in (0..bytes.len()).filter(is_here) {
                disk.memory.write(&path, at as u64, &[vec![bytes[at] ^ 1].into()]).unwrap();
                turned += 1;
            }
        }
        assert!(turned > 0, "no file in {files} has {value:?}");
    }

    fn start_again(&mut self, line: &Line) {
        let mut node = self.node.take().expect("a node");
        if let Some(shards) = line.options.get("shards") {
            node.stop();
            let shards = shards.parse().expect("a number");
            let to = NodeConfig { shards, journals: node.config.journals + 1, ..(*node.config).clone() };
            let moved = follow_shard_count(&node.disk, &node.config, &to, |_| Ok::<_, Infallible>(()));
            assert!(matches!(moved, Ok(Some(_))), "{moved:?}");
            (self.node, self.connections) = (Some(Node::start_at(node.disk, to, node.now)), BTreeMap::new());
            return;
        }
        match line.words[1..] {
            [] => {}
            ["torn"] => node.tear_held_journal_write(),
            ["power"] => node.disk.lose_unsynced(),
            _ => panic!("{:?} is not known", line.words),
        }
        self.node = Some(if line.words[0] == "restart" { node.restart() } else { node.crash() });
        self.connections.clear();
    }

    fn read(&mut self, line: &Line) {
        let (topic, partition) = self.partition(line.words[1]);
        let from = line.option("from", 0);
        let c = self.node().connect(0);
        let read = self.node().read_all(c, topic, partition, from);
        assert_eq!(read.iter().map(|(_, v)| v.trim_end_matches('.')).collect::<Vec<_>>(), line.values());
        self.node().disconnect(c);
    }
}

const EIO: i32 = 5;

fn start(line: &Line) -> Node {
    let mut config = config(line.option("shards", 1));
    config.limits.tail_bytes_per_shard = line.option("memory", config.limits.tail_bytes_per_shard);
    config.limits.unanswered_requests = line.option("unanswered", config.limits.unanswered_requests);
    config.journal.file_bytes = line.option("journal_file", config.journal.file_bytes);
    config.journal.max_write_bytes = config.journal.max_write_bytes.min(config.journal.file_bytes as u32 / 2);
    config.journal.external_min_bytes = line.option("large", config.journal.external_min_bytes);
    if let Some(files) = line.options.get("journal_files") {
        config.journal.max_bytes = config.journal.file_bytes * files.parse::<u64>().expect("a number");
    }
    Node::start(FaultyDisk::default(), config)
}

#[test]
fn every_story_goes_as_it_is_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect();
    files.sort();
    assert!(files.len() >= 28);
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let mut story = Story { node: None, connections: BTreeMap::new(), topics: BTreeMap::new(), copy: None };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            println!("{name}:{}: {line}", number + 1);
            let expects_more = ["<-", " delivered ", " ended ", " going_away"].iter().any(|word| line.contains(word));
            let unwritten = story.node.as_ref().map(Node::not_taken).unwrap_or_default();
            assert!(expects_more || unwritten.is_empty(), "came and is not written: {unwritten:?}");
            story.run(line);
        }
        assert_eq!(story.node().not_taken(), Vec::<String>::new(), "{name} ends too early");
        story.node().assert_idle();
    }
}
