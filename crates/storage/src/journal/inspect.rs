//! What one journal file holds, write by write, for people: reads anything, believes no more than checksums prove, and
//! decides nothing. What counts is decided by [`recover`](super::recover) alone.

use std::collections::BTreeMap;

use lockgate_wire::GroupId;

use super::format::{self, BLOCK_BYTES, FileHeader, FileHeaderFault, Name, WriteHeader};
use super::recovery::{RecordsFault, records_of};
use super::{FORMAT_VERSION, JournalIdentity, JournalKind, RecordKind, Sequence};
use crate::disk::{Disk, DiskResult};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How much is read at once where no write is.
const SCAN_CHUNK_BYTES: usize = 256 * BLOCK_BYTES;

/// What the first block of a journal file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFacts {
    /// Which of a shard's journals.
    pub kind: JournalKind,
    /// Whose journal.
    pub identity: JournalIdentity,
    /// The file's number in its journal.
    pub file_sequence: u64,
    /// The first record that may be in it.
    pub first_sequence: Sequence,
    /// The start that opened it.
    pub epoch: u64,
    /// Its size when it was made.
    pub file_bytes: u64,
    /// The highest record that was synced when it was opened.
    pub synced: Sequence,
    /// Files before this one were no longer needed.
    pub oldest_file: u64,
    /// It had an earlier life, of which something may be left behind its last write.
    pub reused: bool,
}

/// What stands at one place of a journal file, in the order of the places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// The file's header; comes first.
    File(FileFacts),
    /// A write whose header is good.
    Write(WriteFacts),
    /// Bytes that are no write of this file's present life.
    Void {
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: u64,
        /// Whether all of them are zero.
        is_zero: bool,
        /// Whether they may be left of the file's earlier life.
        is_reused: bool,
    },
}

/// One write of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteFacts {
    /// Where it begins in its file.
    pub offset: u64,
    /// Its size with its padding.
    pub bytes: u64,
    /// The start that wrote it.
    pub epoch: u64,
    /// Its first record; the next one if it has none.
    pub first_sequence: Sequence,
    /// How many records.
    pub count: u32,
    /// The highest record that was synced when it was written.
    pub synced: Sequence,
    /// Files before this one were no longer needed.
    pub oldest_file: u64,
    /// The last write of an orderly stop.
    pub is_end: bool,
    /// Its records by group and kind.
    pub records: BTreeMap<(GroupId, RecordKind), u32>,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Why its records, or its place behind the write before it, cannot be believed.
    pub fault: Option<String>,
}

impl WriteFacts {
    /// The last record; the one before it if it has none.
    pub fn last_sequence(&self) -> Sequence {
        Sequence((self.first_sequence.0.saturating_add(self.count.into())).saturating_sub(1))
    }
    /// An empty write that says what was synced before it.
    pub fn is_mark(&self) -> bool {
        self.count == 0
    }
}

/// Whether a name in a journal's directory is that of a journal file.
pub fn is_file_name(name: &str) -> bool {
    matches!(format::parse_name(name), Name::File(..))
}

/// Whether a name in a journal's directory is that of a prepared file.
pub fn is_free_name(name: &str) -> bool {
    matches!(format::parse_name(name), Name::Free(_))
}

/// Reads one journal file. The inner error says why there is no usable header, without which nothing can be told.
pub fn inspect(disk: &dyn Disk, path: &str, item: &mut dyn FnMut(Item)) -> DiskResult<Result<(), String>> {
    let (header, chain) = match FileHeader::decode(&disk.read(path, 0, BLOCK_BYTES)?) {
        Ok(good) => good,
        Err(FileHeaderFault::Empty) => return Ok(Err("it has no header".into())),
        Err(FileHeaderFault::Bad) => return Ok(Err("its header is damaged".into())),
        Err(FileHeaderFault::UnknownVersion(found)) => {
            return Ok(Err(format!("it has format version {found}, this program knows version {FORMAT_VERSION}")));
        }
    };
    item(Item::File(FileFacts {
        kind: header.kind,
        identity: header.identity,
        file_sequence: header.file_sequence,
        first_sequence: Sequence(header.first_sequence),
        epoch: header.epoch,
        file_bytes: header.file_bytes,
        synced: Sequence(header.synced),
        oldest_file: header.oldest_file,
        reused: header.reused,
    }));
    let salt = format::salt(&header.identity, header.kind);
    Reader { disk, path, header: &header, salt, bytes: disk.size(path)? }.writes(chain, item).map(Ok)
}

