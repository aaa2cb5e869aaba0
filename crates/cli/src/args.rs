//! The command line as a whole: the subcommands and what all of them take.

use clap::{Args, Parser, Subcommand, ValueEnum};
use lockgate_client::{Ack, HostPort};

use crate::bench::BenchCommand;
use crate::completions::Completions;
use crate::config::ConfigCommand;
use crate::consume::Consume;
use crate::cursor::CursorCommand;
use crate::produce::Produce;
use crate::server::ServerArgs;
use crate::storage::StorageCommand;
use crate::topic::TopicCommand;

/// A distributed message broker: streams in one binary, one thread per core, replicated by Raft.
#[derive(Debug, Parser)]
#[command(name = "lockgate", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Brokers to connect to, separated by commas; one that answers is enough
    #[arg(
        long,
        global = true,
        env = "LOCKGATE_SERVER",
        value_name = "H:P",
        value_delimiter = ',',
        default_value = lockgate_client::DEFAULT_ADDRESS
    )]
    pub(crate) server: Vec<HostPort>,
    /// Print results, and errors, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print results and errors only
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a broker
    Server(ServerArgs),
    /// Create, list, describe, alter and delete topics
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Publish records, one per input line
    Produce(Produce),
    /// Print records
    Consume(Consume),
    /// List, get, set and delete cursors: named positions of readers
    #[command(subcommand)]
    Cursor(CursorCommand),
    /// Check and show the server's configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look into a data directory, and check it
    #[command(subcommand)]
    Storage(StorageCommand),
    /// Measure a broker, and what this machine allows
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Print a shell's completion script
    Completions(Completions),
}

/// `--ack`, as users write it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum AckArg {
    /// A majority of the replicas holds the records
    #[default]
    Quorum,
    /// The leader holds the records; not idempotent: a batch that is refused and sent again may come behind later ones
    Leader,
    /// Nothing is answered; not idempotent
    None,
}

impl AckArg {
    pub(crate) fn level(self) -> Ack {
        match self {
            Self::Quorum => Ack::Quorum,
            Self::Leader => Ack::Leader,
            Self::None => Ack::None,
        }
    }
}

/// How records are written as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// A value a line
    #[default]
    Text,
    /// A JSON object a line
    Json,
    /// Values byte for byte, line ends included
    Raw,
}

/// `k=v`, split at the first equals sign.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not of the form name=value")),
    }
}
