//! Following the chain through all files, and deciding at its end: an end, a torn tail, or damage.
//!
//! The one rule behind every decision: a record that anything later states as synced was confirmed, so if it is not there
//! it is damage; a record that nothing states was confirmed to nobody, so it may be cut. Writes of a synced journal
//! always state what was before them; those of a buffered one state what a sync has covered.

use std::collections::{BTreeMap, VecDeque};

use lockgate_wire::GroupId;

use super::RecoveredRecord;
use super::error::{Damage, RecoveryError};
use super::inventory::{FoundFile, Inventory};
use super::scan::{self, Beyond, FileView, Found};
use crate::disk::Disk;
use crate::journal::format::{self, BLOCK_BYTES, WriteHeader};
use crate::journal::{JournalConfig, JournalKind, Sequence};

const BLOCK: u64 = BLOCK_BYTES as u64;

pub(super) struct Walk<'a> {
    disk: &'a dyn Disk,
    kind: JournalKind,
    salt: u32,
    record: &'a mut dyn FnMut(RecoveredRecord),
    /// The next record's number.
    pub(super) expected: u64,
    pub(super) counters: BTreeMap<GroupId, u64>,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The file whose last write is an end mark, if that is the last write of all.
    pub(super) end_mark: Option<usize>,
    /// Files before this one are not needed, says whatever came last.
    oldest_needed: u64,
    /// Writes that nothing has stated as synced yet.
    doubtful: VecDeque<Doubtful>,
}

/// A write that counts although it may not be durable yet.
pub(super) struct Doubtful {
    pub(super) file: usize,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    last: u64,
}

/// Where the log ends.
pub(super) struct LogEnd {
    /// What must be made durable before anybody relies on it.
    pub(super) doubtful: VecDeque<Doubtful>,
    pub(super) tail: Option<Tail>,
}

/// From here on nothing counts: to the end of this file, and no later file.
pub(super) struct Tail {
    pub(super) file: usize,
    pub(super) offset: u64,
    /// Behind the last byte of the file that is not zero.
    pub(super) end: u64,
    pub(super) why: String,
}

impl LogEnd {
    /// The files that no longer count, newest first.
    pub(super) fn removed(&self, inventory: &Inventory) -> impl Iterator<Item = usize> + use<> {
        let files = inventory.files.len();
        let kept = self.tail.as_ref().map_or(files, |tail| tail.file + 1);
        (kept..files).rev()
    }
}

/// A place where the chain does not go on.
struct Stop {
    offset: u64,
    why: String,
    beyond: Beyond,
}

impl<'a> Walk<'a> {
    pub(super) fn new(disk: &'a dyn Disk, config: &JournalConfig, record: &'a mut dyn FnMut(RecoveredRecord)) -> Self {
        Self {
            disk,
            kind: config.kind,
            salt: format::salt(&config.identity, config.kind),
            record,
            expected: 1,
            counters: BTreeMap::new(),
            records: 0,
            bytes: 0,
            end_mark: None,
            oldest_needed: 0,
            doubtful: VecDeque::new(),
        }
    }

    /// Hands out every record that counts.
    pub(super) fn all(&mut self, inventory: &Inventory) -> Result<LogEnd, RecoveryError> {
        let files = &inventory.files;
        self.expected = files.first().map_or(1, |file| file.header.first_sequence);
        let mut tail = None;
        for (index, file) in files.iter().enumerate() {
            let next_first = files.get(index + 1).map(|next| next.header.first_sequence);
            self.oldest_needed = self.oldest_needed.max(file.header.oldest_file);
            self.now_synced(file.header.synced);
            let stop = self.file(index, file, next_first)?;
            if next_first != Some(self.expected) {
                tail = self.decide(inventory, index, stop)?;
                break;
            }
        }
        if let Some(first) = files.first().filter(|first| first.header.file_sequence > self.oldest_needed) {
            let (found, needed) = (first.header.file_sequence, self.oldest_needed);
            let what = format!("it is file {found} of the journal, but files from {needed} on are needed");
            self.expected = 1;
            let missing = self.damage(first, 0, what, Some(first.header.first_sequence - 1));
            return Err(inventory.before_gap.as_ref().map_or(missing, |(_, gap)| gap.clone()).into());
        }
        Ok(LogEnd { doubtful: std::mem::take(&mut self.doubtful), tail })
    }

