//! A small file system of its own for a test, unmounted at its end.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs.
pub(crate) struct Mount {
    place: PathBuf,
}

impl Mount {
    /// Makes the directory and mounts a file system of this size there.
    pub(crate) fn new(place: &Path, bytes: u64) -> Self {
        std::fs::create_dir(place).unwrap();
        let mount = Self { place: place.to_owned() };
        mount.run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "lockgate-test"]);
        mount
    }

    pub(crate) fn read_only(&self, wanted: bool) {
        self.run("mount", &["-o", if wanted { "remount,ro" } else { "remount,rw" }]);
    }

    /// Bytes that can still be written.
    pub(crate) fn free_bytes(&self) -> u64 {
        let facts = rustix::fs::statvfs(&self.place).unwrap();
        facts.f_bavail * facts.f_frsize
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(program).args(arguments).arg(&self.place).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} must be permitted for this test, as to root: {said}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Also with files still open: what is left ends with them.
        drop(Command::new("umount").arg("-l").arg(&self.place).output());
    }
}
