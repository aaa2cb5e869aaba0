//! A node whose files are damaged between its stop and its next start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use rustix::pty::{self, OpenptFlags};

use crate::journal::JournalFile;
use crate::support::{Broker, Scratch, begin, shown, wait_until};

/// One shard: every record is in one journal.
pub(crate) const ONE_SHARD: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "1")];

/// Two, to move partitions between.
pub(crate) const TWO_SHARDS: &[(&str, &str)] = &[("LOCKGATE_SHARDS_COUNT", "2")];

/// How a node was ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With -9, after the journal was marked: what was written last is known to be synced.
    Killed,
    /// In order: the journal has an end mark.
    Stopped,
}

/// A node that is not running, and its data.
pub(crate) struct Node {
    pub(crate) scratch: Scratch,
    settings: &'static [(&'static str, &'static str)],
    /// Where the records of topic `t` go.
    directory: &'static str,
}

/// What a start came to.
pub(crate) struct Start {
    /// What `storage verify` said before, as JSON.
    pub(crate) announced: serde_json::Value,
    /// What this start logged.
    pub(crate) log: String,
    /// `None` if it was refused, with exit code 1.
    pub(crate) broker: Option<Broker>,
}

impl Node {
    /// A node whose topic `t` got these records, one at a time, in a start for each slice.
    pub(crate) fn with_records(starts: &[&[&str]], end: End) -> Self {
        Self::with_topic(ONE_SHARD, &[], starts, end)
    }

    /// The same with `fsync = interval`: the records go to the buffered journal.
    pub(crate) fn with_buffered_records(starts: &[&[&str]], end: End) -> Self {
        Self::make(ONE_SHARD, (&["--set", "fsync=interval(50ms)"], "shards/0/buffered"), starts, end)
    }

    pub(crate) fn with_topic(
        settings: &'static [(&'static str, &'static str)],
        topic: &[&str],
        starts: &[&[&str]],
        end: End,
    ) -> Self {
        Self::make(settings, (topic, "shards/0/journal"), starts, end)
    }

    fn make(
        settings: &'static [(&'static str, &'static str)],
        (topic, directory): (&[&str], &'static str),
        starts: &[&[&str]],
        end: End,
    ) -> Self {
        let node = Self { scratch: Scratch::new(), settings, directory };
        for (number, records) in starts.iter().enumerate() {
            let mut broker = node.scratch.broker_with(settings);
            if number == 0 {
                node.scratch.run(&broker, &[&["topic", "create", "t"], topic].concat());
            }
            for record in *records {
                node.produce(&broker, record);
                node.wait_for_the_mark();
            }
            let is_last = number + 1 == starts.len();
            if is_last && end == End::Killed {
                node.wait_for_the_mark();
                broker.kill();
            } else {
                stop(broker);
            }
        }
        node
    }

    /// The same data under other settings.
    pub(crate) fn with_settings(self, settings: &'static [(&'static str, &'static str)]) -> Self {
        Self { settings, ..self }
    }

    pub(crate) fn produce(&self, broker: &Broker, record: &str) {
        fs::write(self.scratch.file("input"), format!("{record}\n")).unwrap();
        self.scratch.run(broker, &["produce", "t", "--file", "input"]);
    }

    /// A mark follows what was written last. Until then, nobody but the client knows that it was synced.
    fn wait_for_the_mark(&self) {
        let is_marked = || {
            let output = self.tool(&["inspect", "--force-read", "--json", self.directory]);
            let files: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let newest = files.as_array().unwrap().iter().rfind(|file| file["kind"] == "journal").unwrap().clone();
            let last = JournalFile::read(self, newest["path"].as_str().unwrap());
            last.writes().last().is_some_and(|write| write["what"] == "mark")
        };
        wait_until("a mark follows the last write", is_marked);
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.scratch.file("data")
    }

    /// `lockgate storage …` over the node's data.
    pub(crate) fn tool(&self, arguments: &[&str]) -> Output {
        self.tool_command(arguments).output().unwrap()
    }

    fn tool_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.scratch.command(&["storage", arguments[0], "--data-dir", "data"]);
        command.args(&arguments[1..]).envs(self.settings.iter().copied());
        command
    }

    /// The same with somebody who types this.
    pub(crate) fn tool_with_typed(&self, arguments: &[&str], typed: &str) -> Output {
        let typist = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        pty::grantpt(&typist).unwrap();
        pty::unlockpt(&typist).unwrap();
        let terminal = pty::ptsname(&typist, Vec::new()).unwrap().into_string().unwrap();
        let terminal = File::options().read(true).write(true).open(terminal).unwrap();
        let mut typist = File::from(typist);
        typist.write_all(format!("{typed}\n").as_bytes()).unwrap();
        self.tool_command(arguments).stdin(terminal).output().unwrap()
    }

