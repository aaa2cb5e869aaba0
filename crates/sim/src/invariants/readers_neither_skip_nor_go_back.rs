//! A reader begins where it asked to, and then every batch begins where the one before ended. Only the first may begin
//! earlier, because a batch is never cut.

use std::collections::BTreeMap;

use super::{Invariant, Verdict};
use crate::history::{Event, Facts, Placed, ReaderNo, Start, What};

struct Reader {
    next: u64,
    high_watermark: u64,
    has_read: bool,
}

#[derive(Default)]
pub(super) struct ReadersNeitherSkipNorGoBack {
    readers: BTreeMap<ReaderNo, Reader>,
}

impl Invariant for ReadersNeitherSkipNorGoBack {
    fn name(&self) -> &'static str {
        "readers_neither_skip_nor_go_back"
    }

    fn observe(&mut self, event: &Event, _facts: &Facts) -> Verdict {
        match &event.what {
            What::Opened { reader, partition, start, next, earliest, high_watermark } => {
                check_start(*start, *next, *earliest, *high_watermark)
                    .map_err(|text| format!("reader {reader} of partition {partition}: {text}"))?;
                self.readers.insert(*reader, Reader { next: *next, high_watermark: *high_watermark, has_read: false });
                Ok(())
            }
            What::Read { reader, partition, batches, next, high_watermark } => {
                let Some(state) = self.readers.get_mut(reader) else {
                    return Err(format!(
                        "reader {reader} of partition {partition} got {batches:?} and was never opened"
                    ));
                };
                state
                    .take(batches, *next, *high_watermark)
                    .map_err(|text| format!("reader {reader} of partition {partition}: {text}"))
            }
            _ => Ok(()),
        }
    }
}

impl Reader {
    fn take(&mut self, batches: &[Placed], next: u64, high_watermark: u64) -> Verdict {
        for placed in batches {
            let may_overlap = !self.has_read && (placed.offset..placed.end()).contains(&self.next);
            if placed.offset != self.next && !may_overlap {
                return Err(format!("{placed:?} where offset {} was due", self.next));
            }
            self.has_read = true;
            self.next = placed.end();
        }
        if next != self.next {
            return Err(format!("told to go on at {next}, the batches end at {}", self.next));
        }
        if high_watermark < self.next || high_watermark < self.high_watermark {
            return Err(format!(
                "high watermark {high_watermark} after {}, with data up to {}",
                self.high_watermark, self.next
            ));
        }
        self.high_watermark = high_watermark;
        Ok(())
    }
}

fn check_start(start: Start, next: u64, earliest: u64, high_watermark: u64) -> Verdict {
    let allowed = match start {
        Start::Earliest => earliest..=earliest,
        Start::Latest => high_watermark..=high_watermark,
        Start::Offset(offset) => offset..=offset,
        Start::Last(count) => {
            let offset = high_watermark.saturating_sub(count).max(earliest);
            offset..=offset
        }
        Start::Cursor(low) => low.max(earliest)..=high_watermark,
        Start::Time(_) => earliest..=high_watermark,
    };
    if !allowed.contains(&next) || next < earliest || next > high_watermark {
        return Err(format!("{start:?} begins at {next}, with {earliest} to {high_watermark} there"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::ReadersNeitherSkipNorGoBack as This;
    use crate::history::Start;

    #[test]
    fn contiguous_batches_are_fine_and_the_first_may_begin_earlier() {
        good::<This>([opened(Start::Offset(4), 4, 0, 5), read(0, &[(3, 2, 1), (5, 1, 2)]), read(0, &[(6, 3, 3)])]);
    }

    #[test]
    fn a_gap_a_repeat_and_a_step_back_are_found() {
        for second in [[(7, 1, 2)], [(3, 3, 1)], [(0, 1, 4)]] {
            bad::<This>([opened(Start::Offset(3), 3, 0, 9), read(0, &[(3, 3, 1)]), read(0, &second)]);
        }
        bad::<This>([opened(Start::Offset(3), 3, 0, 9), read(0, &[(4, 1, 1)])]);
        bad::<This>([opened(Start::Offset(3), 3, 0, 9), read(0, &[(2, 1, 1), (3, 1, 2)])]);
    }

    #[test]
    fn a_reader_begins_where_it_asked_to() {
        good::<This>([opened(Start::Last(4), 6, 1, 10)]);
        good::<This>([opened(Start::Last(40), 1, 1, 10)]);
        bad::<This>([opened(Start::Last(4), 7, 1, 10)]);
        bad::<This>([opened(Start::Earliest, 0, 1, 10)]);
        bad::<This>([opened(Start::Latest, 9, 1, 10)]);
        bad::<This>([opened(Start::Cursor(4), 3, 1, 10)]);
        bad::<This>([opened(Start::Offset(11), 11, 1, 10)]);
    }
}
