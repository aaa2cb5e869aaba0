//! The writer: collects records, numbers them, plans one write at a time, prepares files ahead, and stops for good after
//! a failure. Pure: it is told what time it is and how its plans went.
//!
//! What it confirms is what the finished write held, never what was appended since. A failed write or sync poisons it: the
//! kernel may have dropped the bytes, so a later success would prove nothing.

mod upcoming;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use lockgate_wire::{GroupId, MonoTime};

use super::external::{External, Retractable};
use super::files::{Files, Purpose};
use super::format::{self, BLOCK_BYTES, FLAG_END, FLAG_MARK, FileHeader, WRITE_HEADER_BYTES, WriteHeader};
use super::layout::{Layout, Pending, lay_out};
use super::outcome::{AppendRefused, JournalCounters, Poison};
use super::recovery::{Current, Free};
use super::{Draft, JournalConfig, JournalKind, JournalWrite, OpenFile, Position, Sequence};
use crate::disk::{DiskResult, FileOp, Path};

#[derive(Debug)]
pub(super) struct InFlight {
    path: Path,
    last: u64,
    records: u64,
    bytes: u64,
    opened: bool,
    sync: bool,
    end: bool,
    /// Files before it are not needed, it states.
    states: u64,
    /// Records whose data is elsewhere.
    external: u64,
    /// It begins with data elsewhere.
    pub(super) retractable: Option<Retractable>,
}

/// A file with written records that no sync has covered yet (buffered journals).
#[derive(Debug)]
struct Dirty {
    path: Path,
    last: u64,
    /// Files before it are not needed, the newest write there states.
    states: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    No,
    Requested,
    Done,
}

/// A journal's writing side. Lives on its shard, for as long as the process.
#[derive(Debug)]
pub struct JournalWriter {
    config: JournalConfig,
    salt: u32,
    epoch: u64,
    pub(super) files: Files,
    counters_by_group: BTreeMap<GroupId, u64>,
    /// The next record's sequence.
    next: u64,
    /// Everything up to here is in finished writes.
    pub(super) written: u64,
    /// Everything up to here is durable.
    synced: u64,
    pub(super) pending: VecDeque<Pending>,
    pub(super) pending_bytes: usize,
    pub(super) external: External,
    pub(super) file: Option<Current>,
    /// The file of an earlier start that this one goes on in if the disk has no room for its own.
    last_file: Option<Current>,
    /// The current file was planned to be opened, and the write that was to do it was taken back.
    pub(super) unopened: Option<OpenFile>,
    next_file: u64,
    free: Option<Free>,
    /// Taken for the next file once the prepared one is used: it had an earlier life.
    spare: Option<Path>,
    /// What the file that is being let go will be called as the spare one.
    sparing: Option<Path>,
    /// That failed the last time.
    sparing_failed: bool,
    next_free: u64,
    preparing: Option<Path>,
    /// The disk was full; try again then.
    retry_prepare_at: Option<MonoTime>,
    pub(super) in_flight: Option<InFlight>,
    dirty: VecDeque<Dirty>,
    /// The last record and the newest statement that a running sync will have made durable.
    syncing: Option<(u64, u64)>,
    mark_at: Option<MonoTime>,
    ending: Ending,
    poison: Option<Poison>,
    counters: JournalCounters,
    /// The latest time it was told.
    clock: MonoTime,
}

impl JournalWriter {
    /// A writer that goes on where recovery ended.
    ///
    /// # Panics
    /// If the configuration is not valid; recovery has checked it before.
    pub fn new(config: JournalConfig, position: Position) -> Self {
        config.validate().expect("recovery validates the same configuration");
        let recovered = position.next_sequence - 1;
        Self {
            salt: format::salt(&config.identity, config.kind),
            files: Files::new(&config, position.files, position.needed, position.gap_in),
            config,
            epoch: position.epoch,
            counters_by_group: position.counters,
            next: position.next_sequence,
            written: recovered,
            synced: recovered,
            pending: VecDeque::new(),
            pending_bytes: 0,
            external: External::default(),
            file: position.current,
            last_file: position.last,
            unopened: None,
            next_file: position.next_file,
            free: position.free,
            spare: None,
            sparing: None,
            sparing_failed: false,
            next_free: position.next_free,
            preparing: None,
            retry_prepare_at: None,
            in_flight: None,
            dirty: VecDeque::new(),
            syncing: None,
            mark_at: None,
            ending: Ending::No,
            poison: None,
            counters: JournalCounters::default(),
            clock: MonoTime::default(),
        }
    }

