//! The pages in `docs/` against the code: tables of the protocol, of settings and of metrics, and links between pages.
//!
//! `UPDATE_DOCS=1 ./test --test docs` writes the generated tables anew.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate_catalog::settings::SETTINGS as TOPIC_SETTINGS;
use lockgate_server::metrics::{METRICS, MetricKind};
use lockgate_wire::error::Advice;
use lockgate_wire::op::Op;
use lockgate_wire::{ErrorKind, frame};

#[test]
fn the_protocol_page_lists_every_error_with_its_code_and_advice() {
    let expected: BTreeMap<String, Vec<String>> = ErrorKind::ALL
        .iter()
        .map(|kind| (kind.name().to_owned(), vec![kind.code().to_string(), advice(kind.advice()).to_owned()]))
        .collect();
    assert_eq!(table("docs/protocol.md", "errors", 2), expected);
}

#[test]
fn the_protocol_page_lists_every_operation_with_its_number() {
    let expected: BTreeMap<String, Vec<String>> =
        Op::ALL.iter().map(|op| (op.name().to_owned(), vec![op.number().to_string()])).collect();
    assert_eq!(table("docs/protocol.md", "operations", 1), expected);
}

#[test]
fn the_protocol_page_states_the_limits_of_frames() {
    let expected: BTreeMap<String, Vec<String>> = [
        ("before Hello", u64::from(frame::MAX_FRAME_BYTES_BEFORE_HELLO)),
        ("default", u64::from(frame::DEFAULT_MAX_FRAME_BYTES)),
        ("highest setting", u64::from(frame::HARD_MAX_FRAME_BYTES)),
        ("body", frame::MAX_BODY_BYTES as u64),
    ]
    .map(|(name, bytes)| (name.to_owned(), vec![bytes.to_string()]))
    .into();
    assert_eq!(table("docs/protocol.md", "frame limits", 1), expected);
}

#[test]
fn the_configuration_page_has_the_servers_settings_as_the_binary_prints_them() {
    let printed = Command::new(env!("CARGO_BIN_EXE_lockgate")).args(["config", "docs"]).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    holds("docs/configuration.md", "server settings", &String::from_utf8(printed.stdout).unwrap());
}

#[test]
fn the_configuration_page_has_the_settings_of_topics() {
    let mut text = String::from("| setting | kinds | default | allowed | meaning |\n|---|---|---|---|---|\n");
    for setting in TOPIC_SETTINGS {
        let kinds: Vec<String> = setting.kinds.iter().map(|kind| format!("{kind:?}").to_lowercase()).collect();
        let (name, kinds, default) = (setting.name, kinds.join(", "), setting.default);
        let _ = writeln!(text, "| `{name}` | {kinds} | `{default}` | {} | {} |", setting.bounds(), setting.description);
    }
    holds("docs/configuration.md", "topic settings", &text);
}

#[test]
fn the_operations_page_has_every_metric() {
    let mut text = String::from("| metric | kind | label | meaning |\n|---|---|---|---|\n");
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let label = metric.label.map(|label| format!("`{label}`")).unwrap_or_default();
        let _ = writeln!(text, "| `{}` | {kind} | {label} | {} |", metric.name, metric.help);
    }
    holds("docs/operations.md", "metrics", &text);
}

#[test]
fn every_case_from_the_field_is_held_by_tests_that_exist() {
    let page = fs::read_to_string(root().join("crates/cli/tests/README.md")).unwrap();
    let mut sources = String::new();
    let mut unread = vec![root().join("crates")];
    while let Some(path) = unread.pop() {
        if path.is_dir() {
            unread.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources += &fs::read_to_string(path).unwrap();
        }
    }
    let mut named = 0;
    for name in page.split('`').skip(1).step_by(2) {
        named += 1;
        assert!(sources.contains(&format!("#[test]\nfn {name}() {{")), "no test is called {name}");
    }
    assert!(named > 20, "{named}");
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let mut wrong = String::new();
    let mut links = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !file.exists() {
                let _ = writeln!(wrong, "{}: {target}: there is no such file", page.display());
            } else if !heading.is_empty() && !anchors(&file).any(|anchor| anchor == heading) {
                let _ = writeln!(wrong, "{}: {target}: there is no such heading", page.display());
            }
        }
    }
    assert!(links > 0, "no links found");
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The rows of a page's table below `<!-- table: NAME -->`: the first column, without backticks, and the next `columns`.
fn table(page: &str, name: &str, columns: usize) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let marker = format!("<!-- table: {name} -->\n");
    let (_, rest) = text.split_once(&marker).unwrap_or_else(|| panic!("{page} has no `{}`", marker.trim()));
    let rows = rest.lines().take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        let first = cells.next().expect("a row has a cell");
        (first, cells.take(columns).collect())
    })
    .collect()
}

/// The page has exactly this text between `<!-- generated: NAME -->` and `<!-- end -->`; or is given it.
fn holds(page: &str, name: &str, expected: &str) {
    let path = root().join(page);
    let text = fs::read_to_string(&path).unwrap();
    let marker = format!("<!-- generated: {name} -->\n");
    let (before, rest) = text.split_once(&marker).unwrap_or_else(|| panic!("{page} has no `{}`", marker.trim()));
    let (found, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{page}: {name} has no end"));
    let expected = format!("{}\n", expected.trim_end());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{marker}{expected}<!-- end -->{after}")).unwrap();
    } else {
        assert_eq!(
            found, expected,
            "{page} is not what the code says; UPDATE_DOCS=1 ./test --test docs writes it anew"
        );
    }
}

fn advice(advice: Advice) -> &'static str {
    match advice {
        Advice::Terminal => "terminal",
        Advice::Retry => "retry",
        Advice::Redirect => "redirect",
        Advice::Unknown => "unknown",
    }
}

/// The headings of a page as links name them.
fn anchors(page: &Path) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(page).unwrap();
    let headings: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
        })
        .collect();
    headings.into_iter()
}

/// All pages of the repository that people read.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
