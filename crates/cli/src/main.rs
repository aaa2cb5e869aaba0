//! The `lockgate` binary: the server and every tool, one subcommand each.
//!
//! A folder is a group of commands, a file one command. Commands decide; how their results look is in the `view.rs`
//! beside them. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 outcome unknown.

mod args;
mod bench;
mod completions;
mod config;
mod connect;
mod consume;
mod cursor;
mod encoding;
mod failure;
mod interrupt;
mod output;
mod position;
mod produce;
mod server;
mod storage;
mod topic;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, Global};
use crate::failure::Failure;

fn main() -> ExitCode {
    let Cli { global, command } = Cli::parse();
    match run(command, &global) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&global),
    }
}

fn run(command: Command, global: &Global) -> Result<(), Failure> {
    match command {
        Command::Server(args) => server::run(args),
        Command::Config(command) => config::run(command, global),
        Command::Completions(args) => completions::run(&args),
        Command::Bench(command) => bench::run(command, global),
        Command::Storage(command) => storage::run(command, global),
        Command::Topic(command) => connect::runtime()?.block_on(topic::run(command, global)),
        Command::Produce(args) => connect::runtime()?.block_on(produce::run(&args, global)),
        Command::Consume(args) => connect::runtime()?.block_on(consume::run(&args, global)),
        Command::Cursor(command) => connect::runtime()?.block_on(cursor::run(command, global)),
    }
}
