//! `lockgate storage`: what is in a data directory, without a broker. Only `repair` changes anything.

mod inspect;
mod repair;
mod tree;
mod verify;
mod view;

use clap::{Args, Subcommand};
use lockgate_server::data_dir::ReadDir;
use lockgate_server::{Config, ServerError, Sources};

use crate::args::Global;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum StorageCommand {
    /// Show the structure of journals, segments and checkpoints
    Inspect(inspect::Inspect),
    /// Read everything, and tell what a start would decide
    Verify(verify::Verify),
    /// Give up what a damaged journal has lost, so that its partitions serve what is left
    Repair(repair::Repair),
}

/// Which data directory, and how.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// The server's configuration file; without it ./lockgate.toml, if there is one
    #[arg(long, value_name = "F")]
    config: Option<String>,
    /// Where the node keeps everything
    #[arg(long, value_name = "D")]
    data_dir: Option<String>,
    /// Read it although a server uses it: what is being written may look damaged
    #[arg(long)]
    force_read: bool,
}

impl Source {
    fn open(&self) -> Result<(Config, ReadDir), Failure> {
        let config = load(self.config.as_deref(), self.data_dir.as_ref())?;
        let data = ReadDir::open(&config.data_dir, self.force_read);
        let data = data.map_err(|error| Failure::Server(ServerError::DataDir(error)))?;
        Ok((config, data))
    }
}

/// The server's configuration, for this directory.
fn load(config: Option<&str>, data_dir: Option<&String>) -> Result<Config, Failure> {
    let flags = data_dir.map(|directory| ("data_dir", directory.clone())).into_iter().collect();
    let sources = Sources::gather(config, flags).map_err(|error| Failure::Config(vec![error]))?;
    Config::load(&sources).map_err(Failure::Config)
}

pub(crate) fn run(command: StorageCommand, global: &Global) -> Result<(), Failure> {
    match command {
        StorageCommand::Inspect(args) => inspect::run(&args, global),
        StorageCommand::Verify(args) => verify::run(&args, global),
        StorageCommand::Repair(args) => repair::run(&args, global),
    }
}
