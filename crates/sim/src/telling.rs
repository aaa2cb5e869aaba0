//! Steps of a run in words: one line each, with sizes instead of bytes and the short names that the invariants use
//! (`partition 2-0`, `batch 17`, connection `c12`, request `#4`, file operation `f9`).

use std::fmt::{self, Debug, Display};

use lockgate_storage::disk::{DiskResult, FileOp};
use lockgate_storage::journal::JournalWrite;
use lockgate_wire::frame::HARD_MAX_FRAME_BYTES;
use lockgate_wire::{Error, FrameKind, Op, batch, proto};

use crate::history::{Placed, What};

/// Batches of a read that are listed.
const LISTED_MAX: usize = 8;

/// A frame as its receiver understands it.
pub(crate) struct Frame<'a>(pub(crate) &'a lockgate_wire::Frame);
/// A frame as its sender made it.
pub(crate) struct OutFrame<'a>(pub(crate) &'a lockgate_wire::OutFrame);
/// How something ended.
pub(crate) struct Done<'a, T>(pub(crate) &'a DiskResult<T>);
/// A write of a journal.
pub(crate) struct Write<'a>(pub(crate) &'a JournalWrite);
/// An operation on a file.
pub(crate) struct Operation<'a>(pub(crate) &'a FileOp);
/// What an oracle saw.
pub(crate) struct Event<'a>(pub(crate) &'a What);

impl Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = self.0;
        if frame.request_id != 0 {
            write!(f, "#{} ", frame.request_id)?;
        }
        f.write_str(&message(frame))?;
        if !frame.payload.is_empty() {
            let batches = batch::split(frame.payload.clone()).count();
            write!(f, ", {batches} batches of {} bytes", frame.payload.len())?;
        }
        Ok(())
    }
}

impl Display for OutFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.0.to_bytes().as_ref().into();
        match lockgate_wire::Frame::decode(&mut bytes, HARD_MAX_FRAME_BYTES) {
            Ok(Some(frame)) => Display::fmt(&Frame(&frame), f),
            _ => write!(f, "{} unreadable bytes", self.0.size()),
        }
    }
}

/// The message of a frame.
fn message(frame: &lockgate_wire::Frame) -> String {
    fn text(message: Result<impl Debug, Error>) -> String {
        message.map_or_else(|error| error.to_string(), |message| short(&message))
    }
    macro_rules! understand {
        ($($op:ident $($ok:ident)?),+ $(,)?) => {
            match (frame.op(), frame.kind) {
                (_, FrameKind::Error) => text(frame.message::<proto::Error>()),
                $($((Some(Op::$op), FrameKind::Response) => text(frame.message::<proto::$ok>()),)?
                (Some(Op::$op), _) => text(frame.message::<proto::$op>()),)+
                (None, _) => format!("unknown op {}", frame.op),
            }
        };
    }
    understand!(
        Hello HelloOk, Ping PingOk, GoingAway, Close CloseOk, Topology TopologyOk, Publish PublishOk,
        InitProducer InitProducerOk, Subscribe SubscribeOk, Deliver, Credit, Unsubscribe UnsubscribeOk,
        CommitCursor CommitCursorOk, GetCursor GetCursorOk, ListOffsets ListOffsetsOk, Fetch FetchOk,
        SubscriptionClosed, ListCursors ListCursorsOk, DeleteCursor DeleteCursorOk, CreateTopic CreateTopicOk,
        DeleteTopic DeleteTopicOk, DescribeTopic DescribeTopicOk, ListTopics ListTopicsOk, AlterTopic AlterTopicOk
    )
}

/// A value in its debug form, with a partition in the form in which it is named elsewhere.
fn short(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let named = text.split_once("topic_id: ").and_then(|(before, rest)| {
        let (topic, rest) = rest.split_once(", partition: ")?;
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        Some(format!("{before}partition {topic}-{}{}", &rest[..end], &rest[end..]))
    });
    named.unwrap_or(text)
}

impl<T> Display for Done<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(_) => f.write_str("done"),
            Err(error) => write!(f, "FAILED: {error}"),
        }
    }
}

impl Display for Write<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JournalWrite { kind, data, path, open, offset, bytes, sync, last, .. } = self.0;
        let opens = open.as_ref().map(|open| format!("opens {} as ", open.free)).unwrap_or_default();
        let synced = if *sync { "synced" } else { "not synced" };
        for data in data {
            write!(f, "{} at {}, {} bytes, then ", data.path, data.offset, data.bytes)?;
        }
        write!(f, "{kind:?}: {opens}{path} at {offset}, {bytes} bytes up to record {}, {synced}", last.0)
    }
}

