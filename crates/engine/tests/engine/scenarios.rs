//! The stories in `scenarios/*.txt`: a line is something that is done and what must come of it. An answer that is not
//! written in a story fails it.

use std::collections::BTreeMap;
use std::path::Path;

use lockgate_wire::batch::Producer;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::proto::{self};
use lockgate_wire::{ConnectionId, Error, Frame, ProducerId};

use crate::support::{FaultyDisk, Node, config, numbered_batch, publish, subscribe};

/// The size of a batch with one letter, for credits.
fn one_batch() -> u64 {
    numbered_batch(&["a"], None).len() as u64
}

struct Story {
    node: Option<Node>,
    connections: BTreeMap<String, ConnectionId>,
    topics: BTreeMap<String, u64>,
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
            "node" => {
                let mut config = config(line.option("shards", 1));
                config.limits.tail_bytes_per_shard = line.option("memory", config.limits.tail_bytes_per_shard);
                self.node = Some(Node::start(FaultyDisk::default(), config));
            }
            "topic" => {
                let c = *self.connections.values().next().expect("somebody is connected");
                let partitions = line.option("partitions", 1);
                let settings: Vec<(&str, &str)> =
                    line.options.iter().map(|(k, v)| (*k, *v)).filter(|(k, _)| *k != "partitions").collect();
                let topic = self.node().create_topic(c, line.words[1], partitions, &settings);
                self.topics.insert(line.words[1].into(), topic);
            }
            "connect" => {
                let c = self.node().connect(line.option("shard", 0));
                self.connections.insert(line.words[1].into(), c);
            }
            "hold" => match line.words[1] {
                "journal" => self.node().hold_journal = true,
                other => panic!("{other} cannot be held"),
            },
            "release" => self.node().release(),
            "advance" => self.node().advance(line.words[1].parse().unwrap()),
            "crash" | "restart" => self.start_again(&line),
            "read" => {
                let (topic, partition) = self.partition(line.words[1]);
                let c = self.node().connect(0);
                let read = self.node().read_all(c, topic, partition, 0);
                assert_eq!(read.iter().map(|(_, v)| v.trim_end_matches('.')).collect::<Vec<_>>(), line.values());
                self.node().disconnect(c);
            }
            name => self.client(self.connections[name], &line, expected),
        }
    }

    fn start_again(&mut self, line: &Line) {
        let mut node = self.node.take().expect("a node");
        if line.words.get(1) == Some(&"torn") {
            node.tear_held_journal_write();
        }
        self.node = Some(if line.words[0] == "restart" { node.restart() } else { node.crash() });
        self.connections.clear();
    }

    fn client(&mut self, c: ConnectionId, line: &Line, expected: Option<&str>) {
        let Some(verb) = line.words.get(1) else {
            let answer = self.node().oldest_answer(c);
            return assert_eq!(told(answer), expected.unwrap());
        };
        match *verb {
            "publish" => {
                let (topic, partition) = self.partition(line.words[2]);
                let producer = line.options.get("producer").map(|id| Producer {
                    id: ProducerId(id.parse().unwrap()),
                    epoch: 0,
                    base_sequence: line.option("number", 0),
                });
                let value = format!("{:.<1$}", line.values()[0], line.option("size", 1));
                self.node().send_and_run(c, &publish(topic, partition), numbered_batch(&[&value], producer));
            }
            "subscribe" => {
                let place = self.partition(line.words[3]);
                let at = match line.options["from"].split_once(':') {
                    Some(("offset", offset)) => At::Offset(offset.parse().unwrap()),
                    _ => At::Earliest(true),
                };
                let body = subscribe(line.words[2].parse().unwrap(), place, at, credit(line.options["credit"]));
                self.node().send_and_run(c, &body, Default::default());
            }
            "credit" => self.node().credit(c, line.words[2].parse().unwrap(), credit(line.words[3])),
            "delivered" => {
                let delivered = self.node().delivered(c);
                let values: Vec<&str> = delivered.iter().map(|(_, _, value)| value.as_str()).collect();
                assert_eq!(values, line.values());
            }
            "ended" => {
                let (id, _, error) = self.node().ended(c).expect("a subscription ended");
                assert_eq!(format!("{id} {}", error.kind.name()), line.words[2..].join(" "));
                assert_eq!(error.details.earliest_offset.unwrap(), line.option("earliest", 0));
            }
            verb => panic!("no client can {verb}"),
        }
        if let Some(expected) = expected {
            let answer = self.node().oldest_answer(c);
            assert_eq!(told(answer), expected);
        }
    }
}

fn credit(text: &str) -> u64 {
    let digits = text.trim_end_matches(char::is_alphabetic);
    digits.parse::<u64>().unwrap() * one_batch()
}

/// An answer in the words of the stories.
fn told(answer: Option<Result<Frame, Error>>) -> String {
    match answer {
        None => "(nothing)".into(),
        Some(Err(error)) => {
            let expected = error.details.expected_sequence.map(|n| format!(" expected={n}"));
            format!("{}{}", error.kind.name(), expected.unwrap_or_default())
        }
        Some(Ok(frame)) if frame.op() == Some(lockgate_wire::Op::Publish) => {
            let ok: proto::PublishOk = frame.message().unwrap();
            format!("ok offset={}{}", ok.base_offset, if ok.duplicate { " duplicate" } else { "" })
        }
        Some(Ok(frame)) => {
            let ok: proto::SubscribeOk = frame.message().unwrap();
            format!("ok next={} end={}", ok.next_offset, ok.high_watermark)
        }
    }
}

#[test]
fn every_story_goes_as_it_is_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5);
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let mut story = Story { node: None, connections: BTreeMap::new(), topics: BTreeMap::new() };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            println!("{name}:{}: {line}", number + 1);
            let expects_more = line.contains("<-") || line.contains(" delivered ") || line.contains(" ended ");
            let unwritten = story.node.as_ref().map(Node::not_taken).unwrap_or_default();
            assert!(expects_more || unwritten.is_empty(), "came and is not written: {unwritten:?}");
            story.run(line);
        }
        assert_eq!(story.node().not_taken(), Vec::<String>::new(), "{name} ends too early");
        story.node().assert_idle();
    }
}
