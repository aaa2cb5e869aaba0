//! The file `.index`: a seal, which says that the log beside it is durable and whole, and the log's sparse index.
//!
//! ```text
//!   0  CRC-32C u32, over 4 to the end   40  last term u64
//!   4  magic "LGX", version u8          48  greatest record timestamp i64
//!   8  base offset u64                  56  latest append time i64
//!  16  end offset u64                   64  number of marks u32
//!  24  log bytes u64                    68  marks: offset u64, byte u64, greatest timestamp before i64
//!  32  last index u64
//! ```
//! Little endian. It only saves reading the log at start: one that is missing or wrong is made anew from the log. Time
//! needs no file of its own: a mark's greatest timestamp never falls, so the same marks are searched by either.

use bytes::{BufMut, Bytes, BytesMut};
use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use super::frame::MIN_FRAME_BYTES;
use super::summary::{Mark, Segment};
use crate::field::{get_u32, get_u64};

const MAGIC: [u8; 4] = *b"LGX\x01";
const HEADER_BYTES: usize = 68;
const MARK_BYTES: usize = 24;

/// The most that a seal takes; a larger file is none and is not read.
pub(super) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Whether the index of a segment of twice this size, with a mark at most every `interval_bytes`, is within
/// [`MAX_BYTES`].
pub(super) fn is_bounded(segment_bytes: u64, interval_bytes: u32) -> bool {
    let marks = segment_bytes.saturating_mul(2) / u64::from(interval_bytes).max(MIN_FRAME_BYTES as u64);
    marks <= (MAX_BYTES - HEADER_BYTES as u64) / MARK_BYTES as u64
}

/// The seal of a segment.
pub(super) fn encode(segment: &Segment) -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_BYTES + segment.marks.len() * MARK_BYTES);
    out.put_u32_le(0);
    out.put_slice(&MAGIC);
    out.put_u64_le(segment.base.0);
    out.put_u64_le(segment.end.0);
    out.put_u64_le(segment.bytes);
    out.put_u64_le(segment.last_index.0);
    out.put_u64_le(segment.last_term.0);
    out.put_i64_le(segment.max_timestamp);
    out.put_i64_le(segment.max_append_time.0);
    out.put_u32_le(segment.marks.len() as u32);
    for mark in &segment.marks {
        out.put_u64_le(mark.offset.0);
        out.put_u64_le(mark.byte);
        out.put_i64_le(mark.max_timestamp_before);
    }
    let crc = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out.freeze()
}

/// The segment that these bytes seal, or `None` if they are no seal of the segment with this base.
pub(super) fn decode(bytes: &[u8], base: Offset) -> Option<Segment> {
    if bytes.len() < HEADER_BYTES || bytes[4..8] != MAGIC || get_u32(bytes, 0) != crc32c::crc32c(&bytes[4..]) {
        return None;
    }
    let (header, marks) = bytes.split_at(HEADER_BYTES);
    if Offset(get_u64(header, 8)) != base || get_u32(header, 64) as usize * MARK_BYTES != marks.len() {
        return None;
    }
    let mark = |bytes: &[u8]| Mark {
        offset: Offset(get_u64(bytes, 0)),
        byte: get_u64(bytes, 8),
        max_timestamp_before: get_u64(bytes, 16) as i64,
    };
    let bytes = get_u64(header, 24);
    Some(Segment {
        base,
        end: Offset(get_u64(header, 16)),
        bytes,
        last_index: LogIndex(get_u64(header, 32)),
        last_term: Term(get_u64(header, 40)),
        max_timestamp: get_u64(header, 48) as i64,
        max_append_time: WallMs(get_u64(header, 56) as i64),
        marks: marks.chunks_exact(MARK_BYTES).map(mark).collect(),
        sealed: true,
        durable_bytes: bytes,
    })
}
