//! Checkpoints: a replica's state machines at one log index, in a file `state.<index, 20 digits>` beside the segments.
//!
//! Owns the format, the choice of the newest file that is whole, and which files are obsolete. The chunks' content is the
//! state machines' own.
//!
//! ```text
//! header, 64 bytes:   magic "LGCHKPT", version u8 | group u64 | replica u64 | index u64 | term u64 | next offset u64
//!                     | chunks u32 | content bytes u64 | CRC u32
//! each chunk:         length u32 | CRC u32 | content
//! end, 12 bytes:      magic "LGE\x01" | chunks u32 | CRC u32
//! ```
//! Little endian. Every CRC-32C goes on from the one before it, over all bytes of its part but itself, so a chunk counts
//! only in its place in its own checkpoint.

use bytes::{BufMut, Bytes, BytesMut};
use lockgate_wire::{GroupId, LogIndex, Offset, ReplicaId, Term};

use crate::disk::{Disk, DiskResult, FileOp, Path};
use crate::field::{get_u32, get_u64};

#[cfg(test)]
mod tests;

/// The largest chunk: what is encoded between other work in one go.
pub const MAX_CHUNK_BYTES: usize = 64 * 1024;
/// How many checkpoints are kept: the newest, and the one to fall back on if it turns out to be bad.
pub const KEPT: usize = 2;

const MAGIC: [u8; 7] = *b"LGCHKPT";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 64;
const CHUNK_HEADER_BYTES: usize = 8;
const END_MAGIC: [u8; 4] = *b"LGE\x01";
const END_BYTES: usize = 12;
const NAME_PREFIX: &str = "state.";

/// Whose state it is, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointHeader {
    /// The Raft group.
    pub group: GroupId,
    /// The replica that made it.
    pub replica: ReplicaId,
    /// Index of the last applied entry.
    pub index: LogIndex,
    /// That entry's term.
    pub term: Term,
    /// The offset of the next record.
    pub next_offset: Offset,
}

/// What [`load_newest`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// The newest checkpoint that is whole, with its chunks.
    pub checkpoint: Option<(CheckpointHeader, Vec<Bytes>)>,
    /// Newer ones that are not, by file name, with what is wrong. They are left in place.
    pub rejected: Vec<(String, String)>,
    /// The checkpoint's index and those of older files, ascending: what [`obsolete`] chooses from.
    pub indices: Vec<LogIndex>,
}

/// The path of the checkpoint at an index.
pub fn path(directory: &str, index: LogIndex) -> Path {
    format!("{directory}/{NAME_PREFIX}{index:020}").into()
}

/// The file's bytes, as pieces for a [`FileOp::Replace`]; the chunks are not copied.
///
/// # Panics
/// If a chunk is larger than [`MAX_CHUNK_BYTES`] or there are more than `u32::MAX`.
pub fn encode(header: &CheckpointHeader, chunks: &[Bytes]) -> Vec<Bytes> {
    let count = u32::try_from(chunks.len()).expect("a checkpoint has at most u32::MAX chunks");
    let content: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    let mut fixed = BytesMut::with_capacity(HEADER_BYTES + chunks.len() * CHUNK_HEADER_BYTES + END_BYTES);
    let mut pieces = Vec::with_capacity(2 * chunks.len() + 2);
    fixed.put_slice(&MAGIC);
    fixed.put_u8(VERSION);
    fixed.put_u64_le(header.group.0);
    fixed.put_u64_le(header.replica.0);
    fixed.put_u64_le(header.index.0);
    fixed.put_u64_le(header.term.0);
    fixed.put_u64_le(header.next_offset.0);
    fixed.put_u32_le(count);
    fixed.put_u64_le(content);
    let mut crc = crc32c::crc32c(&fixed);
    fixed.put_u32_le(crc);
    pieces.push(fixed.split().freeze());
    for chunk in chunks {
        assert!(chunk.len() <= MAX_CHUNK_BYTES, "a chunk of {} bytes, the limit is {MAX_CHUNK_BYTES}", chunk.len());
        fixed.put_u32_le(chunk.len() as u32);
        crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &fixed), chunk);
        fixed.put_u32_le(crc);
        pieces.extend([fixed.split().freeze(), chunk.clone()]);
    }
    fixed.put_slice(&END_MAGIC);
    fixed.put_u32_le(count);
    crc = crc32c::crc32c_append(crc, &fixed);
    fixed.put_u32_le(crc);
    pieces.push(fixed.freeze());
    pieces
}