struct Reader<'a> {
    disk: &'a dyn Disk,
    path: &'a str,
    header: &'a FileHeader,
    salt: u32,
    bytes: u64,
}

impl Reader<'_> {
    fn writes(&self, mut chain: u32, item: &mut dyn FnMut(Item)) -> DiskResult<()> {
        let mut offset = BLOCK;
        while offset < self.bytes {
            let Some(header) = self.write_header(&self.disk.read(self.path, offset, BLOCK_BYTES)?, offset) else {
                let (bytes, is_zero) = self.void(offset)?;
                item(Item::Void { offset, bytes, is_zero, is_reused: self.header.reused });
                offset += bytes;
                continue;
            };
            let facts;
            (facts, chain) = self.write(&header, offset, chain)?;
            offset += facts.bytes;
            item(Item::Write(facts));
        }
        Ok(())
    }

    /// The header of a write of this file, at its place. A leftover of the file's earlier life is none.
    fn write_header(&self, block: &[u8], offset: u64) -> Option<WriteHeader> {
        let header = WriteHeader::decode(block, self.salt)?;
        let ours = header.file_sequence == self.header.file_sequence && u64::from(header.block) * BLOCK == offset;
        ours.then_some(header)
    }

    fn write(&self, header: &WriteHeader, offset: u64, chain: u32) -> DiskResult<(WriteFacts, u32)> {
        let mut facts = WriteFacts {
            offset,
            bytes: header.padded_bytes().max(BLOCK),
            epoch: header.epoch,
            first_sequence: Sequence(header.first_sequence),
            count: header.count,
            synced: Sequence(header.synced),
            oldest_file: header.oldest_file,
            is_end: header.is_end(),
            records: BTreeMap::new(),
            body_bytes: 0,
            fault: None,
        };
        let bytes = self.disk.read(self.path, offset, header.length as usize)?;
        // Where the records do not tell, the chain goes on with whatever follows.
        let mut after = chain;
        match records_of(header, &bytes) {
            Ok((records, end)) => {
                after = end;
                for record in records {
                    *facts.records.entry((record.group, record.kind)).or_default() += 1;
                    facts.body_bytes += record.body.len() as u64;
                }
            }
            Err(RecordsFault::Broken(why) | RecordsFault::Contradiction(why)) => facts.fault = Some(why),
        }
        if header.epoch != self.header.epoch {
            facts.fault = Some(format!("it is of start {}, its file of start {}", header.epoch, self.header.epoch));
        } else if header.chain != chain && facts.fault.is_none() {
            facts.fault = Some("it does not follow what stands before it".into());
        }
        Ok((facts, after))
    }

    /// How far it is to the next write, and whether only zeros are on the way.
    fn void(&self, offset: u64) -> DiskResult<(u64, bool)> {
        let (mut at, mut is_zero) = (offset, true);
        while at < self.bytes {
            let chunk = self.disk.read(self.path, at, SCAN_CHUNK_BYTES)?;
            if chunk.is_empty() {
                break;
            }
            for block in chunk.chunks(BLOCK_BYTES) {
                if at > offset && self.write_header(block, at).is_some() {
                    return Ok((at - offset, is_zero));
                }
                is_zero &= block.iter().all(|byte| *byte == 0);
                at += block.len() as u64;
            }
        }
        Ok((self.bytes - offset, is_zero))
    }
}