    /// Takes a record for the next write and numbers it. What collects here is bounded by those who append: they watch
    /// [`Self::pending_bytes`].
    pub fn append(&mut self, draft: Draft) -> Result<Sequence, AppendRefused> {
        if let Some(poison) = &self.poison {
            return Err(AppendRefused::Poisoned(poison.clone()));
        }
        if self.ending != Ending::No {
            return Err(AppendRefused::Ending);
        }
        let bytes = draft.body.iter().map(Bytes::len).fold(0, usize::saturating_add);
        let limit = self.config.max_body_bytes();
        let body_bytes = match u32::try_from(bytes) {
            Ok(fits) if bytes <= limit => fits,
            _ => return Err(AppendRefused::TooLarge { bytes, limit }),
        };
        let counter = self.counters_by_group.entry(draft.group).or_default();
        *counter += 1;
        let sequence = self.next;
        self.next += 1;
        let is_large = u64::from(body_bytes) >= self.config.external_min_bytes;
        let make = if is_large { Pending::unsummed } else { Pending::new };
        let pending = make(draft, body_bytes, sequence, *counter);
        self.pending_bytes += pending.weight();
        self.pending.push_back(pending);
        Ok(Sequence(sequence))
    }

    /// Bytes of the records that no write has taken yet, headers included.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The next write, if something is due, none is under way, and there is a file for it.
    pub fn start_write(&mut self, now: MonoTime) -> Option<JournalWrite> {
        self.clock = self.clock.max(now);
        if !self.can_write() {
            return None;
        }
        let (count, length) = self.due_records();
        let all = count == self.pending.len();
        let end = all && self.ending == Ending::Requested && self.synced == self.written;
        let mark = all && (self.mark_due().is_some_and(|at| at <= self.clock) || self.files.has_unstated());
        if length > self.room() || (count == 0 && !end && !mark) {
            return None;
        }
        let open = if self.fits(length) { self.unopened.take() } else { Some(self.open_file()?) };
        Some(self.plan(count, end, open))
    }

    /// Whether nothing but a missing file can keep the next write from being started.
    pub(super) fn can_write(&self) -> bool {
        self.in_flight.is_none() && self.poison.is_none() && self.ending != Ending::Done
    }

    /// When a mark is due. One is not worth a file of the reserve.
    fn mark_due(&self) -> Option<MonoTime> {
        let has_place = self.fits(BLOCK_BYTES) || self.files.left_for(Purpose::Publish).is_some_and(|files| files > 0);
        self.mark_at.filter(|_| has_place)
    }

    /// How many records the next write takes, and its bytes with header and padding.
    pub(super) fn due_records(&self) -> (usize, usize) {
        let room = self.room();
        let (mut weight, mut length) = (WRITE_HEADER_BYTES, WRITE_HEADER_BYTES);
        let mut count = 0;
        for record in &self.pending {
            if weight + record.weight() > room {
                break;
            }
            weight += record.weight();
            length += record.bytes();
            count += 1;
        }
        (count, length.next_multiple_of(BLOCK_BYTES))
    }

