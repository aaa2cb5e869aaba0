//! Makes a failing run smaller: fewer seconds of work, fewer faults, a shorter time, and the same invariant still fails.
//!
//! Parts are left out chunk by chunk, each chunk half as long when none can be missed (delta debugging); every attempt is
//! a run of the same seed. A run that fails for another reason is no success.

use std::collections::BTreeSet;

use crate::Outcome;
use crate::invariants::Violation;
use crate::reduction::{Part, Reduction, Source};
use crate::time::{MS, SECOND, Time};

/// Runs that a search may take: about a quarter of a minute.
pub const RUNS_MAX: u32 = 600;
/// A stirring phase shorter by less than this is not worth a run.
const STIR_STEP_MS: u64 = 250;

/// What a search found.
pub struct Shrunk {
    /// The smallest failing run.
    pub reduction: Reduction,
    /// What came of it.
    pub outcome: Outcome,
    /// Runs that it took.
    pub runs: u32,
}

struct Search<'a> {
    run: &'a mut dyn FnMut(&Reduction) -> Outcome,
    violation: Violation,
    reduction: Reduction,
    outcome: Outcome,
    runs: u32,
}

/// Makes a failed run smaller, by running its seed under reductions. None: it does not fail again.
pub fn shrink(failed: &Outcome, run: &mut dyn FnMut(&Reduction) -> Outcome) -> Option<Shrunk> {
    let violation = failed.violation.clone()?;
    let reduction = whole(failed);
    let mut search = Search { run, violation, reduction: reduction.clone(), outcome: failed.clone(), runs: 0 };
    if !search.attempt(reduction) {
        return None;
    }
    loop {
        let before = (search.parts().len(), search.reduction.stir_ms);
        search.shorten();
        search.drop_sources();
        search.drop_chunks();
        if (search.parts().len(), search.reduction.stir_ms) == before || search.runs >= RUNS_MAX {
            break;
        }
    }
    let Search { reduction, outcome, runs, .. } = search;
    Some(Shrunk { reduction, outcome, runs })
}

/// The reduction that leaves everything in: the same run.
pub fn whole(outcome: &Outcome) -> Reduction {
    Reduction { only: Some(parts_of(outcome)), stir_ms: Some(outcome.stir.div_ceil(MS)) }
}

/// Everything that a run had and can do without.
fn parts_of(outcome: &Outcome) -> BTreeSet<Part> {
    let seconds = (outcome.stir.min(outcome.time) / SECOND) as u32;
    let clients = (0..outcome.clients).flat_map(|client| (0..=seconds).map(move |s| (Source::Client(client), s)));
    let faults = outcome.struck.iter().flat_map(|(source, count)| (0..*count).map(|number| (*source, number)));
    clients.chain(faults).collect()
}

/// The parts without those that their run never came to: with fewer it is the same run. A client with none at all would
/// stay away, which is another one, so that each keeps at least its first.
fn without_unreached(parts: &BTreeSet<Part>, outcome: &Outcome) -> BTreeSet<Part> {
    let mut left: BTreeSet<Part> = parts.intersection(&parts_of(outcome)).copied().collect();
    for (source, number) in parts {
        let is_left = left.range((*source, 0)..=(*source, u32::MAX)).next().is_some();
        if matches!(source, Source::Client(_)) && !is_left {
            left.insert((*source, *number));
        }
    }
    left
}

impl Search<'_> {
    fn parts(&self) -> &BTreeSet<Part> {
        const NONE: &BTreeSet<Part> = &BTreeSet::new();
        self.reduction.only.as_ref().unwrap_or(NONE)
    }

    /// Keeps a reduction that fails as the whole run did, without what its run never came to.
    fn attempt(&mut self, candidate: Reduction) -> bool {
        self.attempt_within(candidate, Time::MAX)
    }

    /// The same for a run that takes no longer than this.
    fn attempt_within(&mut self, mut candidate: Reduction, bound: Time) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        self.runs += 1;
        let outcome = (self.run)(&candidate);
        let is_alike = outcome.violation.as_ref().is_some_and(|violation| violation.is_like(&self.violation));
        let fails = is_alike && outcome.time <= bound;
        if fails {
            candidate.only = candidate.only.map(|parts| without_unreached(&parts, &outcome));
            (self.reduction, self.outcome) = (candidate, outcome);
        }
        fails
    }

    fn attempt_without(&mut self, parts: &[Part]) -> bool {
        let mut candidate = self.reduction.clone();
        if let Some(only) = &mut candidate.only {
            only.retain(|part| !parts.contains(part));
        }
        self.attempt(candidate)
    }

    /// Ends the stirring phase earlier, by bisection: a failure in it needs no more of it, one behind it maybe less.
    fn shorten(&mut self) {
        let (mut low, mut high) = (0, self.reduction.stir_ms.unwrap_or_default());
        if self.outcome.time < high * MS {
            high = self.outcome.time.div_ceil(MS);
            let shorter = Reduction { stir_ms: Some(high), ..self.reduction.clone() };
            if !self.attempt(shorter) {
                return;
            }
        }
        while high - low > STIR_STEP_MS {
            let middle = low.midpoint(high);
            let shorter = Reduction { stir_ms: Some(middle), ..self.reduction.clone() };
            if self.attempt_within(shorter, self.outcome.time) { high = middle } else { low = middle }
        }
    }

    /// Leaves out whole clients and whole kinds of faults.
    fn drop_sources(&mut self) {
        let sources: BTreeSet<Source> = self.parts().iter().map(|(source, _)| *source).collect();
        for source in sources {
            let parts: Vec<Part> = self.parts().iter().filter(|(of, _)| *of == source).copied().collect();
            self.attempt_without(&parts);
        }
    }

    /// Leaves out chunks of parts, at last single ones.
    fn drop_chunks(&mut self) {
        let mut size = self.parts().len().div_ceil(2);
        while size > 0 && self.runs < RUNS_MAX {
            let parts: Vec<Part> = self.parts().iter().copied().collect();
            for chunk in parts.chunks(size) {
                // Some may have gone with an earlier chunk.
                let chunk: Vec<Part> = chunk.iter().filter(|part| self.parts().contains(part)).copied().collect();
                if !chunk.is_empty() {
                    self.attempt_without(&chunk);
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2).min(self.parts().len()) };
        }
    }
}

