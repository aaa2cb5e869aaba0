//! A partition's replicated state beside its log: producers and cursors. Made from entries alone, in order; written to
//! checkpoints and read back from them.

use bytes::Bytes;
use lockgate_wire::{LogIndex, Offset, ProducerId, Term, WallMs};
use prost::Message;

use super::cursors::{Cursors, Position};
use super::producers::{Applied, Producers, Remembered};
use lockgate_storage::checkpoint::{CheckpointHeader, MAX_CHUNK_BYTES};

/// Producers, cursors, and the entry up to which they were made.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) producers: Producers,
    pub(crate) cursors: Cursors,
    /// The offset after the last record that is in this state.
    pub(crate) next_offset: Offset,
    /// The last entry that is in this state.
    pub(crate) index: LogIndex,
    pub(crate) term: Term,
    /// The latest append time that is in this state, also of what retention has removed.
    pub(crate) append_time: WallMs,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(message, repeated, tag = "1")]
    producers: Vec<ProducerItem>,
    #[prost(message, repeated, tag = "2")]
    cursors: Vec<CursorItem>,
    #[prost(int64, tag = "3")]
    append_time_ms: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ProducerItem {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int32, tag = "2")]
    epoch: i32,
    #[prost(int64, tag = "3")]
    last_seen_ms: i64,
    #[prost(message, repeated, tag = "4")]
    batches: Vec<BatchItem>,
}

#[derive(Clone, PartialEq, Message)]
struct BatchItem {
    #[prost(int32, tag = "1")]
    first: i32,
    #[prost(int32, tag = "2")]
    last: i32,
    #[prost(uint64, tag = "3")]
    base_offset: u64,
    #[prost(int64, tag = "4")]
    append_time_ms: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CursorItem {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    offset: u64,
    #[prost(int64, tag = "3")]
    committed_ms: i64,
}

impl State {
    /// The state in chunks for a checkpoint, each within a checkpoint's bound.
    pub(crate) fn chunks(&self) -> Vec<Bytes> {
        let producers = self
            .producers
            .applied()
            .map(|(id, p)| Chunk { producers: vec![producer_item(*id, p)], ..Chunk::default() });
        let cursors = self.cursors.iter().map(|(name, position)| {
            let (offset, committed_ms) = (position.offset.0, position.committed.0);
            let cursors = vec![CursorItem { name: name.clone(), offset, committed_ms }];
            Chunk { cursors, ..Chunk::default() }
        });
        let clock = Chunk { append_time_ms: self.append_time.0, ..Chunk::default() };
        let mut chunks: Vec<Bytes> = Vec::new();
        let mut collected = Vec::new();
        for item in producers.chain(cursors).chain([clock]) {
            // The encodings of two messages, one after the other, are the encoding of the two merged.
            if collected.len() + item.encoded_len() > MAX_CHUNK_BYTES {
                chunks.push(std::mem::take(&mut collected).into());
            }
            item.encode_raw(&mut collected);
        }
        if !collected.is_empty() {
            chunks.push(collected.into());
        }
        chunks
    }

    /// The state of a checkpoint. `None` when a chunk is not what [`State::chunks`] makes.
    pub(crate) fn from_chunks(header: &CheckpointHeader, chunks: &[Bytes]) -> Option<Self> {
        let (index, term, next_offset) = (header.index, header.term, header.next_offset);
        let mut state = Self { index, term, next_offset, ..Self::default() };
        for chunk in chunks {
            let chunk = Chunk::decode(chunk.clone()).ok()?;
            state.append_time = state.append_time.max(WallMs(chunk.append_time_ms));
            for item in chunk.producers {
                let epoch = i16::try_from(item.epoch).ok()?;
                let batches = item.batches.into_iter().map(remembered).collect();
                let applied = Applied { epoch, last_seen: WallMs(item.last_seen_ms), batches };
                state.producers.restore(ProducerId(item.id), applied);
            }
            for item in chunk.cursors {
                let position = Position { offset: Offset(item.offset), committed: WallMs(item.committed_ms) };
                state.cursors.restore(item.name, position);
            }
        }
        Some(state)
    }
}

fn producer_item(id: ProducerId, applied: &Applied) -> ProducerItem {
    ProducerItem {
        id: id.0,
        epoch: applied.epoch.into(),
        last_seen_ms: applied.last_seen.0,
        batches: applied
            .batches
            .iter()
            .map(|b| BatchItem {
                first: b.first,
                last: b.last,
                base_offset: b.base_offset.0,
                append_time_ms: b.append_time.0,
            })
            .collect(),
    }
}

fn remembered(item: BatchItem) -> Remembered {
    Remembered {
        first: item.first,
        last: item.last,
        base_offset: Offset(item.base_offset),
        append_time: WallMs(item.append_time_ms),
    }
}

#[cfg(test)]
mod tests;
