//! A broker of the benchmark's own: this binary's `server`, in a directory that goes with it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// A running broker; ends, and takes its data with it, when dropped.
pub(super) struct OwnServer {
    child: Child,
    directory: PathBuf,
    /// Environment variables that it is started with, each time.
    settings: Vec<(String, String)>,
    pub(super) client: String,
    pub(super) admin: SocketAddr,
}

impl OwnServer {
    /// Starts a broker with these settings as environment variables, and waits until it is ready.
    pub(super) fn start(settings: &[(&str, &str)]) -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("lockgate-bench-{}", std::process::id()));
        let failed = |what: &'static str| Failure::io(format!("a broker for the benchmark cannot be started: {what}"));
        fs::create_dir_all(&directory).map_err(failed("its directory"))?;
        let log = fs::File::create(directory.join("log")).map_err(failed("its log"))?;
        let settings: Vec<_> = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let child = spawn(&directory, log, &settings).map_err(failed("its process"))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, directory, settings, client: String::new(), admin: nowhere };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Kills the broker and starts it again on the same data, with the same settings. Gives how long that start took until
    /// it was ready; what `between` does while no broker runs is not counted.
    pub(super) fn restart(&mut self, between: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<Duration, Failure> {
        let failed = || Failure::io("the benchmark's broker cannot be started again");
        self.kill().map_err(failed())?;
        between(&self.directory)?;
        let log = fs::File::create(self.directory.join("log")).map_err(failed())?;
        let begin = Instant::now();
        self.child = spawn(&self.directory, log, &self.settings).map_err(failed())?;
        self.wait_until_ready()?;
        Ok(begin.elapsed())
    }

    /// Ends the broker; its data stays until this is dropped.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop)
    }

    fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        if let Some(out) = self.child.stdout.take() {
            let failed = Failure::io("the benchmark's broker said nothing");
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let Some((client, admin)) = addresses(&line) else {
            let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            let what = format!("the benchmark's broker did not become ready; its log:\n{log}");
            return Err(Failure::Incomplete { what, unknown: false });
        };
        (self.client, self.admin) = (client, admin);
        Ok(())
    }

    /// Where its data is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

fn spawn(directory: &Path, log: fs::File, settings: &[(String, String)]) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(["server", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", "data"])
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        // A terminal's interrupt is for the benchmark, which ends its broker itself.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}

/// Out of the line that a broker prints when it is ready.
fn addresses(line: &str) -> Option<(String, SocketAddr)> {
    let rest = line.strip_prefix("lockgate is ready: clients ")?;
    let (client, rest) = rest.split_once(", admin http://")?;
    let (admin, _) = rest.split_once(',')?;
    Some((client.to_owned(), admin.parse().ok()?))
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // Nobody needs its data: it is ended at once. What cannot be removed is left to whoever cleans temporary files.
        drop(self.kill());
        drop(fs::remove_dir_all(&self.directory));
    }
}
