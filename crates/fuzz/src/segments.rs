//! Segments, seals and starts of which anything may have become: what opens reads as it was written, the second time too.

use std::sync::OnceLock;

use bytes::Bytes;
use lockgate_storage::disk::FileOp;
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_storage::segment::{Limit, LogPoint, Place, SegmentConfig, Segments, StoredBatch, inspect};
use lockgate_wire::batch::{BatchBuilder, Codec, Record};
use lockgate_wire::{LogIndex, Offset, Term, WallMs};

use crate::damage;

pub(crate) const DIRECTORY: &str = "partitions/1-0";
const READ_BYTES: usize = 4096;

/// Segments as they were before anything happened to them.
pub(crate) struct Base {
    pub(crate) disk: MemoryDisk,
    pub(crate) batches: Vec<StoredBatch>,
    /// Where those are that were written ahead.
    places: Vec<(Offset, Place)>,
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, happenings)) = bytes.split_first() else { return };
    let base = &bases()[usize::from(*which) % bases().len()];
    let disk = base.disk.clone();
    damage::apply(&disk, happenings);
    for path in disk.paths() {
        inspect_all(&disk, &path);
    }
    let Ok(survey) = Segments::survey(&disk, config(), Limit::None) else { return };
    let found = |(offset, place): &&(Offset, Place)| survey.check(*offset, place).is_ok();
    let found: Vec<Offset> = base.places.iter().filter(found).map(|(offset, _)| *offset).collect();
    let Ok((mut segments, _)) = survey.settle(&disk) else { return };
    let kept = |offset: &Offset| *offset < segments.end_offset();
    assert!(found.iter().all(kept), "what the journal refers to was found, and cut");
    reads_as_written(&disk, &segments, &base.batches);
    let (again, report) = Segments::open(&disk, config(), Limit::None).expect("what was repaired is whole");
    assert_eq!((again.end(), again.start_offset()), (segments.end(), segments.start_offset()));
    assert_eq!(report.cut, None, "cut once, and for good");

    let end = segments.end();
    let next = batch(LogPoint { offset: end.offset, index: LogIndex(end.index.0 + 1), term: end.term }, 1, 10);
    segments.append(std::slice::from_ref(&next)).iter().for_each(|op| drop(op.execute(&disk).unwrap()));
    segments.written(next.end_offset());
    let (again, _) = Segments::open(&disk, config(), Limit::None).expect("it goes on");
    assert_eq!(again.end_offset(), next.end_offset(), "it does not go on where it ended");
}

/// Every batch that can be read is the one that was written at its place. A sealed segment is trusted when it is opened;
/// its damage is found when it is read. Gives how many batches were read.
fn reads_as_written(disk: &MemoryDisk, segments: &Segments, written: &[StoredBatch]) -> usize {
    reads_from(segments.start_offset(), disk, segments, written)
}

/// The same, from an offset.
pub(crate) fn reads_from(from: Offset, disk: &MemoryDisk, segments: &Segments, written: &[StoredBatch]) -> usize {
    let Some(mut position) = segments.locate(from) else { return 0 };
    let (mut most, mut count) = (READ_BYTES, 0);
    while let Some(op) = segments.read(position, most) {
        let FileOp::Read { len, .. } = op else { panic!("{op:?} is no read") };
        let Ok(parsed) =
            op.execute(disk).map_err(drop).and_then(|answer| segments.parse(position, len, answer).map_err(drop))
        else {
            return count;
        };
        for batch in &parsed.batches {
            assert!(written.contains(batch), "something else is read at offset {}", batch.base_offset);
        }
        count += parsed.batches.len();
        match parsed.need {
            Some(need) => {
                assert!(need > most, "the same read is asked for again");
                most = need;
            }
            None => {
                assert!(parsed.next != position, "a read that does not get on");
                position = parsed.next;
            }
        }
    }
    count
}

pub(crate) fn inspect_all(disk: &MemoryDisk, path: &str) {
    let name = path.rsplit('/').next().unwrap();
    let mut next = 0;
    if inspect::log_base(name).is_some() {
        let end = inspect::frames(disk, path, &mut |frame| {
            assert!(frame.position >= next, "only filler is between frames");
            next = frame.position + frame.bytes;
        });
        let end = end.unwrap();
        assert!(end.position >= next);
        next = end.position;
        assert_eq!(end.fault.is_none(), next == disk.file(path).unwrap().len() as u64);
    } else if let Some(base) = inspect::seal_base(name) {
        let _ = inspect::seal(disk, path, base).unwrap();
    } else {
        let _ = inspect::log_start(disk, path).unwrap();
    }
}

pub(crate) fn config() -> SegmentConfig {
    SegmentConfig { directory: DIRECTORY.into(), segment_bytes: 4000, index_interval_bytes: 512 }
}

fn batch(at: LogPoint, count: u32, value_bytes: usize) -> StoredBatch {
    let mut builder = BatchBuilder::new(Codec::None);
    for _ in 0..count {
        let value = Some(Bytes::from(vec![b'v'; value_bytes]));
        builder.push(&Record { value, timestamp_ms: at.offset.0 as i64, ..Record::default() }).unwrap();
    }
    StoredBatch {
        index: at.index,
        term: at.term,
        append_time: WallMs(1_000 + at.offset.0 as i64),
        base_offset: at.offset,
        count,
        batch: builder.build(None),
    }
}

pub(crate) fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| vec![base(0, 0), base(2, 0), base(usize::MAX, 0), base(0, 3), base(2, 2)])
}

/// Some segments, of which the first so many are sealed. Of so many batches one is written ahead of the journal.
fn base(sealed: usize, ahead_of: u64) -> Base {
    let disk = MemoryDisk::new();
    let (mut segments, _) = Segments::open(&disk, config(), Limit::None).unwrap();
    let (mut batches, mut places) = (Vec::new(), Vec::new());
    for number in 1..=24 {
        let (offset, index) = (segments.end_offset(), LogIndex(number));
        let next = batch(
            LogPoint { offset: Offset(offset.0), index, term: Term(1 + number / 10) },
            1 + number as u32 % 3,
            200,
        );
        if number.checked_rem(ahead_of) == Some(0) {
            let ahead = segments.append_ahead(&[], &[], std::slice::from_ref(&next));
            ahead.writes.iter().for_each(|write| write.execute(&disk).unwrap());
            segments.durable();
            places.extend(ahead.places.into_iter().map(|place| (offset, place)));
        } else {
            segments.append(std::slice::from_ref(&next)).iter().for_each(|op| drop(op.execute(&disk).unwrap()));
        }
        segments.written(next.end_offset());
        batches.push(next);
    }
    for _ in 0..sealed {
        let Some(ops) = segments.next_seal() else { break };
        ops.iter().for_each(|op| drop(op.execute(&disk).unwrap()));
        segments.sealed(Ok(()));
    }
    assert!(segments.count() > 2);
    assert_eq!(reads_as_written(&disk, &segments, &batches), batches.len());
    Base { disk, batches, places }
}
