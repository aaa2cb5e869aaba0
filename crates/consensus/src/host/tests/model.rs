//! Random proposals, rounds, confirmations, changes of journal and crashes, against a model of a few lines: what was
//! appended where, and how much of it was confirmed.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::record::{decode_entry, decode_hard_state};

const GROUPS: u64 = 3;

#[derive(Clone, Debug)]
enum Step {
    Propose {
        group: u64,
        bytes: u8,
    },
    Advance,
    /// Confirms a share (of 255) of what a journal was given and has not confirmed.
    Confirm {
        buffered: bool,
        share: u8,
    },
    /// The buffered journal reaches the device.
    SyncBuffered,
    Apply {
        group: u64,
    },
    SetDurability {
        group: u64,
        buffered: bool,
    },
    /// The process dies; of what was not confirmed, a share of each journal is there afterwards.
    Crash {
        synced: u8,
        buffered: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let group = || 1..=GROUPS;
    let step = prop_oneof![
        6 => (group(), any::<u8>()).prop_map(|(group, bytes)| Step::Propose { group, bytes }),
        6 => Just(Step::Advance),
        6 => (any::<bool>(), any::<u8>()).prop_map(|(buffered, share)| Step::Confirm { buffered, share }),
        1 => Just(Step::SyncBuffered),
        2 => group().prop_map(|group| Step::Apply { group }),
        1 => (group(), any::<bool>()).prop_map(|(group, buffered)| Step::SetDurability { group, buffered }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(synced, buffered)| Step::Crash { synced, buffered }),
    ];
    proptest::collection::vec(step, 1..80)
}

fn kind(buffered: bool) -> JournalKind {
    if buffered { Buffered } else { Synced }
}

/// Part of the records between what is confirmed and the end.
fn part(confirmed: u64, end: Sequence, share: u8) -> u64 {
    confirmed + (end.0 - confirmed) * u64::from(share) / 255
}

/// What is known of a group by what its host said.
#[derive(Default)]
struct Known {
    committed: BTreeMap<LogIndex, Entry>,
    /// The last entry handed out since the last start.
    delivered: LogIndex,
    applied: LogIndex,
    term: Term,
    serving: Option<Term>,
    durability: Option<JournalKind>,
    /// What this process proposed, in order.
    proposed: Vec<(Proposed, Bytes)>,
}

struct World {
    host: Host,
    paper: Paper,
    confirmed: [u64; 2],
    known: BTreeMap<GroupId, Known>,
    /// Everything that the host said, for comparing runs.
    transcript: Vec<Event>,
}

impl World {
    fn new() -> Self {
        let mut host = Host::new(42);
        let mut known = BTreeMap::new();
        for group in 1..=GROUPS {
            let durability = kind(group == 2);
            host.bootstrap(GroupId(group), ReplicaId(group + 10), tag(), durability).unwrap();
            let fresh = Known {
                delivered: LogIndex(1),
                applied: LogIndex(1),
                durability: Some(durability),
                ..Known::default()
            };
            known.insert(GroupId(group), fresh);
        }
        Self { host, paper: Paper::default(), confirmed: [0; 2], known, transcript: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Propose { group, bytes } => self.propose(GroupId(group), bytes),
            Step::Advance => self.advance(),
            Step::Confirm { buffered, share } => self.confirm(kind(buffered), share),
            Step::SyncBuffered => self.host.buffered_synced(Sequence(self.confirmed[Buffered as usize])),
            Step::Apply { group } => {
                let known = self.known.get_mut(&GroupId(group)).unwrap();
                known.applied = known.delivered;
                self.host.applied(GroupId(group), known.applied);
            }
            Step::SetDurability { group, buffered } => {
                let known = self.known.get_mut(&GroupId(group)).unwrap();
                known.durability = Some(kind(buffered));
                self.host.set_durability(GroupId(group), kind(buffered));
            }
            Step::Crash { synced, buffered } => self.crash(synced, buffered),
        }
        for group in self.known.keys() {
            let Some(status) = self.host.status(*group) else { continue };
            assert!(status.applied <= status.committed && status.committed <= status.last);
        }
    }

    fn propose(&mut self, group: GroupId, bytes: u8) {
        let data = Bytes::from(vec![bytes; usize::from(bytes) + 1]);
        match self.host.propose(group, data.slice(..1), data.clone()) {
            Ok(proposed) => self.known.get_mut(&group).unwrap().proposed.push((proposed, data)),
            // A crash before the bootstrap was confirmed left no group.
            Err(error) => assert_eq!((error, self.host.status(group)), (ProposeError::NoSuchGroup, None)),
        }
    }

    fn confirm(&mut self, journal: JournalKind, share: u8) {
        let confirmed = &mut self.confirmed[journal as usize];
        *confirmed = part(*confirmed, self.paper.end(journal), share);
        self.host.persisted(journal, Sequence(*confirmed));
    }

    fn advance(&mut self) {
        let mut events = Vec::new();
        self.host.advance(&mut self.paper, &mut events);
        for event in &events {
            match event {
                Event::Persisted { group, term, index } => self.persisted(*group, *term, *index),
                Event::Committed { group, entries } => entries.iter().for_each(|entry| self.committed(*group, entry)),
                Event::Serving { group, term } => self.serving(*group, *term),
                Event::SteppedDown { .. } => panic!("nobody poisoned the host"),
            }
        }
        self.transcript.extend(events);
    }

