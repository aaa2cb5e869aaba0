//! A broker of the benchmark's own: this binary's `server`, in a directory that goes with it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::failure::Failure;

/// A running broker; ends, and takes its data with it, when dropped.
pub(super) struct OwnServer {
    child: Child,
    directory: PathBuf,
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
        let program = std::env::current_exe().map_err(failed("this program's path"))?;
        let child = Command::new(program)
            .args(["server", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir", "data"])
            .envs(settings.iter().copied())
            .current_dir(&directory)
            // A terminal's interrupt is for the benchmark, which ends its broker itself.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(failed("its process"))?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, directory, client: String::new(), admin: nowhere };
        let mut line = String::new();
        if let Some(out) = server.child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed("its first line"))?;
        }
        let Some((client, admin)) = addresses(&line) else {
            let log = fs::read_to_string(server.directory.join("log")).unwrap_or_default();
            let what = format!("the benchmark's broker did not become ready; its log:\n{log}");
            return Err(Failure::Incomplete { what, unknown: false });
        };
        (server.client, server.admin) = (client, admin);
        Ok(server)
    }

    /// Where its data is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
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
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.directory));
    }
}
