//! The log refuses what would make the library panic, and keeps what the library may ask for.

use bytes::Bytes;
use lockgate_wire::ReplicaId;

use super::*;

const GROUP: GroupId = GroupId(1);

fn entry(index: u64, term: u64) -> Entry {
    Entry {
        index: LogIndex(index),
        term: Term(term),
        kind: EntryKind::Normal,
        context: Bytes::new(),
        data: Bytes::from(vec![index as u8]),
    }
}

fn open(entries: &[Entry], commit: u64, applied: (u64, u64)) -> Result<Log, ConsensusError> {
    let state = HardState { term: Term(5), vote: ReplicaId(1), commit: LogIndex(commit) };
    let applied = (LogIndex(applied.0), Term(applied.1));
    Log::recovered(GROUP, state, &Configuration::sole(ReplicaId(1)), (SNAPSHOT_INDEX, entries.to_vec()), applied)
}

fn commit(log: &Log) -> u64 {
    log.initial_state().unwrap().hard_state.commit
}

fn indices(log: &Log, low: u64, high: u64) -> raft::Result<Vec<u64>> {
    let entries = log.entries(low, high, None, GetEntriesContext::empty(false))?;
    Ok(entries.into_iter().map(|entry| entry.index).collect())
}

#[test]
fn a_commit_above_the_last_index_is_cut_to_it() {
    assert_eq!(commit(&open(&[entry(2, 2), entry(3, 2)], 9, (1, 1)).unwrap()), 3);
}

#[test]
fn a_checkpoint_above_the_recorded_commit_is_the_commit() {
    assert_eq!(commit(&open(&[entry(2, 2), entry(3, 2)], 1, (3, 2)).unwrap()), 3);
}

#[test]
fn a_checkpoint_above_the_last_index_is_refused() {
    let error = open(&[entry(2, 2), entry(3, 2)], 3, (4, 2)).err();
    assert_eq!(error, Some(ConsensusError::AppliedAboveLog { group: GROUP, applied: LogIndex(4), last: LogIndex(3) }));
    let error = open(&[], 1, (2, 2)).err();
    assert_eq!(error, Some(ConsensusError::AppliedAboveLog { group: GROUP, applied: LogIndex(2), last: LogIndex(1) }));
}

#[test]
fn a_checkpoint_of_another_term_is_refused() {
    let error = open(&[entry(2, 2), entry(3, 3)], 3, (2, 3)).err();
    let (applied, applied_term, log_term) = (LogIndex(2), Term(3), Term(2));
    assert_eq!(error, Some(ConsensusError::AppliedTermDiffers { group: GROUP, applied, applied_term, log_term }));
    let error = open(&[entry(3, 2)], 3, (2, 3)).err();
    assert_eq!(error, Some(ConsensusError::TermOrder { group: GROUP, index: LogIndex(3), term: Term(2) }));
}

#[test]
fn a_hole_between_checkpoint_and_log_is_refused() {
    assert!(open(&[entry(4, 2), entry(5, 2)], 3, (3, 2)).is_ok());
    let error = open(&[entry(4, 2), entry(5, 2)], 3, (2, 2)).err();
    assert_eq!(error, Some(ConsensusError::Hole { group: GROUP, after: LogIndex(2), next: LogIndex(4) }));
}

#[test]
fn terms_that_fall_or_exceed_the_groups_are_refused() {
    let error = open(&[entry(2, 3), entry(3, 2)], 1, (1, 1)).err();
    assert_eq!(error, Some(ConsensusError::TermOrder { group: GROUP, index: LogIndex(3), term: Term(2) }));
    let error = open(&[entry(2, 6)], 1, (1, 1)).err();
    assert_eq!(error, Some(ConsensusError::TermOrder { group: GROUP, index: LogIndex(2), term: Term(6) }));
}

#[test]
fn a_configuration_change_that_is_not_applied_is_refused() {
    let change = Entry { kind: EntryKind::Configuration, ..entry(3, 2) };
    let error = open(&[entry(2, 2), change.clone()], 1, (1, 1)).err();
    assert_eq!(error, Some(ConsensusError::ConfigurationChange { group: GROUP, index: LogIndex(3) }));
    assert!(open(&[entry(2, 2), change], 1, (3, 2)).is_ok());
}

#[test]
fn what_is_applied_leaves_memory_and_its_last_term_stays() {
    let mut log = open(&[entry(2, 2), entry(3, 2), entry(4, 3)], 1, (2, 2)).unwrap();
    assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (3, 4));
    assert_eq!(indices(&log, 3, 5).unwrap(), [3, 4]);
    log.compact(LogIndex(3));
    assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (4, 4));
    assert_eq!(log.term(3).unwrap(), 2);
    assert!(matches!(log.term(2), Err(raft::Error::Store(StorageError::Compacted))));
    assert!(matches!(log.term(5), Err(raft::Error::Store(StorageError::Unavailable))));
    assert!(matches!(indices(&log, 3, 5), Err(raft::Error::Store(StorageError::Compacted))));
    assert!(matches!(indices(&log, 4, 6), Err(raft::Error::Store(StorageError::Unavailable))));
    log.compact(LogIndex(4));
    assert_eq!((log.first_index().unwrap(), log.last_index().unwrap(), log.term(4).unwrap()), (5, 4, 3));
}

#[test]
fn an_overwriting_append_drops_what_followed() {
    let mut log = open(&[entry(2, 2), entry(3, 2), entry(4, 2)], 1, (1, 1)).unwrap();
    log.append(vec![entry(3, 4).into_library()]);
    assert_eq!(indices(&log, 2, 4).unwrap(), [2, 3]);
    assert_eq!((log.last(), log.term(3).unwrap()), (LogIndex(3), 4));
}
