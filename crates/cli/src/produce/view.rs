//! How the end of `produce` looks, as text and as JSON, and which failure it is.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::End;
use super::ledger::{Ledger, Ranges};
use super::lines::ReadError;
use crate::args::AckArg;
use crate::failure::Failure;
use crate::output;

pub(super) struct Report<'a> {
    pub(super) topic: &'a str,
    pub(super) ledger: &'a Ledger,
    pub(super) end: &'a End,
    pub(super) took: Duration,
    pub(super) ack: AckArg,
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        let ledger = self.ledger;
        let count = ledger.acknowledged.count();
        let done = if self.ack == AckArg::None { "sent, without asking for answers" } else { "acknowledged" };
        let per_second = self.per_second(count);
        let mut text = format!(
            "{} {done}, in {:.2} s: {per_second:.0} records/s, {}/s",
            output::count(count, "record"),
            self.took.as_secs_f64(),
            output::bytes(self.per_second(ledger.bytes))
        );
        for (partition, tally) in &ledger.partitions {
            // Writing to a String does not fail.
            let _ = write!(text, "\n  partition {partition}: {}", output::count(tally.records, "record"));
            if let Some(offset) = tally.last_offset {
                let _ = write!(text, ", up to offset {offset}");
            }
        }
        if self.failure().is_some() {
            let lines = [
                ("acknowledged", &ledger.acknowledged),
                ("not applied", &ledger.refused),
                ("unknown", &ledger.unknown),
            ];
            for (what, lines) in lines.into_iter().filter(|(what, lines)| *what == "acknowledged" || lines.count() > 0)
            {
                let _ = write!(text, "\n  input lines {what}: {}", ranges_text(lines));
            }
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let ledger = self.ledger;
        let partitions = ledger.partitions.iter().map(|(partition, tally)| {
            json!({
                "partition": partition, "records": tally.records,
                "first_offset": tally.first_offset, "last_offset": tally.last_offset,
            })
        });
        let count = ledger.acknowledged.count();
        json!({
            "topic": self.topic,
            "acknowledged": count,
            "partitions": partitions.collect::<Value>(),
            "lines": {
                "acknowledged": ledger.acknowledged.0, "not_applied": ledger.refused.0, "unknown": ledger.unknown.0,
            },
            "seconds": self.took.as_secs_f64(),
            "records_per_second": self.per_second(count),
            "bytes_per_second": self.per_second(ledger.bytes),
            "complete": self.failure().is_none(),
        })
    }

    /// Why not everything was acknowledged and written down, if it was not.
    pub(super) fn failure(&self) -> Option<Failure> {
        let ledger = self.ledger;
        let what = match (self.end, &ledger.first_error, &ledger.acks_error) {
            (_, Some((line, error)), _) => format!("line {line} was not acknowledged: {error}"),
            (_, None, Some(error)) => format!("the file for acknowledgements cannot be written: {error}"),
            (End::Input | End::NotAcknowledged, None, None) => return None,
            (End::Interrupted(signal), None, None) => {
                format!("interrupted by {signal}: the rest of the input was not sent")
            }
            (End::Unreadable(error), None, None) => unreadable(error),
            (End::Refused { line, problem }, None, None) => format!("line {line} was not sent: {problem}"),
        };
        Some(Failure::Incomplete { what, unknown: ledger.unknown.count() > 0 })
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

fn unreadable(error: &ReadError) -> String {
    match error {
        ReadError::LineTooLong { line, limit } => format!(
            "line {line} was not sent: it is longer than the topic's max_batch_bytes, {limit}; cut it, or raise the setting"
        ),
        ReadError::Io { line, error } => format!("the input cannot be read after line {line}: {error}"),
    }
}

fn ranges_text(Ranges(ranges): &Ranges) -> String {
    if ranges.is_empty() {
        return "none".into();
    }
    let range = |(first, last): &(u64, u64)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(", ")
}
