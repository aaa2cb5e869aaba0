//! The journal's bytes: file header, write header, record header. Little endian, sizes checked at compile time.
//!
//! A file is a header block and then writes, each from the start of a block: a write header, `count` records (header,
//! body, padding to 8 bytes), padding to the next block. Nothing here reads or writes files, and no bytes panic.
//!
//! Checksums are CRC-32C. The *salt* (cluster, node, shard, kind) goes into every write header's CRC, so that a
//! foreign journal's writes, or a client's payload that looks like one, are not taken for ours. The *chain* starts with
//! the file header's CRC and runs through every record header, over writes: a write header states the value it starts
//! with, so a write that follows another proves that nothing between them is missing.

use bytes::{Buf, BufMut};
use lockgate_wire::{GroupId, NodeId, ReplicaId, ShardId, Uid};

use super::{JournalIdentity, JournalKind, RecordKind};

/// Every write starts on a multiple of this, and every write's size is one.
pub use crate::disk::BLOCK_BYTES;
/// What a disk writes as a whole: a file header fits into one.
pub(super) const SECTOR_BYTES: usize = 512;
/// The version this code writes and reads.
pub const FORMAT_VERSION: u32 = 1;
/// Size of a write's header.
pub const WRITE_HEADER_BYTES: usize = 4 + 5 * 8 + 5 * 4;
/// Size of a record's header.
pub const RECORD_HEADER_BYTES: usize = 3 * 4 + 4 + 4 * 8;
/// Records start on a multiple of this within a write.
pub(super) const RECORD_ALIGN: usize = 8;

const FILE_MAGIC: [u8; 8] = *b"lockgate";
/// Magic, version and this place of the CRC stay the same in every version, so that an unknown one is told from rot.
const FILE_CRC_AT: usize = SECTOR_BYTES - 4;
const FILE_FIELDS_BYTES: usize = 8 + 4 + 4 + 16 + 4 + 4 + 6 * 8 + 4;

const _: () = assert!(FILE_FIELDS_BYTES <= FILE_CRC_AT);
const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(WRITE_HEADER_BYTES == 64 && WRITE_HEADER_BYTES.is_multiple_of(RECORD_ALIGN));
const _: () = assert!(RECORD_HEADER_BYTES == 48 && RECORD_HEADER_BYTES.is_multiple_of(RECORD_ALIGN));

/// An empty write that says what was synced before it.
pub(super) const FLAG_MARK: u32 = 1;
/// The last write of an orderly stop.
pub(super) const FLAG_END: u32 = 2;

/// The first block of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileHeader {
    pub(super) kind: JournalKind,
    pub(super) identity: JournalIdentity,
    /// The file's number in this journal, previous + 1, from 1.
    pub(super) file_sequence: u64,
    /// The first record that may be in this file: all earlier ones are in earlier files.
    pub(super) first_sequence: u64,
    /// The start that opened the file. Every start opens its own files, so all writes of a file have this epoch.
    pub(super) epoch: u64,
    /// The file's size when it was made.
    pub(super) file_bytes: u64,
    /// The highest record that was synced when the file was opened.
    pub(super) synced: u64,
    /// Files before this one were no longer needed.
    pub(super) oldest_file: u64,
    /// The file had an earlier life: what follows the last write may be left of it.
    pub(super) reused: bool,
}

/// Why the first sector is not a file header that this code can use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FileHeaderFault {
    /// Nothing but zeros, or nothing at all.
    Empty,
    /// Not a header, or a damaged one.
    Bad,
    /// A good header of another version.
    UnknownVersion(u32),
}

