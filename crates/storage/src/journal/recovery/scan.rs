//! Looking at one file: the write at an offset, record by record, and the writes that may stand behind a bad place.
//! Says what is there; what follows from it is decided in `walk`.

use bytes::Bytes;

use super::RecoveredRecord;
use crate::disk::{Disk, DiskResult, Path};
use crate::journal::format::{
    BLOCK_BYTES, FLAG_END, FLAG_MARK, RECORD_HEADER_BYTES, RecordHeader, WRITE_HEADER_BYTES, WriteHeader, record_bytes,
};
use crate::journal::{RecordKind, Sequence};

/// How much is read at once when looking for later writes.
const SCAN_CHUNK_BYTES: usize = 256 * BLOCK_BYTES;

/// Bodies below this size are copied out of what was read.
const COPY_BELOW_BYTES: usize = BLOCK_BYTES;

/// A file, and which writes in it count.
pub(super) struct FileView<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) path: &'a Path,
    pub(super) bytes: u64,
    pub(super) salt: u32,
    pub(super) file_sequence: u64,
    /// The start that opened the file; `None` if its header cannot say.
    pub(super) epoch: Option<u64>,
    /// Whether bytes that are no write of the file's may be left of an earlier life.
    pub(super) reused: bool,
}

impl FileView<'_> {
    /// The header at `offset`, if it is one of this file: not a leftover of the file's earlier life, not misplaced.
    fn header_of(&self, bytes: &[u8], offset: u64) -> Option<WriteHeader> {
        let header = WriteHeader::decode(bytes, self.salt)?;
        let ours = header.file_sequence == self.file_sequence
            && self.epoch.is_none_or(|epoch| header.epoch == epoch)
            && u64::from(header.block) * BLOCK_BYTES as u64 == offset;
        ours.then_some(header)
    }

    /// Where what stands in a block ends, if anything of the file's present life may be there: the block's last byte that is
    /// not zero, or in a file that was used before the end of the write that begins there.
    fn end_of(&self, block: &[u8], at: u64, header: Option<&WriteHeader>) -> Option<u64> {
        if self.reused {
            return header.map(|header| at.saturating_add(header.padded_bytes()).min(self.bytes));
        }
        block.iter().rposition(|byte| *byte != 0).map(|last| at + last as u64 + 1)
    }

    /// The bytes at `offset`, as many as are read at once; none at the end.
    fn chunk(&self, offset: u64) -> DiskResult<Bytes> {
        let left = self.bytes.saturating_sub(offset).min(SCAN_CHUNK_BYTES as u64);
        self.disk.read(self.path, offset, left as usize)
    }
}

/// The start that the first write is of, whichever start the file's header is of.
pub(super) fn first_epoch(view: &FileView<'_>) -> DiskResult<Option<u64>> {
    let block = view.disk.read(view.path, BLOCK_BYTES as u64, BLOCK_BYTES)?;
    Ok(view.header_of(&block, BLOCK_BYTES as u64).map(|header| header.epoch))
}

/// What stands at the place of a write.
pub(super) enum Found {
    /// A write, all of it.
    Write(WriteHeader, Vec<RecoveredRecord>, u32),
    /// No whole write: a tear can look like this, and so can rot. With the header, if that much is there.
    Broken(Option<WriteHeader>, String),
    /// Checksums are right and the contents are not: no crash leaves that.
    Contradiction(String),
}

/// Why records of a write do not count.
#[derive(Debug)]
pub(in crate::journal) enum RecordsFault {
    Broken(String),
    Contradiction(String),
}

/// The write at `offset`, where `chain` is the chain's value.
pub(super) fn write_at(view: &FileView<'_>, offset: u64, chain: u32) -> DiskResult<Found> {
    let left = view.bytes.saturating_sub(offset);
    if left < BLOCK_BYTES as u64 {
        return Ok(Found::Broken(None, "the file ends".into()));
    }
    let mut bytes = view.disk.read(view.path, offset, BLOCK_BYTES)?;
    let Some(header) = view.header_of(&bytes, offset) else {
        let zero = bytes.iter().all(|byte| *byte == 0);
        return Ok(Found::Broken(
            None,
            if zero { "nothing was written" } else { "there is no good write header" }.into(),
        ));
    };
    if let Some(what) = contradiction(&header, left, chain) {
        return Ok(Found::Contradiction(what));
    }
    if header.length as usize > bytes.len() {
        bytes = view.disk.read(view.path, offset, header.length as usize)?;
    }
    Ok(match records(&header, &bytes) {
        Ok((records, chain)) => Found::Write(header, records, chain),
        Err(RecordsFault::Broken(why)) => Found::Broken(Some(header), why),
        Err(RecordsFault::Contradiction(what)) => Found::Contradiction(what),
    })
}