    /// The largest write that can be started. Without a prepared file that is what the current one has left.
    fn room(&self) -> usize {
        let max = self.config.max_write_bytes as usize;
        match &self.file {
            _ if self.free.is_some() => max,
            Some(file) => max.min((self.config.file_bytes - file.offset) as usize),
            None => 0,
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.file.as_ref().is_some_and(|file| file.offset + bytes as u64 <= self.config.file_bytes)
    }

    /// Turns the prepared file into the current one, if there is one.
    fn open_file(&mut self) -> Option<OpenFile> {
        let Free { path: free, reused } = self.free.take()?;
        let header = FileHeader {
            kind: self.config.kind,
            identity: self.config.identity,
            file_sequence: self.next_file,
            first_sequence: self.written + 1,
            epoch: self.epoch,
            file_bytes: self.config.file_bytes,
            synced: self.synced,
            oldest_file: self.files.state(),
            reused,
        };
        let header_bytes = header.encode();
        let (_, chain) = FileHeader::decode(&header_bytes).expect("what was encoded is decoded");
        let path = self.config.path(&format::file_name(header.file_sequence, header.first_sequence));
        self.files.opened(self.next_file, path.clone(), self.written);
        let (sequence, epoch) = (self.next_file, self.epoch);
        self.file = Some(Current { sequence, path, epoch, offset: BLOCK_BYTES as u64, chain });
        self.last_file = None;
        self.next_file += 1;
        Some(OpenFile { free, header: header_bytes.into() })
    }

    fn plan(&mut self, count: usize, end: bool, open: Option<OpenFile>) -> JournalWrite {
        // Nothing is ever begun behind an end mark, and the next start may have to go on in this file.
        let end_flag = if end && !self.is_full() { FLAG_END } else { 0 };
        let file = self.file.as_mut().expect("a write is planned once its file is there");
        let records: Vec<Pending> = self.pending.drain(..count).collect();
        self.pending_bytes -= records.iter().map(Pending::weight).sum::<usize>();
        let (data, retractable) = self.external.start((file.offset, file.chain), open.as_ref());
        let external = records.iter().filter(|record| record.is_external()).count() as u64;
        let header = WriteHeader {
            file_sequence: file.sequence,
            epoch: file.epoch,
            first_sequence: self.written + 1,
            synced: self.synced,
            oldest_file: self.files.state(),
            length: 0,
            count: 0,
            chain: file.chain,
            flags: if count == 0 { FLAG_MARK } else { 0 } | end_flag,
            block: (file.offset / BLOCK_BYTES as u64) as u32,
        };
        let Layout { pieces, bytes, chain } = lay_out(header, self.salt, records);
        let offset = file.offset;
        file.offset += bytes as u64;
        file.chain = chain;
        let last = self.written + count as u64;
        self.files.grew(last);
        let sync = self.config.kind == JournalKind::Synced || end;
        self.mark_at = None;
        self.in_flight = Some(InFlight {
            path: file.path.clone(),
            last,
            records: count as u64,
            bytes: bytes as u64,
            opened: open.is_some(),
            sync,
            end,
            states: header.oldest_file,
            external,
            retractable,
        });
        let path = file.path.clone();
        JournalWrite { kind: self.config.kind, data, path, open, offset, pieces, bytes, sync, last: Sequence(last) }
    }

    /// The write that was started is done. Gives the last record that is now durable (synced journal) or with the
    /// operating system (buffered journal); an error stops the journal for good. Only a write that
    /// [found no room](Self::is_without_room) for its data elsewhere is planned once more.
    ///
    /// # Panics
    /// If no write is under way.
    pub fn finished(&mut self, result: DiskResult<()>, now: MonoTime) -> Result<Sequence, Poison> {
        self.clock = self.clock.max(now);
        let without_room = self.is_without_room(&result);
        let write = self.in_flight.take().expect("a write that was started is finished once");
        let data_bytes = write.retractable.as_ref().map_or(0, Retractable::data_bytes);
        if let Some(retractable) = write.retractable.filter(|_| without_room) {
            self.retract(retractable);
            return Ok(Sequence(self.written));
        }
        self.check(result)?;
        self.counters.external_records += write.external;
        self.counters.external_bytes += data_bytes;
        self.counters.writes += 1;
        self.counters.records += write.records;
        self.counters.bytes += write.bytes;
        self.counters.files += u64::from(write.opened);
        self.written = write.last;
        // A file's header is synced before anything is written behind it, in either journal. It counts if everything before
        // it does: where the end is torn, the files behind it go, with what their headers state.
        if write.sync || (write.opened && self.dirty.is_empty()) {
            self.files.stated(write.states);
        }
        if write.sync {
            self.counters.syncs += 1;
            self.synced = write.last;
        } else if write.records > 0 || self.files.is_unproven(write.states) {
            self.note_dirty(Dirty { path: write.path, last: write.last, states: write.states });
        }
        if write.end {
            self.ending = Ending::Done;
        } else if write.sync && write.records > 0 {
            self.mark_at = Some(self.clock.plus_ms(self.config.mark_after_ms));
        }
        Ok(Sequence(write.last))
    }

    fn note_dirty(&mut self, dirty: Dirty) {
        match self.dirty.back_mut() {
            Some(newest) if newest.path == dirty.path => *newest = dirty,
            _ => self.dirty.push_back(dirty),
        }
    }

    /// The disk has no room for the next file. What is left of the current one still takes writes, meant for what makes
    /// room.
    pub fn is_full(&self) -> bool {
        self.retry_prepare_at.is_some()
    }

    /// How many more bytes of records may be appended for this before the journal is at its bound; `None` at the bound. On a
    /// full disk what is left of the file is the reserve: its first half is for changes, a further quarter for deletions
    /// alone, and the rest for what makes room.
    pub fn room_for(&self, purpose: Purpose) -> Option<u64> {
        let header = WRITE_HEADER_BYTES as u64;
        let left = self.file.as_ref().map_or(0, |file| (self.config.file_bytes - file.offset).saturating_sub(header));
        if self.is_full() {
            let spared = match purpose {
                Purpose::Publish => return None,
                Purpose::Change => self.config.file_bytes / 2,
                Purpose::Deletion => self.config.file_bytes / 4,
            };
            return left.checked_sub(spared + self.pending_bytes as u64).filter(|room| *room > 0);
        }
        let files = self.files.left_for(purpose)? as u64;
        // Two writes one after the other take more than one full one, and each file has room for one at least.
        let max_write = u64::from(self.config.max_write_bytes);
        let in_a_file = (self.config.file_bytes - BLOCK_BYTES as u64 - max_write).max(max_write / 2);
        (left + files * in_a_file).checked_sub(self.pending_bytes as u64).filter(|room| *room > 0)
    }

    /// Whether no publish may use another file.
    pub fn is_at_bound(&self) -> bool {
        self.room_for(Purpose::Publish).is_none()
            && self.files.left_for(Purpose::Publish).is_none_or(|files| files == 0)
    }

    /// Bytes that the file that is written has left; 0 without one.
    #[cfg(test)]
    pub(super) fn room_in_file(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| self.config.file_bytes - file.offset)
    }

