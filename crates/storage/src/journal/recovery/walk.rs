//! Following the chain through all files, and deciding where it does not go on: an end, a torn tail, or damage.
//!
//! The one rule behind every decision: a record that anything later states as synced was confirmed, so if it is not there
//! it is damage; a record that nothing states was confirmed to nobody, so it may be cut. Writes of a synced journal
//! always state what was before them; those of a buffered one state what a sync has covered.
//!
//! Behind damage the walk goes on with the next write that can be believed, of which every header can be verified alone.
//! What that means for the groups is with [`Doubts`].

use std::collections::{BTreeMap, VecDeque};

use lockgate_wire::GroupId;

use super::error::{Damage, Lost, RecoveryError};
use super::inventory::{self, FoundFile, Inventory};
use super::scan::{self, Found};
use super::{Doubts, RecoveredRecord};
use crate::disk::Disk;
use crate::journal::format::{BLOCK_BYTES, WriteHeader};
use crate::journal::{JournalConfig, JournalKind, RecordKind, Sequence};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// So many places of damage are told; all count.
const DAMAGES_TOLD: usize = 16;

pub(super) struct Walk<'a> {
    disk: &'a dyn Disk,
    config: &'a JournalConfig,
    record: &'a mut dyn FnMut(RecoveredRecord),
    /// The next record's number.
    pub(super) expected: u64,
    pub(super) counters: BTreeMap<GroupId, u64>,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The file whose last write is an end mark, if that is the last write of all.
    pub(super) end_mark: Option<usize>,
    /// Where the chain stands: the file, the place behind its last write that counts, the chain's value.
    pub(super) chain_end: Option<(usize, u64, u32)>,
    /// Files before this one are not needed, says whatever came last.
    pub(super) oldest_needed: u64,
    /// What of that the walk has come to. The rest was found by looking ahead, and may be in what is cut.
    pub(super) reached_needed: u64,
    /// The highest start that any file or write is of.
    pub(super) epoch: u64,
    /// Whether everything behind the first damage was looked at for what is needed.
    has_looked: bool,
    /// Whether files were passed over that nobody needs.
    pub(super) has_skipped: bool,
    pub(super) damages: Vec<Damage>,
    pub(super) doubts: Doubts,
    /// The last file in which records are missing; 0 if there is none.
    pub(super) gap_in: u64,
    /// Writes that nothing has stated as synced yet.
    doubtful: VecDeque<Doubtful>,
    /// The highest record that what was read so far states as synced: beyond what was read, in a file that was taken over.
    stated: u64,
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
    /// Writes from here on may say more.
    behind: u64,
    /// What goes on from here, if the next write does.
    chain: Chain,
}

/// Which write would follow.
#[derive(Clone, Copy)]
enum Chain {
    /// None: what stands here breaks it.
    Broken,
    /// One that states this value. Only marks can have stood before it.
    At(u32),
    /// The first one: the value in the file's header is lost.
    Unknown,
    /// None, and no crash leaves that.
    Contradicted,
}

/// Where the walk goes behind a file.
enum Next {
    /// To the next one.
    File,
    /// Nobody needs it, nor any other before this one.
    Needed(usize),
    /// Nowhere: the log has ended.
    End(Tail),
}