impl FileHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.put_slice(&FILE_MAGIC);
        block.put_u32_le(FORMAT_VERSION);
        block.put_u32_le(u32::from(self.kind.code()));
        block.put_slice(&self.identity.cluster.0);
        block.put_u32_le(self.identity.node.0);
        block.put_u32_le(u32::from(self.identity.shard.0));
        block.put_u64_le(self.file_sequence);
        block.put_u64_le(self.first_sequence);
        block.put_u64_le(self.epoch);
        block.put_u64_le(self.file_bytes);
        block.put_u64_le(self.synced);
        block.put_u64_le(self.oldest_file);
        block.put_u32_le(u32::from(self.reused));
        block.resize(FILE_CRC_AT, 0);
        block.put_u32_le(crc32c::crc32c(&block));
        block.resize(BLOCK_BYTES, 0);
        block
    }

    /// Reads the header and its CRC, with which the file's chain starts.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, u32), FileHeaderFault> {
        let sector: &[u8; SECTOR_BYTES] = match bytes.first_chunk() {
            Some(sector) if sector.iter().any(|byte| *byte != 0) => sector,
            None if bytes.iter().any(|byte| *byte != 0) => return Err(FileHeaderFault::Bad),
            _ => return Err(FileHeaderFault::Empty),
        };
        let (fields, mut crc) = sector.split_at(FILE_CRC_AT);
        let crc = crc.get_u32_le();
        if crc32c::crc32c(fields) != crc || !fields.starts_with(&FILE_MAGIC) {
            return Err(FileHeaderFault::Bad);
        }
        let mut fields = &fields[FILE_MAGIC.len()..];
        let version = fields.get_u32_le();
        if version != FORMAT_VERSION {
            return Err(FileHeaderFault::UnknownVersion(version));
        }
        let kind = u8::try_from(fields.get_u32_le()).ok().and_then(JournalKind::from_code);
        let mut cluster = [0; 16];
        fields.copy_to_slice(&mut cluster);
        let node = NodeId(fields.get_u32_le());
        let shard = u16::try_from(fields.get_u32_le()).map(ShardId);
        let (Some(kind), Ok(shard)) = (kind, shard) else { return Err(FileHeaderFault::Bad) };
        let header = Self {
            kind,
            identity: JournalIdentity { cluster: Uid(cluster), node, shard },
            file_sequence: fields.get_u64_le(),
            first_sequence: fields.get_u64_le(),
            epoch: fields.get_u64_le(),
            file_bytes: fields.get_u64_le(),
            synced: fields.get_u64_le(),
            oldest_file: fields.get_u64_le(),
            reused: fields.get_u32_le() != 0,
        };
        Ok((header, crc))
    }
}

/// What goes into the CRC of all write headers of one journal.
pub(super) fn salt(identity: &JournalIdentity, kind: JournalKind) -> u32 {
    let mut bytes = Vec::with_capacity(32);
    bytes.put_slice(&identity.cluster.0);
    bytes.put_u32_le(identity.node.0);
    bytes.put_u16_le(identity.shard.0);
    bytes.put_u8(kind.code());
    crc32c::crc32c(&bytes)
}

/// The start of a write. Verified alone: a reader needs no other write to believe it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteHeader {
    pub(super) file_sequence: u64,
    pub(super) epoch: u64,
    /// The sequence of the first record, or of the next one if there is none.
    pub(super) first_sequence: u64,
    /// The highest record known synced when this write was issued.
    pub(super) synced: u64,
    /// Files before this one are no longer needed.
    pub(super) oldest_file: u64,
    /// Header and records, without the padding to the next block.
    pub(super) length: u32,
    /// How many records.
    pub(super) count: u32,
    /// The chain's value before the first record.
    pub(super) chain: u32,
    pub(super) flags: u32,
    /// Where the write starts in its file, in blocks: a misplaced copy does not count.
    pub(super) block: u32,
}

impl WriteHeader {
    pub(super) fn encode(&self, salt: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32_le(0);
        out.put_u64_le(self.file_sequence);
        out.put_u64_le(self.epoch);
        out.put_u64_le(self.first_sequence);
        out.put_u64_le(self.synced);
        out.put_u64_le(self.oldest_file);
        out.put_u32_le(self.length);
        out.put_u32_le(self.count);
        out.put_u32_le(self.chain);
        out.put_u32_le(self.flags);
        out.put_u32_le(self.block);
        let crc = crc32c::crc32c_append(salt, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header at the start of these bytes; `None` if its CRC says that there is none.
    pub(super) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let header: &[u8; WRITE_HEADER_BYTES] = bytes.first_chunk()?;
        let mut rest: &[u8] = header;
        let crc = rest.get_u32_le();
        if crc32c::crc32c_append(salt, rest) != crc {
            return None;
        }
        Some(Self {
            file_sequence: rest.get_u64_le(),
            epoch: rest.get_u64_le(),
            first_sequence: rest.get_u64_le(),
            synced: rest.get_u64_le(),
            oldest_file: rest.get_u64_le(),
            length: rest.get_u32_le(),
            count: rest.get_u32_le(),
            chain: rest.get_u32_le(),
            flags: rest.get_u32_le(),
            block: rest.get_u32_le(),
        })
    }

    /// The sequence after the last record.
    pub(super) fn next_sequence(&self) -> u64 {
        self.first_sequence.saturating_add(u64::from(self.count))
    }

    /// The write's size with its padding.
    pub(super) fn padded_bytes(&self) -> u64 {
        u64::from(self.length).next_multiple_of(BLOCK_BYTES as u64)
    }

    pub(super) fn is_end(&self) -> bool {
        self.flags & FLAG_END != 0
    }
}

/// What stands before a record's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHeader {
    pub(super) body_crc: u32,
    pub(super) body_bytes: u32,
    pub(super) kind: u8,
    pub(super) sequence: u64,
    pub(super) group: GroupId,
    pub(super) replica: ReplicaId,
    /// Previous + 1 within the group and journal.
    pub(super) counter: u64,
}

