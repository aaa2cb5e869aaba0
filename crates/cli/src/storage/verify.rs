//! `lockgate storage verify`.

use clap::Args;
use lockgate_server::ServerError;
use lockgate_server::rehearsal::{Rehearsal, rehearse};
use lockgate_storage::disk::Disk;
use lockgate_storage::segment::inspect as segment;
use serde_json::{Value, json};

use super::Source;
use super::tree::{Content, files, summary};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    source: Source,
}

/// What reading every file has found, beside what a start would look at.
#[derive(Default)]
struct Reading {
    files: u64,
    bytes: u64,
    /// Nothing is lost by it.
    findings: Vec<String>,
    /// Something is.
    damage: Vec<String>,
}

pub(super) fn run(args: &Verify, global: &Global) -> Result<(), Failure> {
    let (config, data) = args.source.open()?;
    let refused = |error| Failure::Server(ServerError::DataDir(error));
    let rehearsal = rehearse(&data, &config).map_err(refused)?;
    let reading = read_all(&*data.disk)?;
    output::print(global, || text(&rehearsal, &reading), || json(&rehearsal, &reading))?;
    let refused = rehearsal.shards.iter().map(|shard| shard.refused.len()).sum::<usize>();
    if refused + reading.damage.len() == 0 {
        return Ok(());
    }
    let what = format!("damaged: a start would refuse {refused} things, {} files are damaged", reading.damage.len());
    Err(Failure::Damaged(what))
}

/// Reads what a start trusts: sealed segments, and checkpoints behind the newest.
fn read_all(disk: &dyn Disk) -> Result<Reading, Failure> {
    let mut reading = Reading::default();
    for (path, bytes) in files(disk, "").map_err(Failure::Disk)? {
        reading.files += 1;
        reading.bytes += bytes;
        let file = summary(disk, &path, bytes).map_err(Failure::Disk)?;
        match file.content {
            Content::Log(log) => {
                let Some(end) = log.end else { continue };
                let end_offset = log.last.map(|last| last.base_offset.plus(last.count.into()));
                reading.damage.extend(sealed_damage(disk, &path, bytes, &end, end_offset)?);
            }
            Content::Checkpoint(Err(why)) => reading.findings.push(format!("{path} is not used: {why}")),
            _ => {}
        }
    }
    Ok(reading)
}

/// What is wrong with a log that has a seal. One without is read, and if needed cut, at every start.
fn sealed_damage(
    disk: &dyn Disk,
    path: &str,
    bytes: u64,
    end: &segment::LogEnd,
    end_offset: Option<lockgate_wire::Offset>,
) -> Result<Option<String>, Failure> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(base) = segment::log_base(name) else { return Ok(None) };
    let seal = match segment::seal(disk, &format!("{directory}/{base:020}.index"), base) {
        Err(error) if error.is_missing() => return Ok(None),
        seal => seal.map_err(Failure::Disk)?,
    };
    let Some(seal) = seal.filter(|seal| seal.log_bytes == bytes) else { return Ok(None) };
    if let Some(fault) = &end.fault {
        return Ok(Some(format!("{path} is sealed, and damaged at byte {}: {fault}", end.position)));
    }
    let wrong = end_offset != Some(seal.end_offset);
    Ok(wrong.then(|| format!("{path} is sealed up to offset {}, and its frames end elsewhere", seal.end_offset)))
}

fn text(rehearsal: &Rehearsal, reading: &Reading) -> String {
    let mut lines = Vec::new();
    match &rehearsal.identity {
        None => lines.push("the directory is empty: a start would make a new node".to_owned()),
        Some(identity) => lines.push(format!(
            "node {} of cluster {}, disk {}: start {} would find",
            identity.node, identity.cluster, identity.disk, identity.incarnation
        )),
    }
    if let Some(wanted) = rehearsal.moves_to {
        let found = rehearsal.shards.len();
        lines.push(format!("its partitions would move from {found} to {wanted} shards, unless one of them is refused"));
    }
    for outcome in &rehearsal.shards {
        let shard = outcome.shard;
        if let Some(report) = &outcome.report {
            let stop = if report.ended_cleanly { "an orderly stop" } else { "a crash" };
            lines.push(format!("shard {shard}: {} records in its journals, after {stop}", report.journal_records));
            let findings = report.findings.iter().chain(&report.damage);
            lines.extend(findings.map(|finding| format!("shard {shard}: {finding}")));
        }
        lines.extend(outcome.refused.iter().map(|why| format!("shard {shard}: REFUSED: {why}")));
    }
    lines.extend(reading.findings.iter().cloned());
    lines.extend(reading.damage.iter().map(|what| format!("DAMAGED: {what}")));
    lines.push(format!("{} files, {} read", reading.files, output::bytes(reading.bytes as f64)));
    lines.join("\n")
}

fn json(rehearsal: &Rehearsal, reading: &Reading) -> Value {
    let shards = rehearsal.shards.iter().map(|outcome| {
        let report = outcome.report.as_ref();
        json!({
            "shard": outcome.shard.0, "starts": report.is_some(), "refused": outcome.refused,
            "journal_records": report.map(|report| report.journal_records),
            "ended_cleanly": report.map(|report| report.ended_cleanly),
            "findings": report.map(|report| report.findings.iter().chain(&report.damage).collect::<Vec<_>>()),
        })
    });
    json!({
        "node": rehearsal.identity.as_ref().map(|identity| identity.node.0),
        "cluster": rehearsal.identity.as_ref().map(|identity| identity.cluster.to_string()),
        "next_start": rehearsal.identity.as_ref().map(|identity| identity.incarnation),
        "moves_to_shards": rehearsal.moves_to, "shards": shards.collect::<Value>(),
        "findings": reading.findings, "damage": reading.damage, "files": reading.files, "bytes": reading.bytes,
    })
}
