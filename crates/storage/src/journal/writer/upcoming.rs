//! The files that are written next: made ahead of need, or taken from those that are let go.

use lockgate_wire::MonoTime;

use super::{Ending, JournalWriter};
use crate::disk::{DiskResult, FileOp, Path};
use crate::journal::recovery::Free;
use crate::journal::{JournalKind, format};

/// How long after a full disk the next file is tried again.
const PREPARE_RETRY_MS: u64 = 1000;

impl JournalWriter {
    pub(super) fn may_prepare(&self) -> bool {
        self.files.may_prepare(self.file.is_some(), !self.pending.is_empty())
    }

    /// The next file to be made ahead of need: at most one is being made, and one is ready. None is made while there is a
    /// spare one.
    pub fn prepare(&mut self) -> Option<FileOp> {
        let busy = self.free.is_some() || self.preparing.is_some();
        if busy || !self.may_prepare() || self.poison.is_some() || self.ending == Ending::Done {
            return None;
        }
        if self.adopt_spare() {
            return None;
        }
        if self.retry_prepare_at.is_some_and(|at| at > self.clock) {
            return None;
        }
        let path = self.name_free();
        self.preparing = Some(path.clone());
        let written = self.config.kind == JournalKind::Synced;
        Some(FileOp::Zero { path, bytes: self.config.file_bytes, written })
    }

    /// Takes the spare file for the next one, if there is one and none is ready.
    fn adopt_spare(&mut self) -> bool {
        let may = self.free.is_none() && self.preparing.is_none() && self.may_prepare();
        let Some(path) = self.spare.take_if(|_| may) else { return false };
        (self.free, self.retry_prepare_at) = (Some(Free { path, reused: true }), None);
        true
    }

    fn name_free(&mut self) -> Path {
        self.next_free += 1;
        self.config.path(&format::free_name(self.next_free - 1))
    }

    /// The file that was to be made is made, or is not. A full disk is not the end: it is tried again after a pause.
    ///
    /// # Panics
    /// If no file was to be made.
    pub fn prepared(&mut self, result: DiskResult<()>) {
        let path = self.preparing.take().expect("a file that was to be prepared is reported once");
        match result {
            Ok(()) => {
                self.free = Some(Free { path, reused: false });
                self.retry_prepare_at = None;
            }
            Err(error) if error.is_full() => {
                self.retry_prepare_at = Some(self.clock.plus_ms(PREPARE_RETRY_MS));
                self.file = self.file.take().or_else(|| self.last_file.take());
            }
            Err(error) => self.poison = self.poison.take().or(Some(error.into())),
        }
    }

    /// The next file to be removed, or to be kept as the spare one; one at a time.
    pub fn start_removal(&mut self, now: MonoTime) -> Option<FileOp> {
        self.clock = self.clock.max(now);
        if self.poison.is_some() {
            return None;
        }
        let (from, is_whole) = self.files.next_removal(self.clock)?;
        if !is_whole || self.spare.is_some() || self.sparing_failed {
            return Some(FileOp::Remove { paths: vec![from] });
        }
        let to = self.name_free();
        self.sparing = Some(to.clone());
        Some(FileOp::Rename { from, to })
    }

    /// The removal that was started is done, or failed and is tried again after a pause. A failed sync of the directory
    /// stops the journal, as any of its failed syncs does.
    ///
    /// # Panics
    /// If no removal is under way.
    pub fn removed(&mut self, result: DiskResult<()>) {
        let sparing = self.sparing.take();
        // Where a name cannot be changed, the file can perhaps be removed.
        self.sparing_failed = sparing.is_some() && result.is_err();
        self.spare = self.spare.take().or(sparing.filter(|_| result.is_ok()));
        // One that somebody else has removed is gone as well.
        let result = result.or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) });
        self.files.removed(&result, self.clock);
        // Something may wait for it, also at the bound, where there is room for one only now.
        self.adopt_spare();
        self.counters.files_freed += u64::from(result.is_ok());
        if let Err(error) = result
            && error.is_sync()
        {
            self.poison = self.poison.take().or(Some(error.into()));
        }
    }
}