    /// Every file of the data, but for the one that says who holds the lock.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = contents(&self.data());
        files.retain(|path, _| !path.ends_with("LOCK"));
        files
    }

    /// The files of the journal that has the records, oldest first.
    pub(crate) fn journal(&self) -> Vec<JournalFile> {
        self.journal_in(self.directory)
    }

    pub(crate) fn journal_in(&self, directory: &str) -> Vec<JournalFile> {
        let names = fs::read_dir(self.data().join(directory)).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".journal")).collect();
        names.sort();
        names.iter().map(|name| JournalFile::read(self, &format!("{directory}/{name}"))).collect()
    }

    /// Announces, then starts. The announcement must change nothing, and come true.
    pub(crate) fn start(&self) -> Start {
        let before = contents(&self.data());
        let verified = self.tool(&["verify", "--json"]);
        assert!(before == contents(&self.data()), "verify changed something: {}", shown(&verified));
        let announced: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap_or_default();

        let logged = fs::read_to_string(self.scratch.file("broker.log")).unwrap_or_default().len();
        let refused =
            |shard: &serde_json::Value| shard["refused"].as_array().is_some_and(|refused| !refused.is_empty());
        let all_good = announced["shards"].as_array().is_some_and(|shards| !shards.iter().any(refused));
        assert_eq!(verified.status.code(), Some(if all_good { 0 } else { 1 }), "{}", shown(&verified));

        let outcome = begin(&self.scratch, self.settings).outcome();
        let log = fs::read_to_string(self.scratch.file("broker.log")).unwrap()[logged..].to_owned();
        let broker = match outcome {
            Ok(broker) => Some(broker),
            Err((status, _)) => {
                assert_eq!(status.code(), Some(1), "{log}");
                assert_eq!(verified.status.code(), Some(1), "refused, though announced as good: {}", shown(&verified));
                None
            }
        };
        Start { announced, log, broker }
    }

    /// A start that goes on, and finds these records. Gives its log and announcement.
    pub(crate) fn goes_on_with(&self, records: &[&str]) -> Start {
        let mut start = self.start();
        let broker = start.broker.take().unwrap_or_else(|| panic!("the start was refused:\n{}", start.log));
        let found = self.scratch.run(&broker, &["consume", "t"]);
        assert_eq!(found.lines().collect::<Vec<_>>(), records, "{}", start.log);
        stop(broker);
        start
    }

    /// A start after which the node serves, and topic `t` does not, saying this.
    pub(crate) fn goes_on_without_the_partition(&self, words: &[&str]) -> Start {
        let mut start = self.start();
        let broker = start.broker.take().unwrap_or_else(|| panic!("the start was refused:\n{}", start.log));
        let output = self.scratch.lockgate(&broker, &["consume", "t"]).output().unwrap();
        let told = shown(&output);
        assert!(!output.status.success(), "{told}");
        // Who publishes is told the same at once, and who operates sees it.
        fs::write(self.scratch.file("input"), "x\n").unwrap();
        let published = self.scratch.lockgate(&broker, &["produce", "t", "--file", "input"]).output().unwrap();
        assert!(!published.status.success(), "{}", shown(&published));
        assert!(words.iter().all(|word| shown(&published).contains(word)), "{}", shown(&published));
        wait_until("a metric counts it", || broker.metric("lockgate_partitions_failed") == 1.0);
        let ready = || broker.get("/v1/system/ready");
        wait_until("ready names it", || ready().1.contains("partition 1-0 failed"));
        assert_eq!(ready().0, 200, "others are served");
        self.scratch.run(&broker, &["topic", "create", "another"]);
        self.scratch.run(&broker, &["topic", "delete", "another"]);
        stop(broker);
        for word in words {
            assert!(told.contains(word) && start.log.contains(word), "{word:?} is not in\n{told}\n{}", start.log);
        }
        start
    }

    /// A start that is refused, and leaves everything but its own identity as it was: saying this.
    pub(crate) fn is_refused(&self, words: &[&str]) -> Start {
        let mut before = contents(&self.data());
        let start = self.start();
        assert!(start.broker.is_none(), "the start was not refused:\n{}", start.log);
        for word in words {
            assert!(start.log.contains(word), "{word:?} is not in\n{}", start.log);
        }
        let mut after = contents(&self.data());
        for files in [&mut before, &mut after] {
            // A start counts itself, and says who holds the lock.
            files.retain(|path, _| !path.ends_with("identity") && !path.ends_with("LOCK"));
        }
        assert!(before == after, "a refused start changed something:\n{}", start.log);
        start
    }
}

impl Start {
    /// What verify announced of shard 0: the warnings of a start that goes on.
    pub(crate) fn findings(&self) -> Vec<String> {
        let findings = self.announced["shards"][0]["findings"].as_array().cloned().unwrap_or_default();
        findings.iter().map(|finding| finding.as_str().unwrap().to_owned()).collect()
    }

    /// What recovery warned of, as it was announced.
    pub(crate) fn warned_of(&self, words: &[&str]) {
        let findings = self.findings();
        let found = findings.iter().find(|finding| words.iter().all(|word| finding.contains(word)));
        let found = found.unwrap_or_else(|| panic!("{words:?} were not announced: {findings:?}"));
        let warned = self.log.lines().any(|line| line.contains("WARN") && line.contains(found.as_str()));
        assert!(warned, "{found:?} is not in\n{}", self.log);
    }

    /// Nothing was cut or removed, and nothing else was strange.
    pub(crate) fn warned_of_nothing(&self) {
        assert_eq!(self.findings(), Vec::<String>::new());
        assert!(!self.log.contains("WARN") && !self.log.contains("ERROR"), "{}", self.log);
    }
}

/// Ends it in order.
pub(crate) fn stop(mut broker: Broker) {
    broker.signal(Signal::TERM);
    wait_until("the broker has ended", || broker.ended().is_some_and(|status| status.success()));
}

/// Every file below a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    files
}
