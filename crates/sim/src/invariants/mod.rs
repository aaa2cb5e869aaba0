//! What must hold whatever happens, one file each, named after the invariant. Each sees the history event by event.

mod acknowledged_is_read_once_at_its_offset;
mod answers_fit_their_questions;
mod append_times_never_fall;
pub mod bounds_hold;
mod cursors_are_durable;
mod high_watermark_never_falls;
pub mod journals_keep_their_bound;
mod nothing_appears_twice;
mod one_value_per_offset;
mod only_the_old_expires;
mod order_per_producer;
mod readers_neither_skip_nor_go_back;
mod refused_never_appears;
pub mod scrubs_find_damage_only;
#[cfg(test)]
mod testing;
mod topic_operations_persist;

use std::fmt;

use crate::history::{Event, Facts};
use crate::time::Time;

/// What an invariant says to an event.
pub type Verdict = Result<(), String>;

/// A rule over the history.
pub trait Invariant {
    /// Its name, that of its file.
    fn name(&self) -> &'static str;
    /// The next event; the facts know it already.
    fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict;
    /// The history is over and everything was audited.
    fn finish(&mut self, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: &'static str,
    /// When it was seen.
    pub at: Time,
    /// What was seen.
    pub text: String,
}

/// The name under which a panic is reported.
pub const NOTHING_PANICS: &str = "nothing_panics";

impl Violation {
    /// Whether it is the same failure: of the same invariant, and of panics those that say the same but for numbers.
    pub fn is_like(&self, other: &Violation) -> bool {
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        self.invariant == other.invariant
            && (self.invariant != NOTHING_PANICS || words(&self.text) == words(&other.text))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken at {:.6} s: {}", self.invariant, self.at as f64 / 1e9, self.text)
    }
}

/// All invariants over one history.
pub struct Judge {
    facts: Facts,
    invariants: Vec<Box<dyn Invariant>>,
    violation: Option<Violation>,
}

impl Default for Judge {
    fn default() -> Self {
        Self { facts: Facts::default(), invariants: all(), violation: None }
    }
}

fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::<answers_fit_their_questions::AnswersFitTheirQuestions>::default(),
        Box::<one_value_per_offset::OneValuePerOffset>::default(),
        Box::<nothing_appears_twice::NothingAppearsTwice>::default(),
        Box::<refused_never_appears::RefusedNeverAppears>::default(),
        Box::<order_per_producer::OrderPerProducer>::default(),
        Box::<acknowledged_is_read_once_at_its_offset::AcknowledgedIsReadOnce>::default(),
        Box::<readers_neither_skip_nor_go_back::ReadersNeitherSkipNorGoBack>::default(),
        Box::<high_watermark_never_falls::HighWatermarkNeverFalls>::default(),
        Box::<cursors_are_durable::CursorsAreDurable>::default(),
        Box::<append_times_never_fall::AppendTimesNeverFall>::default(),
        Box::<only_the_old_expires::OnlyTheOldExpires>::default(),
        Box::<topic_operations_persist::TopicOperationsPersist>::default(),
    ]
}

impl Judge {
    /// Shows an event to every invariant. The first violation of a run is kept.
    pub fn observe(&mut self, event: &Event) {
        self.facts.observe(event);
        for invariant in &mut self.invariants {
            if let Err(text) = invariant.observe(event, &self.facts) {
                self.violation.get_or_insert(Violation { invariant: invariant.name(), at: event.at, text });
            }
        }
    }

    /// The history is over.
    pub fn finish(&mut self, at: Time) {
        for invariant in &mut self.invariants {
            if let Err(text) = invariant.finish(&self.facts) {
                self.violation.get_or_insert(Violation { invariant: invariant.name(), at, text });
            }
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Reports what no event tells: a bound or a state that the world itself saw broken.
    pub fn report(&mut self, invariant: &'static str, at: Time, text: String) {
        self.violation.get_or_insert(Violation { invariant, at, text });
    }
}
