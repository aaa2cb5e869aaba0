//! `lockgate storage repair`.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use lockgate_server::data_dir::ReadDir;
use lockgate_server::rehearsal::{Repair as Repaired, RepairError, ShardRepairs, repair_all};
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
    /// Whether anything is damaged.
    lines: Vec<String>,
    items: Vec<Value>,
    /// What would go on, and what would not.
    repairable: usize,
    hopeless: usize,
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
    print(global, &done, "done: start the broker")?;
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
    fn shard(&mut self, shard: ShardId, result: Result<Vec<Repaired>, RepairError>) {
        let repairs = match result {
            Ok(repairs) => repairs,
            Err(error) => {
                self.hopeless += 1;
                self.lines.push(format!("shard {shard}: cannot be repaired: {error}"));
                self.items.push(json!({ "shard": shard.0, "error": error.to_string() }));
                return;
            }
        };
        for Repaired { of, damage, outcome } in repairs {
            let what = match &outcome {
                Ok(kept) => kept.to_string(),
                Err(why) => format!("cannot be repaired: {why}"),
            };
            *if outcome.is_ok() { &mut self.repairable } else { &mut self.hopeless } += 1;
            self.lines.push(format!("{of}: {what}\n    {damage}"));
            self.items.push(json!({
                "shard": shard.0, "of": of.to_string(), "damage": damage,
                "keeps_up_to_entry": outcome.as_ref().ok().map(|kept| kept.up_to.0),
                "gives_up_entries": outcome.as_ref().ok().map(|kept| kept.given_up),
                "cannot": outcome.as_ref().err(),
            }));
        }
    }
}

fn print(global: &Global, report: &Report, end: &str) -> Result<(), Failure> {
    let end = if report.lines.is_empty() { "no journal has lost anything: nothing to repair" } else { end };
    let text = || report.lines.iter().map(String::as_str).chain([end]).collect::<Vec<_>>().join("\n");
    output::print(global, text, || json!({ "repairs": report.items, "message": end }))
}

fn hopeless(report: &Report) -> Result<(), Failure> {
    if report.hopeless == 0 {
        return Ok(());
    }
    let what = format!("{} cannot be repaired: restore a copy, or delete the topic", report.hopeless);
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
