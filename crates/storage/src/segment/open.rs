//! Opening: what is on disk, what of it counts, what is cut.
//!
//! First everything is looked at and nothing is changed; only when the outcome is known to be sound is the tail cut and
//! what does not belong removed. Sound means: no fault lies before a sealed segment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockgate_wire::{LogIndex, Offset};

use super::frame::{self, Fault, VERSION};
use super::read::Position;
use super::summary::Segment;
use super::{LogPoint, SegmentConfig, SegmentError, Segments, index, index_path, log_path, start};
use crate::disk::{Disk, FileOp, Path};

/// A log is scanned in reads of this size, or of one frame's where that is larger.
const SCAN_READ_BYTES: usize = 1024 * 1024;

/// What opening found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenReport {
    /// Segments that were trusted by their seals.
    pub sealed: usize,
    /// Segments that were read frame by frame.
    pub scanned: usize,
    /// Their bytes.
    pub scanned_bytes: u64,
    /// Index files that are no seals of their logs; they are made anew when the segment is sealed, or removed with it.
    pub bad_indexes: Vec<Path>,
    /// The cut of the last segment that counts.
    pub cut: Option<Cut>,
    /// Files that were removed: behind a cut or hole, below the start, or left by a write that did not end.
    pub removed: Vec<Path>,
    /// The disk had no room for the directory of a log that has nothing yet: to be carried out before anything else that
    /// is planned here.
    pub make: Vec<FileOp>,
}

impl OpenReport {
    /// What is not as an orderly stop leaves it, a line each.
    pub fn findings(&self) -> Vec<String> {
        let cut = self.cut.iter().map(|cut| {
            let Cut { path, kept_bytes, cut_bytes, reason } = cut;
            format!(
                "{path}: cut at byte {kept_bytes}, {cut_bytes} bytes go ({reason}); the journal puts back what counts"
            )
        });
        let bad = self.bad_indexes.iter().map(|path| format!("{path}: no valid seal, the segment was scanned"));
        let removed = self.removed.iter().map(|path| format!("{path}: removed, it was left over"));
        cut.chain(bad).chain(removed).collect()
    }
}

/// Bytes that were cut from the end of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The file.
    pub path: Path,
    /// Its size now.
    pub kept_bytes: u64,
    /// How many bytes went.
    pub cut_bytes: u64,
    /// Why the first of them does not count.
    pub reason: &'static str,
}

/// The files of a directory that are of segments.
#[derive(Default)]
struct Files {
    /// Sizes of the logs, by base.
    logs: BTreeMap<Offset, u64>,
    /// Sizes of the indexes, by base.
    indexes: BTreeMap<Offset, u64>,
    has_start: bool,
    /// Left by a replacement that did not end.
    unfinished: Vec<Path>,
}

/// What a scan found in a log.
struct Scan {
    segment: Segment,
    /// Why it ends before its file does.
    fault: Option<&'static str>,
}

impl Segments {
    /// Opens a partition's segments, making the directory if it is missing; on a full disk that is left to be done.
    ///
    /// Sealed segments are trusted without a scan. The others are scanned; at the first bad frame or missing segment the
    /// log ends, and the rest is removed: it is in the journal still, and the caller puts it back (and checks that it can:
    /// from [`Segments::end`], skipping what is below its offset, since a cut may fall between the batches of one entry).
    ///
    /// With `at_most`, what is unsealed and of later entries is cut too: what a buffered journal lost with the power, and
    /// the segment happened to keep.
    ///
    /// # Panics
    /// If the index of a full segment would take more than 64 MiB: settings are validated before.
    pub fn open(
        disk: &dyn Disk,
        config: SegmentConfig,
        at_most: Option<LogIndex>,
    ) -> Result<(Self, OpenReport), SegmentError> {
        let files = Files::list(disk, &config.directory)?;
        if files.is_of_nothing() {
            let make = make(&config.directory);
            match make.iter().try_for_each(|op| op.execute(disk).map(drop)) {
                Err(error) if error.is_full() => {
                    let report = OpenReport { make, ..OpenReport::default() };
                    return Ok((Self::with(config, LogPoint::default(), VecDeque::new()), report));
                }
                made => made?,
            }
        }
        // A process may have died between a rename and the sync of its directory: what is seen here has to last.
        disk.sync_directory(&config.directory)?;
        let start = open_start(disk, &config.directory, &files)?;
        let mut report = OpenReport::default();
        let found = find(disk, &config, &files, (start, at_most), &mut report)?;
        tidy(disk, &config.directory, &files, &found, &mut report)?;

        Ok((Self::with(config, start, found), report))
    }

    /// The segments of a partition that is new, so that nothing of it is on disk, and the plan that makes its directory.
    /// To be carried out before anything else that is planned here.
    ///
    /// # Panics
    /// As [`Segments::open`].
    pub fn create(config: SegmentConfig) -> (Self, Vec<FileOp>) {
        let ops = make(&config.directory);
        (Self::with(config, LogPoint::default(), VecDeque::new()), ops)
    }

