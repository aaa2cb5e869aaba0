//! Another number of shards from one start to the next, as the server does it: the new journals are made beside the old
//! ones, then one replaced file says that they count.

use std::sync::Arc;

use bytes::{Buf, BufMut, BytesMut};
use lockgate_engine::{FollowError, NodeConfig, follow_shard_count};
use lockgate_storage::disk::{Disk, DiskError, FileOp};
use lockgate_storage::journal::JournalKind;
use lockgate_wire::ShardId;

use super::World;
use super::life::StartError;
use crate::trace::Who;

/// The file that says which journals count: shards u16, set of journals u32, little endian.
const MANIFEST: &str = "manifest";
const MANIFEST_BYTES: usize = 6;

impl World {
    /// Gives the node the journals that count, after moving them if it is to have another number of shards.
    pub(super) fn follow_shard_count(&mut self, wanted: Option<u16>) -> Result<(), StartError> {
        let mut config = (*self.node.config).clone();
        match self.disk.read(MANIFEST, 0, MANIFEST_BYTES) {
            Ok(bytes) => {
                let (mut fields, whole) = (&bytes[..], bytes.len() == MANIFEST_BYTES);
                assert!(whole, "a replaced file is there as a whole");
                config.shards = fields.get_u16_le();
                config.journals = fields.get_u32_le();
            }
            Err(error) if error.is_missing() => (config.shards, config.journals) = (self.plan.node.shards, 0),
            Err(error) => return Err(error.into()),
        }
        let to = match wanted.filter(|wanted| *wanted != config.shards) {
            Some(shards) => NodeConfig { shards, journals: config.journals + 1, ..config.clone() },
            None => config.clone(),
        };
        if to.journals != config.journals {
            self.faults.count("other shard counts");
        }
        let moved = follow_shard_count(&self.disk, &config, &to, |_| {
            for shard in (0..to.shards).map(ShardId) {
                let directory = to.journal(shard, JournalKind::Synced).directory;
                let files = self.disk.count_files(&directory);
                self.moved_files.insert(directory, files);
            }
            let mut manifest = BytesMut::new();
            manifest.put_u16_le(to.shards);
            manifest.put_u32_le(to.journals);
            FileOp::Replace { path: MANIFEST.into(), pieces: vec![manifest.freeze()] }.execute(&self.disk).map(drop)
        })?;
        if let Some(moved) = moved {
            let shards = to.shards;
            self.trace.step(self.now, Who::World, "MOVED", &[], format_args!("to {shards} shards: {moved:?}"));
        }
        self.node.config = Arc::new(to);
        Ok(())
    }
}

impl From<FollowError<DiskError>> for StartError {
    fn from(error: FollowError<DiskError>) -> Self {
        match error {
            FollowError::Remove(error) | FollowError::Switch(error) => error.into(),
            FollowError::Move(error) => Self { text: error.to_string(), is_of_the_disk: error.disk().is_some() },
        }
    }
}
