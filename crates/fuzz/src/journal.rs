//! Journals of which anything may have become: recovery hands out a beginning of what was written, for every group that it
//! does not call suspect, decides the same in a rehearsal, and leaves a journal that goes on and decides the same again.

use std::sync::OnceLock;

use bytes::Bytes;
use lockgate_storage::disk::Disk;
use lockgate_storage::disk::dry_run::DryRun;
use lockgate_storage::disk::memory::MemoryDisk;
use lockgate_storage::journal::{
    Draft, JournalConfig, JournalIdentity, JournalKind, JournalWriter, RecordKind, Recovered, RecoveredRecord,
    RecoveryError, inspect, recover,
};
use lockgate_wire::{GroupId, MonoTime, NodeId, ReplicaId, ShardId, Uid};

use crate::damage;

const DIRECTORY: &str = "shards/0/journal";
/// Those that the journals are written for.
const GROUPS: [GroupId; 2] = [GroupId(1), GroupId(2)];

/// A journal as it was before anything happened to it.
struct Base {
    config: JournalConfig,
    disk: MemoryDisk,
    records: Vec<RecoveredRecord>,
}

type Found = Result<(Recovered, Vec<RecoveredRecord>), RecoveryError>;

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, happenings)) = bytes.split_first() else { return };
    let base = &bases()[usize::from(*which) % bases().len()];
    let disk = base.disk.clone();
    damage::apply(&disk, happenings);
    for path in disk.paths() {
        covers_the_file(&disk, &path);
    }
    let rehearsed = recover_all(&DryRun::new(&disk).unwrap(), &base.config);
    let found = recover_all(&disk, &base.config);
    assert_eq!(rehearsed, found, "a start decides otherwise than its rehearsal");
    let Ok((recovered, records)) = found else { return };
    is_a_part(&base.records, &recovered, &records);

    let (again, second) = recover_all(&disk, &base.config).expect("what was repaired is whole");
    assert_eq!(second, records);
    assert_eq!(again.cuts, [], "cut once, and for good");
    assert_eq!((&again.damages, &again.doubts), (&recovered.damages, &recovered.doubts), "damage stays as it is");
    let mut writer = JournalWriter::new(base.config.clone(), recovered.position);
    write(&disk, &mut writer, &[draft(3, b"goes on")]);
    let (third, records_then) = recover_all(&disk, &base.config).expect("it goes on");
    let went_on = records_then.len() == records.len() + 1 && records_then.starts_with(&records);
    assert!(went_on, "it does not go on where it ended");
    for group in GROUPS {
        assert_eq!(third.doubts.is_suspect(group), recovered.doubts.is_suspect(group), "what was written hides a loss");
    }
}

/// Records of what was written, in their order; of a group that is not suspect its first ones, and without damage the first
/// ones of all.
fn is_a_part(written: &[RecoveredRecord], recovered: &Recovered, records: &[RecoveredRecord]) {
    let mut rest = written.iter();
    let in_order = records.iter().all(|record| rest.any(|written| written == record));
    assert!(in_order, "something else than what was written, or not in its order");
    assert!(!recovered.damages.is_empty() || written.starts_with(records), "something is missing in silence");
    for group in GROUPS.into_iter().filter(|group| !recovered.doubts.is_suspect(*group)) {
        let of_group = |records: &[RecoveredRecord]| -> Vec<RecoveredRecord> {
            records.iter().filter(|record| record.group == group).cloned().collect()
        };
        assert!(of_group(written).starts_with(&of_group(records)), "{group} has lost something and is not suspect");
    }
}

fn recover_all(disk: &dyn Disk, config: &JournalConfig) -> Found {
    let mut records = Vec::new();
    let recovered = recover(disk, config, &mut |record| records.push(record))?;
    Ok((recovered, records))
}

/// Items follow each other from the header to the file's end.
fn covers_the_file(disk: &MemoryDisk, path: &str) {
    let (mut next, mut has_header) = (4096, false);
    let outcome = inspect::inspect(disk, path, &mut |item| {
        let (offset, bytes) = match &item {
            inspect::Item::File(_) => {
                has_header = true;
                return;
            }
            inspect::Item::Void { offset, bytes, .. } => (*offset, *bytes),
            inspect::Item::Write(write) => (write.offset, write.bytes),
        };
        assert!(offset == next && bytes > 0, "a gap, or nothing, at {offset}");
        next = offset.saturating_add(bytes);
    });
    assert_eq!(outcome.unwrap().is_ok(), has_header);
}

fn draft(group: u64, body: &'static [u8]) -> Draft {
    let body = vec![Bytes::from_static(body)];
    Draft { group: GroupId(group), replica: ReplicaId(1), kind: RecordKind::Entry, body }
}

fn write(disk: &MemoryDisk, writer: &mut JournalWriter, drafts: &[Draft]) {
    for draft in drafts {
        writer.append(draft.clone()).unwrap();
    }
    carry_out(disk, writer, MonoTime(1));
}

/// The next write, in the next file if it needs one.
fn carry_out(disk: &MemoryDisk, writer: &mut JournalWriter, now: MonoTime) {
    let write = writer.start_write(now).or_else(|| {
        let op = writer.prepare().expect("a file is wanted");
        writer.prepared(op.execute(disk).map(drop));
        writer.start_write(now)
    });
    writer.finished(write.expect("a write is due").execute(disk), now).unwrap();
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        vec![base(JournalKind::Synced, false), base(JournalKind::Synced, true), base(JournalKind::Buffered, false)]
    })
}

/// Two starts, several files, marks, bodies of several sizes; ended in order or not.
fn base(kind: JournalKind, ended: bool) -> Base {
    let identity = JournalIdentity { cluster: Uid([7; 16]), node: NodeId(1), shard: ShardId(0) };
    let mut config = JournalConfig::new(kind, DIRECTORY, identity);
    (config.file_bytes, config.max_write_bytes) = (8 * 4096, 3 * 4096);
    let disk = MemoryDisk::new();
    for start in 1..=2_u64 {
        let (recovered, _) = recover_all(&disk, &config).unwrap();
        let mut writer = JournalWriter::new(config.clone(), recovered.position);
        for round in 0..5 {
            write(&disk, &mut writer, &[draft(1, b"short"), draft(2, &[9; 5000]), draft(start, b"")]);
            if let Some(at) = writer.next_deadline().filter(|_| round % 2 == 0) {
                carry_out(&disk, &mut writer, at);
            }
        }
        if let Some(op) = writer.start_sync(MonoTime(1)) {
            writer.synced(op.execute(&disk).map(drop), MonoTime(1)).unwrap();
        }
        write(&disk, &mut writer, &[draft(1, b"last")]);
        if ended {
            writer.end();
            carry_out(&disk, &mut writer, MonoTime(2));
        }
    }
    let (_, records) = recover_all(&disk, &config).unwrap();
    assert!(records.len() > 30 && disk.paths().len() > 3, "{} records, {:?}", records.len(), disk.paths());
    Base { config, disk, records }
}
