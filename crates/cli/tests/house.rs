//! The house's rules, held by a test: which crate may use which, that the pure crates are pure, that files stay short
//! and that every dependency says what it is for. Reads manifests and sources as text; knows nothing of the code.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate may use, directly; whatever can be reached over these arrows may be used too.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("storage", &["wire"]),
    ("consensus", &["storage"]),
    ("catalog", &["wire"]),
    ("engine", &["consensus", "catalog"]),
    ("server", &["engine", "storage"]),
    ("client", &["wire"]),
    ("sim", &["engine", "client", "storage", "wire"]),
    ("fuzz", &["server"]),
    ("cli", &["server", "client", "storage"]),
];

/// The crates without I/O, clock, threads, chance and async, and all third-party crates that each may use; those of
/// build scripts too. To add one here is a decision: it must keep the crate pure.
const PURE: &[(&str, &[&str])] = &[
    ("wire", &["bytes", "crc32c", "flate2", "lz4_flex", "prost", "prost-build", "protox", "snap", "zstd"]),
    ("storage", &["bytes", "crc32c"]),
    ("consensus", &["bytes", "raft", "rustc-hash", "slog"]),
    ("catalog", &["bytes", "prost"]),
    ("engine", &["bytes", "prost", "rustc-hash"]),
];

/// Pure sources beside the pure crates: the client's decisions.
const PURE_FOLDERS: &[&str] = &["crates/client/src/core"];

/// What pure sources must not say, and why.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::fs", "does I/O; plan it and let the server carry it out"),
    ("std::net", "does I/O; address types alone are in core::net"),
    ("std::thread", "starts threads"),
    ("std::env", "reads the process's environment"),
    ("std::process", "acts on the process"),
    ("std::{", "hides what is used from this test: one `use` for each module"),
    ("println!", "does I/O"),
    ("eprintln!", "does I/O"),
    ("Instant", "reads a clock; the time comes with the input"),
    ("SystemTime", "reads a clock; the time comes with the input"),
    ("rand", "draws random numbers; chance comes from the seed"),
    ("HashMap", "iterates in an order of chance; BTreeMap, or FxHashMap for look-ups"),
    ("HashSet", "iterates in an order of chance; BTreeSet, or FxHashSet for look-ups"),
    ("RandomState", "draws random numbers"),
    ("async", "is async"),
    (".await", "is async"),
    ("tokio", "is async"),
];

/// Longest source file.
const FILE_LINES_MAX: usize = 600;

