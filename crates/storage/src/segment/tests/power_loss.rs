//! Power fails at any call of the disk; what was not synced is lost, torn or kept, names in any combination.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::disk::{DiskResult, Entry, parent};

/// A file's bytes, as they are and as they were synced.
#[derive(Clone, Default)]
struct File {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// What a failed sync left in memory alone: no later one saves it.
    given_up: std::ops::Range<usize>,
}

impl File {
    fn sync(&mut self) {
        let before = std::mem::replace(&mut self.synced, self.live.clone());
        for at in self.given_up.clone().filter(|at| *at < self.live.len()) {
            self.synced[at] = before.get(at).copied().unwrap_or(0);
        }
    }
}

/// A disk of one directory that fails every call once its fuse has burnt down.
#[derive(Default)]
struct FailingDisk {
    files: RefCell<Vec<File>>,
    live_names: RefCell<BTreeMap<String, usize>>,
    synced_names: RefCell<BTreeMap<String, usize>>,
    fuse: Cell<Option<u32>>,
    /// The next sync of a file fails, as Linux has it: its pages count as clean from then on.
    fails_next_sync: Cell<bool>,
}

impl FailingDisk {
    fn burn(&self) -> DiskResult<()> {
        if let Some(left) = self.fuse.get() {
            let off = || DiskError { stage: "any", path: DIRECTORY.into(), errno: 5, message: "power is off".into() };
            self.fuse.set(Some(left.checked_sub(1).ok_or_else(off)?));
        }
        Ok(())
    }

    fn find(&self, path: &str) -> DiskResult<usize> {
        self.burn()?;
        let missing =
            || DiskError { stage: "open", path: path.into(), errno: DiskError::ENOENT, message: "missing".into() };
        self.live_names.borrow().get(path).copied().ok_or_else(missing)
    }

    /// Power comes back. `chance` decides about every name, and how much of what was not synced is there.
    fn restore(&self, mut chance: impl FnMut() -> u64) {
        self.fuse.set(None);
        let (mut live, mut synced) = (self.live_names.borrow_mut(), self.synced_names.borrow_mut());
        let names: Vec<String> = live.keys().chain(synced.keys()).cloned().collect();
        for name in names {
            let kept = if chance().is_multiple_of(2) { live.get(&name) } else { synced.get(&name) }.copied();
            for names in [&mut *live, &mut *synced] {
                match kept {
                    Some(file) => drop(names.insert(name.clone(), file)),
                    None => drop(names.remove(&name)),
                }
            }
        }
        for file in self.files.borrow_mut().iter_mut() {
            if chance().is_multiple_of(2) {
                let stable = file.synced.len();
                let end = stable + (chance() as usize) % (file.live.len().saturating_sub(stable) + 1);
                let mut kept = file.live[..end.min(file.live.len())].to_vec();
                if chance().is_multiple_of(3) {
                    let zeroed = stable.min(kept.len()) + (chance() as usize) % (kept.len().saturating_sub(stable) + 1);
                    kept[zeroed..].fill(0);
                }
                file.live = kept;
            } else {
                file.live = file.synced.clone();
            }
            file.synced = file.live.clone();
            file.given_up = 0..0;
        }
    }
}

