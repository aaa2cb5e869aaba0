//! File operations that ended, to whom they belong.

use bytes::Bytes;
use lockgate_storage::disk::DiskResult;

use super::Shard;
use crate::core::FileOwner;
use crate::output::{FileToken, Level};

impl Shard {
    pub(super) fn file_done(&mut self, token: FileToken, result: DiskResult<Bytes>) {
        let Some(owner) = self.core.files.remove(&token) else {
            return self.bug("a file operation ended that was not started");
        };
        match owner {
            FileOwner::Prepare(kind) => self.prepared(kind, result),
            FileOwner::Remove(kind) => self.removed(kind, result),
            FileOwner::SyncBuffered => self.buffered_synced(result),
            FileOwner::Background(id) => self.with_partition(id, |partition, core| partition.file_done(core, result)),
            FileOwner::Read(id, reader) => {
                self.with_partition(id, |partition, core| partition.read_done(core, (reader, token), result))
            }
            FileOwner::Scrub => self.scrub_read(result),
            FileOwner::Catalog => {
                if let Some(controller) = &mut self.controller {
                    controller.file_done(&mut self.core, result);
                }
            }
            FileOwner::Deletion => {
                if let Err(error) = result {
                    self.core.log(
                        Level::Warn,
                        format!("a deleted partition's files are left until the next start: {error}"),
                    );
                }
            }
        }
    }
}
