//! `lockgate storage repair`.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use lockgate_server::data_dir::ReadDir;
use lockgate_server::rehearsal::{Cut, Repair as Repaired, RepairError, Repairs, ShardRepairs, repair_all};
use lockgate_server::{Config, ServerError};
use lockgate_storage::disk::Disk;
use lockgate_storage::disk::dry_run::DryRun;
use lockgate_wire::ShardId;
use serde_json::{Value, json};

use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The server's configuration file; without it ./lockgate.toml, if there is one
    #[arg(long, value_name = "F")]
    config: Option<String>,
    /// Where the node keeps everything
    #[arg(long, value_name = "D")]
    data_dir: Option<String>,
    /// Do it without asking
    #[arg(long)]
    yes: bool,
}

/// What a repair comes to, in the words of a report.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    items: Vec<Value>,
    /// What is damaged, as every start tells it.
    damage: Vec<String>,
    /// Partitions that would go on, and those that would not.
    repairable: usize,
    hopeless: usize,
    /// Shards in which nothing could be repaired.
    failed: usize,
}

pub(super) fn run(args: &Repair, global: &Global) -> Result<(), Failure> {
    let config = super::load(args.config.as_deref(), args.data_dir.as_ref())?;
    let data = ReadDir::open_for_repair(&config.data_dir);
    let data = data.map_err(|error| Failure::Server(ServerError::DataDir(error)))?;
    let rehearsal = DryRun::new(&*data.disk).map_err(Failure::Disk)?;
    let proposed = report(&data, &config, &rehearsal)?;
    if proposed.repairable == 0 {
        print(global, &proposed, "nothing can be repaired")?;
        return hopeless(&proposed);
    }
    if !args.yes {
        print(global, &proposed, "nothing is changed yet; a copy of the data directory keeps what is given up")?;
        if !agrees(proposed.repairable)? {
            return Err(Failure::Usage("nothing was changed: answer `yes`, or give --yes".into()));
        }
    }
    let done = report(&data, &config, &*data.disk)?;
    let end = if done.failed == 0 { "done: start the broker" } else { "not everything was done: repair again" };
    print(global, &done, end)?;
    hopeless(&done)
}

fn report(data: &ReadDir, config: &Config, disk: &dyn Disk) -> Result<Report, Failure> {
    let refused = |error| Failure::Server(ServerError::DataDir(error));
    let mut report = Report::default();
    for ShardRepairs { shard, repairs } in repair_all(data, config, disk).map_err(refused)? {
        report.shard(shard, repairs);
    }
    Ok(report)
}

impl Report {
    fn shard(&mut self, shard: ShardId, result: Result<Repairs, RepairError>) {
        let Repairs { partitions, damage } = match result {
            Ok(repairs) => repairs,
            Err(error) => {
                self.failed += 1;
                self.lines.push(format!("shard {shard}: cannot be repaired: {error}"));
                self.items.push(json!({ "shard": shard.0, "error": error.to_string() }));
                return;
            }
        };
        self.damage.extend(damage);
        for Repaired { of, damage, outcome } in partitions {
            let what = match &outcome {
                Ok(kept) => kept.to_string(),
                Err(why) => format!("cannot be repaired: {why}"),
            };
            *if outcome.is_ok() { &mut self.repairable } else { &mut self.hopeless } += 1;
            self.lines.push(format!("{of}: {what}\n    {damage}"));
            let cut = outcome.as_ref().ok().and_then(|kept| kept.cut);
            self.items.push(json!({
                "shard": shard.0, "of": of.to_string(), "damage": damage,
                "keeps_up_to_entry": outcome.as_ref().ok().map(|kept| kept.up_to.0),
                "gives_up_entries": outcome.as_ref().ok().map(|kept| kept.given_up),
                "cuts": cut.map(|Cut { first, last, bytes }| {
                    json!({ "first_offset": first.0, "last_offset": last.0, "bytes": bytes })
                }),
                "cannot": outcome.as_ref().err(),
            }));
        }
    }
}

fn print(global: &Global, report: &Report, end: &str) -> Result<(), Failure> {
    let (lines, end) = match (report.lines.is_empty(), report.damage.is_empty()) {
        (false, _) => (&report.lines, end),
        (true, true) => (&report.lines, "no journal has lost anything: nothing to repair"),
        (true, false) => (&report.damage, "no partition is refused for that: nothing to repair"),
    };
    let text = || lines.iter().map(String::as_str).chain([end]).collect::<Vec<_>>().join("\n");
    output::print(global, text, || json!({ "repairs": report.items, "damage": report.damage, "message": end }))
}

fn hopeless(report: &Report) -> Result<(), Failure> {
    let what = match (report.failed, report.hopeless) {
        (0, 0) => return Ok(()),
        (0, partitions) => format!("{partitions} cannot be repaired: restore a copy, or delete the topic"),
        (shards, _) => format!("nothing was repaired in {shards} of the shards"),
    };
    Err(Failure::Damaged(what))
}

/// Asks whoever sits there. Nobody: no.
fn agrees(repairs: usize) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("Give this up for good, {repairs} in all? Type yes: ");
    io::stderr().flush().map_err(Failure::io("asking"))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(Failure::io("reading the answer"))?;
    Ok(answer.trim() == "yes")
}
