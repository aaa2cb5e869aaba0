//! How the contents of files look, as text and as JSON.

use std::fmt::Write as _;

use lockgate_storage::journal::RecordKind;
use lockgate_storage::journal::inspect::{Item, WriteFacts};
use lockgate_storage::segment::inspect::{FrameFacts, SealFacts};
use serde_json::{Value, json};

use super::tree::{Content, JournalSummary, LogSummary, Summary};

/// One section a directory, one line a file.
pub(super) fn tree_text(files: &[Summary]) -> String {
    let mut text = String::new();
    let mut current = None;
    for file in files {
        let (directory, name) = file.path.rsplit_once('/').unwrap_or((".", &file.path));
        if current.replace(directory) != Some(directory) {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{directory}");
        }
        let _ = writeln!(text, "  {name:<39} {:>11}  {}", file.bytes, content_text(&file.content));
    }
    text.trim_end().to_owned()
}

pub(super) fn tree_json(files: &[Summary]) -> Value {
    files.iter().map(summary_json).collect()
}

/// A file that has no parts worth a line of their own, or has them here.
pub(super) fn file_text(file: &Summary) -> String {
    let head = format!("{}: {} bytes, {}", file.path, file.bytes, content_text(&file.content));
    match &file.content {
        Content::Seal(Some(seal)) => {
            let marks = seal.marks.iter().map(|(offset, byte)| format!("\n  offset {offset} at byte {byte}"));
            head + &marks.collect::<String>()
        }
        Content::Checkpoint(Ok((_, chunks))) => {
            let chunks = chunks.iter().enumerate();
            head + &chunks.map(|(n, chunk)| format!("\n  chunk {n}: {} bytes", chunk.len())).collect::<String>()
        }
        _ => head,
    }
}

fn content_text(content: &Content) -> String {
    match content {
        Content::Journal(journal) => journal_text(journal),
        Content::Prepared => "prepared journal file".into(),
        Content::Log(log) => log_text(log),
        Content::Seal(Some(seal)) => format!(
            "seal of {} bytes up to offset {}, entry {} of term {}; {} marks",
            seal.log_bytes,
            seal.end_offset,
            seal.last_index,
            seal.last_term,
            seal.marks.len()
        ),
        Content::Seal(None) => "DAMAGED: no valid seal".into(),
        Content::Start(Some(start)) => {
            format!("the log begins at offset {}, after entry {} of term {}", start.offset, start.index, start.term)
        }
        Content::Start(None) => "DAMAGED: it does not state a log's start".into(),
        Content::Checkpoint(Ok((header, chunks))) => format!(
            "checkpoint of group {}, replica {}: entry {} of term {}, next offset {}; {} chunks",
            header.group,
            header.replica,
            header.index,
            header.term,
            header.next_offset,
            chunks.len()
        ),
        Content::Checkpoint(Err(why)) => format!("DAMAGED: {why}"),
        Content::Other => "not of the journal, segments or checkpoints".into(),
    }
}

fn journal_text(journal: &JournalSummary) -> String {
    let Some(header) = &journal.header else {
        return format!("DAMAGED: {}", journal.header_fault.as_deref().unwrap_or("it has no header"));
    };
    let sequences = journal.sequences.map_or_else(
        || format!("no records, the next is {}", header.first_sequence),
        |(first, last)| format!("records {first}-{last}"),
    );
    let kinds: Vec<String> =
        journal.records.iter().map(|(kind, count)| format!("{count} {}", kind_name(*kind))).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let groups = match journal.groups.len() {
        0 => String::new(),
        1 => " of 1 group".into(),
        groups => format!(" of {groups} groups"),
    };
    let mut text = format!(
        "{} file {} of start {}: {sequences}{groups}{kinds}, {} writes, {} of them marks{}",
        header.kind,
        header.file_sequence,
        header.epoch,
        journal.writes,
        journal.marks,
        if journal.ended { ", ended in order" } else { "" }
    );
    for (offset, fault) in &journal.faults {
        let _ = write!(text, "; FAULT at {offset}: {fault}");
    }
    text
}

