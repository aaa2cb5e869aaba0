//! `lockgate completions SHELL`.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Completions) -> Result<(), Failure> {
    // The generator panics when it cannot write: give it memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lockgate", &mut script);
    io::stdout().lock().write_all(&script).map_err(output::write_failed)
}
