//! A frame: what the log knows about a batch, then the batch.
//!
//! ```text
//!   0  CRC-32C u32, over 4 to 48 and the first 21 bytes of the batch
//!   4  magic "LGF", version u8        24  append time i64
//!   8  log index u64                  32  base offset u64
//!  16  term u64                       40  record count u32
//!                                     44  batch bytes u32
//!  48  the batch, with its own CRC over its bytes from 21 on
//! ```
//! Little endian. The header's checksum goes on over what the batch's does not cover, so every byte is under one of the
//! two, and a size is believed only when it is proven.
//!
//! The version says whether the journal had the batch before: 1, it had; 2, the frame was written *ahead* of its journal
//! record, which refers to it. Frames written ahead begin at a block and end with zeros up to the next one, the *filler*:
//! what is durable and in no other place shares no block with what is written later.

use bytes::Bytes;
use lockgate_wire::batch::{BatchHeader, HEADER_BYTES as BATCH_HEADER_BYTES};
use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use super::StoredBatch;
use crate::disk::BLOCK_BYTES;
use crate::field::{get_u32, get_u64};

/// Bytes before the batch.
pub(super) const HEADER_BYTES: usize = 48;
/// The smallest frame: what must be there before anything is believed.
pub(super) const MIN_FRAME_BYTES: usize = HEADER_BYTES + BATCH_HEADER_BYTES;
/// The version of a batch that the journal had before.
pub(super) const VERSION: u8 = 1;
/// The version of a batch that is written ahead of its journal record, and the latest that is known.
pub(super) const VERSION_AHEAD: u8 = 2;
/// First byte of a batch that its own checksum covers.
const BATCH_CRC_FROM: usize = 21;
const MAGIC: [u8; 3] = *b"LGF";

/// A frame that was read.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) batch: StoredBatch,
    /// Bytes of the whole frame.
    pub(super) bytes: usize,
    /// The greatest timestamp of its records.
    pub(super) max_timestamp: i64,
    /// The header's checksum, which goes over the batch's: it stands for all of the frame.
    pub(super) crc: u32,
    /// Whether it was written ahead of its journal record.
    pub(super) is_ahead: bool,
}

/// Why there is no frame at the front of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It takes this many bytes; fewer are there.
    Incomplete(usize),
    /// It is whole, and of a version that is not known.
    Version(u8),
    /// It is not a frame.
    Bad(&'static str),
}

/// Bytes of a batch's frame.
pub(super) fn frame_bytes(batch: &StoredBatch) -> u64 {
    (HEADER_BYTES + batch.batch.len()) as u64
}

/// How many zeros stand before the next block, where `bytes`, which begin at this place of the file, begin with no frame,
/// for this reason. All of them may not be there. `is_end`: the file ends with the bytes.
pub(super) fn filler(bytes: &[u8], position: u64, fault: Fault, is_end: bool) -> Option<usize> {
    let len = (position.next_multiple_of(BLOCK_BYTES as u64) - position) as usize;
    let is_no_frame = match fault {
        Fault::Bad(_) => len > 0,
        // Too few bytes to say so: a frame may begin with zeros, unless nothing follows them.
        Fault::Incomplete(_) => is_end && len > 0 && bytes.len() == len,
        Fault::Version(_) => false,
    };
    (is_no_frame && bytes.iter().take(len).all(|byte| *byte == 0)).then_some(len)
}

/// The header of a batch's frame.
pub(super) fn encode_header(batch: &StoredBatch, is_ahead: bool) -> [u8; HEADER_BYTES] {
    let mut h = [0; HEADER_BYTES];
    h[4..7].copy_from_slice(&MAGIC);
    h[7] = if is_ahead { VERSION_AHEAD } else { VERSION };
    h[8..16].copy_from_slice(&batch.index.0.to_le_bytes());
    h[16..24].copy_from_slice(&batch.term.0.to_le_bytes());
    h[24..32].copy_from_slice(&batch.append_time.0.to_le_bytes());
    h[32..40].copy_from_slice(&batch.base_offset.0.to_le_bytes());
    h[40..44].copy_from_slice(&batch.count.to_le_bytes());
    h[44..48].copy_from_slice(&(batch.batch.len() as u32).to_le_bytes());
    let crc = header_crc(&h, &batch.batch);
    h[0..4].copy_from_slice(&crc.to_le_bytes());
    h
}

/// The checksum of a header and the front of its batch, which has at least a batch header's bytes.
fn header_crc(header: &[u8], batch: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[4..HEADER_BYTES]), &batch[..BATCH_CRC_FROM])
}

/// Reads the frame at the front of `bytes`, which may go on.
pub(super) fn decode(bytes: &Bytes) -> Result<Frame, Fault> {
    if bytes.len() < MIN_FRAME_BYTES {
        return Err(Fault::Incomplete(MIN_FRAME_BYTES));
    }
    let header = &bytes[..HEADER_BYTES];
    if header[4..7] != MAGIC {
        return Err(Fault::Bad("no frame begins here"));
    }
    if get_u32(header, 0) != header_crc(header, &bytes[HEADER_BYTES..]) {
        return Err(Fault::Bad("the frame header's checksum does not match"));
    }
    let is_ahead = header[7] == VERSION_AHEAD;
    if !is_ahead && header[7] != VERSION {
        return Err(Fault::Version(header[7]));
    }
    let (base_offset, count, size) = (get_u64(header, 32), get_u32(header, 40), get_u32(header, 44) as usize);
    if count == 0 || size < BATCH_HEADER_BYTES || base_offset > i64::MAX as u64 - u64::from(count) {
        return Err(Fault::Bad("the frame header's count, size or offset is impossible"));
    }
    let whole = HEADER_BYTES + size;
    if bytes.len() < whole {
        return Err(Fault::Incomplete(whole));
    }
    let batch = bytes.slice(HEADER_BYTES..whole);
    let batch_header = BatchHeader::parse(&batch).map_err(|_| Fault::Bad("the batch has no batch header"))?;
    if batch_header.size() != size || i64::from(batch_header.count) != i64::from(count) {
        return Err(Fault::Bad("the batch and its frame header state different sizes or counts"));
    }
    if crc32c::crc32c(&batch[BATCH_CRC_FROM..]) != batch_header.crc {
        return Err(Fault::Bad("the batch's checksum does not match"));
    }
    let batch = StoredBatch {
        index: LogIndex(get_u64(header, 8)),
        term: Term(get_u64(header, 16)),
        append_time: WallMs(get_u64(header, 24) as i64),
        base_offset: Offset(base_offset),
        count,
        batch,
    };
    let crc = get_u32(header, 0);
    Ok(Frame { batch, bytes: whole, max_timestamp: batch_header.max_timestamp, crc, is_ahead })
}