/// What became smaller, for people.
pub fn comparison(before: &Outcome, after: &Outcome) -> String {
    let seconds = |time: Time| time as f64 / SECOND as f64;
    format!(
        "{} -> {} operations, {} -> {} faults, {:.1} -> {:.1} simulated seconds, {} -> {} steps",
        before.operations,
        after.operations,
        before.faults.total(),
        after.faults.total(),
        seconds(before.time),
        seconds(after.time),
        before.steps,
        after.steps
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that fails if these parts are in it and the stirring phase lasts so long.
    fn fails_with(needed: &[Part], stir_ms: u64) -> impl FnMut(&Reduction) -> Outcome {
        let needed: Vec<Part> = needed.to_vec();
        move |reduction: &Reduction| {
            let stir_ms_here = reduction.stir_ms.unwrap_or(60_000);
            let fails = stir_ms_here >= stir_ms && needed.iter().all(|part| reduction.keeps(*part));
            let violation =
                fails.then(|| Violation { invariant: "bounds_hold", at: 0, text: format!("{}", needed.len()) });
            Outcome {
                violation,
                clients: 12,
                struck: [(Source::Node, 20), (Source::Link, 300)].into(),
                stir: stir_ms_here * MS,
                time: 70 * SECOND,
                ..Outcome::default()
            }
        }
    }

    #[test]
    fn what_a_failure_does_not_need_is_left_out() {
        let needed = [(Source::Client(0), 3), (Source::Client(7), 4), (Source::Link, 250), (Source::Node, 11)];
        let mut run = fails_with(&needed, 5_100);
        let failed = run(&Reduction::default());
        let shrunk = shrink(&failed, &mut run).unwrap();
        assert_eq!(shrunk.reduction.only, Some(needed.into()));
        let stir_ms = shrunk.reduction.stir_ms.unwrap();
        assert!((5_100..5_100 + STIR_STEP_MS).contains(&stir_ms), "{stir_ms}");
        assert!(shrunk.runs < RUNS_MAX, "{} runs", shrunk.runs);
    }

    #[test]
    fn a_client_that_is_needed_but_not_reached_in_its_seconds_stays() {
        // It is there from the beginning, and the failure comes before the second that is left of it.
        let mut run = |reduction: &Reduction| {
            let is_there = reduction.has(Source::Client(3));
            let violation = is_there.then(|| Violation { invariant: "bounds_hold", at: 0, text: String::new() });
            let time = if reduction.keeps((Source::Client(3), 5)) { 60 * SECOND } else { 2 * SECOND };
            Outcome { violation, clients: 4, stir: 60 * SECOND, time, ..Outcome::default() }
        };
        let failed = run(&Reduction::default());
        let shrunk = shrink(&failed, &mut run).unwrap();
        assert!(run(&shrunk.reduction).violation.is_some(), "{:?}", shrunk.reduction);
        assert_eq!(shrunk.reduction.only.map(|parts| parts.len()), Some(1));
    }

    #[test]
    fn a_run_that_breaks_another_rule_is_no_success() {
        let mut other = fails_with(&[(Source::Node, 1)], 0);
        let mut failed = other(&Reduction::default());
        failed.violation = Some(Violation { invariant: "refused_never_appears", at: 0, text: String::new() });
        assert!(shrink(&failed, &mut other).is_none());
    }

    #[test]
    fn a_search_ends_when_its_runs_are_used_up() {
        let needed: Vec<Part> = (0..300).map(|number| (Source::Link, number)).collect();
        let mut run = fails_with(&needed, 60_000);
        let failed = run(&Reduction::default());
        let mut runs = 0;
        let mut counted = |reduction: &Reduction| {
            runs += 1;
            run(reduction)
        };
        let shrunk = shrink(&failed, &mut counted).unwrap();
        assert_eq!(shrunk.runs, runs);
        assert!(runs <= RUNS_MAX);
    }
}
