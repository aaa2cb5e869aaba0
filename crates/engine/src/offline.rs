//! A journal that is written while no shard runs: straight-line code over a disk.

use lockgate_storage::disk::{Disk, DiskError};
use lockgate_storage::journal::{AppendRefused, Draft, JournalConfig, JournalKind, JournalWriter, Position, Sequence};
use lockgate_wire::{MonoTime, ShardId};

use crate::config::NodeConfig;

/// Why it was not written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum WriteError {
    /// The journal does not take a record.
    Append(AppendRefused),
    /// The disk failed, or is full.
    Disk(DiskError),
}

impl From<DiskError> for WriteError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// See the module.
pub(crate) struct OfflineJournal<'a> {
    disk: &'a dyn Disk,
    writer: JournalWriter,
    max_write_bytes: usize,
}

impl<'a> OfflineJournal<'a> {
    pub(crate) fn open(
        disk: &'a dyn Disk,
        node: &NodeConfig,
        shard: ShardId,
        kind: JournalKind,
        position: Position,
    ) -> Result<Self, WriteError> {
        // What makes room does not run.
        let config = JournalConfig { max_bytes: JournalConfig::MAX_BYTES_MAX, ..node.journal(shard, kind) };
        disk.create_directory(&config.directory)?;
        let max_write_bytes = config.max_write_bytes as usize;
        Ok(Self { disk, writer: JournalWriter::new(config, position), max_write_bytes })
    }

    pub(crate) fn append(&mut self, draft: Draft) -> Result<(), WriteError> {
        self.writer.append(draft).map_err(WriteError::Append)?;
        if self.writer.pending_bytes() >= self.max_write_bytes { self.write(false) } else { Ok(()) }
    }

    /// Writes until nothing waits, and makes it durable.
    fn write(&mut self, ends: bool) -> Result<(), WriteError> {
        let at = MonoTime::default();
        loop {
            if let Some(write) = self.writer.start_write(at) {
                let written = write.execute(self.disk);
                // What poisons the writer ends this, with the same error.
                drop(self.writer.finished(written.clone(), at));
                written?;
            } else if self.writer.pending_bytes() > 0 {
                let file = self.writer.prepare().expect("a journal with a prepared file takes what waits");
                let made = file.execute(self.disk).map(drop);
                self.writer.prepared(made.clone());
                made?;
            } else if let Some(sync) = self.writer.start_sync(at) {
                let synced = sync.execute(self.disk).map(drop);
                drop(self.writer.synced(synced.clone(), at));
                synced?;
            } else if ends && !self.writer.is_ended() {
                let file = self.writer.prepare().expect("a journal with a prepared file takes its end");
                let made = file.execute(self.disk).map(drop);
                self.writer.prepared(made.clone());
                made?;
            } else {
                return Ok(());
            }
        }
    }

    /// As an orderly stop does. A journal that got nothing stays as it is.
    pub(crate) fn end(mut self, before: Sequence) -> Result<(), WriteError> {
        self.write(false)?;
        if self.writer.written_sequence() == before {
            return Ok(());
        }
        self.writer.end();
        self.write(true)
    }
}
