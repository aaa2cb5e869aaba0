//! How long the disk takes. Drawn once a seed: fast devices, slow ones, and those that stall now and then.

use lockgate_storage::disk::FileOp;
use lockgate_storage::journal::JournalWrite;

use crate::rng::Rng;
use crate::time::{MS, Time, US};

/// Above this nothing takes on a disk that is not slow for a while; bounds of the liveness phase build on it.
pub const SLOWEST: Time = 800 * MS;

/// The latencies of a disk.
#[derive(Clone, Debug)]
pub struct DiskSpeed {
    read: Time,
    write: Time,
    sync: Time,
    stall_per_mille: u64,
}

impl DiskSpeed {
    /// A disk of some kind.
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            read: rng.magnitude(20 * US..=4 * MS),
            write: rng.magnitude(10 * US..=2 * MS),
            sync: rng.magnitude(30 * US..=100 * MS),
            stall_per_mille: *rng.pick(&[0, 0, 1, 5, 20]),
        }
    }

    /// How long a journal write takes.
    pub fn journal(&self, write: &JournalWrite, rng: &mut Rng) -> Time {
        let syncs = write.data.len() as u64 + u64::from(write.sync || write.open.is_some());
        self.spread((1 + write.data.len() as u64) * self.write + syncs * self.sync, rng)
    }

    /// How long a file operation takes.
    pub fn file(&self, op: &FileOp, rng: &mut Rng) -> Time {
        let base = match op {
            FileOp::Read { .. } | FileOp::Reread { .. } => self.read,
            FileOp::Write { .. } => self.write,
            FileOp::Zero { .. } | FileOp::Replace { .. } => 3 * (self.write + self.sync),
            FileOp::Sync { .. }
            | FileOp::Truncate { .. }
            | FileOp::CreateDirectory { .. }
            | FileOp::Rename { .. }
            | FileOp::Remove { .. }
            | FileOp::RemoveDirectory { .. } => self.sync,
        };
        self.spread(base, rng)
    }

    fn spread(&self, base: Time, rng: &mut Rng) -> Time {
        let usual = base / 2 + rng.below(base + 1);
        let stalled = if rng.per_mille(self.stall_per_mille) { rng.within(20 * MS..=500 * MS) } else { 0 };
        (usual + stalled).min(SLOWEST)
    }
}
