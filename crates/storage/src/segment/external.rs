//! Writing ahead of the journal: large batches go straight into the segments, durably, and the journal refers to them.
//!
//! A write of the journal that brings much for one partition does not carry the batches. They are written here first, from
//! the next block on, together with everything that waits before them; when all of it is durable, and all of the log
//! before it too, the journal's records say where they are. So a frame written ahead is in one place only, and what is
//! before it in the log never ends where a power loss wants.
//!
//! What a crash leaves of it without a record is cut at the next open: nobody was told of it.

use bytes::{BufMut, Bytes, BytesMut};
use lockgate_wire::Offset;

use super::append::written_frame;
use super::frame::{HEADER_BYTES, encode_header};
use super::read::Position;
use super::summary::Segment;
use super::{Segments, StoredBatch, log_path};
use crate::disk::{BLOCK_BYTES, FileOp};
use crate::field::{get_u32, get_u64};
use crate::journal::DataWrite;

/// Where a frame is that was written ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The base offset of its segment.
    pub segment: Offset,
    /// Where it begins in the segment's log.
    pub byte: u64,
    /// Its size, the batch included.
    pub bytes: u64,
    /// The checksum in its header, which stands for all of it.
    pub crc: u32,
}

impl Place {
    /// Its size on a disk.
    pub const ENCODED_BYTES: usize = 8 + 8 + 8 + 4;

    /// Appends it, little endian.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.segment.0);
        out.put_u64_le(self.byte);
        out.put_u64_le(self.bytes);
        out.put_u32_le(self.crc);
    }

    /// The place that these bytes state.
    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Self {
        Self {
            segment: Offset(get_u64(bytes, 0)),
            byte: get_u64(bytes, 8),
            bytes: get_u64(bytes, 16),
            crc: get_u32(bytes, 24),
        }
    }
}

/// A plan to write ahead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// To be carried out in this order, each durable before the journal write that refers to it begins.
    pub writes: Vec<DataWrite>,
    /// Where each of the batches will be.
    pub places: Vec<Place>,
}

impl Ahead {
    /// The same bytes at the same places without a word about durability, for when there was no room and the journal has
    /// the batches after all.
    pub fn into_appends(self) -> Vec<FileOp> {
        let append = |write: DataWrite| FileOp::Write { path: write.path, offset: write.offset, pieces: write.pieces };
        self.writes.into_iter().filter(|write| !write.pieces.is_empty()).map(append).collect()
    }
}

impl Segments {
    /// Plans to write `batches` ahead of the journal, behind `waiting`, which the journal has and no file yet. Confirmed by
    /// [`Segments::written`], as an append is, and by [`Segments::durable`]. Appends that are planned and not confirmed are
    /// to be given again: they are made durable here, whether they are carried out before or after.
    ///
    /// # Panics
    /// As [`Segments::append`]; if an append is planned and not confirmed, and not given; if there is nothing to be written
    /// ahead.
    pub fn append_ahead(&mut self, appends: &[FileOp], waiting: &[StoredBatch], batches: &[StoredBatch]) -> Ahead {
        assert_eq!(self.unwritten.is_empty(), appends.is_empty(), "what is written ahead follows what is in the files");
        assert!(!batches.is_empty(), "nothing to be written ahead");
        let mut writes: Vec<DataWrite> = appends.iter().filter_map(again).collect();
        writes.extend(self.syncs_before(waiting.first().unwrap_or(&batches[0])));
        let mut places = Vec::with_capacity(batches.len());
        let mut headers = BytesMut::with_capacity((waiting.len() + batches.len()) * HEADER_BYTES);
        let mut target = None;
        let both = waiting.iter().map(|batch| (batch, false)).chain(batches.iter().map(|batch| (batch, true)));
        for (batch, is_ahead) in both {
            self.assert_continues(batch);
            if self.needs_new_segment(batch) {
                fill_block(self.segments.back_mut().filter(|last| target == Some(last.base)), &mut writes);
                self.segments.push_back(Segment::new(batch.base_offset));
            }
            let segment = self.segments.back_mut().expect("one was added if there was none");
            if target.replace(segment.base) != Some(segment.base) {
                let is_whole = segment.durable_bytes == segment.bytes;
                let is_new = segment.durable_bytes == 0;
                segment.fill_block();
                let path = log_path(&self.config.directory, segment.base);
                writes.push(DataWrite { path, offset: segment.bytes, pieces: Vec::new(), bytes: 0, is_whole, is_new });
            }
            let header = encode_header(batch, is_ahead);
            let crc = get_u32(&header, 0);
            headers.extend_from_slice(&header);
            let write = writes.last_mut().expect("one was added for the segment");
            write.pieces.extend([headers.split().freeze(), batch.batch.clone()]);
            let byte = segment.bytes;
            segment.add(&written_frame(batch, is_ahead), self.config.index_interval_bytes);
            let bytes = segment.bytes - byte;
            write.bytes += bytes as usize;
            if is_ahead {
                places.push(Place { segment: segment.base, byte, bytes, crc });
            }
        }
        fill_block(self.segments.back_mut(), &mut writes);
        let last = self.segments.back().expect("it has the batches");
        self.unwritten.push_back(Position { segment: last.base, byte: last.bytes, offset: last.end });
        Ahead { writes, places }
    }

    /// What was planned ahead is durable, with all of the log before it.
    pub fn durable(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.durable_bytes = segment.bytes);
    }

    /// Whether all segments that take no more frames are durable: a sync of one that fails takes nothing along, and what
    /// is written ahead does not sync them.
    pub fn closed_are_durable(&self) -> bool {
        let closed = self.segments.len().saturating_sub(1);
        self.segments.iter().take(closed).all(|segment| segment.durable_bytes == segment.bytes)
    }

    /// Whether a segment that may be removed soon would have to be synced before anything can be written ahead.
    pub fn moves_start_over_what_is_not_durable(&self) -> bool {
        self.segments.iter().any(|segment| self.is_going(segment) && segment.durable_bytes < segment.bytes)
    }

    /// The logs that have something that is not durable, but for the one that `batch` goes to.
    fn syncs_before(&self, batch: &StoredBatch) -> Vec<DataWrite> {
        let goes_on = !self.needs_new_segment(batch);
        let others = self.segments.len() - usize::from(goes_on);
        let behind = self.segments.iter().take(others).filter(|segment| segment.durable_bytes < segment.bytes);
        let sync = |segment: &Segment| DataWrite {
            path: log_path(&self.config.directory, segment.base),
            offset: segment.bytes,
            pieces: Vec::new(),
            bytes: 0,
            is_whole: false,
            is_new: segment.durable_bytes == 0,
        };
        behind.map(sync).collect()
    }
}

/// An append once more, this time to be durable.
fn again(append: &FileOp) -> Option<DataWrite> {
    let FileOp::Write { path, offset, pieces } = append else { return None };
    let bytes = pieces.iter().map(Bytes::len).sum();
    let (path, pieces) = (path.clone(), pieces.clone());
    Some(DataWrite { path, offset: *offset, pieces, bytes, is_whole: false, is_new: true })
}

/// Ends a segment's write with zeros at the end of a block.
fn fill_block(segment: Option<&mut Segment>, writes: &mut [DataWrite]) {
    let (Some(segment), Some(write)) = (segment, writes.last_mut()) else { return };
    segment.fill_block();
    let bytes = write.bytes.next_multiple_of(BLOCK_BYTES);
    write.pieces.push(Bytes::from_static(&ZEROS[..bytes - write.bytes]));
    write.bytes = bytes;
}

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
