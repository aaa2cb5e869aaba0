//! The simulated disk: what is promised of a file system and no more.
//!
//! A file's bytes and size survive a power loss once the file was synced, a name once its directory was; of everything
//! else each 512-byte sector, each change of a size and of a name survives or not. The death of the process loses
//! nothing that was written. An operation under way is cut anywhere: [`SimDisk::cut_after`] ends the life of the process
//! at a chosen call, in the middle of that call.
//!
//! A disk may be full: other people's files take the rest of the device. What grows a file then gets as far as there is room.
//!
//! A sync that fails is that of Linux: the file's pages count as clean from then on. Reads go on showing what was written,
//! the next sync succeeds and does nothing for it, and a power loss shows what the device has. When the sync of a directory
//! fails, its names wait for the next one, or the file system has had enough and takes no change until the machine starts
//! again.

mod content;
mod file;
mod names;
mod speed;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_storage::disk::{Disk, DiskError, DiskResult, Entry, parent};

use crate::rng::Rng;
use file::{File, SECTOR_BYTES};
use names::{Inode, Names};

pub use speed::{DiskSpeed, SLOWEST};

/// The errno of a device that failed.
pub const EIO: i32 = 5;
/// The errno of every change once a file system has stopped taking any.
pub const EROFS: i32 = 30;
/// The errno of every call after the process was cut off; nobody sees it but code that is already dead.
const CUT: i32 = 0;
/// What the paths of journals begin with.
const JOURNALS: &str = "shards";

/// A disk that outlives the processes that use it.
#[derive(Debug)]
pub struct SimDisk {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    files: BTreeMap<Inode, File>,
    names: Names,
    next_inode: Inode,
    /// Calls that the process still gets done; the one after them is torn.
    calls_left: Option<u64>,
    is_cut: bool,
    failure: Option<Failure>,
    refuses_files: bool,
    forgets_syncs: bool,
    is_read_only: bool,
    /// What the files of this disk may take together; none: the device is large.
    room: Option<u64>,
}

/// A call that is going to fail with EIO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// The next change or sync.
    Next,
    /// The sync, of a file or a directory, after so many more.
    Sync(u64),
}

/// How far a call goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// The process dies in it.
    Cut,
    /// The device fails in it.
    Failed,
}

impl State {
    /// Whether this call is the one that was to fail.
    fn fails(&mut self, stage: &'static str) -> bool {
        let is_sync = matches!(stage, "sync" | "sync directory");
        match &mut self.failure {
            Some(Failure::Sync(more)) if is_sync && *more > 0 => *more -= 1,
            Some(Failure::Next) => return self.failure.take().is_some(),
            Some(Failure::Sync(_)) if is_sync => return self.failure.take().is_some(),
            _ => {}
        }
        false
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new(rng: Rng) -> Self {
        let state = State {
            rng,
            files: BTreeMap::new(),
            names: Names::default(),
            next_inode: 1,
            calls_left: None,
            is_cut: false,
            failure: None,
            refuses_files: false,
            forgets_syncs: false,
            is_read_only: false,
            room: None,
        };
        Self { state: RefCell::new(state) }
    }

    /// The process dies in the call after so many more: that call is torn, those after it do nothing.
    pub fn cut_after(&self, calls: u64) {
        self.state.borrow_mut().calls_left = Some(calls);
    }

    /// Whether the process was cut off in a call.
    pub fn is_cut(&self) -> bool {
        self.state.borrow().is_cut
    }

    /// How many files a directory has, as somebody sees it who looks from outside.
    pub fn count_files(&self, directory: &str) -> u64 {
        self.state.borrow().names.count(directory)
    }

    /// The next write or sync fails with EIO, having done some of its work.
    pub fn fail_next_write(&self) {
        self.state.borrow_mut().failure = Some(Failure::Next);
    }

    /// The sync after so many more fails with EIO.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.state.borrow_mut().failure = Some(Failure::Sync(syncs));
    }

    /// Somebody else's files fill the device, but for so many bytes.
    pub fn fill(&self, left: u64) {
        let state = &mut *self.state.borrow_mut();
        state.room = Some(state.used() + left);
    }

    /// Somebody else's files are gone.
    pub fn make_room(&self) {
        self.state.borrow_mut().room = None;
    }

    /// Whether the file system takes no change until the machine starts again.
    pub fn is_read_only(&self) -> bool {
        self.state.borrow().is_read_only
    }