impl Disk for FailingDisk {
    fn list(&self, directory: &str) -> DiskResult<Vec<Entry>> {
        self.burn()?;
        let files = self.files.borrow();
        let names = self.live_names.borrow();
        let entry = |(path, file): (&String, &usize)| Entry {
            name: path.strip_prefix(directory).unwrap()[1..].to_owned(),
            bytes: files[*file].live.len() as u64,
            is_directory: false,
        };
        Ok(names.iter().map(entry).collect())
    }
    fn size(&self, path: &str) -> DiskResult<u64> {
        let file = self.find(path)?;
        Ok(self.files.borrow()[file].live.len() as u64)
    }
    fn read(&self, path: &str, offset: u64, len: usize) -> DiskResult<Bytes> {
        let file = self.find(path)?;
        let rest = self.files.borrow()[file].live.get(offset as usize..).unwrap_or_default().to_vec();
        Ok(Bytes::from(rest).slice(..).split_to(len.min(self.files.borrow()[file].live.len() - offset as usize)))
    }
    fn write(&self, path: &str, offset: u64, pieces: &[Bytes]) -> DiskResult<()> {
        self.burn()?;
        let mut files = self.files.borrow_mut();
        let file = *self.live_names.borrow_mut().entry(path.to_owned()).or_insert_with(|| {
            files.push(File::default());
            files.len() - 1
        });
        let live = &mut files[file].live;
        let bytes = pieces.concat();
        live.resize(live.len().max(offset as usize + bytes.len()), 0);
        live[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }
    fn truncate(&self, path: &str, bytes: u64) -> DiskResult<()> {
        let file = self.find(path)?;
        self.files.borrow_mut()[file].live.resize(bytes as usize, 0);
        Ok(())
    }
    fn sync(&self, path: &str) -> DiskResult<()> {
        let file = self.find(path)?;
        let file = &mut self.files.borrow_mut()[file];
        if self.fails_next_sync.take() {
            file.given_up = file.synced.len()..file.live.len();
            return Err(DiskError { stage: "sync", path: path.into(), errno: 5, message: "input/output error".into() });
        }
        file.sync();
        Ok(())
    }
    fn forget_cached(&self, path: &str) -> DiskResult<()> {
        self.sync(path)?;
        let file = self.find(path)?;
        let file = &mut self.files.borrow_mut()[file];
        file.live = file.synced.clone();
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        let file = self.find(from)?;
        let mut names = self.live_names.borrow_mut();
        names.remove(from);
        names.insert(to.to_owned(), file);
        Ok(())
    }
    fn remove(&self, path: &str) -> DiskResult<()> {
        self.find(path)?;
        self.live_names.borrow_mut().remove(path);
        Ok(())
    }
    fn remove_directory(&self, path: &str) -> DiskResult<()> {
        unreachable!("nobody removes {path}")
    }
    fn create_directory(&self, _path: &str) -> DiskResult<()> {
        self.burn()
    }
    fn sync_directory(&self, path: &str) -> DiskResult<()> {
        self.burn()?;
        assert_eq!(path, parent(&log_path(DIRECTORY, Offset(0))));
        *self.synced_names.borrow_mut() = self.live_names.borrow().clone();
        Ok(())
    }
}

#[test]
fn what_a_failed_sync_left_in_memory_alone_is_not_taken_for_durable_by_the_next_process() {
    let mut log = Log::open(FailingDisk::default(), config(1200, 300));
    for _ in 0..3 {
        log.push(1, 500, 1);
    }
    let seal = log.segments.next_seal().unwrap();
    log.disk.fails_next_sync.set(true);
    let error = seal[0].execute(&log.disk).unwrap_err();
    log.segments.sealed(Err(&error));
    assert_eq!(log.segments.next_seal(), None, "a sync that succeeds now would prove nothing");
    // The process is killed; the next one gets what is missing from the journal, and seals.
    let (segments, _) = Segments::open(&log.disk, log.config.clone(), Limit::None).unwrap();
    log.segments = segments;
    let end = log.segments.end_offset();
    for next in log.appended.clone().into_iter().filter(|batch| batch.base_offset >= end) {
        let ops = log.segments.append(&[next]);
        log.run(&ops);
        log.segments.written(log.segments.end_offset());
    }
    log.seal_all();
    assert_eq!(log.segments.synced_end().offset, Offset(2));
    log.disk.restore(|| 1);
    let (segments, _) = Segments::open(&log.disk, log.config.clone(), Limit::None).unwrap();
    log.segments = segments;
    assert!(log.segments.end_offset() >= Offset(2), "what was sealed survives");
    log.assert_whole();
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(u32, usize)>),
    Seal,
    ExpireBySize(u64),
    ExpireAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => vec((1u32..4, 0usize..500), 1..5).prop_map(Step::Append),
        3 => Just(Step::Seal),
        2 => (0u64..3000).prop_map(Step::ExpireBySize),
        1 => Just(Step::ExpireAll),
    ]
}

