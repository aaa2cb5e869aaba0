//! A start with another number of shards than the data directory has.

use lockgate_engine::FollowError;

use super::ServerError;
use crate::config::Config;
use crate::data_dir::{DataDir, DataDirError};

/// Moves what the journals hold to the configured number of shards, and removes what a move has left.
pub(super) fn follow_shard_count(data: &mut DataDir, config: &Config) -> Result<(), ServerError> {
    let failed = |error| ServerError::DataDir(DataDirError::Identity { path: config.data_dir.clone(), error });
    let (found, wanted) = (data.identity.shards, config.shards);
    let identity = match found == wanted {
        true => data.identity.clone(),
        false => {
            tracing::info!("the data directory has {found} shards, {wanted} are configured: its partitions are moved");
            data.identity.with_shards(wanted).map_err(failed)?
        }
    };
    let (from, to, disk) = (config.for_node(&data.identity), config.for_node(&identity), data.disk.clone());
    let followed = lockgate_engine::follow_shard_count(&*disk, &from, &to, |moved| {
        data.switch(identity)?;
        for finding in &moved.findings {
            tracing::warn!("{finding}");
        }
        tracing::info!(replicas = moved.groups, records = moved.records, "moved to {wanted} shards");
        Ok(())
    });
    followed.map(drop).map_err(|error| match error {
        FollowError::Remove(error) => ServerError::Disk(error),
        FollowError::Move(error) => ServerError::Move { found, error },
        FollowError::Switch(error) => failed(error),
    })
}
