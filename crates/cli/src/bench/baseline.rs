//! What this machine allows without a broker: bare loops, to be measured in the same run as what is compared with them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{Advice, OFlags, fadvise};

use super::recorder::Recorder;
use super::stop;

/// What direct writes are aligned to.
const BLOCK_BYTES: usize = 4096;
/// Size of the file that is overwritten, as of the broker's journal files.
const FILE_BYTES: u64 = 64 * 1024 * 1024;
/// What a sink reads at once.
const SINK_READ_BYTES: usize = 256 * 1024;
/// What plain reads ask for.
const READ_BYTES: usize = 1024 * 1024;

/// What a loop did.
pub(super) struct Baseline {
    pub(super) bytes: u64,
    pub(super) took: Duration,
    /// Of each operation, where there is one that can be timed.
    pub(super) latency_us: Histogram<u64>,
}

impl Baseline {
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Appends to a growing file and syncs its data, one after the other.
pub(super) fn append_and_sync(directory: &Path, size: usize, duration: Duration) -> io::Result<Baseline> {
    let path = directory.join("bench-append");
    let mut file = File::create(&path)?;
    let bytes = vec![0x5a; size];
    let result = repeat(size, duration, |_| {
        file.write_all(&bytes)?;
        file.sync_data()
    });
    fs::remove_file(&path)?;
    result
}

/// Overwrites a file that was written through once, past the page cache, each write synced by itself. `None` where the file
/// system does not take such writes.
pub(super) fn direct(directory: &Path, size: usize, duration: Duration) -> io::Result<Option<Baseline>> {
    let path = directory.join("bench-direct");
    let mut file = File::create(&path)?;
    let zeros = vec![0; 1024 * 1024];
    for _ in 0..FILE_BYTES / zeros.len() as u64 {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let result = match OpenOptions::new().write(true).custom_flags(flags).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
        Ok(file) => {
            let size = size.next_multiple_of(BLOCK_BYTES);
            let room = vec![0x5a_u8; size + BLOCK_BYTES];
            let start = room.as_ptr().align_offset(BLOCK_BYTES);
            let places = FILE_BYTES / size as u64;
            repeat(size, duration, |n| file.write_all_at(&room[start..start + size], n % places * size as u64))
                .map(Some)
        }
    };
    fs::remove_file(&path)?;
    result
}

/// Appends past the page cache to a file that grows to `file_bytes`, then to a new one, each write synced by itself. `None`
/// where the file system does not take such writes.
pub(super) fn direct_appends(
    directory: &Path,
    (size, file_bytes): (usize, u64),
    duration: Duration,
) -> io::Result<Option<Baseline>> {
    let path = directory.join("bench-direct");
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let create = || OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(&path);
    let mut file = match create() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        opened => opened?,
    };
    let size = size.next_multiple_of(BLOCK_BYTES);
    let room = vec![0x5a_u8; size + BLOCK_BYTES];
    let start = room.as_ptr().align_offset(BLOCK_BYTES);
    let mut end = 0;
    let result = repeat(size, duration, |_| {
        if end + size as u64 > file_bytes {
            fs::remove_file(&path)?;
            (file, end) = (create()?, 0);
        }
        file.write_all_at(&room[start..start + size], end)?;
        end += size as u64;
        Ok(())
    });
    fs::remove_file(&path)?;
    result.map(Some)
}

fn repeat(size: usize, duration: Duration, mut once: impl FnMut(u64) -> io::Result<()>) -> io::Result<Baseline> {
    let begin = Instant::now();
    let mut recorder = Recorder::new(begin);
    let mut from = begin;
    for n in 0.. {
        once(n)?;
        let now = Instant::now();
        recorder.done(from, now, 1);
        from = now;
        if begin.elapsed() >= duration || stop::is_wanted() {
            break;
        }
    }
    let bytes = recorder.records * size as u64;
    Ok(Baseline { bytes, took: recorder.took(), latency_us: recorder.latency_us })
}

/// One loopback TCP stream that only discards, written to in pieces of this size.
pub(super) fn tcp_sink(size: usize, duration: Duration) -> io::Result<Baseline> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sink = std::thread::spawn(move || -> io::Result<(u64, Duration)> {
        let (mut stream, _) = listener.accept()?;
        let begin = Instant::now();
        let mut buffer = vec![0; SINK_READ_BYTES];
        let mut bytes = 0;
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok((bytes, begin.elapsed())),
                count => bytes += count as u64,
            }
        }
    });
    let written = repeat(size, duration, {
        let mut stream = TcpStream::connect(address)?;
        let bytes = vec![0x5a; size];
        move |_| stream.write_all(&bytes)
    })?;
    let (bytes, took) = sink.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(Baseline { bytes, took, latency_us: written.latency_us })
}

/// Reads all files with this ending below a directory from one end to the other.
pub(super) fn read_files(directory: &Path, ending: &str) -> io::Result<Baseline> {
    let files = files(directory, ending)?;
    let begin = Instant::now();
    let mut recorder = Recorder::new(begin);
    let mut bytes = 0;
    let mut buffer = vec![0; READ_BYTES];
    for path in files {
        let mut file = File::open(path)?;
        loop {
            let from = Instant::now();
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            bytes += count as u64;
            recorder.done(from, Instant::now(), 1);
        }
    }
    Ok(Baseline { bytes, took: begin.elapsed(), latency_us: recorder.latency_us })
}

/// Has the operating system drop these files from its memory, so that the next read is the device's.
pub(super) fn forget_files(directory: &Path, ending: &str) -> io::Result<()> {
    for path in files(directory, ending)? {
        let file = File::open(path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// All files with this ending below a directory.
fn files(directory: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                found.push(path);
            }
        }
    }
    Ok(found)
}