#[test]
fn crates_use_only_what_the_architecture_allows() {
    let mut wrong = String::new();
    for (name, manifest) in crates() {
        let Some(allowed) = reachable(&name) else {
            let _ = writeln!(wrong, "crates/{name} has no place in the architecture: add it to ARROWS");
            continue;
        };
        for used in manifest.dependencies().filter_map(|dependency| dependency.strip_prefix("lockgate-")) {
            if !allowed.contains(used) {
                let _ = writeln!(wrong, "crates/{name} must not use {used}; allowed: {allowed:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn pure_crates_use_exactly_the_third_party_crates_that_are_listed() {
    let crates = crates();
    for (name, listed) in PURE {
        let found: BTreeSet<&str> =
            crates[*name].shipped().filter(|dependency| !dependency.starts_with("lockgate-")).collect();
        let listed: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(found, listed, "third-party crates of crates/{name}, found and listed in PURE");
    }
}

#[test]
fn pure_sources_do_no_io_and_know_no_clock_no_thread_no_chance_and_no_async() {
    let folders = PURE.iter().map(|(name, _)| format!("crates/{name}/src"));
    let folders = folders.chain(PURE_FOLDERS.iter().map(|folder| (*folder).to_owned()));
    let mut wrong = String::new();
    for folder in folders {
        let files = sources(&root().join(&folder));
        assert!(!files.is_empty(), "no sources in {folder}");
        for file in files.iter().filter(|file| !is_test(file)) {
            for (line, what, why) in impurities(&read(file)) {
                let _ = writeln!(wrong, "{}:{line}: `{what}` {why}", shown(file));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn impurities_are_found_in_code_and_not_in_comments_or_tests() {
    for (what, _) in FORBIDDEN {
        let text = format!("fn f() {{\n    let _ = {what};\n}}\n");
        assert!(impurities(&text).iter().any(|(line, found, _)| *line == 2 && found == what), "{what} goes unseen");
    }
    let innocent = "// std::fs\n//! tokio\nlet operand = async_ready(); // Instant::now()\n\
                    #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    assert_eq!(impurities(innocent), []);
    let after_tests = "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::net::TcpStream;\n";
    assert_eq!(impurities(after_tests).len(), 1, "code below a test module is looked at again");
}

#[test]
fn no_source_file_is_longer_than_six_hundred_lines() {
    let mut wrong = String::new();
    for name in crates().keys() {
        for file in sources(&root().join("crates").join(name).join("src")) {
            let lines = read(&file).lines().count();
            if lines > FILE_LINES_MAX {
                let _ = writeln!(wrong, "{}: {lines} lines, at most {FILE_LINES_MAX}: make it a folder", shown(&file));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_crate_takes_lints_and_third_party_versions_from_the_workspace() {
    let workspace = workspace_dependencies();
    let mut used = BTreeSet::new();
    for (name, manifest) in crates() {
        assert!(
            manifest.text.contains("[lints]\nworkspace = true"),
            "crates/{name} does not take the workspace's lints"
        );
        for (section, dependency, line) in &manifest.entries {
            let inherits = line.contains("workspace = true");
            assert!(inherits, "crates/{name}, {section}: `{line}` must take its version from the workspace");
            used.insert(dependency.clone());
        }
    }
    let own = |name: &&String| !name.starts_with("lockgate-");
    let unused: Vec<_> = workspace.iter().filter(own).filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "in [workspace.dependencies], but no crate uses it: {unused:?}");
}

#[test]
fn every_dependency_has_its_line_in_the_docs_and_every_line_its_dependency() {
    let workspace: BTreeSet<String> =
        workspace_dependencies().into_iter().filter(|name| !name.starts_with("lockgate-")).collect();
    let page = read(&root().join("docs/dependencies.md"));
    let mut documented = BTreeSet::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = row.split_once('`').expect("a name in a table's row ends with a backtick");
        let reason = rest.trim_start_matches([' ', '|']).split('|').next().unwrap_or_default().trim();
        assert!(reason.len() >= 20, "docs/dependencies.md: {name} needs its reason, not {reason:?}");
        assert!(documented.insert(name.to_owned()), "docs/dependencies.md names {name} twice");
    }
    assert_eq!(workspace, documented, "[workspace.dependencies] of Cargo.toml, and the rows of docs/dependencies.md");
}

#[test]
fn the_changelog_has_an_unreleased_section_with_something_in_it() {
    let page = read(&root().join("CHANGELOG.md"));
    let section = page.split("\n## ").find(|section| section.starts_with("Unreleased\n"));
    let section = section.expect("CHANGELOG.md has a section `## Unreleased`");
    assert!(section.lines().any(|line| line.starts_with("- ")), "the section `## Unreleased` is empty");
}

/// A crate's manifest as text, and what it depends on.
struct Manifest {
    text: String,
    /// (section, dependency, line)
    entries: Vec<(String, String, String)>,
}

impl Manifest {
    /// Reads the sections whose names end in `dependencies`, of targets too; one line a dependency, as everywhere here.
    fn parse(text: String) -> Self {
        let mut section = String::new();
        let mut entries = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']').to_owned();
                let table = section.contains("dependencies.");
                assert!(!table, "[{section}]: write a dependency as one line of its section");
            } else if section.ends_with("dependencies") {
                let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
                entries.push((section.clone(), name.trim_matches('"').to_owned(), line.to_owned()));
            }
        }
        Self { text, entries }
    }

    /// Everything it depends on, for tests too.
    fn dependencies(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(_, name, _)| name.as_str())
    }

    /// What it depends on outside of its tests.
    fn shipped(&self) -> impl Iterator<Item = &str> {
        let shipped = self.entries.iter().filter(|(section, ..)| !section.ends_with("dev-dependencies"));
        shipped.map(|(_, name, _)| name.as_str())
    }
}

/// Every crate by the name of its folder.
fn crates() -> BTreeMap<String, Manifest> {
    let folder = root().join("crates");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeMap<_, _> = names
        .filter(|name| folder.join(name).join("Cargo.toml").exists())
        .map(|name| (name.clone(), Manifest::parse(read(&folder.join(name).join("Cargo.toml")))))
        .collect();
    assert!(found.len() >= ARROWS.len(), "found only {:?}", found.keys());
    found
}

fn workspace_dependencies() -> BTreeSet<String> {
    let manifest = Manifest::parse(read(&root().join("Cargo.toml")));
    let found: BTreeSet<String> = manifest.dependencies().map(str::to_owned).collect();
    assert!(found.len() > ARROWS.len(), "found only {found:?}");
    found
}

/// All crates that can be reached from this one over [`ARROWS`].
fn reachable(name: &str) -> Option<BTreeSet<&'static str>> {
    let (_, direct) = ARROWS.iter().find(|(from, _)| *from == name)?;
    let mut all = BTreeSet::new();
    for used in *direct {
        all.insert(*used);
        all.extend(reachable(used).expect("arrows point at crates that are listed"));
    }
    Some(all)
}

/// (line, what, why) of everything forbidden in a source's text, below comments and outside of test modules.
fn impurities(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let starts_tests = line == "#[cfg(test)]"
            && lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
        if starts_tests {
            // Formatted code: the module ends at the first closing brace in its column.
            lines.find(|(_, line)| *line == "}");
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        let said = FORBIDDEN.iter().filter(|(what, _)| says(code, what));
        found.extend(said.map(|(what, why)| (number + 1, *what, *why)));
    }
    found
}

/// Whether code has this text as whole words.
fn says(code: &str, what: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    code.match_indices(what).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + what.len()..]);
        let joined_before = word(what.chars().next()) && word(before.chars().next_back());
        let joined_after = word(what.chars().next_back()) && word(after.chars().next());
        !joined_before && !joined_after
    })
}

/// Tests live in `tests.rs` and in folders called `tests`.
fn is_test(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests")
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}