fn log_text(log: &LogSummary) -> String {
    let mut text = match (&log.first, &log.last) {
        (Some(first), Some(last)) => format!(
            "offsets {}-{}, entries {}-{}, terms {}-{}: {} records in {} frames",
            first.base_offset,
            last.base_offset.0 + u64::from(last.count) - 1,
            first.index,
            last.index,
            first.term,
            last.term,
            log.records,
            log.frames
        ),
        _ => "no frames".into(),
    };
    if let Some((position, fault)) = log_fault(log) {
        let _ = write!(text, "; FAULT at {position}: {fault}");
    }
    text
}

fn log_fault(log: &LogSummary) -> Option<(u64, &str)> {
    log.end.as_ref().and_then(|end| Some((end.position, end.fault.as_deref()?)))
}

/// An object for a file.
pub(super) fn summary_json(file: &Summary) -> Value {
    let (kind, content) = match &file.content {
        Content::Journal(journal) => ("journal", journal_json(journal)),
        Content::Prepared => ("prepared", Value::Null),
        Content::Log(log) => ("log", log_json(log)),
        Content::Seal(seal) => ("seal", seal.as_ref().map_or(Value::Null, seal_json)),
        Content::Start(start) => {
            let start =
                start.map(|start| json!({ "offset": start.offset.0, "index": start.index.0, "term": start.term.0 }));
            ("start", json!(start))
        }
        Content::Checkpoint(Ok((header, chunks))) => {
            let chunks: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
            let header = json!({
                "group": header.group.0, "replica": header.replica.0, "index": header.index.0, "term": header.term.0,
                "next_offset": header.next_offset.0, "chunk_bytes": chunks,
            });
            ("checkpoint", header)
        }
        Content::Checkpoint(Err(why)) => ("checkpoint", json!({ "fault": why })),
        Content::Other => ("other", Value::Null),
    };
    json!({ "path": file.path, "bytes": file.bytes, "kind": kind, "content": content })
}

fn journal_json(journal: &JournalSummary) -> Value {
    let records: serde_json::Map<String, Value> =
        journal.records.iter().map(|(kind, count)| (kind_name(*kind).to_owned(), json!(count))).collect();
    let groups: serde_json::Map<String, Value> =
        journal.groups.iter().map(|(group, count)| (group.to_string(), json!(count))).collect();
    let faults = journal.faults.iter().map(|(offset, fault)| fault_json(*offset, fault));
    json!({
        "header": journal.header.clone().map(|header| item_json(&Item::File(header))),
        "header_fault": journal.header_fault, "writes": journal.writes, "marks": journal.marks,
        "records": records, "groups": groups, "ended": journal.ended,
        "first_sequence": journal.sequences.map(|(first, _)| first.0),
        "last_sequence": journal.sequences.map(|(_, last)| last.0),
        "faults": faults.collect::<Value>(),
    })
}

fn log_json(log: &LogSummary) -> Value {
    json!({
        "frames": log.frames, "records": log.records,
        "first": log.first.as_ref().map(frame_json), "last": log.last.as_ref().map(frame_json),
        "fault": log_fault(log).map(|(position, fault)| fault_json(position, fault)),
    })
}

fn seal_json(seal: &SealFacts) -> Value {
    let marks = seal.marks.iter().map(|(offset, byte)| json!({ "offset": offset.0, "position": byte }));
    json!({
        "end_offset": seal.end_offset.0, "log_bytes": seal.log_bytes, "last_index": seal.last_index.0,
        "last_term": seal.last_term.0, "max_timestamp": seal.max_timestamp, "max_append_time": seal.max_append_time.0,
        "marks": marks.collect::<Value>(),
    })
}

/// A line for what stands at a place of a journal file.
pub(super) fn item_text(item: &Item) -> String {
    match item {
        Item::File(file) => format!(
            "{} journal of {}; file {} of start {}, from record {}, made with {} bytes, synced before: {}, oldest file needed: {}\n\
             {:>12}  {:>9}  {:>5}  {:>21}  {:>10}  content",
            file.kind,
            file.identity,
            file.file_sequence,
            file.epoch,
            file.first_sequence,
            file.file_bytes,
            file.synced,
            file.oldest_file,
            "offset",
            "bytes",
            "start",
            "records",
            "synced"
        ),
        Item::Void { offset, bytes, is_zero, is_reused } => {
            let what = match (is_zero, is_reused) {
                (true, _) => "nothing was written",
                (false, true) => "no write, perhaps left of an earlier life",
                (false, false) => "no write of this file",
            };
            format!("{offset:>12}  {bytes:>9}  {:>5}  {:>21}  {:>10}  {what}", "", "", "")
        }
        Item::Write(write) => format!(
            "{:>12}  {:>9}  {:>5}  {:>21}  {:>10}  {}",
            write.offset,
            write.bytes,
            write.epoch,
            sequences(write),
            write.synced,
            write_text(write)
        ),
    }
}

