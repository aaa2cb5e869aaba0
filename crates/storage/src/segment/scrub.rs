//! Scrubbing: sealed segments are read again, each frame by frame and then its seal, so that damage is found before a
//! reader or a start comes to it.
//!
//! It says what is damaged, and mends nothing. Behind a damaged place it goes on at the next one that the index in memory
//! knows, so that no place hides those further on.

use bytes::Bytes;
use lockgate_wire::Offset;

use super::frame::frame_bytes;
use super::summary::Segment;
use super::{LogPoint, Position, SegmentError, Segments, index, index_path, log_path};
use crate::disk::{DiskError, DiskResult, FileOp, Path};

/// A walk over the sealed segments of a log, oldest first. One read of it is under way at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scrub {
    /// Where the next read begins; at a segment's end its seal is read.
    at: Position,
    /// The log up to there; `None` behind damage in the same segment.
    before: Option<LogPoint>,
    /// Bytes that a frame needs, when a read was too short for it.
    need: usize,
    /// Bytes that the read under way asked for.
    asked: usize,
}

/// A place in the sealed segments of a log: the segment's base and a byte of its log. Where that is its end, it stands for
/// the seal.
pub type ScrubPlace = (Offset, u64);

/// What a read of a scrub found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scrubbed {
    /// Everything from this place to where the scrub is now is as it was written.
    Good(ScrubPlace),
    /// This place is damaged.
    Damaged(ScrubPlace, Damage),
    /// Nothing was read, for want of means or because retention removed the segment: to be gone on with.
    Nothing,
}

/// What is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damage {
    /// Frames: whoever reads there is refused.
    Log(SegmentError),
    /// A seal: no reader needs it, and the next open reads the log instead.
    Seal {
        /// The file.
        path: Path,
        /// What is wrong.
        reason: String,
    },
}

impl Default for Scrub {
    fn default() -> Self {
        Self::of(Offset(0), LogPoint::default())
    }
}

impl Scrub {
    fn of(base: Offset, before: LogPoint) -> Self {
        Self { at: Position::first(base), before: Some(before), need: 0, asked: 0 }
    }

    /// Where the next read begins.
    pub fn place(&self) -> ScrubPlace {
        (self.at.segment, self.at.byte)
    }
}

impl Segments {
    /// Plans the scrub's next read, of up to `max_bytes` unless a frame or a seal is larger; it is to be answered by
    /// [`Segments::scrubbed`]. `None` at the end of what is sealed.
    pub fn scrub(&self, scrub: &mut Scrub, max_bytes: usize) -> Option<FileOp> {
        let from = self.segments.partition_point(|segment| segment.base < scrub.at.segment);
        let number = from + self.segments.range(from..).position(|segment| segment.sealed)?;
        let segment = &self.segments[number];
        if scrub.place() == (segment.base, 0) || scrub.at.segment != segment.base {
            let before = number.checked_sub(1).map_or(self.start, |before| self.segments[before].end());
            *scrub = Scrub { need: scrub.need, ..Scrub::of(segment.base, before) };
        }
        let left = segment.bytes - scrub.at.byte;
        let (path, offset) = if left == 0 {
            // One byte more shows that it ends where it should.
            scrub.asked = index::encode(segment).len() + 1;
            (index_path(&self.config.directory, segment.base), 0)
        } else {
            scrub.asked = usize::try_from(left).unwrap_or(usize::MAX).min(max_bytes.max(scrub.need).max(1));
            (log_path(&self.config.directory, segment.base), scrub.at.byte)
        };
        Some(FileOp::Reread { path, offset, len: scrub.asked })
    }

