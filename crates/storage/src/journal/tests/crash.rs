//! Lives of a journal that end at any operation, in recovery too, by loss of power or by the death of the process.

use proptest::prelude::*;

use super::crash_disk::CrashDisk;
use super::*;
use JournalKind::{Buffered, Synced};

const NEVER: usize = usize::MAX;

#[derive(Clone, Debug)]
enum Step {
    Append {
        group: u64,
        bytes: usize,
    },
    Write,
    Mark,
    Sync,
    FailedSync,
    /// Nobody needs the first so many of ten durable records.
    Release(usize),
    /// A file that was let go goes, or becomes the spare one.
    Remove,
}

#[derive(Clone, Debug)]
struct Life {
    steps: Vec<Step>,
    /// Operations of the disk until the crash.
    operations: usize,
    power_loss: Option<u64>,
}

/// What the journal was given and what it has promised.
#[derive(Default)]
struct Model {
    appended: Vec<(u64, Vec<u8>)>,
    /// So many records must survive a loss of power.
    durable: usize,
    /// So many records must survive the death of the process: at least the durable ones.
    written: usize,
    /// So many of the first may be gone.
    released: usize,
}

impl Model {
    /// What was found is a prefix of what was appended, byte by byte, with everything promised, but for what was let go. From
    /// now on it is all.
    fn check(&mut self, found: &Found) -> Result<(), TestCaseError> {
        let count = (found.recovered.position.next_sequence().0 - 1) as usize;
        let gone = count - found.records.len();
        prop_assert!(gone <= self.released, "{gone} records are gone, {} were let go", self.released);
        prop_assert!(count >= self.written, "{count} records were found, {} were confirmed", self.written);
        prop_assert!(count <= self.appended.len());
        for (index, (record, (group, body))) in found.records.iter().zip(&self.appended[gone..]).enumerate() {
            prop_assert_eq!(record.sequence, Sequence((gone + index) as u64 + 1));
            prop_assert_eq!((record.group, &record.body[..]), (GroupId(*group), &body[..]));
        }
        prop_assert_eq!(&found.recovered.damages, &[]);
        self.appended.truncate(count);
        (self.durable, self.written) = (count, count);
        Ok(())
    }
}

/// Runs until the steps are over or the disk is gone.
fn live(disk: &CrashDisk, config: &JournalConfig, found: Found, steps: &[Step], model: &mut Model) {
    let mut writer = JournalWriter::new(config.clone(), found.recovered.position);
    let mut now = MonoTime(1);
    for step in steps {
        prepare(disk, &mut writer);
        match step {
            Step::Append { group, bytes } => {
                let body = body(model.appended.len() as u64, *bytes);
                if writer.append(draft(*group, body.clone())).is_ok() {
                    model.appended.push((*group, body));
                }
                continue;
            }
            Step::Mark => now = now.plus_ms(10),
            Step::Write => {}
            Step::FailedSync => disk.fail_next_sync(),
            Step::Release(tenths) => {
                let floor = model.durable * tenths / 10;
                model.released = model.released.max(floor);
                writer.release(Sequence(floor as u64 + 1));
                continue;
            }
            Step::Remove => {
                if let Some(op) = writer.start_removal(now) {
                    writer.removed(op.execute(disk).map(drop));
                }
                continue;
            }
            Step::Sync => {
                if let Some(sync) = writer.start_sync(now)
                    && let Ok(durable) = writer.synced(sync.execute(disk).map(drop), now)
                {
                    model.durable = durable.0 as usize;
                }
                continue;
            }
        }
        if let Some(write) = writer.start_write(now)
            && let Ok(last) = writer.finished(write.execute(disk), now)
        {
            model.written = last.0 as usize;
            if config.kind == Synced {
                model.durable = model.written;
            }
        }
    }
}

