//! A start that changes nothing: what recovery would decide is found by running it on a disk that keeps its changes to
//! itself.

pub use lockgate_engine::{Cut, Repair, RepairError, Repairs};
use lockgate_engine::{RecoveryReport, recover, repair};
use lockgate_storage::disk::dry_run::DryRun;
use lockgate_storage::disk::{Disk, DiskError};
use lockgate_wire::ShardId;

use crate::config::Config;
use crate::data_dir::{DataDirError, Identity, ReadDir};

/// What a start would find.
#[derive(Debug)]
pub struct Rehearsal {
    /// Whose directory it is, as the start would have it; `None`: the start would make a new one.
    pub identity: Option<Identity>,
    /// The configured number of shards, if the directory has another: the start would move its partitions there.
    pub moves_to: Option<u16>,
    /// By number, as the directory has them.
    pub shards: Vec<ShardOutcome>,
}

/// What a start would find of one shard.
#[derive(Debug)]
pub struct ShardOutcome {
    /// The shard.
    pub shard: ShardId,
    /// What recovery reports; `None` if the shard, and with it the node, would not start.
    pub report: Option<RecoveryReport>,
    /// What would not start or serve, and why.
    pub refused: Vec<String>,
}

/// Rehearses the start of a node with this configuration. An error is what the start would end with before it looks at
/// any shard.
pub fn rehearse(data: &ReadDir, config: &Config) -> Result<Rehearsal, DataDirError> {
    let identity = data.identity(&config.data_dir, config.node)?;
    let shards = identity.iter().flat_map(|identity| {
        let node = config.for_node(identity);
        (0..identity.shards).map(ShardId).map(move |shard| rehearse_shard(data, &node, shard))
    });
    let has_others = identity.as_ref().is_some_and(|identity| identity.shards != config.shards);
    let moves_to = has_others.then_some(config.shards);
    Ok(Rehearsal { moves_to, shards: shards.collect(), identity: identity.clone() })
}

fn rehearse_shard(data: &ReadDir, node: &lockgate_engine::NodeConfig, shard: ShardId) -> ShardOutcome {
    let failed = |why: &dyn std::fmt::Display| ShardOutcome { shard, report: None, refused: vec![why.to_string()] };
    let disk = match DryRun::new(&*data.disk) {
        Ok(disk) => disk,
        Err(error @ DiskError { .. }) => return failed(&error),
    };
    let recovered = match recover(&disk, node, shard) {
        Ok(recovered) => recovered,
        Err(error) => return failed(&error),
    };
    let refused = recovered.refused().map(|(id, why)| format!("partition {id} will not serve: {why}"));
    let mut refused: Vec<String> = refused.collect();
    let mut report = recovered.report.clone();
    for id in recovered.unknown() {
        let what = format!("partition {id} has segments, but the journal of shard {shard} knows nothing of it");
        if recovered.has_lost_journals() {
            refused.push(format!("{what}, nor of anything else: it was lost"));
        } else {
            report.findings.push(format!("{what}: left of a deleted topic, or the partition will not serve"));
        }
    }
    ShardOutcome { shard, report: Some(report), refused }
}

/// What a repair comes to in one shard.
#[derive(Debug)]
pub struct ShardRepairs {
    /// The shard.
    pub shard: ShardId,
    /// Every partition that is concerned, or why nothing in this shard is repaired.
    pub repairs: Result<Repairs, RepairError>,
}

/// Repairs what a start would refuse because a journal is damaged: on a disk that keeps its changes to itself, or for good.
/// By shard; none in an empty directory.
pub fn repair_all(data: &ReadDir, config: &Config, disk: &dyn Disk) -> Result<Vec<ShardRepairs>, DataDirError> {
    let identity = data.identity(&config.data_dir, config.node)?;
    let shards = identity.iter().flat_map(|identity| {
        let node = config.for_node(identity);
        (0..identity.shards).map(ShardId).map(move |shard| ShardRepairs { shard, repairs: repair(disk, &node, shard) })
    });
    Ok(shards.collect())
}