    /// While set, nothing can be written but journals: every other write fails with EIO and does nothing.
    pub fn refuse_files(&self, refuses: bool) {
        self.state.borrow_mut().refuses_files = refuses;
    }

    /// From now on the device confirms every sync of a file and forgets it: no promise holds on it, and whoever looks for
    /// broken ones has to find some.
    pub fn forget_syncs(&self) {
        self.state.borrow_mut().forgets_syncs = true;
    }

    /// The process died. What the operating system was given stays, synced or not.
    pub fn crash(&self) {
        let state = &mut *self.state.borrow_mut();
        state.calls_left = None;
        state.is_cut = false;
        state.failure = None;
        state.refuses_files = false;
    }

    /// The machine lost its power. Only what was synced is promised.
    pub fn power_loss(&self) {
        self.crash();
        let state = &mut *self.state.borrow_mut();
        state.is_read_only = false;
        state.names.power_loss(&mut state.rng);
        state.collect();
        let State { files, rng, .. } = state;
        files.values_mut().for_each(|file| file.power_loss(rng));
    }

    fn enter(&self, stage: &'static str, path: &str) -> DiskResult<Extent> {
        self.state.borrow_mut().enter(stage, path)
    }
}

impl State {
    fn enter(&mut self, stage: &'static str, path: &str) -> DiskResult<Extent> {
        if self.is_cut {
            return Err(error(stage, path, CUT, "the process is gone"));
        }
        match &mut self.calls_left {
            None => {}
            Some(0) => {
                self.is_cut = true;
                return Ok(Extent::Cut);
            }
            Some(calls) => *calls -= 1,
        }
        Ok(Extent::Whole)
    }

    /// A call that changes the disk: torn by a cut or by a fault.
    fn enter_change(&mut self, stage: &'static str, path: &str) -> DiskResult<(Extent, DiskResult<()>)> {
        if self.enter(stage, path)? == Extent::Cut {
            return Ok((Extent::Cut, Err(error(stage, path, CUT, "the process died here"))));
        }
        if self.is_read_only {
            return Err(error(stage, path, EROFS, "read-only file system"));
        }
        if self.fails(stage) {
            return Ok((Extent::Failed, Err(error(stage, path, EIO, "input/output error"))));
        }
        Ok((Extent::Whole, Ok(())))
    }

    /// Whether a change without parts happens: always if the call is whole, else by chance.
    fn happens(&mut self, extent: Extent) -> bool {
        extent == Extent::Whole || self.rng.coin()
    }

    fn file(&self, stage: &'static str, path: &str) -> DiskResult<Inode> {
        self.names.find(path).ok_or_else(|| missing(stage, path))
    }

    fn file_mut(&mut self, inode: Inode) -> &mut File {
        self.files.get_mut(&inode).expect("a name stands for a file")
    }

    /// The bytes of all files that have a name.
    fn used(&self) -> u64 {
        self.names.files().filter_map(|inode| self.files.get(&inode)).map(File::size).sum()
    }

    /// How many bytes files may still grow by.
    fn left(&self) -> u64 {
        self.room.map_or(u64::MAX, |room| room.saturating_sub(self.used()))
    }

    /// A new name takes room too, if only for a moment.
    fn check_room_for_name(&self, stage: &'static str, path: &str) -> DiskResult<()> {
        if self.left() < SECTOR_BYTES { Err(full(stage, path)) } else { Ok(()) }
    }

    /// Opens a file for writing, making it if its directory is there.
    fn open(&mut self, path: &str) -> DiskResult<Inode> {
        if let Some(inode) = self.names.find(path) {
            return Ok(inode);
        }
        if !self.names.has_directory(parent(path)) {
            return Err(missing("open", path));
        }
        self.check_room_for_name("open", path)?;
        let inode = self.next_inode;
        self.next_inode += 1;
        self.files.insert(inode, File::default());
        self.names.link(path, inode);
        Ok(inode)
    }

    /// Drops files that no name can stand for any more.
    fn collect(&mut self) {
        let reachable = self.names.reachable();
        self.files.retain(|inode, _| reachable.contains(inode));
    }
}

fn error(stage: &'static str, path: &str, errno: i32, message: &str) -> DiskError {
    DiskError { stage, path: path.into(), errno, message: message.to_owned() }
}

fn full(stage: &'static str, path: &str) -> DiskError {
    error(stage, path, DiskError::ENOSPC, "no space left on device")
}