fn contradiction(header: &WriteHeader, left: u64, chain: u32) -> Option<String> {
    let WriteHeader { length, count, flags, first_sequence, .. } = header;
    if (*length as usize) < WRITE_HEADER_BYTES || header.padded_bytes() > left {
        return Some(format!("a write of {length} bytes where {left} are left"));
    }
    if flags & !(FLAG_MARK | FLAG_END) != 0 || (*count == 0) != (flags & FLAG_MARK != 0) {
        return Some(format!("a write of {count} records with flags {flags:#x}"));
    }
    if header.chain != chain || *first_sequence == 0 || first_sequence.checked_add(u64::from(*count)).is_none() {
        return Some(format!(
            "a write that begins with record {first_sequence}, but does not follow the one before it"
        ));
    }
    None
}

/// The records of a write and the chain's value after them. `bytes` begin with the write's header, which was verified.
pub(in crate::journal) fn records(
    header: &WriteHeader,
    bytes: &Bytes,
) -> Result<(Vec<RecoveredRecord>, u32), RecordsFault> {
    let broken = |at: u64, what: &str| RecordsFault::Broken(format!("record {at} {what}"));
    let Some(mut rest) = bytes.get(WRITE_HEADER_BYTES..header.length as usize) else {
        return Err(broken(header.first_sequence, "is cut short"));
    };
    let mut chain = header.chain;
    let mut found = Vec::new();
    for sequence in header.first_sequence..header.next_sequence() {
        let (record, after) =
            RecordHeader::decode(rest, chain).ok_or_else(|| broken(sequence, "has no good header"))?;
        chain = after;
        let end = record_bytes(record.body_bytes as usize);
        let kind = RecordKind::from_code(record.kind);
        let (Some(kind), true, true) = (kind, record.sequence == sequence, end <= rest.len()) else {
            let what =
                format!("record {sequence} says: record {} of kind {}, {end} bytes", record.sequence, record.kind);
            return Err(RecordsFault::Contradiction(what));
        };
        let body = &rest[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + record.body_bytes as usize];
        if crc32c::crc32c(body) != record.body_crc {
            return Err(broken(sequence, "does not match its body's CRC"));
        }
        found.push(RecoveredRecord {
            sequence: Sequence(sequence),
            group: record.group,
            replica: record.replica,
            kind,
            counter: record.counter,
            // A small body must not pin the whole write.
            body: if body.len() < COPY_BELOW_BYTES { Bytes::copy_from_slice(body) } else { bytes.slice_ref(body) },
        });
        rest = &rest[end..];
    }
    if rest.is_empty() {
        return Ok((found, chain));
    }
    Err(RecordsFault::Contradiction(format!("{} bytes follow the last of {} records", rest.len(), header.count)))
}

/// The next write behind a place where the chain does not go on.
pub(super) struct NextWrite {
    /// Where it is, and its header.
    pub(super) write: Option<(u64, WriteHeader)>,
    /// Behind the last byte before it that may be of this life; the place itself if there is none.
    pub(super) end: u64,
}

/// Looks at everything from `offset` on, for a write from `writes_from` on.
pub(super) fn next_write(view: &FileView<'_>, offset: u64, writes_from: u64) -> DiskResult<NextWrite> {
    let mut next = NextWrite { write: None, end: offset };
    each_block(view, offset, &mut |at, block| {
        let header = view.header_of(block, at);
        next.end = view.end_of(block, at, header.as_ref()).unwrap_or(next.end);
        next.write = header.filter(|_| at >= writes_from).map(|header| (at, header));
        next.write.is_some()
    })?;
    Ok(next)
}

/// What stands behind a place where the chain does not go on, to the file's end.
pub(super) struct Beyond {
    /// The highest record that a write states as synced; 0 if there is no write.
    pub(super) synced: u64,
    /// The highest file that a write states as the oldest one needed; 0 if there is no write.
    pub(super) oldest_file: u64,
    /// Behind the last byte that may be of this life; the place itself if there is none.
    pub(super) end: u64,
}

/// Looks at everything from `offset` on, for writes from `writes_from` on.
pub(super) fn beyond(view: &FileView<'_>, offset: u64, writes_from: u64) -> DiskResult<Beyond> {
    let mut found = Beyond { synced: 0, oldest_file: 0, end: offset };
    each_block(view, offset, &mut |at, block| {
        let header = view.header_of(block, at);
        found.end = view.end_of(block, at, header.as_ref()).unwrap_or(found.end);
        if let Some(header) = header.filter(|_| at >= writes_from) {
            found.synced = found.synced.max(header.synced);
            found.oldest_file = found.oldest_file.max(header.oldest_file);
        }
        false
    })?;
    Ok(found)
}

/// Gives each block from `offset` on, until one is the last that is wanted.
fn each_block(view: &FileView<'_>, offset: u64, is_last: &mut dyn FnMut(u64, &[u8]) -> bool) -> DiskResult<()> {
    let mut at = offset;
    loop {
        let chunk = view.chunk(at)?;
        if chunk.is_empty() {
            return Ok(());
        }
        for block in chunk.chunks(BLOCK_BYTES) {
            if is_last(at, block) {
                return Ok(());
            }
            at += block.len() as u64;
        }
    }
}