fn sequences(write: &WriteFacts) -> String {
    if write.is_mark() { "-".into() } else { format!("{}-{}", write.first_sequence, write.last_sequence()) }
}

fn write_text(write: &WriteFacts) -> String {
    let mut parts: Vec<String> = Vec::new();
    if write.is_end {
        parts.push("end mark".into());
    } else if write.is_mark() {
        parts.push("mark".into());
    }
    let record = |((group, kind), count): (&(lockgate_wire::GroupId, RecordKind), &u32)| {
        format!("group {group}: {count} {}", kind_name(*kind))
    };
    parts.extend(write.records.iter().map(record));
    parts.extend(write.fault.iter().map(|fault| format!("FAULT: {fault}")));
    parts.join(", ")
}

/// An object for what stands at a place of a journal file.
pub(super) fn item_json(item: &Item) -> Value {
    match item {
        Item::File(file) => json!({
            "what": "file", "journal": file.kind.to_string(), "cluster": file.identity.cluster.to_string(),
            "node": file.identity.node.0, "shard": file.identity.shard.0, "file": file.file_sequence,
            "first_sequence": file.first_sequence.0, "start": file.epoch, "file_bytes": file.file_bytes,
            "synced": file.synced.0, "oldest_file": file.oldest_file, "reused": file.reused,
        }),
        Item::Void { offset, bytes, is_zero, is_reused } => {
            json!({ "what": "void", "offset": offset, "bytes": bytes, "is_zero": is_zero, "is_reused": is_reused })
        }
        Item::Write(write) => {
            let records = write
                .records
                .iter()
                .map(|((group, kind), count)| json!({ "group": group.0, "kind": kind_name(*kind), "count": count }));
            json!({
                "what": if write.is_end { "end" } else if write.is_mark() { "mark" } else { "write" },
                "offset": write.offset, "bytes": write.bytes, "start": write.epoch,
                "first_sequence": write.first_sequence.0, "count": write.count, "synced": write.synced.0,
                "oldest_file": write.oldest_file, "body_bytes": write.body_bytes,
                "records": records.collect::<Value>(), "fault": write.fault,
            })
        }
    }
}

/// A line for a frame of a log.
pub(super) fn frame_text(frame: &FrameFacts) -> String {
    let last = frame.base_offset.0 + u64::from(frame.count) - 1;
    format!(
        "{:>12}  {:>9} bytes  offsets {}-{last}  entry {} of term {}  appended {}{}",
        frame.position,
        frame.bytes,
        frame.base_offset,
        frame.index,
        frame.term,
        frame.append_time.0,
        if frame.is_ahead { "  ahead of the journal" } else { "" }
    )
}

pub(super) fn frame_json(frame: &FrameFacts) -> Value {
    json!({
        "position": frame.position, "bytes": frame.bytes, "base_offset": frame.base_offset.0, "count": frame.count,
        "index": frame.index.0, "term": frame.term.0, "append_time": frame.append_time.0,
        "max_timestamp": frame.max_timestamp, "is_ahead": frame.is_ahead,
    })
}

pub(super) fn fault_json(position: u64, fault: &str) -> Value {
    json!({ "what": "fault", "position": position, "fault": fault })
}

/// A kind of records, in words.
fn kind_name(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Bootstrap => "bootstrap",
        RecordKind::Entry => "entry",
        RecordKind::HardState => "hard state",
        RecordKind::Configuration => "configuration",
        RecordKind::Truncate => "truncate",
        RecordKind::SnapshotMark => "snapshot mark",
        RecordKind::CheckpointMark => "checkpoint mark",
        RecordKind::ExternalEntry => "external entry",
        RecordKind::Removed => "removed",
        RecordKind::Accepted => "accepted",
    }
}
