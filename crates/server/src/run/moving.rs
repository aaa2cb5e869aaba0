//! A start with another number of shards than the data directory has.

use lockgate_engine::{move_journals, remove_other_journals};

use super::ServerError;
use crate::config::Config;
use crate::data_dir::{DataDir, DataDirError};

/// Moves what the journals hold to the configured number of shards, and removes what a move has left.
pub(super) fn follow_shard_count(data: &mut DataDir, config: &Config) -> Result<(), ServerError> {
    let from = config.for_node(&data.identity);
    remove_other_journals(&*data.disk, &from).map_err(ServerError::Disk)?;
    let (found, wanted) = (from.shards, config.shards);
    if found == wanted {
        return Ok(());
    }
    let failed = |error| DataDirError::Identity { path: config.data_dir.clone(), error };
    let identity = data.identity.with_shards(wanted).map_err(failed).map_err(ServerError::DataDir)?;
    let to = config.for_node(&identity);
    tracing::info!("the data directory has {found} shards, {wanted} are configured: its partitions are moved");
    let moved = move_journals(&*data.disk, &from, &to).map_err(|error| ServerError::Move { found, error })?;
    data.switch(identity).map_err(failed).map_err(ServerError::DataDir)?;
    for finding in moved.findings {
        tracing::warn!("{finding}");
    }
    tracing::info!(replicas = moved.groups, records = moved.records, "moved to {wanted} shards");
    remove_other_journals(&*data.disk, &to).map_err(ServerError::Disk)
}
