//! The files of a data directory: which there are, what each is by its name and place, and what is in it.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_storage::checkpoint::{self, CheckpointHeader};
use lockgate_storage::disk::{Disk, DiskResult};
use lockgate_storage::journal::inspect::{self as journal, FileFacts, Item};
use lockgate_storage::journal::{RecordKind, Sequence};
use lockgate_storage::segment::LogPoint;
use lockgate_storage::segment::inspect::{self as segment, FrameFacts, LogEnd, SealFacts};

/// A file and what is in it, in short.
pub(super) struct Summary {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) content: Content,
}

/// See [`Summary`].
pub(super) enum Content {
    Journal(JournalSummary),
    Prepared,
    Log(LogSummary),
    Seal(Option<SealFacts>),
    Start(Option<LogPoint>),
    Checkpoint(Result<(CheckpointHeader, Vec<Bytes>), String>),
    Other,
}

/// What a journal file adds up to.
#[derive(Default)]
pub(super) struct JournalSummary {
    /// Its header, or what is wrong with it.
    pub(super) header: Option<FileFacts>,
    pub(super) header_fault: Option<String>,
    pub(super) writes: u64,
    pub(super) marks: u64,
    pub(super) records: BTreeMap<RecordKind, u64>,
    pub(super) groups: BTreeMap<u64, u64>,
    /// First and last.
    pub(super) sequences: Option<(Sequence, Sequence)>,
    /// The last write is an end mark.
    pub(super) ended: bool,
    /// Places where neither a write nor nothing stands, or a write that cannot be believed.
    pub(super) faults: Vec<(u64, String)>,
}

/// What a log adds up to.
#[derive(Default)]
pub(super) struct LogSummary {
    pub(super) frames: u64,
    pub(super) records: u64,
    pub(super) first: Option<FrameFacts>,
    pub(super) last: Option<FrameFacts>,
    pub(super) end: Option<LogEnd>,
}

impl JournalSummary {
    fn add(&mut self, item: Item) {
        match item {
            Item::File(facts) => self.header = Some(facts),
            Item::Void { is_zero: true, .. } | Item::Void { is_reused: true, .. } => {}
            Item::Void { offset, bytes, .. } => {
                self.faults.push((offset, format!("{bytes} bytes that are no write of this file")));
            }
            Item::Write(write) => {
                self.writes += 1;
                self.marks += u64::from(write.is_mark());
                self.ended = write.is_end;
                if !write.is_mark() {
                    let first = self.sequences.map_or(write.first_sequence, |(first, _)| first);
                    self.sequences = Some((first, write.last_sequence()));
                }
                for ((group, kind), count) in &write.records {
                    *self.records.entry(*kind).or_default() += u64::from(*count);
                    *self.groups.entry(group.0).or_default() += u64::from(*count);
                }
                self.faults.extend(write.fault.map(|fault| (write.offset, fault)));
            }
        }
    }
}

impl LogSummary {
    fn add(&mut self, frame: FrameFacts) {
        self.frames += 1;
        self.records += u64::from(frame.count);
        self.first.get_or_insert(frame);
        self.last = Some(frame);
    }
}

/// All files below a directory, by path.
pub(super) fn files(disk: &dyn Disk, directory: &str) -> DiskResult<Vec<(String, u64)>> {
    let (mut files, mut unread) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = unread.pop() {
        for entry in disk.list(&directory)? {
            let path = if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
            if entry.is_directory {
                unread.push(path);
            } else {
                files.push((path, entry.bytes));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// What a file is and holds.
pub(super) fn summary(disk: &dyn Disk, path: &str, bytes: u64) -> DiskResult<Summary> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let content = if journal::is_file_name(name) {
        let mut summary = JournalSummary::default();
        summary.header_fault = journal::inspect(disk, path, &mut |item| summary.add(item))?.err();
        Content::Journal(summary)
    } else if journal::is_free_name(name) {
        Content::Prepared
    } else if segment::log_base(name).is_some() {
        let mut summary = LogSummary::default();
        let end = segment::frames(disk, path, &mut |frame| summary.add(frame))?;
        Content::Log(LogSummary { end: Some(end), ..summary })
    } else if let Some(base) = segment::seal_base(name) {
        Content::Seal(segment::seal(disk, path, base)?)
    } else if name == "start" {
        Content::Start(segment::log_start(disk, path)?)
    } else if checkpoint::is_name(name) {
        let bytes = disk.read(path, 0, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Content::Checkpoint(checkpoint::decode(bytes))
    } else {
        Content::Other
    };
    Ok(Summary { path: path.to_owned(), bytes, content })
}
