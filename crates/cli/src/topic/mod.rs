//! `lockgate topic`.

mod alter;
mod create;
mod delete;
mod describe;
mod list;
mod view;

use clap::Subcommand;

use crate::args::Global;
use crate::connect::connect;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Make a topic
    Create(create::Create),
    /// List all topics
    List,
    /// Show a topic's settings, partitions and what its acknowledgements are worth
    Describe(describe::Describe),
    /// Change a topic's settings
    Alter(alter::Alter),
    /// Remove a topic and its data
    Delete(delete::Delete),
}

pub(crate) async fn run(command: TopicCommand, global: &Global) -> Result<(), Failure> {
    let admin = connect(global).await?.admin();
    match command {
        TopicCommand::Create(args) => create::run(args, &admin, global).await,
        TopicCommand::List => list::run(&admin, global).await,
        TopicCommand::Describe(args) => describe::run(&args, &admin, global).await,
        TopicCommand::Alter(args) => alter::run(args, &admin, global).await,
        TopicCommand::Delete(args) => delete::run(&args, &admin, global).await,
    }
}
