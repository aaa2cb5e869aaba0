//! Why a command did not do what it was asked to: what is printed on standard error, and the exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use lockgate_client::{ClientError, HostPort};
use lockgate_server::{ConfigError, ServerError};
use lockgate_storage::disk::DiskError;
use serde_json::json;

use crate::args::Global;

/// Refused or failed.
const FAILED: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;
/// What was asked may or may not have been done.
const UNKNOWN: u8 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// The configuration is wrong, with everything that is.
    Config(Vec<ConfigError>),
    /// The server could not start, or ended otherwise than it was told to.
    Server(ServerError),
    /// The broker or the way to it refused.
    Client(ClientError),
    /// A file or the machine failed; the text says what was tried.
    Io { what: String, error: io::Error },
    /// A file of the data directory cannot be read.
    Disk(DiskError),
    /// The data directory is damaged. The report before it says how.
    Damaged(String),
    /// Not everything was acknowledged. The report before it says what was.
    Incomplete { what: String, unknown: bool },
    /// Whoever read the output is gone: nothing is left to say, and nobody to say it to.
    OutputClosed,
}

impl Failure {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        |error| Failure::Io { what: what.into(), error }
    }

    /// Prints it on standard error; gives the exit code.
    pub(crate) fn report(self, global: &Global) -> ExitCode {
        if matches!(self, Self::OutputClosed) {
            return ExitCode::SUCCESS;
        }
        if global.json {
            let kind = self.kind();
            eprintln!("{}", json!({ "error": { "kind": kind, "message": self.to_string() } }));
        } else {
            eprintln!("error: {self}");
        }
        ExitCode::from(self.exit_code())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Client(ClientError::InvalidArgument(_)) => USAGE,
            Self::Config(errors)
                if errors.iter().any(|e| matches!(e.place, lockgate_server::config::Place::Flag(_))) =>
            {
                USAGE
            }
            Self::Client(error) if error.outcome_unknown() => UNKNOWN,
            Self::Incomplete { unknown: true, .. } => UNKNOWN,
            _ => FAILED,
        }
    }

    /// A stable name of the cause.
    fn kind(&self) -> &'static str {
        match self {
            Self::Usage(_) => "usage",
            Self::Config(_) => "config",
            Self::Server(_) => "server",
            Self::Client(error) => error.kind(),
            Self::Io { .. } | Self::Disk(_) => "io",
            Self::Damaged(_) => "damaged",
            Self::Incomplete { unknown: true, .. } => "outcome_unknown",
            Self::Incomplete { .. } => "incomplete",
            Self::OutputClosed => "output_closed",
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) | Self::Damaged(what) | Self::Incomplete { what, .. } => f.write_str(what),
            Self::Config(errors) => {
                let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
                write!(f, "the configuration is wrong\n  {}", lines.join("\n  "))
            }
            Self::Server(error) => error.fmt(f),
            Self::Client(ClientError::Connect { attempts }) => {
                let attempts = attempts.iter().map(|attempt| (&attempt.address, attempt.reason.as_str()));
                nobody_answers(f, &attempts.collect::<Vec<_>>())
            }
            Self::Client(error) => error.fmt(f),
            Self::Disk(error) => error.fmt(f),
            Self::Io { what, error } => write!(f, "{what}: {error}"),
            Self::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

fn nobody_answers(f: &mut fmt::Formatter<'_>, attempts: &[(&HostPort, &str)]) -> fmt::Result {
    let tried: Vec<String> = attempts.iter().map(|(address, reason)| format!("{address} ({reason})")).collect();
    write!(f, "no broker answers at {}", tried.join(", "))?;
    let default = lockgate_client::DEFAULT_ADDRESS;
    match attempts.first() {
        Some((first, _)) if first.to_string() != default => {
            write!(f, "\nname one with --server, or start one: lockgate server --listen {first}")
        }
        _ => f.write_str("\nname one with --server, or start one: lockgate server"),
    }
}
