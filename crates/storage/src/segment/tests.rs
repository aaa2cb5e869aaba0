//! The promises of segments, by example and by chance.

mod appending;
mod damage;
mod external;
mod power_loss;
mod reading;
mod retaining;
mod scrubbing;

use bytes::Bytes;
use lockgate_wire::batch::{BatchBuilder, Codec, Record};
use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use super::*;
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, FileOp};

const DIRECTORY: &str = "partitions/7-0";

fn config(segment_bytes: u64, index_interval_bytes: u32) -> SegmentConfig {
    SegmentConfig { directory: DIRECTORY.into(), segment_bytes, index_interval_bytes }
}

/// A batch of `count` records, the first with a value of `value_bytes`, all with this timestamp.
fn batch(at: LogPoint, count: u32, value_bytes: usize, timestamp: i64) -> StoredBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    for number in 0..count {
        let value = Bytes::from(vec![b'v'; if number == 0 { value_bytes } else { 1 }]);
        builder.push(&Record { value: Some(value), timestamp_ms: timestamp, ..Record::default() }).unwrap();
    }
    StoredBatch {
        index: at.index,
        term: at.term,
        append_time: WallMs(1_000_000 + at.offset.0 as i64),
        base_offset: at.offset,
        count,
        batch: builder.build(None),
    }
}

/// A log on a disk, with everything that was ever appended to it.
struct Log<D> {
    disk: D,
    config: SegmentConfig,
    segments: Segments,
    appended: Vec<StoredBatch>,
}

impl Log<MemoryDisk> {
    fn new(config: SegmentConfig) -> Self {
        Self::open(MemoryDisk::new(), config)
    }

    /// Opens the files as they are now.
    fn reopen(&mut self) -> Result<OpenReport, SegmentError> {
        let (segments, report) = Segments::open(&self.disk, self.config.clone(), Limit::None)?;
        self.segments = segments;
        Ok(report)
    }

    fn names(&self) -> Vec<String> {
        self.disk.list(DIRECTORY).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = format!("{DIRECTORY}/{name}");
        let mut bytes = self.disk.file(&path).unwrap();
        change(&mut bytes);
        self.disk.set_file(&path, bytes);
    }
}

impl<D: Disk> Log<D> {
    fn open(disk: D, config: SegmentConfig) -> Self {
        let (segments, _) = Segments::open(&disk, config.clone(), Limit::None).unwrap();
        Self { disk, config, segments, appended: Vec::new() }
    }

    fn run(&self, ops: &[FileOp]) {
        ops.iter().for_each(|op| drop(op.execute(&self.disk).unwrap()));
    }

    /// The place of the next entry's first batch.
    fn next_entry(&self) -> LogPoint {
        let end = self.segments.end();
        LogPoint { offset: end.offset, index: LogIndex(end.index.0 + 1), term: Term(end.term.0.max(1)) }
    }

    /// Appends a batch as an entry of its own.
    fn push(&mut self, count: u32, value_bytes: usize, timestamp: i64) {
        let batch = batch(self.next_entry(), count, value_bytes, timestamp);
        self.append(&[batch]);
    }

    fn append(&mut self, batches: &[StoredBatch]) {
        let ops = self.segments.append(batches);
        self.run(&ops);
        self.segments.written(self.segments.end_offset());
        self.appended.extend_from_slice(batches);
    }

    fn seal_all(&mut self) {
        while let Some(ops) = self.segments.next_seal() {
            self.run(&ops);
            self.segments.sealed(Ok(()));
        }
    }

    fn expire(&mut self, now: WallMs, policy: &Retention, keep_from: Option<Offset>) {
        if let Some(start) = self.segments.expire(now, policy, keep_from) {
            self.run(&[start]);
            let removal = self.segments.started();
            self.run(&[removal]);
            self.segments.expired();
        }
    }

    /// Reads from a position to the end, in reads of at most `max_bytes` except where a batch needs more.
    fn read_on(&self, mut position: Position, max_bytes: usize) -> Result<Vec<StoredBatch>, SegmentError> {
        let mut all = Vec::new();
        let mut asked = max_bytes;
        while let Some(op) = self.segments.read(position, asked) {
            let FileOp::Read { len, .. } = op else { panic!("{op:?} is no read") };
            let bytes = op.execute(&self.disk).unwrap();
            let parsed = self.segments.parse(position, len, bytes)?;
            let gets_on = !parsed.batches.is_empty() || parsed.next != position;
            assert_ne!(parsed.need.is_some(), gets_on, "a read gets on or says what it needs");
            assert!(parsed.need.is_none_or(|need| need > len), "what is needed is more than what was there");
            asked = parsed.need.unwrap_or(max_bytes);
            position = parsed.next;
            all.extend(parsed.batches);
        }
        Ok(all)
    }

    /// Everything from the start to the end.
    fn read_all(&self) -> Vec<StoredBatch> {
        let Some(position) = self.segments.locate(self.segments.start_offset()) else { return Vec::new() };
        self.read_on(position, 64 * 1024).unwrap()
    }

    /// What was appended between two offsets.
    fn between(&self, start: Offset, end: Offset) -> &[StoredBatch] {
        let from = self.appended.partition_point(|batch| batch.base_offset < start);
        let to = self.appended.partition_point(|batch| batch.end_offset() <= end);
        &self.appended[from..to]
    }

    /// The log is exactly what was appended from its start to its end.
    fn assert_whole(&self) {
        let (start, end) = (self.segments.start_offset(), self.segments.end_offset());
        let expected = self.between(start, end);
        assert_eq!(self.read_all(), expected);
        assert_eq!(expected.iter().map(|batch| u64::from(batch.count)).sum::<u64>(), end.0 - start.0);
    }
}