    /// Whether files have to go: from half of the bound on.
    pub fn wants_room(&self) -> bool {
        self.poison.is_none() && self.files.wants_room()
    }

    /// The last record of the file that has to go next.
    pub fn oldest_ends(&self) -> Option<Sequence> {
        self.files.oldest_ends().map(Sequence)
    }

    /// Nobody needs a record before this one: the files that hold only such records go, once a write has said so.
    pub fn release(&mut self, floor: Sequence) {
        self.files.release(floor.0);
    }

    /// How many files hold the journal.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The number of the file that is written, or will be.
    pub fn current_file(&self) -> u64 {
        self.file.as_ref().map_or(self.next_file, |file| file.sequence)
    }

    /// The number that the next record gets.
    pub fn next_sequence(&self) -> Sequence {
        Sequence(self.next)
    }

    /// Why the journal stopped, if it did.
    pub fn poison(&self) -> Option<&Poison> {
        self.poison.as_ref()
    }

    /// When [`Self::start_write`] or [`Self::prepare`] should be asked again although nothing was appended or finished.
    pub fn next_deadline(&self) -> Option<MonoTime> {
        if self.poison.is_some() || self.ending == Ending::Done {
            return None;
        }
        // Records that wait for a file are no mark, and time alone does not move them.
        let can_mark = self.in_flight.is_none() && self.pending.is_empty() && self.room() >= BLOCK_BYTES;
        let mark = self.mark_due().filter(|_| can_mark);
        let retry = self.retry_prepare_at.filter(|_| self.preparing.is_none() && self.may_prepare());
        mark.into_iter().chain(retry).chain(self.files.deadline()).min()
    }

    /// An orderly stop: nothing more is appended, and the write that empties the journal says so. A buffered journal
    /// says so only after what was written before is synced.
    pub fn end(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Requested;
        }
    }

    /// The end mark is durable: the journal has nothing more to do.
    pub fn is_ended(&self) -> bool {
        self.ending == Ending::Done
    }

    /// Whether something was written that no sync has covered.
    pub fn needs_sync(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A sync of the oldest file with records that none has covered; one at a time, buffered journals only.
    pub fn start_sync(&mut self, now: MonoTime) -> Option<FileOp> {
        self.clock = self.clock.max(now);
        if self.syncing.is_some() || self.poison.is_some() {
            return None;
        }
        let oldest = self.dirty.front()?;
        self.syncing = Some((oldest.last, oldest.states));
        Some(FileOp::Sync { path: oldest.path.clone() })
    }

    /// The sync that was started is done. Gives the last record that is now durable; what was written since the sync
    /// started is not.
    ///
    /// # Panics
    /// If no sync is under way.
    pub fn synced(&mut self, result: DiskResult<()>, now: MonoTime) -> Result<Sequence, Poison> {
        self.clock = self.clock.max(now);
        let (covered, states) = self.syncing.take().expect("a sync that was started is reported once");
        self.check(result)?;
        self.files.stated(states);
        self.counters.syncs += 1;
        self.synced = self.synced.max(covered);
        if self.dirty.front().is_some_and(|oldest| oldest.last <= covered && oldest.states <= states) {
            self.dirty.pop_front();
        }
        self.mark_at = Some(self.clock.plus_ms(self.config.mark_after_ms));
        Ok(Sequence(self.synced))
    }

    /// Everything up to here is with the operating system, or durable.
    pub fn written_sequence(&self) -> Sequence {
        Sequence(self.written)
    }

    /// Everything up to here is durable.
    pub fn synced_sequence(&self) -> Sequence {
        Sequence(self.synced)
    }

    /// What was done since the start.
    pub fn counters(&self) -> JournalCounters {
        self.counters
    }

    /// The first failure stays; from then on nothing succeeds.
    fn check(&mut self, result: DiskResult<()>) -> Result<(), Poison> {
        if let (Err(error), None) = (result, &self.poison) {
            self.poison = Some(error.into());
        }
        self.poison.clone().map_or(Ok(()), Err)
    }
}
