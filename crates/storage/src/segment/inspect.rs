//! What one file of a partition's segments holds, for people: reads anything and decides nothing. What counts is decided
//! by [`Segments::open`](super::Segments::open) alone.

use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use super::frame::{self, Fault, VERSION_AHEAD};
use super::{LogPoint, index, start};
use crate::disk::{Disk, DiskResult};

/// A log is read in pieces of this size, or of one frame's where that is larger.
const READ_BYTES: usize = 1024 * 1024;

/// One frame of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameFacts {
    /// Where it begins in its file.
    pub position: u64,
    /// Its size, the batch included.
    pub bytes: u64,
    /// The Raft entry it came in.
    pub index: LogIndex,
    /// The entry's term.
    pub term: Term,
    /// When the leader appended it.
    pub append_time: WallMs,
    /// The offset of its first record.
    pub base_offset: Offset,
    /// How many records.
    pub count: u32,
    /// The greatest timestamp of its records.
    pub max_timestamp: i64,
    /// Whether it was written ahead of its journal record, which refers to it.
    pub is_ahead: bool,
}

/// Where the frames of a log end, and why if that is before the file does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEnd {
    /// The place after the last good frame, and the filler behind it.
    pub position: u64,
    /// What is wrong with the bytes that follow.
    pub fault: Option<String>,
}

/// What a seal says of the log beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SealFacts {
    /// The offset after the log's last record.
    pub end_offset: Offset,
    /// The log's size.
    pub log_bytes: u64,
    /// Its last entry.
    pub last_index: LogIndex,
    /// That entry's term.
    pub last_term: Term,
    /// The greatest timestamp of its records.
    pub max_timestamp: i64,
    /// The latest append time of its frames.
    pub max_append_time: WallMs,
    /// Entries of the sparse index: offset, and where its frame begins.
    pub marks: Vec<(Offset, u64)>,
}

/// The base offset of a log's name, if it is one.
pub fn log_base(name: &str) -> Option<Offset> {
    super::open::base_of(name, ".log")
}

/// The base offset of a seal's name, if it is one.
pub fn seal_base(name: &str) -> Option<Offset> {
    super::open::base_of(name, ".index")
}

/// Reads a log frame by frame, to the first place that is neither a frame nor filler.
pub fn frames(disk: &dyn Disk, path: &str, frame: &mut dyn FnMut(FrameFacts)) -> DiskResult<LogEnd> {
    let file_bytes = disk.size(path)?;
    let (mut position, mut len) = (0, READ_BYTES);
    loop {
        let mut rest = disk.read(path, position, len)?;
        let is_last = rest.len() < len;
        let fault = loop {
            match frame::decode(&rest) {
                Ok(found) => {
                    drop(rest.split_to(found.bytes));
                    frame(facts(&found, position));
                    position += found.bytes as u64;
                }
                Err(fault) => match frame::filler(&rest, position, fault, position + rest.len() as u64 == file_bytes) {
                    Some(len) if len <= rest.len() => {
                        drop(rest.split_to(len));
                        position += len as u64;
                    }
                    Some(len) => break Fault::Incomplete(len),
                    None => break fault,
                },
            }
        };
        let fault = match fault {
            Fault::Incomplete(_) if position == file_bytes => None,
            Fault::Incomplete(needed) if !is_last && position + needed as u64 <= file_bytes => {
                len = READ_BYTES.max(needed);
                continue;
            }
            Fault::Incomplete(_) => Some("the file ends within a frame".to_owned()),
            Fault::Bad(reason) => Some(reason.to_owned()),
            Fault::Version(found) => Some(format!("it has format version {found}, this release knows {VERSION_AHEAD}")),
        };
        return Ok(LogEnd { position, fault });
    }
}

fn facts(frame: &frame::Frame, position: u64) -> FrameFacts {
    let batch = &frame.batch;
    FrameFacts {
        position,
        bytes: frame.bytes as u64,
        index: batch.index,
        term: batch.term,
        append_time: batch.append_time,
        base_offset: batch.base_offset,
        count: batch.count,
        max_timestamp: frame.max_timestamp,
        is_ahead: frame.is_ahead,
    }
}

/// Reads the seal of the log with this base; `None` if it is none.
pub fn seal(disk: &dyn Disk, path: &str, base: Offset) -> DiskResult<Option<SealFacts>> {
    let bytes = disk.size(path)?;
    if bytes > index::MAX_BYTES {
        return Ok(None);
    }
    let segment = index::decode(&disk.read(path, 0, bytes as usize)?, base);
    Ok(segment.map(|segment| SealFacts {
        end_offset: segment.end,
        log_bytes: segment.bytes,
        last_index: segment.last_index,
        last_term: segment.last_term,
        max_timestamp: segment.max_timestamp,
        max_append_time: segment.max_append_time,
        marks: segment.marks.iter().map(|mark| (mark.offset, mark.byte)).collect(),
    }))
}

/// Reads a file `start`: where the log begins; `None` if it does not say.
pub fn log_start(disk: &dyn Disk, path: &str) -> DiskResult<Option<LogPoint>> {
    Ok(start::decode(&disk.read(path, 0, start::BYTES + 1)?))
}