    /// Is the entry confirmed, in whichever journal, and a hard state that reaches its term and the bootstrap as well?
    fn is_confirmed(&self, group: GroupId, index: LogIndex, term: Term) -> bool {
        let has = |journal: JournalKind, kind: RecordKind, fits: &dyn Fn(Bytes) -> bool| {
            let records = &self.paper.records(journal)[..self.confirmed[journal as usize] as usize];
            let mut ours = records.iter().filter(|draft| draft.group == group && draft.kind == kind);
            ours.any(|draft| fits(draft.body.concat().into()))
        };
        let is_entry = |body| {
            let entry = decode_entry(body).unwrap().entry;
            (entry.index, entry.term) == (index, term)
        };
        let is_term = |body| decode_hard_state(body).unwrap().term >= term;
        (has(Synced, RecordKind::Entry, &is_entry) || has(Buffered, RecordKind::Entry, &is_entry))
            && has(Synced, RecordKind::HardState, &is_term)
            && has(Synced, RecordKind::Bootstrap, &|_| true)
    }

    fn persisted(&mut self, group: GroupId, term: Term, index: LogIndex) {
        assert!(self.is_confirmed(group, index, term), "{index} of group {group} was called persisted before it was");
        let known = self.known.get_mut(&group).unwrap();
        known.term = known.term.max(term);
    }

    fn committed(&mut self, group: GroupId, entry: &Entry) {
        let known = &self.known[&group];
        assert_eq!(entry.index.0, known.delivered.0 + 1, "handed out in order, without a gap");
        if let Some(before) = known.committed.get(&entry.index) {
            assert_eq!(before, entry, "what is committed never changes");
        }
        let message = "committed before it was confirmed";
        assert!(self.is_confirmed(group, entry.index, entry.term), "{entry:?} of group {group}: {message}");
        let known = self.known.get_mut(&group).unwrap();
        known.committed.insert(entry.index, entry.clone());
        known.delivered = entry.index;
        known.term = known.term.max(entry.term);
    }

    fn serving(&mut self, group: GroupId, term: Term) {
        let known = self.known.get_mut(&group).unwrap();
        let first = known.committed.values().find(|entry| entry.term == term).unwrap();
        assert_eq!(first.kind, EntryKind::Empty, "its own first entry was handed out before");
        assert_eq!(known.serving.replace(term), None, "once per term");
    }

    fn crash(&mut self, synced: u8, buffered: u8) {
        let [kept_synced, kept_buffered] = [(Synced, synced), (Buffered, buffered)]
            .map(|(journal, share)| part(self.confirmed[journal as usize], self.paper.end(journal), share));
        self.paper.cut(kept_synced as usize, kept_buffered as usize);
        self.confirmed = [kept_synced, kept_buffered];
        self.host = Host::new(42);
        let mut recovered: BTreeMap<_, _> =
            self.paper.recover().unwrap().into_iter().map(|group| (group.group, group)).collect();
        for (group, known) in &mut self.known {
            let Some(recovered) = recovered.remove(group) else {
                assert!(known.committed.is_empty(), "group {group} had committed something and is gone");
                continue;
            };
            for entry in known.committed.values() {
                assert_eq!(recovered.entries.get(entry.index.0 as usize - 2), Some(entry), "of group {group}");
            }
            assert!(recovered.term >= known.term, "the term of group {group} fell");
            let applied_term = known.committed.get(&known.applied).map_or(Term(1), |entry| entry.term);
            known.delivered = known.applied;
            known.serving = None;
            known.proposed.clear();
            self.host.open(recovered, known.applied, applied_term, known.durability.unwrap()).unwrap();
        }
    }

    /// Everything is confirmed: everybody serves, and what was proposed is committed, in order and with its bytes.
    fn heal(&mut self) {
        for _ in 0..6 {
            self.advance();
            self.confirm(Synced, 255);
            self.confirm(Buffered, 255);
            self.host.buffered_synced(self.paper.end(Buffered));
        }
        assert_eq!(self.host.advance(&mut self.paper, &mut Vec::new()), 0, "nothing is left to do");
        for (group, known) in &self.known {
            let Some(status) = self.host.status(*group) else { continue };
            assert_eq!(known.serving, Some(status.term));
            assert_eq!((status.committed, status.last), (known.delivered, known.delivered));
            for (proposed, data) in &known.proposed {
                let entry = &known.committed[&proposed.index];
                assert_eq!((entry.term, &entry.data, &entry.context), (proposed.term, data, &data.slice(..1)));
            }
        }
    }
}

fn run(steps: &[Step]) -> (Vec<Event>, Vec<Draft>, Vec<Draft>) {
    let mut world = World::new();
    steps.iter().for_each(|step| world.step(step));
    world.heal();
    (world.transcript, world.paper.synced, world.paper.buffered)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Nothing is committed, nor called persisted, before its journal write is confirmed; a crash at any point leaves
    /// every committed entry with its index, term and bytes, and the term never falls; the same input gives the same
    /// output twice.
    #[test]
    fn nothing_commits_before_it_is_confirmed_and_nothing_committed_is_lost(steps in steps()) {
        prop_assert_eq!(run(&steps), run(&steps));
    }
}