    fn with(config: SegmentConfig, start: LogPoint, found: VecDeque<Segment>) -> Self {
        assert!(
            index::is_bounded(config.segment_bytes, config.index_interval_bytes),
            "an index entry every {} bytes is too dense for segments of {} bytes",
            config.index_interval_bytes,
            config.segment_bytes
        );
        let end = |last: &Segment| Position { segment: last.base, byte: last.bytes, offset: last.end };
        let mut segments = Self {
            config,
            start,
            written: found.back().map_or(Position::first(start.offset), end),
            segments: found,
            unwritten: VecDeque::new(),
            synced: start,
            in_flight: None,
            sync_failed: false,
        };
        segments.advance_synced();
        segments
    }
}

/// The place up to which a partition's log is in sealed segments, or durably removed. Reads seals only; what it finds
/// wrong, it leaves to [`Segments::open`] to name.
pub fn sealed_end(disk: &dyn Disk, directory: &Path) -> Result<LogPoint, SegmentError> {
    let files = Files::list(disk, directory)?;
    let start = open_start(disk, directory, &files)?;
    let sealed = find_sealed(disk, directory, &files, start, &mut OpenReport::default())?;
    let mut end = start;
    for segment in sealed.values() {
        if segment.base != end.offset {
            break;
        }
        end = segment.end();
    }
    Ok(end)
}

/// What makes the directory of a log that has nothing yet.
fn make(directory: &Path) -> Vec<FileOp> {
    vec![FileOp::CreateDirectory { path: directory.clone() }, start::replace(directory, LogPoint::default())]
}

impl Files {
    /// The files of a directory; one that is not there has none.
    fn list(disk: &dyn Disk, directory: &str) -> Result<Self, SegmentError> {
        let mut files = Self::default();
        let entries = match disk.list(directory) {
            Err(error) if error.is_missing() => return Ok(files),
            entries => entries?,
        };
        for entry in entries.into_iter().filter(|entry| !entry.is_directory) {
            let name = entry.name.as_str();
            if name == "start" {
                files.has_start = true;
            } else if let Some(base) = base_of(name, ".log") {
                files.logs.insert(base, entry.bytes);
            } else if let Some(base) = base_of(name, ".index") {
                files.indexes.insert(base, entry.bytes);
            } else if name == "start.new" || base_of(name, ".index.new").is_some() {
                files.unfinished.push(format!("{directory}/{name}").into());
            }
        }
        Ok(files)
    }

    /// Whether the log was never begun, or nobody lived to write down where.
    fn is_of_nothing(&self) -> bool {
        !self.has_start && self.logs.is_empty()
    }
}

/// The base offset in a file's name that ends so.
pub(super) fn base_of(name: &str, end: &str) -> Option<Offset> {
    let digits = name.strip_suffix(end)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Offset)).flatten()
}

/// Where the log begins.
fn open_start(disk: &dyn Disk, directory: &str, files: &Files) -> Result<LogPoint, SegmentError> {
    let path = start::path(directory);
    if files.is_of_nothing() {
        return Ok(LogPoint::default());
    }
    if !files.has_start {
        return Err(SegmentError::Damaged { path, position: 0, reason: "it is missing, but there are segments" });
    }
    let bytes = disk.read(&path, 0, start::BYTES + 1)?;
    start::decode(&bytes).ok_or(SegmentError::Damaged { path, position: 0, reason: "it does not state a log's start" })
}

/// The segments that count, from `start` to the first fault. Changes nothing.
fn find(
    disk: &dyn Disk,
    config: &SegmentConfig,
    files: &Files,
    (start, at_most): (LogPoint, Option<LogIndex>),
    report: &mut OpenReport,
) -> Result<VecDeque<Segment>, SegmentError> {
    let mut sealed = find_sealed(disk, &config.directory, files, start, report)?;
    let last_sealed = sealed.keys().next_back().copied();
    let mut found = VecDeque::new();
    let mut end = start;
    for (&base, &file_bytes) in files.logs.range(start.offset..) {
        let path = log_path(&config.directory, base);
        let damaged = |position, reason| SegmentError::Damaged { path: path.clone(), position, reason };
        let before_sealed = last_sealed.is_some_and(|sealed| base <= sealed);
        if base != end.offset {
            if before_sealed {
                return Err(damaged(0, "the segment before it is missing or ends early"));
            }
            break;
        }
        let (segment, fault) = match sealed.remove(&base) {
            Some(segment) => (segment, None),
            None => {
                // Its sync may have failed in an earlier process: what is believed here is sealed one day.
                disk.forget_cached(&path)?;
                let scan = scan(disk, config, &path, file_bytes, (end, at_most))?;
                report.scanned += 1;
                report.scanned_bytes += scan.segment.bytes;
                (scan.segment, scan.fault)
            }
        };
        if let Some(reason) = fault {
            if before_sealed {
                return Err(damaged(segment.bytes, reason));
            }
            let (kept_bytes, cut_bytes) = (segment.bytes, file_bytes.saturating_sub(segment.bytes));
            report.cut = Some(Cut { path: path.clone(), kept_bytes, cut_bytes, reason });
        }
        if segment.bytes > 0 {
            end = segment.end();
            found.push_back(segment);
        }
        if fault.is_some() {
            break;
        }
    }
    report.sealed = found.iter().filter(|segment| segment.sealed).count();
    Ok(found)
}

