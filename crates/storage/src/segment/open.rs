//! Opening: what is on disk, what of it counts, what is cut.
//!
//! First everything is looked at and nothing is changed; only when the outcome is known to be sound is the tail cut and
//! what does not belong removed. Sound means: no fault lies before a sealed segment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockgate_wire::{LogIndex, Offset};

use super::external::Place;
use super::frame::{self, Fault, Frame, VERSION_AHEAD};
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
#[derive(Default, Debug)]
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
    /// Its frames that were written ahead.
    ahead: Vec<(Offset, Place)>,
    /// Why it ends before its file does.
    fault: Option<&'static str>,
}

/// Which frames of unsealed segments do not count although they are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// All count.
    None,
    /// Those of later entries do not: what a buffered journal lost with the power, and the segment happened to keep.
    UpTo(LogIndex),
    /// Those of later entries do not if they were written ahead: nobody lived to write the record that refers to them.
    AheadUpTo(LogIndex),
}

impl Limit {
    /// Why the frame does not count, if so.
    fn excludes(self, frame: &Frame) -> Option<&'static str> {
        match self {
            Self::UpTo(last) if frame.batch.index > last => Some("an entry that the journal does not have"),
            Self::AheadUpTo(last) if frame.is_ahead && frame.batch.index > last => {
                Some("it was written ahead of a journal record that was never written")
            }
            _ => None,
        }
    }
}

/// What a partition's files hold, looked at and not changed, so that it can be compared with the journal first.
#[derive(Debug)]
pub struct Survey {
    config: SegmentConfig,
    files: Files,
    start: LogPoint,
    found: VecDeque<Segment>,
    /// Frames of unsealed segments that were written ahead, by offset.
    ahead: BTreeMap<Offset, Place>,
    report: OpenReport,
}

impl Survey {
    /// Index of the last entry that counts; 0 if there is none.
    pub fn end_index(&self) -> LogIndex {
        self.end().index
    }

    /// The end of what counts.
    pub fn end(&self) -> LogPoint {
        self.found.back().map_or(self.start, Segment::end)
    }

    /// The bytes of the segments that count.
    pub fn bytes(&self) -> u64 {
        self.found.iter().map(|segment| segment.bytes).sum()
    }

    /// Says that a frame which the journal refers to is where it says, or was in a log that retention has removed. What a
    /// seal covers is believed.
    pub fn check(&self, offset: Offset, place: &Place) -> Result<(), SegmentError> {
        let holder = self.found.get(self.found.partition_point(|segment| segment.end <= offset));
        let is_sealed = holder.is_some_and(|segment| segment.sealed);
        if offset < self.start.offset || is_sealed || self.ahead.get(&offset) == Some(place) {
            return Ok(());
        }
        let path = log_path(&self.config.directory, place.segment);
        let missing = SegmentError::Damaged {
            path: path.clone(),
            position: place.byte,
            reason: "what its journal has confirmed to be here is missing, or is something else",
        };
        let because =
            |cut: &Cut| SegmentError::Damaged { path: cut.path.clone(), position: cut.kept_bytes, reason: cut.reason };
        Err(self.report.cut.as_ref().filter(|cut| cut.path <= path).map_or(missing, because))
    }

    /// Cuts what does not count, and gives what does.
    pub fn settle(mut self, disk: &dyn Disk) -> Result<(Segments, OpenReport), SegmentError> {
        if self.files.is_of_nothing() {
            let make = make(&self.config.directory);
            match make.iter().try_for_each(|op| op.execute(disk).map(drop)) {
                Err(error) if error.is_full() => {
                    let report = OpenReport { make, ..OpenReport::default() };
                    return Ok((Segments::with(self.config, LogPoint::default(), VecDeque::new()), report));
                }
                made => made?,
            }
        }
        tidy(disk, &self.config.directory, &self.files, &self.found, &mut self.report)?;
        Ok((Segments::with(self.config, self.start, self.found), self.report))
    }
}

impl Segments {
    /// Opens a partition's segments, making the directory if it is missing; on a full disk that is left to be done.
    ///
    /// Sealed segments are trusted without a scan. The others are scanned; at the first bad frame or missing segment the
    /// log ends, and the rest is removed: it is in the journal still, and the caller puts it back (and checks that it can:
    /// from [`Segments::end`], skipping what is below its offset, since a cut may fall between the batches of one entry).
    ///
    /// What may refer to frames that were written ahead takes a [`Segments::survey`], and looks before it cuts.
    ///
    /// # Panics
    /// If the index of a full segment would take more than 64 MiB: settings are validated before.
    pub fn open(disk: &dyn Disk, config: SegmentConfig, limit: Limit) -> Result<(Self, OpenReport), SegmentError> {
        Self::survey(disk, config, limit)?.settle(disk)
    }