fn run(kind: JournalKind, lives: &[Life]) -> Result<(), TestCaseError> {
    let config = JournalConfig { max_bytes: 6 * FILE_BYTES, ..config(kind) };
    let (mut disk, mut model, mut epoch) = (CrashDisk::default(), Model::default(), 0);
    for life in lives {
        disk.crash_after(life.operations);
        match recover_all(&disk, &config) {
            Ok(found) => {
                model.check(&found)?;
                prop_assert!(found.recovered.position.epoch() >= epoch);
                epoch = found.recovered.position.epoch();
                live(&disk, &config, found, &life.steps, &mut model);
            }
            Err(RecoveryError::Disk(_)) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
        if let Some(seed) = life.power_loss {
            disk = disk.after_power_loss(seed);
            model.written = model.durable;
        }
    }
    disk.crash_after(NEVER);
    let first = recover_all(&disk, &config).map_err(|error| TestCaseError::fail(error.to_string()))?;
    model.check(&first)?;
    let second = recover_all(&disk, &config).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(&second.records, &first.records);
    prop_assert_eq!(&second.recovered.cuts, &[]);
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..3, 0usize..9000).prop_map(|(group, bytes)| Step::Append { group, bytes }),
        6 => Just(Step::Write),
        1 => Just(Step::Mark),
        2 => Just(Step::Sync),
        1 => Just(Step::FailedSync),
        2 => (0usize..=10).prop_map(Step::Release),
        2 => Just(Step::Remove),
    ]
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let life = (prop::collection::vec(step(), 0..40), 0usize..80, prop::option::weighted(0.7, any::<u64>()));
    let life = life.prop_map(|(steps, operations, power_loss)| Life { steps, operations, power_loss });
    prop::collection::vec(life, 1..6)
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_synced_journal_gives_back_what_it_confirmed_whenever_it_crashes(lives in lives()) {
        run(Synced, &lives)?;
    }

    #[test]
    fn a_buffered_journal_gives_back_what_a_sync_confirmed_whenever_it_crashes(lives in lives()) {
        run(Buffered, &lives)?;
    }
}

/// Every moment of one life, and every moment of the recovery after it.
#[test]
fn a_crash_in_the_repair_of_a_crash_changes_nothing() {
    let append = |bytes| Step::Append { group: 1, bytes };
    let mut steps = vec![append(100), Step::Write, append(8000), Step::Write];
    steps.extend((0..10).flat_map(|_| [append(6000), Step::Write]));
    for kind in [Synced, Buffered] {
        for operations in (0..60).step_by(if kind == Synced { 3 } else { 7 }) {
            for repair in 0..12 {
                let life = |steps: &[Step], operations, seed| Life {
                    steps: steps.to_vec(),
                    operations,
                    power_loss: Some(seed),
                };
                run(kind, &[life(&steps, operations, 2), life(&[], repair, 3), life(&[], repair, 2)]).unwrap();
            }
        }
    }
}

#[test]
fn files_that_are_removed_leave_no_gap_whenever_the_removal_is_interrupted() {
    let append = |bytes| Step::Append { group: 1, bytes };
    let steps: Vec<Step> = (0..30).flat_map(|_| [append(6000), Step::Write]).collect();
    for operations in 0..20 {
        for seed in 0..25 {
            let life =
                |steps: &[Step], operations, seed| Life { steps: steps.to_vec(), operations, power_loss: Some(seed) };
            run(Buffered, &[life(&steps, NEVER, 0), life(&[], operations, seed)]).unwrap();
        }
    }
}

#[test]
fn what_recovery_hands_out_is_durable_even_after_a_sync_that_lied() {
    let config = config(Synced);
    let disk = CrashDisk::default();
    disk.crash_after(NEVER);
    let mut model = Model::default();
    let found = recover_all(&disk, &config).unwrap();
    let steps = [Step::Append { group: 1, bytes: 10 }, Step::Write, Step::Append { group: 1, bytes: 9000 }];
    live(&disk, &config, found, &[&steps[..], &[Step::FailedSync]].concat(), &mut model);
    assert_eq!((model.durable, model.appended.len()), (1, 2), "the second write's sync failed");
    let found = recover_all(&disk, &config).unwrap();
    assert_eq!(sequences(&found), [1, 2], "the process died and the kernel still shows the bytes");
    let disk = disk.after_power_loss(0);
    assert_eq!(sequences(&recover_all(&disk, &config).unwrap()), [1, 2]);
}

#[test]
fn a_prepared_file_whose_sync_lied_is_not_short_after_a_loss_of_power() {
    let config = config(Synced);
    let disk = CrashDisk::default();
    disk.crash_after(NEVER);
    let found = recover_all(&disk, &config).unwrap();
    let zero = JournalWriter::new(config.clone(), found.recovered.position).prepare().unwrap();
    disk.crash_after(2);
    disk.fail_next_sync();
    zero.execute(&disk).unwrap_err();
    disk.crash_after(NEVER);
    let found = recover_all(&disk, &config).unwrap();
    assert!(found.recovered.position.free.is_some());
    let mut model = Model::default();
    live(&disk, &config, found, &[Step::Append { group: 1, bytes: 10 }, Step::Write], &mut model);
    assert_eq!(model.durable, 1);
    assert_eq!(sequences(&recover_all(&disk.after_power_loss(0), &config).unwrap()), [1]);
}
