//! Every answer and push is one that the protocol allows there: a valid batch is not called malformed, a delivered batch
//! holds the very bytes that its producer sent, a granted credit is not exceeded. The oracles decide that on the spot.

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, What};

#[derive(Default)]
pub(super) struct AnswersFitTheirQuestions;

impl Invariant for AnswersFitTheirQuestions {
    fn name(&self) -> &'static str {
        "answers_fit_their_questions"
    }

    fn observe(&mut self, event: &Event, _facts: &Facts) -> Verdict {
        match &event.what {
            What::Unexpected(text) => Err(format!("client {}: {text}", event.client)),
            _ => Ok(()),
        }
    }
}