    /// Looks at a partition's files and changes nothing, but for making durable what is believed.
    pub fn survey(disk: &dyn Disk, config: SegmentConfig, limit: Limit) -> Result<Survey, SegmentError> {
        let files = Files::list(disk, &config.directory)?;
        let mut survey = Survey {
            start: LogPoint::default(),
            found: VecDeque::new(),
            ahead: BTreeMap::new(),
            report: OpenReport::default(),
            files,
            config,
        };
        if survey.files.is_of_nothing() {
            return Ok(survey);
        }
        // A process may have died between a rename and the sync of its directory: what is seen here has to last.
        disk.sync_directory(&survey.config.directory)?;
        survey.start = open_start(disk, &survey.config.directory, &survey.files)?;
        survey.find(disk, limit)?;
        Ok(survey)
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

impl Survey {
    /// Finds the segments that count, from `start` to the first fault. Changes nothing.
    fn find(&mut self, disk: &dyn Disk, limit: Limit) -> Result<(), SegmentError> {
        let directory = self.config.directory.clone();
        let mut sealed = find_sealed(disk, &directory, &self.files, self.start, &mut self.report)?;
        let last_sealed = sealed.keys().next_back().copied();
        let mut end = self.start;
        let logs: Vec<(Offset, u64)> =
            self.files.logs.range(self.start.offset..).map(|(base, bytes)| (*base, *bytes)).collect();
        for (base, file_bytes) in logs {
            let path = log_path(&directory, base);
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
                    let scan = scan(disk, &self.config, &path, file_bytes, (end, limit))?;
                    self.report.scanned += 1;
                    self.report.scanned_bytes += scan.segment.bytes;
                    self.ahead.extend(scan.ahead);
                    (scan.segment, scan.fault)
                }
            };
            if let Some(reason) = fault {
                if before_sealed {
                    return Err(damaged(segment.bytes, reason));
                }
                let (kept_bytes, cut_bytes) = (segment.bytes, file_bytes.saturating_sub(segment.bytes));
                self.report.cut = Some(Cut { path: path.clone(), kept_bytes, cut_bytes, reason });
            }
            if segment.bytes > 0 {
                end = segment.end();
                self.found.push_back(segment);
            }
            if fault.is_some() {
                break;
            }
        }
        self.report.sealed = self.found.iter().filter(|segment| segment.sealed).count();
        Ok(())
    }
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
    (previous, limit): (LogPoint, Limit),
) -> Result<Scan, SegmentError> {
    let mut segment = Segment::new(previous.offset);
    let mut ahead = Vec::new();
    let mut end = previous;
    let mut len = SCAN_READ_BYTES;
    let fault = loop {
        let mut rest = disk.read(path, segment.bytes, len)?;
        let is_last = rest.len() < len;
        let fault = loop {
            let fault = match frame::decode(&rest) {
                Ok(frame) => match limit.excludes(&frame) {
                    Some(why) => break Fault::Bad(why),
                    None if follows(&frame, end) => {
                        if frame.is_ahead {
                            ahead.push((frame.batch.base_offset, place(&segment, &frame)));
                        }
                        drop(rest.split_to(frame.bytes));
                        segment.add(&frame, config.index_interval_bytes);
                        end = segment.end();
                        continue;
                    }
                    None => break Fault::Bad("a frame that does not follow the one before it"),
                },
                Err(fault) => fault,
            };
            let is_end = segment.bytes + rest.len() as u64 == file_bytes;
            match frame::filler(&rest, segment.bytes, fault, is_end) {
                Some(len) if len <= rest.len() => {
                    drop(rest.split_to(len));
                    segment.fill_block();
                }
                Some(len) => break Fault::Incomplete(len),
                None => break fault,
            }
        };
        break match fault {
            Fault::Incomplete(_) if segment.bytes == file_bytes => None,
            Fault::Incomplete(needed) if !is_last && segment.bytes + needed as u64 <= file_bytes => {
                len = SCAN_READ_BYTES.max(needed);
                continue;
            }
            Fault::Incomplete(_) => Some("the file ends within a frame"),
            Fault::Bad(reason) => Some(reason),
            Fault::Version(found) => {
                return Err(SegmentError::UnknownVersion { path: path.clone(), found, known: VERSION_AHEAD });
            }
        };
    };
    segment.durable_bytes = segment.bytes;
    Ok(Scan { segment, ahead, fault })
}

fn place(segment: &Segment, frame: &Frame) -> Place {
    Place { segment: segment.base, byte: segment.bytes, bytes: frame.bytes as u64, crc: frame.crc }
}

fn follows(frame: &Frame, end: LogPoint) -> bool {
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