/// What a start after a crash must find, whatever was lost.
struct Promises {
    start_at_least: Offset,
    start_at_most: Offset,
    end_at_least: Offset,
}

/// Carries a step out until the power fails; says whether it did.
fn take(log: &mut Log<FailingDisk>, step: &Step, promises: &mut Promises) -> bool {
    let run = |log: &Log<FailingDisk>, ops: &[FileOp]| ops.iter().try_for_each(|op| op.execute(&log.disk).map(drop));
    let start = match step {
        Step::Append(batches) => {
            for (count, bytes) in batches {
                let next = batch(log.next_entry(), *count, *bytes, 1);
                let ops = log.segments.append(std::slice::from_ref(&next));
                log.appended.push(next);
                if run(log, &ops).is_err() {
                    return true;
                }
                log.segments.written(log.segments.end_offset());
            }
            return false;
        }
        Step::Seal => {
            let Some(ops) = log.segments.next_seal() else { return false };
            if run(log, &ops).is_err() {
                return true;
            }
            log.segments.sealed(Ok(()));
            None
        }
        Step::ExpireBySize(max_bytes) => {
            let policy = Retention { max_age_ms: None, max_bytes: Some(*max_bytes) };
            log.segments.expire(WallMs(0), &policy, None)
        }
        Step::ExpireAll => {
            let policy = Retention { max_age_ms: Some(0), max_bytes: None };
            log.segments.expire(WallMs(i64::MAX), &policy, None)
        }
    };
    if let Some(start) = start {
        promises.start_at_most = log.segments.end_offset();
        if run(log, &[start]).is_err() {
            return true;
        }
        let removal = log.segments.started();
        promises.start_at_most = log.segments.start_offset();
        promises.start_at_least = log.segments.start_offset();
        if run(log, &[removal]).is_err() {
            return true;
        }
        log.segments.expired();
    }
    promises.start_at_least = log.segments.start_offset();
    promises.end_at_least = log.segments.synced_end().offset;
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_was_sealed_survives_and_what_is_lost_is_a_tail_that_the_journal_still_has(
        runs in vec((vec(step(), 1..14), 0u32..90, any::<u64>()), 1..6),
    ) {
        let mut log = Log::open(FailingDisk::default(), config(1200, 300));
        for (steps, fuse, seed) in runs {
            log.disk.fuse.set(Some(fuse));
            let synced = log.segments.synced_end().offset;
            let start = log.segments.start_offset();
            let mut promises = Promises { start_at_least: start, start_at_most: start, end_at_least: synced };
            let _ = steps.iter().any(|step| take(&mut log, step, &mut promises));
            // The power may fail again while the segments are being opened.
            for attempt in 0u32..4 {
                let mut random = seed.wrapping_add(u64::from(attempt)) | 1;
                log.disk.restore(|| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    random >> 33
                });
                log.disk.fuse.set((attempt < 3).then_some((seed >> (8 * attempt)) as u32 % 16));
                match Segments::open(&log.disk, log.config.clone(), Limit::None) {
                    Ok((segments, _)) => {
                        log.segments = segments;
                        break;
                    }
                    Err(SegmentError::Disk(error)) => prop_assert_eq!(error.errno, 5),
                    Err(other) => prop_assert!(false, "{}", other),
                }
            }
            log.disk.fuse.set(None);
            let (start, end) = (log.segments.start_offset(), log.segments.end_offset());
            prop_assert!((promises.start_at_least..=promises.start_at_most).contains(&start));
            prop_assert!(end >= promises.end_at_least, "{} is below {}", end, promises.end_at_least);
            log.assert_whole();
            log.appended.retain(|batch| batch.base_offset < end);
        }
    }
}
