//! Two journals on paper: what was appended, in order, and nothing else. The test decides what is confirmed.

use lockgate_storage::journal::RecoveredRecord;

use super::super::*;
use crate::Recovery;

/// How many records a file of this journal holds.
const RECORDS_IN_A_FILE: u64 = 8;

/// Sequence n is the record at n - 1.
#[derive(Default)]
pub(super) struct Paper {
    pub(super) synced: Vec<Draft>,
    pub(super) buffered: Vec<Draft>,
    /// So many records at the beginning of each are gone.
    freed: [usize; 2],
    /// Refuses everything, as a journal that failed.
    pub(super) refuses: bool,
}

impl Paper {
    pub(super) fn records(&self, kind: JournalKind) -> &Vec<Draft> {
        match kind {
            JournalKind::Synced => &self.synced,
            JournalKind::Buffered => &self.buffered,
        }
    }

    pub(super) fn end(&self, kind: JournalKind) -> Sequence {
        Sequence(self.records(kind).len() as u64)
    }

    pub(super) fn kinds(&self, kind: JournalKind) -> Vec<RecordKind> {
        self.records(kind).iter().map(|draft| draft.kind).collect()
    }

    /// A crash: only the first records of each journal are left.
    pub(super) fn cut(&mut self, synced: usize, buffered: usize) {
        self.synced.truncate(synced);
        self.buffered.truncate(buffered);
    }

    /// The files with these records were freed.
    pub(super) fn free(&mut self, kind: JournalKind, records: usize) {
        self.freed[usize::from(kind == JournalKind::Buffered)] = records;
    }

    pub(super) fn recover(&self) -> Result<Vec<RecoveredGroup>, ConsensusError> {
        let mut recovery = Recovery::new();
        for kind in [JournalKind::Buffered, JournalKind::Synced] {
            for (at, Draft { group, replica, kind: record, body }) in self
                .records(kind)
                .iter()
                .cloned()
                .enumerate()
                .skip(self.freed[usize::from(kind == JournalKind::Buffered)])
            {
                let (sequence, body) = (Sequence(at as u64 + 1), body.concat().into());
                let record = RecoveredRecord { sequence, group, replica, kind: record, counter: 1, body };
                recovery.fold(kind, record)?;
            }
        }
        recovery.finish()
    }
}

impl Append for Paper {
    fn append(&mut self, journal: JournalKind, draft: Draft) -> Result<Sequence, AppendRefused> {
        if self.refuses {
            return Err(AppendRefused::Ending);
        }
        match journal {
            JournalKind::Synced => self.synced.push(draft),
            JournalKind::Buffered => self.buffered.push(draft),
        }
        Ok(self.end(journal))
    }

    fn file(&self, journal: JournalKind) -> u64 {
        self.end(journal).0 / RECORDS_IN_A_FILE
    }
}
