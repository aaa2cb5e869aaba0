//! Publishing below the client library, which would try again by itself: every answer is seen.

use lockgate_wire::batch::{self, BatchBuilder, Codec, Record};
use lockgate_wire::{Error, proto};

use crate::support::raw::Raw;
use crate::support::{Broker, Scratch};

/// A topic `t` with one partition, and a connection to publish to it and read from it.
pub(crate) struct Publisher {
    pub(crate) raw: Raw,
    topic_id: u64,
    /// What was acknowledged, by offset.
    pub(crate) acknowledged: Vec<String>,
}

impl Publisher {
    pub(crate) fn new(scratch: &Scratch, broker: &Broker) -> Self {
        Self::with(scratch, broker, &[])
    }

    /// With settings of the topic.
    pub(crate) fn with(scratch: &Scratch, broker: &Broker, settings: &[&str]) -> Self {
        scratch.run(broker, &[&["topic", "create", "t"], settings].concat());
        Self::again(scratch, broker, Vec::new())
    }

    /// Over a new connection, to a topic that is there already.
    pub(crate) fn again(scratch: &Scratch, broker: &Broker, acknowledged: Vec<String>) -> Self {
        let described = scratch.run(broker, &["topic", "describe", "t", "--json"]);
        let described: serde_json::Value = serde_json::from_str(&described).unwrap();
        let topic_id = described["topic_id"].as_u64().unwrap();
        Self { raw: Raw::hello(&broker.client), topic_id, acknowledged }
    }

    /// Publishes one record of about this size, waits for the answer, and checks that it has the next place.
    pub(crate) fn publish(&mut self, bytes: usize) -> Result<(), Error> {
        let value = format!("{}:{}", self.acknowledged.len(), "x".repeat(bytes));
        let publish = proto::Publish { topic_id: self.topic_id, partitioning_version: 1, ..proto::Publish::default() };
        let ok: proto::PublishOk = self.raw.ask_with(&publish, &encoded(&value))?;
        assert_eq!(ok.base_offset, self.acknowledged.len() as u64, "acknowledged at a place that was taken");
        self.acknowledged.push(value);
        Ok(())
    }

    /// Publishes this many records of this size.
    pub(crate) fn publish_many(&mut self, count: usize, bytes: usize) {
        (0..count).for_each(|_| self.publish(bytes).unwrap());
    }

    /// Reads from an offset on, as much as one answer brings.
    pub(crate) fn fetch(&mut self, offset: u64) -> Result<Vec<String>, Error> {
        let fetch = proto::Fetch { topic_id: self.topic_id, offset, ..proto::Fetch::default() };
        let (_, payload): (proto::FetchOk, _) = self.raw.ask_for_payload(&fetch)?;
        let mut values = Vec::new();
        for one in batch::split(payload) {
            for (_, record) in batch::decode(one.unwrap(), 1 << 24).unwrap().records {
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
        }
        Ok(values)
    }

    /// Everything that was acknowledged is there, at its place, and nothing else.
    pub(crate) fn check(&self, scratch: &Scratch, broker: &Broker) {
        let found = scratch.run(broker, &["consume", "t"]);
        let found: Vec<&str> = found.lines().collect();
        assert!(found.len() >= self.acknowledged.len(), "{} of {} are there", found.len(), self.acknowledged.len());
        for (offset, (found, expected)) in found.iter().zip(&self.acknowledged).enumerate() {
            assert!(found == expected, "offset {offset}: {} instead of {}", head(found), head(expected));
        }
    }
}

fn head(text: &str) -> &str {
    &text[..text.len().min(40)]
}

fn encoded(value: &str) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    let value = Some(bytes::Bytes::copy_from_slice(value.as_bytes()));
    builder.push(&Record { value, ..Record::default() }).unwrap();
    builder.build(None).to_vec()
}
