//! What tests of the real binary share: a scratch directory, brokers that are ended by their pid, waits on conditions.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod raw;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The binary under test.
pub(crate) const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate");
/// Small journal files, so that many starts stay cheap.
const SMALL_JOURNAL: (&str, &str) = ("LOCKGATE_JOURNAL_FILE_BYTES", "8MiB");

/// A generous bound, scaled for slow machines by `LOCKGATE_TEST_PATIENCE`.
pub(crate) fn bound(seconds: u64) -> Duration {
    let factor = std::env::var("LOCKGATE_TEST_PATIENCE").ok().and_then(|text| text.parse::<f64>().ok());
    Duration::from_secs(seconds).mul_f64(factor.unwrap_or(1.0))
}

/// Waits until the condition holds; fails naming it when it does not within a generous bound.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < bound(60), "not within {:?}: {what}", bound(60));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A directory of its own for one test, and an address of its own: loopback has many, and on one that nobody else uses
/// a port that a killed broker leaves is free for the next one.
pub(crate) struct Scratch {
    directory: tempfile::TempDir,
    pub(crate) host: String,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let pid = std::process::id();
        let host = format!("127.{}.{}.{}", 1 + pid / 256 % 250, pid % 256, NEXT.fetch_add(1, Ordering::Relaxed));
        Self { directory: tempfile::tempdir().unwrap(), host }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A broker in this directory, on a free port.
    pub(crate) fn broker(&self) -> Broker {
        self.broker_with(&[])
    }

    /// The same with settings by their environment variables.
    pub(crate) fn broker_with(&self, settings: &[(&str, &str)]) -> Broker {
        begin(self, settings).wait_ready()
    }

    /// A command in this directory that talks to this broker.
    pub(crate) fn lockgate(&self, broker: &Broker, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("LOCKGATE_SERVER", &broker.client);
        command
    }

    /// A command in this directory, with no broker in its environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(LOCKGATE);
        command.args(arguments);
        command
    }

    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).env_remove("LOCKGATE_SERVER").stdin(Stdio::null());
        command
    }

    /// Runs a command to its successful end; gives what it printed.
    pub(crate) fn run(&self, broker: &Broker, arguments: &[&str]) -> String {
        let output = self.lockgate(broker, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}\n{}", shown(&output), broker.log());
        String::from_utf8(output.stdout).unwrap()
    }
}

/// A broker in this directory that is not ready yet, on a free port.
pub(crate) fn begin(scratch: &Scratch, settings: &[(&str, &str)]) -> Starting {
    begin_under(scratch, &[], settings)
}

/// The same, started by another command, which becomes the broker: `prlimit` and its like.
pub(crate) fn begin_under(scratch: &Scratch, wrapper: &[&str], settings: &[(&str, &str)]) -> Starting {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Starting::spawn(scratch, "0", wrapper.iter().map(|word| (*word).to_owned()).collect(), settings)
}

/// A broker's process; killed when dropped.
pub(crate) struct Broker {
    child: Child,
    /// Where clients connect.
    pub(crate) client: String,
    /// Where probes and metrics are.
    pub(crate) admin: String,
    log: PathBuf,
    wrapper: Vec<String>,
    settings: Vec<(String, String)>,
    /// The line that said it was ready.
    pub(crate) ready: String,
}

impl Broker {
    /// Starts it again on the same address, with the same settings, and waits until it is ready.
    pub(crate) fn start_again(&self, scratch: &Scratch) -> Broker {
        self.begin_again(scratch).wait_ready()
    }

    /// Starts it again without waiting.
    pub(crate) fn begin_again(&self, scratch: &Scratch) -> Starting {
        let (_, port) = self.client.rsplit_once(':').unwrap();
        Starting::spawn(scratch, port, self.wrapper.clone(), self.settings.clone())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with -9.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// What it logged, over all starts in its scratch directory.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Memory it has in use.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most memory it has had in use.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
    }

    /// The status and body of a GET on the admin port.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        stream.set_read_timeout(Some(bound(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no metric {name} in\n{text}")).parse().unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A broker that is not ready yet; killed when dropped.
pub(crate) struct Starting(Option<Broker>);

impl Starting {
    fn spawn(scratch: &Scratch, port: &str, wrapper: Vec<String>, settings: Vec<(String, String)>) -> Self {
        let log = scratch.file("broker.log");
        let log_file = File::options().create(true).append(true).open(&log).unwrap();
        let (listen, admin) = (format!("{}:{port}", scratch.host), format!("{}:0", scratch.host));
        let words = ["server", "--data-dir", "data", "--listen", &listen, "--admin", &admin].map(str::to_owned);
        let words = [&wrapper[..], &[LOCKGATE.to_owned()], &words].concat();
        let mut command = scratch.program(&words[0]);
        command.args(&words[1..]).env(SMALL_JOURNAL.0, SMALL_JOURNAL.1).envs(settings.iter().cloned());
        let child = command.stdout(Stdio::piped()).stderr(log_file).spawn().unwrap();
        let (client, admin, ready) = (listen, String::new(), String::new());
        Self(Some(Broker { child, client, admin, log, wrapper, settings, ready }))
    }

    /// Waits until clients can connect.
    pub(crate) fn wait_ready(self) -> Broker {
        self.outcome().unwrap_or_else(|(status, log)| {
            panic!("the broker did not become ready but ended with {status}; its log:\n{log}")
        })
    }

    /// Waits until clients can connect, or the process has ended: then how, and its log.
    pub(crate) fn outcome(mut self) -> Result<Broker, (ExitStatus, String)> {
        let mut broker = self.0.take().unwrap();
        let mut line = String::new();
        BufReader::new(broker.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses = line.strip_prefix("lockgate is ready: clients ").and_then(|rest| {
            let (client, rest) = rest.split_once(", admin http://")?;
            Some((client.to_owned(), rest.split_once(", data ")?.0.to_owned()))
        });
        let Some((client, admin)) = addresses else {
            let status = broker.child.wait().unwrap();
            return Err((status, broker.log()));
        };
        (broker.client, broker.admin, broker.ready) = (client, admin, line);
        Ok(broker)
    }

    /// Ends it with -9 before it is ready, or just after.
    pub(crate) fn kill(mut self) -> Broker {
        let mut broker = self.0.take().unwrap();
        broker.kill();
        broker
    }
}

/// What a command printed and how it ended.
pub(crate) fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\nstdout: {}\nstderr: {}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A generator of pseudo-random numbers (splitmix64): the same seed gives the same numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded by the variable, or by the clock; printed, so that a failure can be repeated.
    pub(crate) fn from_env(variable: &str) -> Self {
        let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = std::env::var(variable).map_or_else(|_| clock(), |text| text.parse().unwrap());
        println!("{variable}={seed}");
        Self(seed)
    }

    /// 0 to `end`, without `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

/// A number from the environment.
pub(crate) fn number_from_env(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}
