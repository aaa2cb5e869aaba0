//! `lockgate cursor`: named positions of readers, one per partition.

mod delete;
mod get;
mod list;
mod set;
mod view;

use clap::{Args, Subcommand};
use lockgate_client::Cursors;

use crate::args::Global;
use crate::connect::connect;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum CursorCommand {
    /// List a topic's cursors
    List(list::List),
    /// Show where a cursor is
    Get(CursorArgs),
    /// Move a cursor
    Set(set::Set),
    /// Remove a cursor
    Delete(CursorArgs),
}

/// A cursor, in all partitions or in one.
#[derive(Debug, Args)]
pub(crate) struct CursorArgs {
    /// The topic
    topic: String,
    /// The cursor's name
    name: String,
    /// One partition; by default all of them
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
}

pub(crate) async fn run(command: CursorCommand, global: &Global) -> Result<(), Failure> {
    let client = connect(global).await?;
    match command {
        CursorCommand::List(args) => list::run(&args, &client, global).await,
        CursorCommand::Get(args) => get::run(&args, &client, global).await,
        CursorCommand::Set(args) => set::run(&args, &client, global).await,
        CursorCommand::Delete(args) => delete::run(&args, &client, global).await,
    }
}

/// The partitions that are meant.
fn partitions(cursors: &Cursors, chosen: Option<u32>) -> Vec<u32> {
    chosen.map_or_else(|| (0..cursors.topic().partitions).collect(), |partition| vec![partition])
}