fn missing(stage: &'static str, path: &str) -> DiskError {
    error(stage, path, DiskError::ENOENT, "no such file or directory")
}

impl Disk for SimDisk {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        self.enter("list", directory)?;
        let state = self.state.borrow();
        if !state.names.has_directory(directory) {
            return Err(missing("list", directory));
        }
        Ok(state.names.list(directory, |inode| state.files.get(&inode).map_or(0, File::size)))
    }

    fn size(&self, path: &str) -> DiskResult<u64> {
        self.enter("size", path)?;
        let state = self.state.borrow();
        let inode = state.file("size", path)?;
        Ok(state.files.get(&inode).map_or(0, File::size))
    }

    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        self.enter("read", path)?;
        let state = self.state.borrow();
        let inode = state.file("read", path)?;
        Ok(state.files.get(&inode).map_or_else(Bytes::new, |file| file.read(offset, len)))
    }

    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        if state.refuses_files && !path.starts_with(JOURNALS) {
            return Err(error("write", path, EIO, "input/output error"));
        }
        let (extent, mut result) = state.enter_change("write", path)?;
        let inode = state.open(path)?;
        let total: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut left = match extent {
            Extent::Whole => total,
            Extent::Cut | Extent::Failed => (state.rng.below(total + 1) + offset) / SECTOR_BYTES * SECTOR_BYTES,
        };
        if extent != Extent::Whole {
            left = left.saturating_sub(offset);
        }
        let end_max = state.file_mut(inode).size().saturating_add(state.left());
        if offset.saturating_add(left) > end_max {
            left = end_max.saturating_sub(offset);
            result = result.and(Err(full("write", path)));
        }
        let mut at = offset;
        for piece in pieces {
            let part = piece.slice(..(piece.len() as u64).min(left) as usize);
            if part.is_empty() {
                break;
            }
            state.file_mut(inode).write(at, &part);
            at += part.len() as u64;
            left -= part.len() as u64;
        }
        result
    }

    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("truncate", path)?;
        let inode = state.file("truncate", path)?;
        if state.happens(extent) {
            state.file_mut(inode).resize(bytes);
        }
        result
    }

    fn sync(&self, path: &str) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("sync", path)?;
        let inode = state.file("sync", path)?;
        let State { files, rng, forgets_syncs, .. } = state;
        let file = files.get_mut(&inode).expect("a name stands for a file");
        match extent {
            Extent::Failed => file.sync_fails(rng),
            Extent::Cut if rng.coin() => {}
            _ if *forgets_syncs => {}
            Extent::Whole | Extent::Cut => file.sync(),
        }
        result
    }

    fn forget_cached(&self, path: &str) -> DiskResult<()> {
        self.sync(path)?;
        let state = &mut *self.state.borrow_mut();
        let inode = state.file("forget", path)?;
        state.file_mut(inode).forget_cached();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("rename", from)?;
        let inode = state.file("rename", from)?;
        if !state.names.has_directory(parent(to)) {
            return Err(missing("rename", to));
        }
        if state.happens(extent) {
            state.names.rename(from, to, inode);
        }
        result
    }

    fn remove(&self, path: &str) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("remove", path)?;
        let inode = state.file("remove", path)?;
        if state.happens(extent) {
            state.names.unlink(path, inode);
        }
        result
    }

    fn remove_directory(&self, path: &str) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("remove directory", path)?;
        if path.is_empty() || !state.names.has_directory(path) {
            return Err(missing("remove directory", path));
        }
        if state.happens(extent) {
            state.names.remove_directory(path);
        }
        result
    }

    fn create_directory(&self, path: &str) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("create directory", path)?;
        if !state.names.has_directory(path) {
            state.check_room_for_name("create directory", path)?;
        }
        if extent == Extent::Whole {
            state.names.create_directory(path);
        } else {
            let parts = path.split('/').count() as u64;
            state.names.begin_directory(path, state.rng.below(parts + 1) as usize);
        }
        result
    }

    fn sync_directory(&self, path: &str) -> DiskResult<()> {
        let state = &mut *self.state.borrow_mut();
        let (extent, result) = state.enter_change("sync directory", path)?;
        if !state.names.has_directory(path) {
            return Err(missing("sync directory", path));
        }
        match extent {
            Extent::Failed => state.is_read_only = state.rng.coin(),
            _ if state.happens(extent) => state.names.sync_directory(path),
            _ => {}
        }
        result
    }
}