impl RecordHeader {
    /// Appends the header; gives the chain's value after it.
    pub(super) fn encode(&self, chain: u32, out: &mut Vec<u8>) -> u32 {
        let start = out.len();
        out.put_u32_le(0);
        out.put_u32_le(self.body_crc);
        out.put_u32_le(self.body_bytes);
        out.put_u32_le(u32::from(self.kind));
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.group.0);
        out.put_u64_le(self.replica.0);
        out.put_u64_le(self.counter);
        let crc = crc32c::crc32c_append(chain, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// The header at the start of these bytes and the chain's value after it; `None` if its CRC is wrong.
    pub(super) fn decode(bytes: &[u8], chain: u32) -> Option<(Self, u32)> {
        let header: &[u8; RECORD_HEADER_BYTES] = bytes.first_chunk()?;
        let mut rest: &[u8] = header;
        let crc = rest.get_u32_le();
        if crc32c::crc32c_append(chain, rest) != crc {
            return None;
        }
        let header = Self {
            body_crc: rest.get_u32_le(),
            body_bytes: rest.get_u32_le(),
            kind: u8::try_from(rest.get_u32_le()).unwrap_or(0),
            sequence: rest.get_u64_le(),
            group: GroupId(rest.get_u64_le()),
            replica: ReplicaId(rest.get_u64_le()),
            counter: rest.get_u64_le(),
        };
        Some((header, crc))
    }
}

/// What a record with a body of this size takes in a write.
pub(super) fn record_bytes(body_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + body_bytes.next_multiple_of(RECORD_ALIGN)
}

impl JournalKind {
    fn code(self) -> u8 {
        match self {
            Self::Synced => 1,
            Self::Buffered => 2,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Synced),
            2 => Some(Self::Buffered),
            _ => None,
        }
    }
}

impl RecordKind {
    /// The kind with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Bootstrap,
            2 => Self::Entry,
            3 => Self::HardState,
            4 => Self::Configuration,
            5 => Self::Truncate,
            6 => Self::SnapshotMark,
            7 => Self::CheckpointMark,
            8 => Self::ExternalEntry,
            9 => Self::Removed,
            10 => Self::Accepted,
            _ => return None,
        })
    }
}

const FILE_SUFFIX: &str = ".journal";
const FREE_PREFIX: &str = "free-";

/// A file's name: its number and its first record. Two files may begin with the same record (the first one held nothing
/// that counted), so the number is part of the name.
pub(super) fn file_name(file_sequence: u64, first_sequence: u64) -> String {
    format!("{file_sequence:010}-{first_sequence:020}{FILE_SUFFIX}")
}

/// The name of a prepared file.
pub(super) fn free_name(number: u64) -> String {
    format!("{FREE_PREFIX}{number}")
}

/// What a name in the journal's directory means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Name {
    /// A journal file: its number and its first record.
    File(u64, u64),
    /// A prepared file.
    Free(u64),
    /// Not ours.
    Other,
}

pub(super) fn parse_name(name: &str) -> Name {
    let file = || {
        let (file, first) = name.strip_suffix(FILE_SUFFIX)?.split_once('-')?;
        let (file, first) = (file.parse().ok()?, first.parse().ok()?);
        (file_name(file, first) == name).then_some(Name::File(file, first))
    };
    let free = || {
        let number = name.strip_prefix(FREE_PREFIX)?.parse().ok()?;
        (free_name(number) == name).then_some(Name::Free(number))
    };
    file().or_else(free).unwrap_or(Name::Other)
}
