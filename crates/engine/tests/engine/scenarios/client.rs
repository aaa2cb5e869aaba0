//! What clients do in a story.

use bytes::Bytes;
use lockgate_wire::batch::Producer;
use lockgate_wire::proto::start_position::At;
use lockgate_wire::{ConnectionId, ProducerId, proto};

use super::told::{ended, told};
use super::{Line, Story};
use crate::support::{numbered_batch, publish, subscribe};

impl Story {
    pub(super) fn client(&mut self, c: ConnectionId, line: &Line, expected: Option<&str>) {
        match line.words[1..] {
            // A line that only waits for an answer.
            [] => {}
            ["publish", place, ..] => {
                let (topic, partition) = self.partition(place);
                let producer = line.options.get("producer").map(|id| Producer {
                    id: ProducerId(id.parse().unwrap()),
                    epoch: 0,
                    base_sequence: line.option("number", 0),
                });
                let value = line.values()[0];
                let value = value.to_owned() + &".".repeat(line.option("size", 0_usize).saturating_sub(value.len()));
                self.node().send_and_run(c, &publish(topic, partition), numbered_batch(&[&value], producer));
            }
            ["subscribe", id, place] => {
                let place = self.partition(place);
                let at = match line.options["from"].split_once(':') {
                    Some(("offset", offset)) => At::Offset(offset.parse().unwrap()),
                    Some(("cursor", name)) => At::Cursor(name.into()),
                    _ => At::Earliest(true),
                };
                let body = subscribe(id.parse().unwrap(), place, at, credit(line.options["credit"]));
                self.node().send_and_run(c, &body, Bytes::new());
            }
            ["credit", _, bytes] => self.node().credit(c, line.number(2), credit(bytes)),
            ["delivered", ..] => {
                let delivered = self.node().delivered(c);
                let id = line.number::<u64>(2);
                let values: Vec<&str> =
                    delivered.iter().filter(|(at, ..)| *at == id).map(|(_, _, value)| value.as_str()).collect();
                assert_eq!((values, delivered.len()), (line.values(), line.values().len()));
            }
            ["ended", ..] => {
                let end = self.node().ended(c).expect("a subscription ended");
                assert_eq!(ended(&end), text_of(line, 2));
            }
            ["going_away"] => {
                let push = self.node().push_of::<proto::GoingAway>(c);
                assert!(push.is_some(), "the node says that it goes");
            }
            ["commit", name, place, _] => {
                let (topic_id, partition) = self.partition(place);
                let (offset, force) = (line.number(4), line.option("force", false));
                let body = proto::CommitCursor { topic_id, partition, name: name.into(), offset, force };
                self.node().send_and_run(c, &body, Bytes::new());
            }
            ["cursor", name, place] => {
                let (topic_id, partition) = self.partition(place);
                let body = proto::GetCursor { topic_id, partition, name: name.into() };
                self.node().send_and_run(c, &body, Bytes::new());
            }
            ["delete", topic] => {
                self.node().send_and_run(c, &proto::DeleteTopic { name: topic.into() }, Bytes::new());
            }
            ["waits", _] => assert_eq!(self.node().unread(c), line.number(2), "requests that are not read yet"),
            _ => panic!("no client can {:?}", line.words),
        }
        if let Some(expected) = expected {
            let answer = self.node().oldest_answer(c);
            assert_eq!(told(answer), expected);
        }
    }
}

/// A line from this word on, with its options, as it is written.
fn text_of(line: &Line, from: usize) -> String {
    let words = line.words[from..].iter().map(|word| word.to_string());
    let options = line.options.iter().map(|(name, value)| format!("{name}={value}"));
    words.chain(options).collect::<Vec<_>>().join(" ")
}

/// Bytes, in batches of one letter.
fn credit(text: &str) -> u64 {
    let digits = text.trim_end_matches(char::is_alphabetic);
    digits.parse::<u64>().unwrap() * numbered_batch(&["a"], None).len() as u64
}
