//! Standard output: for people as text, for programs as JSON. A reader that is gone ends the command quietly.

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::Value;

use crate::args::Global;
use crate::failure::Failure;

/// Prints a result, the way the user wants it.
pub(crate) fn print(
    global: &Global,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    if global.json { line(json()) } else { line(text()) }
}

/// Prints that something was done, unless only results are wanted; as JSON it is a result.
pub(crate) fn confirm(
    global: &Global,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Value,
) -> Result<(), Failure> {
    if global.quiet && !global.json { Ok(()) } else { print(global, text, json) }
}

/// Prints one line.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(write_failed)
}

/// A failed write to standard output.
pub(crate) fn write_failed(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::OutputClosed;
    }
    Failure::Io { what: "writing to standard output".into(), error }
}

/// A table without lines: columns under their names, as wide as they must be.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A note for people on standard error, unless they want none.
pub(crate) fn note(global: &Global, text: impl Display) {
    if !global.quiet {
        eprintln!("{text}");
    }
}

/// So many of them: `1 record`, `2 records`.
pub(crate) fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Bytes as people read them: powers of 1000, three digits.
pub(crate) fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}", units[unit])
}