    /// Takes the answer to the scrub's read, and moves it on.
    pub fn scrubbed(&self, scrub: &mut Scrub, result: DiskResult<Bytes>) -> Scrubbed {
        let number = self.segments.binary_search_by_key(&scrub.at.segment, |segment| segment.base);
        // A segment that is gone was removed by retention meanwhile; its file may be gone too.
        let Some(segment) = number.ok().map(|number| &self.segments[number]) else { return Scrubbed::Nothing };
        if result.as_ref().is_err_and(DiskError::is_want_of_means) {
            return Scrubbed::Nothing;
        }
        let place = scrub.place();
        let found = if scrub.at.byte == segment.bytes {
            let found = self.check_seal(segment, result);
            *scrub = Scrub { need: scrub.need, ..Scrub::of(segment.end, segment.end()) };
            found
        } else {
            self.check_frames(scrub, segment, result).map_err(Damage::Log)
        };
        match found {
            Ok(()) => Scrubbed::Good(place),
            Err(damage) => Scrubbed::Damaged(place, damage),
        }
    }

    fn check_seal(&self, segment: &Segment, result: DiskResult<Bytes>) -> Result<(), Damage> {
        let reason = match result {
            Ok(bytes) if bytes == index::encode(segment) => return Ok(()),
            Ok(_) => "it is not what its log was sealed with".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Damage::Seal { path: index_path(&self.config.directory, segment.base), reason })
    }

    /// Checks the frames of a read as a reader would, and that entries are in order and end with the segment. Behind what
    /// is damaged the scrub goes on where the next frame is known to begin.
    fn check_frames(
        &self,
        scrub: &mut Scrub,
        segment: &Segment,
        result: DiskResult<Bytes>,
    ) -> Result<(), SegmentError> {
        let (at, path) = (scrub.at, log_path(&self.config.directory, segment.base));
        let damaged = |position, reason| SegmentError::Damaged { path: path.clone(), position, reason };
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => {
                // Of a file that cannot be read at all nothing else has to be said.
                let is_part = error.stage == "read" && !error.is_missing();
                skip(scrub, segment, if is_part { at.byte + scrub.asked as u64 } else { segment.bytes });
                return Err(if error.is_missing() { damaged(0, "it is missing") } else { error.into() });
            }
        };
        let is_short = bytes.len() < scrub.asked;
        let parsed = match self.parse(at, scrub.asked, bytes) {
            Ok(parsed) => parsed,
            Err(error) => {
                skip(scrub, segment, if is_short { segment.bytes } else { at.byte + 1 });
                return Err(error);
            }
        };
        // A frame that is larger than a read is rarely alone.
        scrub.need = scrub.need.max(parsed.need.unwrap_or(0));
        let mut before = scrub.before;
        let mut position = at.byte;
        for batch in &parsed.batches {
            if before.is_some_and(|before| batch.index < before.index || batch.term < before.term) {
                skip(scrub, segment, position + 1);
                return Err(damaged(position, "an entry that is older than the one before it"));
            }
            before = Some(LogPoint { offset: batch.end_offset(), index: batch.index, term: batch.term });
            position += frame_bytes(batch);
        }
        let is_end = parsed.next.segment != at.segment || parsed.next.byte == segment.bytes;
        if is_end && before.is_some_and(|before| before != segment.end()) {
            skip(scrub, segment, segment.bytes);
            return Err(damaged(position, "it ends with another entry than it was sealed with"));
        }
        scrub.before = before;
        scrub.at = if is_end { end_of(segment) } else { parsed.next };
        Ok(())
    }
}

/// Goes on at the first frame that is known to begin at or behind this byte, else at the seal.
fn skip(scrub: &mut Scrub, segment: &Segment, from: u64) {
    let next = segment.marks.iter().find(|mark| mark.byte >= from);
    let known = |mark: &super::summary::Mark| Position { segment: segment.base, byte: mark.byte, offset: mark.offset };
    (scrub.at, scrub.before) = (next.map_or(end_of(segment), known), None);
}

fn end_of(segment: &Segment) -> Position {
    Position { segment: segment.base, byte: segment.bytes, offset: segment.end }
}
