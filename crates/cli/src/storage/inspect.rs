//! `lockgate storage inspect`.

use clap::Args;
use lockgate_storage::disk::Disk;
use lockgate_storage::journal::inspect as journal;
use lockgate_storage::segment::inspect as segment;

use super::{Source, tree, view};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    source: Source,
    /// A file, for everything in it, or a directory, for its files in short; within the data directory
    #[arg(value_name = "PATH", default_value = "")]
    path: String,
}

pub(super) fn run(args: &Inspect, global: &Global) -> Result<(), Failure> {
    let (_, data) = args.source.open()?;
    let disk: &dyn Disk = &*data.disk;
    let path = args.path.trim_matches('/');
    match disk.list(path) {
        Ok(_) => {
            let files = tree::files(disk, path).map_err(Failure::Disk)?;
            let summaries = files.iter().map(|(path, bytes)| tree::summary(disk, path, *bytes));
            let summaries: Vec<_> = summaries.collect::<Result<_, _>>().map_err(Failure::Disk)?;
            output::print(global, || view::tree_text(&summaries), || view::tree_json(&summaries))
        }
        // Not a directory: then it is a file, or nothing at all.
        Err(_) => file(disk, path, global),
    }
}

/// Everything in a file: a line for each part, as JSON an object a line.
fn file(disk: &dyn Disk, path: &str, global: &Global) -> Result<(), Failure> {
    let bytes = disk.size(path).map_err(Failure::Disk)?;
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut result = Ok(());
    // The first failure of the output ends the printing, not the reading.
    let mut print = |text: &dyn Fn() -> String, json: &dyn Fn() -> serde_json::Value| {
        if result.is_ok() {
            result = output::print(global, text, json);
        }
    };
    if journal::is_file_name(name) {
        let mut item = |item| print(&|| view::item_text(&item), &|| view::item_json(&item));
        if let Err(fault) = journal::inspect(disk, path, &mut item).map_err(Failure::Disk)? {
            print(&|| fault.clone(), &|| view::fault_json(0, &fault));
        }
    } else if segment::log_base(name).is_some() {
        let mut frame = |frame| print(&|| view::frame_text(&frame), &|| view::frame_json(&frame));
        let end = segment::frames(disk, path, &mut frame).map_err(Failure::Disk)?;
        if let Some(fault) = &end.fault {
            print(&|| format!("{:>12}  {fault}", end.position), &|| view::fault_json(end.position, fault));
        }
    } else {
        let summary = tree::summary(disk, path, bytes).map_err(Failure::Disk)?;
        print(&|| view::file_text(&summary), &|| view::summary_json(&summary));
    }
    result
}
