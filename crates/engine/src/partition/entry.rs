//! What a partition puts into a Raft entry: batches with their stamps, or a command to the partition's state.
//!
//! The batches are the entry's data, by reference; the stamps are its context. Stamp: base offset u64, append time i64,
//! record count u32, bytes u32, little endian.
//!
//! Batches that went straight into the segments leave in the journal, for each, where it is and its header: what a replay
//! needs of a batch that the log has.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use lockgate_storage::segment::Place;
use lockgate_wire::batch::HEADER_BYTES;
use lockgate_wire::{Offset, WallMs};

const BATCHES: u8 = 1;
const COMMAND: u8 = 2;
const EXTERNAL: u8 = 3;
/// What an external batch leaves in its entry.
const EXTERNAL_BYTES: usize = Place::ENCODED_BYTES + HEADER_BYTES;
/// What a batch costs in its entry beside its own bytes.
pub(crate) const STAMP_BYTES: usize = 24;

/// What the leader gave a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub(crate) base_offset: Offset,
    pub(crate) append_time: WallMs,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
}

/// A change of a partition's state that is no record. Conditions are checked when it is applied.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Command {
    #[prost(oneof = "Change", tags = "1, 2, 3")]
    pub(crate) change: Option<Change>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Change {
    #[prost(message, tag = "1")]
    CommitCursor(CommitCursor),
    #[prost(message, tag = "2")]
    DeleteCursor(DeleteCursor),
    /// Idle producers last seen before this time are forgotten.
    #[prost(int64, tag = "3")]
    ExpireProducers(i64),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CommitCursor {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint64, tag = "2")]
    pub(crate) offset: u64,
    #[prost(bool, tag = "3")]
    pub(crate) force: bool,
    #[prost(int64, tag = "4")]
    pub(crate) time_ms: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteCursor {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// An entry, decoded.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    Batches(Vec<(Stamp, Bytes)>),
    Command(Change),
    External(Vec<External>),
}

/// A batch whose data is in the segments.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct External {
    pub(crate) stamp: Stamp,
    pub(crate) place: Place,
    /// The batch's own header.
    pub(crate) header: Bytes,
}

/// Context and data for batches that are in the segments.
pub(crate) fn external(batches: &[External]) -> (Bytes, Bytes) {
    let stamps: Vec<Stamp> = batches.iter().map(|batch| batch.stamp).collect();
    let mut data = BytesMut::with_capacity(batches.len() * EXTERNAL_BYTES);
    for batch in batches {
        batch.place.encode(&mut data);
        data.put_slice(&batch.header[..HEADER_BYTES]);
    }
    (context(EXTERNAL, &stamps), data.freeze())
}

/// The context for batches with these stamps.
pub(crate) fn batches_context(stamps: &[Stamp]) -> Bytes {
    context(BATCHES, stamps)
}

fn context(kind: u8, stamps: &[Stamp]) -> Bytes {
    let mut context = BytesMut::with_capacity(1 + stamps.len() * STAMP_BYTES);
    context.put_u8(kind);
    for stamp in stamps {
        context.put_u64_le(stamp.base_offset.0);
        context.put_i64_le(stamp.append_time.0);
        context.put_u32_le(stamp.count);
        context.put_u32_le(stamp.bytes);
    }
    context.freeze()
}

/// Context and data for a command.
pub(crate) fn command(change: Change) -> (Bytes, Bytes) {
    let command = Command { change: Some(change) };
    (Bytes::from_static(&[COMMAND]), prost::Message::encode_to_vec(&command).into())
}

/// Reads an entry back. The text says what is wrong with one that no build of ours wrote.
pub(crate) fn decode(mut context: Bytes, mut data: Bytes) -> Result<Content, &'static str> {
    if context.is_empty() {
        return Err("an entry without its kind");
    }
    match context.get_u8() {
        BATCHES => {
            let mut batches = Vec::with_capacity(context.len() / STAMP_BYTES);
            for stamp in stamps(context)? {
                if stamp.bytes as usize > data.len() {
                    return Err("a stamp beyond the data");
                }
                batches.push((stamp, data.split_to(stamp.bytes as usize)));
            }
            if data.is_empty() { Ok(Content::Batches(batches)) } else { Err("data without a stamp") }
        }
        EXTERNAL => {
            let stamps = stamps(context)?;
            if stamps.len() * EXTERNAL_BYTES != data.len() {
                return Err("places of a wrong size");
            }
            let batches = stamps.into_iter().map(|stamp| {
                let mut item = data.split_to(EXTERNAL_BYTES);
                let header = item.split_off(Place::ENCODED_BYTES);
                let place = Place::decode(item.first_chunk().expect("it was split there"));
                External { stamp, place, header }
            });
            Ok(Content::External(batches.collect()))
        }
        COMMAND => match prost::Message::decode(data) {
            Ok(Command { change: Some(change) }) => Ok(Content::Command(change)),
            _ => Err("a command that cannot be read"),
        },
        _ => Err("an entry of an unknown kind"),
    }
}

fn stamps(mut context: Bytes) -> Result<Vec<Stamp>, &'static str> {
    if !context.len().is_multiple_of(STAMP_BYTES) {
        return Err("stamps of a wrong size");
    }
    let mut stamps = Vec::with_capacity(context.len() / STAMP_BYTES);
    while context.has_remaining() {
        stamps.push(Stamp {
            base_offset: Offset(context.get_u64_le()),
            append_time: WallMs(context.get_i64_le()),
            count: context.get_u32_le(),
            bytes: context.get_u32_le(),
        });
    }
    Ok(stamps)
}

#[cfg(test)]
mod tests;