impl Display for Operation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |pieces: &[bytes::Bytes]| pieces.iter().map(bytes::Bytes::len).sum::<usize>();
        match self.0 {
            FileOp::Read { path, offset, len } => write!(f, "read {path} at {offset}, {len} bytes"),
            FileOp::Reread { path, offset, len } => write!(f, "read {path} again at {offset}, {len} bytes"),
            FileOp::Write { path, offset, pieces } => write!(f, "write {path} at {offset}, {} bytes", sum(pieces)),
            FileOp::Replace { path, pieces } => write!(f, "replace {path} by {} bytes", sum(pieces)),
            FileOp::Rename { from, to } => write!(f, "rename {from} to {to}"),
            FileOp::Truncate { path, bytes } => write!(f, "truncate {path} to {bytes} bytes"),
            FileOp::Zero { path, bytes, .. } => write!(f, "make {path} of {bytes} bytes"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            What::Sent { batch, partition, chain } => {
                write!(f, "sends batch {batch} to partition {partition} (chain {chain:x})")
            }
            What::Acknowledged { placed, partition, duplicate } => {
                let again = if *duplicate { ", a duplicate" } else { "" };
                write!(f, "partition {partition} has {}{again}", Place(placed))
            }
            What::Refused { batch, kind } => write!(f, "batch {batch} is refused: {kind:?}"),
            What::Opened { reader, partition, start, next, earliest, high_watermark } => write!(
                f,
                "reader {reader} opens partition {partition} from {start:?} at {next} ({earliest} to {high_watermark})"
            ),
            What::Read { reader, partition, batches, next, high_watermark } => {
                write!(f, "reader {reader} reads partition {partition} up to {next} of {high_watermark}:")?;
                places(f, batches)
            }
            What::Bounds { partition, asked, earliest, high_watermark } => {
                let asked = *asked as f64 / 1e9;
                write!(f, "partition {partition} has {earliest} to {high_watermark} (asked at {asked:.6} s)")
            }
            What::Audited { partition, earliest, high_watermark, batches } => {
                write!(f, "the audit reads partition {partition}, {earliest} to {high_watermark}:")?;
                places(f, batches)
            }
            What::Cursor { cursor, what } => write!(f, "cursor {cursor}: {what:?}"),
            What::Topic { name, what } => write!(f, "topic {name}: {what:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}

struct Place<'a>(&'a Placed);

impl Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placed { offset, records, batch } = self.0;
        write!(f, "batch {batch} at {offset} ({records} records)")
    }
}

fn places(f: &mut fmt::Formatter<'_>, batches: &[Placed]) -> fmt::Result {
    batches.iter().take(LISTED_MAX).try_for_each(|placed| write!(f, " {},", Place(placed)))?;
    match batches.len().saturating_sub(LISTED_MAX) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lockgate_wire::PartitionId;
    use lockgate_wire::ids::TopicId;

    use super::*;

    #[test]
    fn a_publish_is_told_with_its_partition_and_without_its_bytes() {
        let body = proto::Publish { topic_id: 2, partition: 0, ack: 1, partitioning_version: 1 };
        let frame = lockgate_wire::OutFrame::new(FrameKind::Request, 4, &body, vec![Bytes::from(vec![7; 900])]);
        let text = OutFrame(&frame).to_string();
        assert!(text.starts_with("#4 Publish { partition 2-0, "), "{text}");
        assert!(text.ends_with("of 900 bytes") && text.len() < 120, "{text}");
    }

    #[test]
    fn a_read_of_many_batches_is_one_short_line() {
        let batches = (0..100).map(|batch| Placed { offset: u64::from(batch), records: 1, batch }).collect();
        let partition = PartitionId { topic: TopicId(1), partition: 3 };
        let text = Event(&What::Read { reader: 5, partition, batches, next: 100, high_watermark: 100 }).to_string();
        assert!(
            text.starts_with("reader 5 reads partition 1-3 up to 100 of 100: batch 0 at 0 (1 records), "),
            "{text}"
        );
        assert!(text.ends_with(" and 92 more") && text.len() < 400, "{text}");
    }
}
