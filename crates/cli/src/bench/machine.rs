//! What the figures were measured on, as far as the machine tells.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::fs::statvfs;

use crate::failure::Failure;
use crate::output::bytes;

/// See the module.
pub(super) struct Machine {
    cores: usize,
    processor: String,
    memory_gib: f64,
    kernel: String,
    file_system: String,
}

impl Machine {
    /// This machine, with the file system of a directory.
    pub(super) fn here(directory: &Path) -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
        };
        let memory = field("/proc/meminfo", "MemTotal");
        let memory_kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        Self {
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            processor: field("/proc/cpuinfo", "model name"),
            memory_gib: memory_kib / 1024.0 / 1024.0,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            file_system: file_system(directory),
        }
    }
}

/// Refuses to begin what would fill the disk.
pub(super) fn check_room(directory: &Path, needed: u64) -> Result<(), Failure> {
    let facts = statvfs(directory).map_err(|errno| Failure::io("the disk's room cannot be told")(errno.into()))?;
    let free = facts.f_bavail * facts.f_frsize;
    if free >= needed {
        return Ok(());
    }
    let what = format!(
        "{} has {} free, this benchmark takes up to {}; name another directory with TMPDIR",
        directory.display(),
        bytes(free as f64),
        bytes(needed as f64)
    );
    Err(Failure::Usage(what))
}

/// The type of the file system with the longest mount point above the directory.
fn file_system(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let above = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        directory.starts_with(point).then_some((point.len(), kind))
    });
    above.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".into(), |(_, kind)| kind.to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, processor, memory_gib, kernel, file_system } = self;
        let build = if cfg!(debug_assertions) { "a debug build" } else { "an optimised build" };
        write!(f, "{cores} cores ({processor}), {memory_gib:.0} GiB, Linux {kernel}, {file_system}, {build}")
    }
}
