//! The journal's promises, by part: bytes, writer, recovery's decisions, crashes at any moment.

mod crash;
mod crash_disk;
mod damage;
mod external;
mod files;
mod format;
mod recovery;
mod starts;
mod writer;

use bytes::Bytes;
use lockgate_wire::{GroupId, MonoTime, NodeId, ReplicaId, ShardId, Uid};
use proptest::test_runner::Config as ProptestConfig;

use super::*;
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, DiskError, FileOp};

const BLOCK: u64 = BLOCK_BYTES as u64;
const FILE_BYTES: u64 = 16 * BLOCK;
const MAX_WRITE_BYTES: u32 = 4 * BLOCK_BYTES as u32;

fn identity() -> JournalIdentity {
    JournalIdentity { cluster: Uid([7; 16]), node: NodeId(3), shard: ShardId(1) }
}

fn config(kind: JournalKind) -> JournalConfig {
    JournalConfig {
        file_bytes: FILE_BYTES,
        max_write_bytes: MAX_WRITE_BYTES,
        ..JournalConfig::new(kind, format!("shards/1/{kind}"), identity())
    }
}

fn draft(group: u64, body: impl Into<Bytes>) -> Draft {
    Draft { group: GroupId(group), replica: ReplicaId(group + 100), kind: RecordKind::Entry, body: vec![body.into()] }
}

/// A body of this size that differs from others.
fn body(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn failure(errno: i32) -> DiskError {
    DiskError { stage: "write", path: "some/file".into(), errno, message: "as the test wants".into() }
}

/// Everything that recovery gives.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    records: Vec<RecoveredRecord>,
    recovered: Recovered,
}

fn recover_all(disk: &dyn Disk, config: &JournalConfig) -> Result<Found, RecoveryError> {
    let mut records = Vec::new();
    let recovered = recover(disk, config, &mut |record| records.push(record))?;
    assert_eq!(records.len() as u64, recovered.records);
    Ok(Found { records, recovered })
}

/// Makes the files that the writer asks for.
fn prepare(disk: &dyn Disk, writer: &mut JournalWriter) {
    if let Some(op) = writer.prepare() {
        writer.prepared(op.execute(disk).map(drop));
    }
}

/// So many random cases; failures are printed and leave no files behind.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// A journal on a disk, driven by hand.
struct Rig {
    disk: MemoryDisk,
    config: JournalConfig,
    writer: JournalWriter,
    now: MonoTime,
}

impl Rig {
    fn new(kind: JournalKind) -> Self {
        Self::start(MemoryDisk::new(), config(kind)).0
    }

    fn start(disk: MemoryDisk, config: JournalConfig) -> (Self, Found) {
        let found = recover_all(&disk, &config).unwrap();
        let writer = JournalWriter::new(config.clone(), found.recovered.position.clone());
        (Self { disk, config, writer, now: MonoTime(1) }, found)
    }

    /// The process ends here; everything written is there for the next one.
    fn restart(self) -> (Self, Found) {
        Self::start(self.disk, self.config)
    }

    fn append(&mut self, group: u64, bytes: usize) -> Sequence {
        let seed = self.writer.pending_bytes() as u64 + self.writer.counters().bytes + group;
        self.writer.append(draft(group, body(seed, bytes))).unwrap()
    }

    /// Starts, carries out and finishes one write. A file is prepared only when there is none for it.
    fn write(&mut self) -> JournalWrite {
        let write = self.writer.start_write(self.now).or_else(|| {
            prepare(&self.disk, &mut self.writer);
            self.writer.start_write(self.now)
        });
        let write = write.expect("a write is due");
        self.writer.finished(write.execute(&self.disk), self.now).unwrap();
        write
    }

    /// Appends a record that makes a write of so many blocks, and writes it.
    fn write_blocks(&mut self, group: u64, blocks: usize) -> JournalWrite {
        self.append(group, blocks * BLOCK_BYTES - WRITE_HEADER_BYTES - RECORD_HEADER_BYTES);
        let write = self.write();
        assert_eq!(write.bytes, blocks * BLOCK_BYTES);
        write
    }

    /// The mark that follows when nothing else does.
    fn mark(&mut self) -> JournalWrite {
        prepare(&self.disk, &mut self.writer);
        self.now = self.writer.next_deadline().expect("a mark is due");
        self.write()
    }

    fn sync(&mut self) -> Sequence {
        let op = self.writer.start_sync(self.now).expect("something is to be synced");
        self.writer.synced(op.execute(&self.disk).map(drop), self.now).unwrap()
    }

    fn files(&self) -> Vec<String> {
        self.disk.paths()
    }

    /// Changes a file's bytes behind everybody's back.
    fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.disk.file(path).unwrap();
        change(&mut bytes);
        self.disk.set_file(path, bytes);
    }

    fn flip(&self, path: &str, offset: u64) {
        self.change(path, |bytes| bytes[offset as usize] ^= 0x10);
    }

    fn recover(&self) -> Result<Found, RecoveryError> {
        recover_all(&self.disk, &self.config)
    }

    /// The first damage that recovery tells of.
    fn damage(&self) -> Damage {
        self.recover().unwrap().recovered.damages.first().expect("damage").clone()
    }
}

fn sequences(found: &Found) -> Vec<u64> {
    found.records.iter().map(|record| record.sequence.0).collect()
}