/// What a stop is.
enum Decision {
    /// The end of what this file has.
    End,
    /// It goes on here, and nothing is missing.
    GoesOn(u64, u32),
    Torn(Tail),
    /// Damage; everything up to this record was confirmed, if anybody says so.
    Damage(Option<u64>),
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        config: &'a JournalConfig,
        record: &'a mut dyn FnMut(RecoveredRecord),
    ) -> Self {
        Self {
            disk,
            config,
            record,
            expected: 1,
            counters: BTreeMap::new(),
            records: 0,
            bytes: 0,
            end_mark: None,
            chain_end: None,
            oldest_needed: 1,
            reached_needed: 1,
            epoch: 0,
            has_looked: false,
            has_skipped: false,
            damages: Vec::new(),
            doubts: Doubts::default(),
            gap_in: 0,
            doubtful: VecDeque::new(),
            stated: 0,
        }
    }

    /// Hands out every record that counts.
    pub(super) fn all(&mut self, inventory: &Inventory) -> Result<LogEnd, RecoveryError> {
        let files = &inventory.files;
        self.expected = files.first().map_or(1, |file| file.first_sequence);
        self.epoch =
            files.iter().filter_map(|file| file.header.as_ref()).map(|(header, _)| header.epoch).max().unwrap_or(0);
        self.oldest_needed = inventory.needed;
        let (mut index, mut begin) = (0, 0);
        let mut tail = None;
        while let Some(file) = files.get(index) {
            if let Some((header, _)) = &file.header {
                self.now_needed(header.oldest_file);
                self.now_synced(header.synced);
            }
            if index > 0 && !follows(&files[index - 1], file) && !self.is_told(file) {
                if self.first_needed(inventory, index - 1)? == Some(index) {
                    self.begin_with(file);
                    begin = index;
                } else {
                    self.damaged(file, 0, out_of_order(&files[index - 1], file), Lost::Nothing);
                }
            }
            if let Some((offset, what)) = &file.fault {
                self.damaged(file, *offset, what.clone(), Lost::Nothing);
            }
            match self.file(inventory, index)? {
                Next::File => index += 1,
                Next::Needed(needed) => {
                    self.begin_with(&files[needed]);
                    (index, begin) = (needed, needed);
                }
                Next::End(torn) => {
                    tail = Some(torn);
                    break;
                }
            }
        }
        // That file itself may be missing.
        if let Some(first) = files.get(begin).filter(|first| first.number > self.oldest_needed) {
            let (found, needed) = (first.number, self.oldest_needed);
            let what = format!("it is file {found} of the journal, but files from {needed} on are needed");
            let lost = match first.first_sequence {
                1 => Lost::Nothing,
                next => Lost::Records(Sequence(1), Sequence(next - 1)),
            };
            self.damaged(first, 0, what, lost);
            self.doubts.gap_at_the_front();
        }
        Ok(LogEnd { doubtful: std::mem::take(&mut self.doubtful), tail })
    }

    /// Reads one file from end to end, past what is damaged in it.
    fn file(&mut self, inventory: &Inventory, index: usize) -> Result<Next, RecoveryError> {
        let file = &inventory.files[index];
        let mut stop = match &file.header {
            Some((_, chain)) => self.follow(inventory, index, BLOCK, *chain)?,
            None => Stop { offset: BLOCK, why: "there is no good write".into(), behind: BLOCK, chain: Chain::Unknown },
        };
        loop {
            let place = match self.decide(inventory, index, &stop)? {
                Decision::End => return Ok(Next::File),
                Decision::Torn(tail) => return Ok(Next::End(tail)),
                Decision::GoesOn(offset, chain) => Some((offset, chain)),
                Decision::Damage(stated) => {
                    if let Some(needed) = self.first_needed(inventory, index)? {
                        return Ok(Next::Needed(needed));
                    }
                    self.go_on_behind(inventory, index, stop, stated)?
                }
            };
            let Some((offset, chain)) = place else { return Ok(Next::File) };
            stop = self.follow(inventory, index, offset, chain)?;
        }
    }

    /// The first file that is needed, if something behind a damaged one says that this is not: then its damage is nobody's.
    fn first_needed(&mut self, inventory: &Inventory, damaged: usize) -> Result<Option<usize>, RecoveryError> {
        let looked = std::mem::replace(&mut self.has_looked, true);
        for file in inventory.files[damaged..].iter().filter(|_| !looked) {
            let header = file.header.as_ref().map_or(0, |(header, _)| header.oldest_file);
            let written = scan::beyond(&inventory::view(self.disk, self.config, file), BLOCK, BLOCK)?.oldest_file;
            self.oldest_needed = self.oldest_needed.max(header).max(written);
        }
        let first = inventory.files.iter().position(|file| file.number >= self.oldest_needed);
        Ok(first.filter(|first| *first > damaged))
    }

    /// As if the files before this one were gone already.
    fn begin_with(&mut self, first: &FoundFile) {
        self.expected = first.first_sequence;
        self.counters.clear();
        self.damages.clear();
        (self.doubts, self.gap_in, self.doubtful) = (Doubts::default(), 0, VecDeque::new());
        self.has_skipped = true;
    }

    /// Follows the chain from a place until it does not go on. Records that the next file begins with, and later ones, were
    /// cut here once and stay so.
    fn follow(
        &mut self,
        inventory: &Inventory,
        index: usize,
        mut offset: u64,
        mut chain: u32,
    ) -> Result<Stop, RecoveryError> {
        let file = &inventory.files[index];
        let limit = inventory.limit(index);
        let view = inventory::view(self.disk, self.config, file);
        loop {
            self.chain_end = Some((index, offset, chain));
            let (why, behind, chain) = match scan::write_at(&view, offset, chain)? {
                Found::Write(header, ..) if header.next_sequence() > limit => {
                    ("a write that was cut before".into(), header.padded_bytes(), Chain::Broken)
                }
                Found::Write(header, ..) if header.first_sequence != self.expected => {
                    let (found, expected) = (header.first_sequence, self.expected);
                    let why = format!("a write begins with record {found}, expected was {expected}");
                    (why, BLOCK, Chain::Contradicted)
                }
                Found::Write(header, records, after) => {
                    self.take(index, file, offset, &header, records);
                    chain = after;
                    offset += header.padded_bytes();
                    continue;
                }
                // The bad write ends where its header says: what its records hold is not looked at.
                Found::Broken(Some(header), why) => (why, header.padded_bytes(), Chain::Broken),
                Found::Broken(None, why) => (why, BLOCK, Chain::At(chain)),
                Found::Contradiction(why) => (why, BLOCK, Chain::Contradicted),
            };
            return Ok(Stop { offset, why, behind: offset + behind, chain });
        }
    }

    fn take(
        &mut self,
        index: usize,
        file: &FoundFile,
        offset: u64,
        header: &WriteHeader,
        records: Vec<RecoveredRecord>,
    ) {
        for record in &records {
            let (group, counter) = (record.group, record.counter);
            let before = self.counters.insert(group, counter);
            if !self.doubts.record(group, before, counter) {
                let what =
                    format!("record {} is number {counter} of group {group}, which does not follow", record.sequence);
                self.damaged(file, offset, what, Lost::Nothing);
            }
            if record.kind == RecordKind::Accepted {
                self.doubts.accepted(group);
            }
        }
        self.now_needed(header.oldest_file);
        self.epoch = self.epoch.max(header.epoch);
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
    }

    fn now_needed(&mut self, oldest_file: u64) {
        self.reached_needed = self.reached_needed.max(oldest_file);
        self.oldest_needed = self.oldest_needed.max(oldest_file);
    }

    fn now_synced(&mut self, synced: u64) {
        self.stated = self.stated.max(synced);
        while self.doubtful.front().is_some_and(|write| write.last <= synced) {
            self.doubtful.pop_front();
        }
    }

    /// The chain ends in `files[index]`, and what follows does not go on from there.
    fn decide(&self, inventory: &Inventory, index: usize, stop: &Stop) -> Result<Decision, RecoveryError> {
        let (file, later) = (&inventory.files[index], &inventory.files[index + 1..]);
        let limit = inventory.limit(index);
        if limit == self.expected {
            return Ok(Decision::End);
        }
        if limit < self.expected || matches!(stop.chain, Chain::Contradicted) {
            return Ok(Decision::Damage(None));
        }
        let view = inventory::view(self.disk, self.config, file);
        let next = scan::next_write(&view, stop.offset, stop.behind)?;
        let (mut stated, mut end) = (self.stated, next.end);
        if let Some((offset, next)) = next.write {
            let goes_on = match stop.chain {
                Chain::At(chain) => next.chain == chain,
                Chain::Unknown => true,
                Chain::Broken | Chain::Contradicted => false,
            };
            if goes_on && next.first_sequence == self.expected {
                return Ok(Decision::GoesOn(offset, next.chain));
            }
            // Only if it does not say it alone, everything behind it is looked at.
            if next.synced >= self.expected {
                return Ok(Decision::Damage(Some(next.synced)));
            }
            let beyond = scan::beyond(&view, stop.offset, stop.behind)?;
            (stated, end) = (stated.max(beyond.synced), beyond.end);
        }
        for file in later {
            let beyond = scan::beyond(&inventory::view(self.disk, self.config, file), BLOCK, BLOCK)?;
            let header = file.header.as_ref().map_or(0, |(header, _)| header.synced);
            stated = stated.max(header).max(beyond.synced);
        }
        if let (Some(unused), JournalKind::Synced) = (&inventory.unused, self.config.kind) {
            stated = stated.max(unused.first_sequence - 1);
        }
        if stated >= self.expected {
            return Ok(Decision::Damage(Some(stated)));
        }
        let is_ended = self.end_mark == Some(index);
        if later.is_empty() && !is_ended && file.has_lost_its_end(stop.offset) {
            return Ok(Decision::Damage(None));
        }
        // Nothing was ever begun behind an end mark: what is there was there before.
        let torn = end > stop.offset && !is_ended;
        if !torn && later.is_empty() {
            return Ok(Decision::End);
        }
        // What would be cut may be what tells of damage before it, or alone says that it is in a file that nobody needs:
        // everything stays where it is, or the next start would decide otherwise.
        if !self.damages.is_empty() || self.reached_needed < self.oldest_needed {
            return Ok(if later.is_empty() { Decision::End } else { Decision::Damage(None) });
        }
        Ok(Decision::Torn(Tail { file: index, offset: stop.offset, end, why: stop.why.clone() }))
    }

    /// Notes damage and finds where the journal goes on: in this file, or (`None`) with the next one.
    fn go_on_behind(
        &mut self,
        inventory: &Inventory,
        index: usize,
        stop: Stop,
        stated: Option<u64>,
    ) -> Result<Option<(u64, u32)>, RecoveryError> {
        let (file, next_file) = (&inventory.files[index], inventory.files.get(index + 1));
        let limit = inventory.limit(index);
        let view = inventory::view(self.disk, self.config, file);
        let mut behind = stop.behind;
        let resumed = loop {
            let Some((at, header)) = scan::next_write(&view, behind, behind)?.write else { break None };
            if header.first_sequence >= self.expected && header.next_sequence() <= limit {
                break Some((at, header));
            }
            behind = at + BLOCK;
        };
        let next = match (&resumed, next_file) {
            (Some((_, header)), _) => Some(header.first_sequence),
            (None, Some(next)) => Some(next.first_sequence),
            // Behind what nobody can read, numbers go on with those of the file that was made for what came next.
            (None, None) => {
                let made_for = inventory.unused.as_ref().map(|unused| unused.first_sequence);
                stated.map(|stated| stated + 1).max(made_for.filter(|next| *next > self.expected))
            }
        };
        let first = self.expected;
        let lost = match next {
            Some(next) if next <= first => Lost::Nothing,
            Some(next) => Lost::Records(Sequence(first), Sequence(next - 1)),
            None => Lost::From(Sequence(first)),
        };
        match next_file.filter(|next| resumed.is_none() && !follows(file, next)) {
            Some(next) => self.damaged(next, 0, out_of_order(file, next), lost),
            None => {
                let of_the_file = file.fault.as_ref().map_or(String::new(), |(_, fault)| format!(": {fault}"));
                self.damaged(file, stop.offset, stop.why + &of_the_file, lost);
            }
        }
        if lost != Lost::Nothing {
            self.doubts.gap();
            self.gap_in = file.number;
            // Where nobody knows how many, the next start has to find a gap here as well.
            self.expected = next.unwrap_or(first + 1);
            self.end_mark = None;
        }
        Ok(resumed.map(|(at, header)| (at, header.chain)))
    }

    fn is_told(&self, file: &FoundFile) -> bool {
        self.damages.iter().any(|damage| damage.file == file.path)
    }

    fn damaged(&mut self, file: &FoundFile, offset: u64, what: String, lost: Lost) {
        if self.damages.len() < DAMAGES_TOLD {
            self.damages.push(Damage { file: file.path.clone(), offset, what, lost });
        }
    }
}

/// Whether a file's number is the next one after this.
fn follows(before: &FoundFile, file: &FoundFile) -> bool {
    before.number + 1 == file.number
}

fn out_of_order(before: &FoundFile, file: &FoundFile) -> String {
    format!("it is file {} of the journal, but file {} should come next", file.number, before.number + 1)
}
