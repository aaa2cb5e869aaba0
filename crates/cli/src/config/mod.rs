//! `lockgate config`: the server's configuration, without starting it.

mod check;
mod docs;
mod show;

use clap::{Args, Subcommand};
use lockgate_server::{Config, Sources};

use crate::args::Global;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Tell everything that is wrong with the configuration, and whether anything is
    Check(FileArgs),
    /// Print every setting with its value and where that comes from
    Show(FileArgs),
    /// Print the documentation of all settings, in Markdown
    Docs,
}

#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// The configuration file; without it ./lockgate.toml, if there is one
    #[arg(long, value_name = "F")]
    config: Option<String>,
}

impl FileArgs {
    fn load(&self) -> Result<Config, Failure> {
        let sources = Sources::gather(self.config.as_deref(), Vec::new());
        Config::load(&sources.map_err(|error| Failure::Config(vec![error]))?).map_err(Failure::Config)
    }
}

pub(crate) fn run(command: ConfigCommand, global: &Global) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(file) => check::run(&file, global),
        ConfigCommand::Show(file) => show::run(&file, global),
        ConfigCommand::Docs => docs::run(),
    }
}
