//! The commands of the documents work as written: every `console` block of a page, top to bottom, in one shell, in an empty
//! home, with the binary under test.
//!
//! Only the lines that begin with `$ ` are run (and those that a `\` continues); what else stands in a block is an example
//! of what may be printed. Loopback's usual address is replaced by one that nobody else uses.

#![allow(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it must be")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{LOCKGATE, Scratch, bound, shown};

/// Ends what a page left running, and stops at the first command that fails.
const PROLOGUE: &str = "set -eu -o pipefail -m\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n";

/// The commands of a page's console blocks.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let (mut in_block, mut goes_on) = (false, false);
    for line in page.lines() {
        match line.trim() {
            "```console" => in_block = true,
            "```" => in_block = false,
            _ if !in_block => {}
            text => {
                let command = text.strip_prefix("$ ").map(str::to_owned);
                match (command, goes_on) {
                    (Some(command), _) => commands.push(command),
                    (None, true) => {
                        let last = commands.last_mut().unwrap();
                        last.push('\n');
                        last.push_str(text);
                    }
                    (None, false) => continue,
                }
                goes_on = commands.last().unwrap().ends_with('\\');
            }
        }
    }
    commands
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

/// Runs a page; `Err` with everything that was printed.
fn run(page: &Path, commands: &[String]) -> Result<(), String> {
    let scratch = Scratch::new();
    let bin = scratch.file("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(LOCKGATE, bin.join("lockgate")).unwrap();
    let script = format!("{PROLOGUE}{}\n", commands.join("\n")).replace("127.0.0.1", &scratch.host);
    let work = scratch.file("work");
    fs::create_dir(&work).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("timeout")
        .arg(bound(120).as_secs().to_string())
        .args(["bash", "-c", &script])
        .current_dir(&work)
        .env_clear()
        .envs([("PATH", path.as_str()), ("HOME", work.to_str().unwrap())])
        .envs([
            ("LOCKGATE_LISTEN", format!("{}:7400", scratch.host)),
            ("LOCKGATE_SERVER", format!("{}:7400", scratch.host)),
        ])
        .env("LOCKGATE_ADMIN_LISTEN", format!("{}:7480", scratch.host))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if output.status.success() { Ok(()) } else { Err(format!("{}:\n{script}\n{}", page.display(), shown(&output))) }
}

#[test]
fn the_commands_of_every_page_work_as_written() {
    let mut failures = Vec::new();
    let mut count = 0;
    for page in pages() {
        let commands = commands(&fs::read_to_string(&page).unwrap());
        count += commands.len();
        if !commands.is_empty() {
            failures.extend(run(&page, &commands).err());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(count > 0, "no page has a command");
    println!("{count} commands");
}

#[test]
fn a_command_that_fails_is_found() {
    assert!(run(Path::new("a page"), &["false".into(), "true".into()]).is_err());
    assert!(run(Path::new("a page"), &["lockgate topic list".into()]).is_err(), "no server runs");
}

#[test]
fn commands_are_taken_from_console_blocks_alone() {
    let page = "$ not this\n```sh\n$ nor this\n```\n```console\n$ one \\\n  more\nprinted\n$ two\n```\n";
    assert_eq!(commands(page), ["one \\\nmore", "two"]);
}
