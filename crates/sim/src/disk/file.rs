//! One file, twice: as the operating system shows it, and as the device would give it back after a power loss. Between
//! them stand the changes that nobody has synced.

use bytes::Bytes;

use super::content::Content;
use crate::rng::Rng;

/// The grain at which a device keeps or loses bytes.
pub(super) const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, bytes: Bytes },
    Size(u64),
}

/// How much of what was not synced a power loss leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Survival {
    /// None of it.
    Nothing,
    /// All of it: the cache was written back just before.
    Everything,
    /// The changes up to some point, in the order in which they were made.
    Prefix,
    /// Each change or not.
    Changes,
    /// Each sector of each change or not.
    Sectors,
}

impl Survival {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        *rng.pick(&[Self::Nothing, Self::Everything, Self::Prefix, Self::Changes, Self::Sectors, Self::Sectors])
    }
}

#[derive(Default, Debug)]
pub(super) struct File {
    now: Content,
    durable: Content,
    pending: Vec<Change>,
}

impl File {
    pub(super) fn size(&self) -> u64 {
        self.now.size()
    }
    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        self.now.read(offset, len)
    }
    pub(super) fn write(&mut self, offset: u64, bytes: &Bytes) {
        self.now.write(offset, bytes);
        self.pending.push(Change::Write { offset, bytes: bytes.clone() });
    }
    pub(super) fn resize(&mut self, size: u64) {
        self.now.resize(size);
        self.pending.push(Change::Size(size));
    }
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                Change::Write { offset, bytes } => self.durable.write(offset, &bytes),
                Change::Size(size) => self.durable.resize(size),
            }
        }
    }
    /// A sync that fails: some of what was written reaches the device, and none of it is tried again. The operating system
    /// goes on showing it all. A size is no page: it waits for the next sync.
    pub(super) fn sync_fails(&mut self, rng: &mut Rng) {
        let pending = std::mem::take(&mut self.pending);
        let (written, sizes) = pending.into_iter().partition(|change| matches!(change, Change::Write { .. }));
        self.pending = sizes;
        self.settle(written, rng);
    }
    /// Drops what the operating system keeps in memory beside the device. It keeps the size.
    pub(super) fn forget_cached(&mut self) {
        let size = self.now.size();
        self.now = self.durable.clone();
        self.now.resize(size);
    }
    /// What is left when the power goes.
    pub(super) fn power_loss(&mut self, rng: &mut Rng) {
        let changes = std::mem::take(&mut self.pending);
        self.settle(changes, rng);
        self.now = self.durable.clone();
    }

    /// Some of these changes are durable from now on, the others never will be.
    fn settle(&mut self, changes: Vec<Change>, rng: &mut Rng) {
        let survival = Survival::draw(rng);
        let kept = rng.below(changes.len() as u64 + 1) as usize;
        for (index, change) in changes.into_iter().enumerate() {
            match survival {
                Survival::Nothing => {}
                Survival::Everything => self.keep(change),
                Survival::Prefix if index < kept => self.keep(change),
                Survival::Prefix if index == kept => self.keep_sectors(change, rng),
                Survival::Prefix => {}
                Survival::Changes if rng.coin() => self.keep(change),
                Survival::Changes => {}
                Survival::Sectors => self.keep_sectors(change, rng),
            }
        }
    }

    fn keep(&mut self, change: Change) {
        match change {
            Change::Write { offset, bytes } => self.durable.write(offset, &bytes),
            Change::Size(size) => self.durable.resize(size),
        }
    }

    /// Keeps each sector of a write with one half; the growth that the write brought is kept or lost apart from them.
    fn keep_sectors(&mut self, change: Change, rng: &mut Rng) {
        let Change::Write { offset, bytes } = change else {
            if rng.coin() {
                self.keep(change);
            }
            return;
        };
        let end = offset + bytes.len() as u64;
        if end > self.durable.size() && rng.coin() {
            self.durable.resize(end);
        }
        for (at, part) in sectors(offset, &bytes) {
            let room = self.durable.size().saturating_sub(at) as usize;
            if rng.coin() && room > 0 {
                self.durable.write(at, &part.slice(..part.len().min(room)));
            }
        }
    }
}

/// The parts of a write that lie in one sector each.
fn sectors(offset: u64, bytes: &Bytes) -> impl Iterator<Item = (u64, Bytes)> + use<> {
    let (mut at, mut rest) = (offset, bytes.clone());
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let part = rest.split_to(rest.len().min((SECTOR_BYTES - at % SECTOR_BYTES) as usize));
        let start = at;
        at += part.len() as u64;
        Some((start, part))
    })
}
