//! What the operating system says about this process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A look at the process. What the machine does not tell is 0.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Process {
    pub(super) cpu: Duration,
    pub(super) resident_bytes: u64,
    pub(super) open_descriptors: u64,
    pub(super) descriptors_max: u64,
}

impl Process {
    pub(super) fn look() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let resident_kib = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
            resident_bytes: resident_kib.unwrap_or(0) * 1024,
            open_descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            descriptors_max: limit.current.unwrap_or(u64::MAX),
        }
    }
}
