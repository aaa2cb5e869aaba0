//! Appending: which bytes go where, and when a new segment begins.

use bytes::{Bytes, BytesMut};
use lockgate_wire::Offset;
use lockgate_wire::batch::BatchHeader;

use super::frame::{Frame, HEADER_BYTES, encode_header, frame_bytes};
use super::read::Position;
use super::summary::Segment;
use super::{Segments, StoredBatch, log_path};
use crate::disk::FileOp;

impl Segments {
    /// Plans to append `batches`: one write per file that they go to. They may be read after [`Segments::written`].
    ///
    /// The writes may be repeated as they are (after a full disk, say): they put the same bytes at the same places.
    ///
    /// # Panics
    /// If a batch does not continue the log (offset, index, term), has no records or is no batch.
    pub fn append(&mut self, batches: &[StoredBatch]) -> Vec<FileOp> {
        let mut ops: Vec<FileOp> = Vec::new();
        let mut headers = BytesMut::with_capacity(batches.len() * HEADER_BYTES);
        let mut target = None;
        for batch in batches {
            self.assert_continues(batch);
            if self.needs_new_segment(batch) {
                self.segments.push_back(Segment::new(batch.base_offset));
            }
            let segment = self.segments.back_mut().expect("one was added if there was none");
            if target.replace(segment.base) != Some(segment.base) {
                let path = log_path(&self.config.directory, segment.base);
                ops.push(FileOp::Write { path, offset: segment.bytes, pieces: Vec::new() });
            }
            let Some(FileOp::Write { pieces, .. }) = ops.last_mut() else { unreachable!("only writes are planned") };
            headers.extend_from_slice(&encode_header(batch, false));
            pieces.extend([headers.split().freeze(), batch.batch.clone()]);
            segment.add(&written_frame(batch, false), self.config.index_interval_bytes);
        }
        if let Some(last) = self.segments.back()
            && !batches.is_empty()
        {
            self.unwritten.push_back(Position { segment: last.base, byte: last.bytes, offset: last.end });
        }
        ops
    }

    /// Says that the appends up to `end`, the end of some call's batches, were carried out.
    pub fn written(&mut self, end: Offset) {
        while let Some(next) = self.unwritten.pop_front_if(|next| next.offset <= end) {
            self.written = next;
        }
    }

    pub(super) fn assert_continues(&self, batch: &StoredBatch) {
        let end = self.end();
        assert!(batch.count > 0 && u32::try_from(batch.batch.len()).is_ok(), "a batch has records and a u32 size");
        assert_eq!(batch.base_offset, end.offset, "a batch begins where the log ends");
        assert!(
            batch.index >= end.index && batch.term >= end.term,
            "entry {} of term {} does not follow {end:?}",
            batch.index,
            batch.term
        );
    }

    /// Batches of one entry share a segment, so that the end of a segment is the end of an entry.
    pub(super) fn needs_new_segment(&self, batch: &StoredBatch) -> bool {
        self.segments.back().is_none_or(|last| {
            let full = last.bytes.saturating_add(frame_bytes(batch)) > self.config.segment_bytes;
            last.sealed || self.is_going(last) || full && last.last_index != batch.index
        })
    }
}

/// What the segments take account of when this batch is appended.
pub(super) fn written_frame(batch: &StoredBatch, is_ahead: bool) -> Frame {
    let header = BatchHeader::parse(&batch.batch).expect("batches are validated before they are proposed");
    Frame {
        batch: StoredBatch { batch: Bytes::new(), ..batch.clone() },
        bytes: HEADER_BYTES + batch.batch.len(),
        max_timestamp: header.max_timestamp,
        crc: 0,
        is_ahead,
    }
}