/// Reads a checkpoint's bytes; its chunks are slices of them. The error says what is wrong, for people.
pub fn decode(mut bytes: Bytes) -> Result<(CheckpointHeader, Vec<Bytes>), String> {
    let (header, count, content, mut crc) = decode_header(&take(&mut bytes, HEADER_BYTES, "its header")?)?;
    // Every chunk takes bytes, so what is allocated is bounded by what is there.
    if (count as usize).saturating_mul(CHUNK_HEADER_BYTES) > bytes.len() {
        return Err(format!("it ends early: {count} chunks do not fit into {} bytes", bytes.len()));
    }
    let mut chunks = Vec::with_capacity(count as usize);
    for number in 0..count {
        let head = take(&mut bytes, CHUNK_HEADER_BYTES, "a chunk")?;
        let len = get_u32(&head, 0) as usize;
        if len > MAX_CHUNK_BYTES {
            return Err(format!("chunk {number} states {len} bytes, the limit is {MAX_CHUNK_BYTES}"));
        }
        let chunk = take(&mut bytes, len, "a chunk")?;
        crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &head[..4]), &chunk);
        if get_u32(&head, 4) != crc {
            return Err(format!("the checksum of chunk {number} of {count} does not match"));
        }
        chunks.push(chunk);
    }
    let end = take(&mut bytes, END_BYTES, "its end record")?;
    if end[..4] != END_MAGIC || get_u32(&end, 4) != count || get_u32(&end, 8) != crc32c::crc32c_append(crc, &end[..8]) {
        return Err("its end record does not match".to_owned());
    }
    let total: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    if total != content || !bytes.is_empty() {
        return Err(format!("it has {total} bytes of content and {} behind its end, not {content} and 0", bytes.len()));
    }
    Ok((header, chunks))
}

/// The header, the number of chunks, the bytes of their content, the header's checksum.
fn decode_header(bytes: &Bytes) -> Result<(CheckpointHeader, u32, u64, u32), String> {
    if bytes[..7] != MAGIC {
        return Err("it is no checkpoint: its first bytes are others".to_owned());
    }
    let crc = get_u32(bytes, HEADER_BYTES - 4);
    if crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) != crc {
        return Err("the checksum of its header does not match".to_owned());
    }
    if bytes[7] != VERSION {
        return Err(format!("it has format version {}, this release knows {VERSION}", bytes[7]));
    }
    let header = CheckpointHeader {
        group: GroupId(get_u64(bytes, 8)),
        replica: ReplicaId(get_u64(bytes, 16)),
        index: LogIndex(get_u64(bytes, 24)),
        term: Term(get_u64(bytes, 32)),
        next_offset: Offset(get_u64(bytes, 40)),
    };
    Ok((header, get_u32(bytes, 48), get_u64(bytes, 52), crc))
}

fn take(bytes: &mut Bytes, len: usize, what: &str) -> Result<Bytes, String> {
    if bytes.len() < len {
        return Err(format!("it ends early: {what} takes {len} bytes, {} are there", bytes.len()));
    }
    Ok(bytes.split_to(len))
}

/// Loads the newest whole checkpoint of a directory and removes what a write that did not end has left. A directory that
/// does not exist holds none.
pub fn load_newest(disk: &dyn Disk, directory: &str) -> DiskResult<Loaded> {
    let mut loaded = Loaded::default();
    let entries = match disk.list(directory) {
        Err(error) if error.is_missing() => return Ok(loaded),
        entries => entries?,
    };
    let mut unfinished = Vec::new();
    let mut files = Vec::new();
    for entry in entries.into_iter().filter(|entry| !entry.is_directory) {
        if entry.name.strip_suffix(".new").is_some_and(|name| index_of(name).is_some()) {
            unfinished.push(format!("{directory}/{}", entry.name).into());
        } else if let Some(index) = index_of(&entry.name) {
            files.push((index, entry));
        }
    }
    if !unfinished.is_empty() {
        FileOp::Remove { paths: unfinished }.execute(disk)?;
    }
    files.sort();
    while let Some((index, entry)) = files.last() {
        let bytes = disk.read(&path(directory, *index), 0, usize::try_from(entry.bytes).unwrap_or(usize::MAX));
        let checkpoint = bytes.map_err(|error| error.to_string()).and_then(decode).and_then(|(header, chunks)| {
            let named = header.index == *index;
            named.then_some((header, chunks)).ok_or_else(|| format!("it is the checkpoint of index {}", header.index))
        });
        match checkpoint {
            Ok(checkpoint) => {
                loaded.checkpoint = Some(checkpoint);
                break;
            }
            Err(why) => loaded.rejected.push((entry.name.clone(), why)),
        }
        files.pop();
    }
    loaded.indices = files.into_iter().map(|(index, _)| index).collect();
    Ok(loaded)
}

/// Whether a name in a partition's directory is that of a checkpoint.
pub fn is_name(name: &str) -> bool {
    index_of(name).is_some()
}

fn index_of(name: &str) -> Option<LogIndex> {
    let digits = name.strip_prefix(NAME_PREFIX)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(LogIndex)).flatten()
}

/// Plans to remove all but the newest [`KEPT`] of the checkpoints with these indices, in ascending order; `None` when
/// there are no more than that. Oldest first, so that a crash between removals leaves the newest.
pub fn obsolete(directory: &str, indices: &[LogIndex]) -> Option<FileOp> {
    debug_assert!(indices.is_sorted(), "indices ascend");
    let old = &indices[..indices.len().saturating_sub(KEPT)];
    (!old.is_empty()).then(|| FileOp::Remove { paths: old.iter().map(|index| path(directory, *index)).collect() })
}
