//! The file `start`: where the log begins.
//!
//! ```text
//!   0  CRC-32C u32, over 4 to the end   8  first offset u64
//!   4  magic "LGB", version u8         16  index u64, term u64 of the last entry before it
//! ```
//! Little endian. It is written when the partition's directory is made and before every removal, so that a first
//! segment whose name was lost in a crash is never taken for one that retention removed, a removal that was cut short is
//! ended at the next start, and offsets go on where they were when everything was removed.

use bytes::{BufMut, Bytes, BytesMut};
use lockgate_wire::{LogIndex, Offset, Term};

use super::LogPoint;
use crate::disk::{FileOp, Path};
use crate::field::{get_u32, get_u64};

const MAGIC: [u8; 4] = *b"LGB\x01";
/// Size of the file.
pub(super) const BYTES: usize = 32;

/// Its path.
pub(super) fn path(directory: &str) -> Path {
    format!("{directory}/start").into()
}

/// Makes `start` durable.
pub(super) fn replace(directory: &str, start: LogPoint) -> FileOp {
    let mut out = BytesMut::with_capacity(BYTES);
    out.put_u32_le(0);
    out.put_slice(&MAGIC);
    out.put_u64_le(start.offset.0);
    out.put_u64_le(start.index.0);
    out.put_u64_le(start.term.0);
    let crc = crc32c::crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    FileOp::Replace { path: path(directory), pieces: vec![out.freeze()] }
}

/// The start that these bytes state, if they are whole.
pub(super) fn decode(bytes: &Bytes) -> Option<LogPoint> {
    if bytes.len() != BYTES || bytes[4..8] != MAGIC || get_u32(bytes, 0) != crc32c::crc32c(&bytes[4..]) {
        return None;
    }
    let point = LogPoint {
        offset: Offset(get_u64(bytes, 8)),
        index: LogIndex(get_u64(bytes, 16)),
        term: Term(get_u64(bytes, 24)),
    };
    (point.offset.0 <= i64::MAX as u64).then_some(point)
}