/// The segments with a valid seal.
fn find_sealed(
    disk: &dyn Disk,
    directory: &Path,
    files: &Files,
    start: LogPoint,
    report: &mut OpenReport,
) -> Result<BTreeMap<Offset, Segment>, SegmentError> {
    let mut sealed = BTreeMap::new();
    for (&base, &index_bytes) in files.indexes.range(start.offset..) {
        let log_bytes = files.logs.get(&base).copied();
        let path = index_path(directory, base);
        let bytes = if index_bytes <= index::MAX_BYTES {
            disk.read(&path, 0, index_bytes as usize)?
        } else {
            Default::default()
        };
        match index::decode(&bytes, base) {
            Some(segment) if Some(segment.bytes) == log_bytes => drop(sealed.insert(base, segment)),
            Some(segment) => {
                return Err(SegmentError::Damaged {
                    path: log_path(directory, base),
                    position: log_bytes.unwrap_or(0).min(segment.bytes),
                    reason: "it is missing, or its size is not the one it was sealed with",
                });
            }
            None => report.bad_indexes.push(path),
        }
    }
    Ok(sealed)
}

/// Reads a log frame by frame, up to the first that does not follow `previous` and so on.
fn scan(
    disk: &dyn Disk,
    config: &SegmentConfig,
    path: &Path,
    file_bytes: u64,
    (previous, at_most): (LogPoint, Option<LogIndex>),
) -> Result<Scan, SegmentError> {
    let mut segment = Segment::new(previous.offset);
    let mut end = previous;
    let mut len = SCAN_READ_BYTES;
    loop {
        let mut rest = disk.read(path, segment.bytes, len)?;
        let is_last = rest.len() < len;
        let fault = loop {
            match frame::decode(&rest) {
                Ok(frame) if at_most.is_some_and(|last| frame.batch.index > last) => {
                    break Fault::Bad("an entry that the journal does not have");
                }
                Ok(frame) if follows(&frame, end) => {
                    drop(rest.split_to(frame.bytes));
                    segment.add(&frame, config.index_interval_bytes);
                    end = segment.end();
                }
                Ok(_) => break Fault::Bad("a frame that does not follow the one before it"),
                Err(fault) => break fault,
            }
        };
        let reason = match fault {
            Fault::Incomplete(_) if segment.bytes == file_bytes => return Ok(Scan { segment, fault: None }),
            Fault::Incomplete(needed) if !is_last && segment.bytes + needed as u64 <= file_bytes => {
                len = SCAN_READ_BYTES.max(needed);
                continue;
            }
            Fault::Incomplete(_) => "the file ends within a frame",
            Fault::Bad(reason) => reason,
            Fault::Version(found) => {
                return Err(SegmentError::UnknownVersion { path: path.clone(), found, known: VERSION });
            }
        };
        return Ok(Scan { segment, fault: Some(reason) });
    }
}

fn follows(frame: &frame::Frame, end: LogPoint) -> bool {
    let batch = &frame.batch;
    batch.base_offset == end.offset && batch.index >= end.index && batch.term >= end.term
}

/// Cuts the last log and removes every file that does not belong to a segment that counts.
fn tidy(
    disk: &dyn Disk,
    directory: &str,
    files: &Files,
    found: &VecDeque<Segment>,
    report: &mut OpenReport,
) -> Result<(), SegmentError> {
    if let Some(last) = found.back()
        && files.logs.get(&last.base).is_some_and(|bytes| *bytes > last.bytes)
    {
        let path = log_path(directory, last.base);
        FileOp::Truncate { path, bytes: last.bytes }.execute(disk)?;
    }
    let kept: BTreeSet<Offset> = found.iter().map(|segment| segment.base).collect();
    let stray = |base: &&Offset| !kept.contains(base);
    report.removed.extend(files.logs.keys().filter(stray).map(|base| log_path(directory, *base)));
    report.removed.extend(files.indexes.keys().filter(stray).map(|base| index_path(directory, *base)));
    report.removed.extend(files.unfinished.iter().cloned());
    if !report.removed.is_empty() {
        FileOp::Remove { paths: report.removed.clone() }.execute(disk)?;
    }
    Ok(())
}