    /// Follows the chain through one file. `limit`: what the next file begins with; records from there on in this file
    /// were cut once and stay so.
    fn file(&mut self, index: usize, file: &FoundFile, limit: Option<u64>) -> Result<Stop, RecoveryError> {
        let view = self.view(file);
        let mut offset = BLOCK;
        let mut chain = file.chain;
        loop {
            let (header, why) = match scan::write_at(&view, offset, chain)? {
                Found::Write(header, records, after) if limit.is_none_or(|limit| header.next_sequence() <= limit) => {
                    self.take(index, file, offset, &header, records)?;
                    chain = after;
                    offset += header.padded_bytes();
                    continue;
                }
                Found::Write(header, ..) => (Some(header), "a write that was cut before".into()),
                Found::Broken(header, why) => (header, why),
                Found::Contradiction(what) => return Err(self.damage(file, offset, what, None).into()),
            };
            if limit == Some(self.expected) {
                return Ok(Stop { offset, why, beyond: Beyond::default() });
            }
            let beyond = match header {
                // The bad write ends where its header says: what its records hold is not looked at.
                Some(header) => scan::beyond(&view, offset, offset + header.padded_bytes(), None)?,
                // If the next good write follows in the chain, only marks can have stood here.
                None => scan::beyond(&view, offset, offset + BLOCK, Some((self.expected, chain)))?,
            };
            match beyond.follows {
                Some(resumed) => offset = resumed,
                None => return Ok(Stop { offset, why, beyond }),
            }
        }
    }

    fn take(
        &mut self,
        index: usize,
        file: &FoundFile,
        offset: u64,
        header: &WriteHeader,
        records: Vec<RecoveredRecord>,
    ) -> Result<(), RecoveryError> {
        if header.first_sequence != self.expected {
            let what = format!("a write begins with record {}, expected was {}", header.first_sequence, self.expected);
            return Err(self.damage(file, offset, what, None).into());
        }
        for record in &records {
            let before = self.counters.insert(record.group, record.counter);
            if before.is_some_and(|before| before.checked_add(1) != Some(record.counter)) {
                let (group, counter) = (record.group, record.counter);
                let what =
                    format!("record {} is number {counter} of group {group}, which does not follow", record.sequence);
                return Err(self.damage(file, offset, what, None).into());
            }
        }
        self.oldest_needed = self.oldest_needed.max(header.oldest_file);
        self.now_synced(header.synced);
        self.expected = header.next_sequence();
        self.end_mark = header.is_end().then_some(index);
        self.records += u64::from(header.count);
        self.bytes += records.iter().map(|record| record.body.len() as u64).sum::<u64>();
        self.doubtful.push_back(Doubtful {
            file: index,
            offset,
            bytes: header.padded_bytes(),
            last: self.expected - 1,
        });
        records.into_iter().for_each(&mut *self.record);
        Ok(())
    }

    fn now_synced(&mut self, synced: u64) {
        while self.doubtful.front().is_some_and(|write| write.last <= synced) {
            self.doubtful.pop_front();
        }
    }

    /// The chain ends in `files[index]`, and what follows does not go on from there. `None`: a clean end.
    fn decide(&self, inventory: &Inventory, index: usize, stop: Stop) -> Result<Option<Tail>, RecoveryError> {
        let (file, later) = (&inventory.files[index], &inventory.files[index + 1..]);
        let mut stated = stop.beyond.synced.unwrap_or(0);
        for file in later {
            let beyond = scan::beyond(&self.view(file), BLOCK, BLOCK, None)?;
            stated = stated.max(file.header.synced).max(beyond.synced.unwrap_or(0));
        }
        if let (Some(unused), JournalKind::Synced) = (&inventory.unused, self.kind) {
            stated = stated.max(unused.first_sequence.saturating_sub(1));
        }
        if let Some(next) = later.first().filter(|next| next.header.first_sequence < self.expected) {
            let (first, expected) = (next.header.first_sequence, self.expected);
            let what =
                format!("it begins with record {first}, but the files before it end with record {}", expected - 1);
            return Err(self.damage(next, 0, what, None).into());
        }
        if stated >= self.expected {
            return Err(self.damage(file, stop.offset, stop.why, Some(stated)).into());
        }
        // Nothing was ever begun behind an end mark: what is there was there before.
        let torn = stop.beyond.end > stop.offset && self.end_mark != Some(index);
        let tail = Tail { file: index, offset: stop.offset, end: stop.beyond.end, why: stop.why };
        Ok((torn || !later.is_empty()).then_some(tail))
    }

    fn view<'f>(&self, file: &'f FoundFile) -> FileView<'f>
    where
        'a: 'f,
    {
        FileView {
            disk: self.disk,
            path: &file.path,
            bytes: file.header.file_bytes,
            salt: self.salt,
            file_sequence: file.header.file_sequence,
            epoch: Some(file.header.epoch),
        }
    }

    fn damage(&self, file: &FoundFile, offset: u64, what: String, last_lost: Option<u64>) -> Damage {
        let first_lost = Sequence(self.expected);
        Damage { file: file.path.clone(), offset, what, first_lost, last_lost: last_lost.map(Sequence) }
    }
}
