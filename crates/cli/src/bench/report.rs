//! How a result looks, as text and as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::recorder::Recorder;
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

/// See the module.
pub(super) struct Report {
    pub(super) bench: &'static str,
    pub(super) asked: Value,
    pub(super) size: u32,
    pub(super) recorder: Recorder,
    /// What the latency is of.
    pub(super) latency_of: &'static str,
    /// A second latency with its name.
    pub(super) beside: Option<(&'static str, Histogram<u64>)>,
    /// Processor time of this process, without a broker of its own.
    pub(super) generator_cpu: Duration,
}

impl Report {
    pub(super) fn records_per_second(&self) -> f64 {
        self.recorder.records as f64 / self.recorder.took().as_secs_f64().max(1e-9)
    }

    /// Of the records' values.
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.records_per_second() * f64::from(self.size)
    }

    fn json(&self) -> Value {
        let mut json = json!({
            "bench": self.bench,
            "records": self.recorder.records,
            "seconds": self.recorder.took().as_secs_f64(),
            "records_per_second": self.records_per_second(),
            "bytes_per_second": self.bytes_per_second(),
            "latency_us": latency_json(&self.recorder.latency_us),
            "errors": self.recorder.errors,
            "first_error": self.recorder.first_error.as_ref().map(ToString::to_string),
            "generator_cpu_us_per_record": self.generator_us(),
            "asked": self.asked,
        });
        if let Some((name, latency)) = &self.beside {
            json[format!("{name}_us")] = latency_json(latency);
        }
        json
    }

    fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "{:.0} records/s, {}/s ({} in {:.2} s)",
                self.records_per_second(),
                output::bytes(self.bytes_per_second()),
                output::count(self.recorder.records, "record"),
                self.recorder.took().as_secs_f64()
            ),
            format!("{}: {}", self.latency_of, latency_text(&self.recorder.latency_us)),
        ];
        if let Some((name, latency)) = &self.beside {
            lines.push(format!("{}: {}", name.replace('_', " "), latency_text(latency)));
        }
        lines.push(format!("the generator took {:.2} µs of processor time per record", self.generator_us()));
        if let Some(error) = &self.recorder.first_error {
            lines.push(format!("{}, the first: {error}", output::count(self.recorder.errors, "error")));
        }
        lines.join("\n")
    }

    fn generator_us(&self) -> f64 {
        self.generator_cpu.as_secs_f64() * 1e6 / (self.recorder.all_records as f64).max(1.0)
    }

    /// Prints it. Errors make it a failure all the same.
    pub(super) fn print(&self, global: &Global) -> Result<(), Failure> {
        output::print(global, || self.text(), || self.json())?;
        match &self.recorder.first_error {
            None => Ok(()),
            Some(error) => {
                let what = format!("{} failed, the first: {error}", output::count(self.recorder.errors, "request"));
                Err(Failure::Incomplete { what, unknown: false })
            }
        }
    }
}

pub(super) fn latency_json(latency: &Histogram<u64>) -> Value {
    json!({
        "p50": latency.value_at_quantile(0.5),
        "p99": latency.value_at_quantile(0.99),
        "p999": latency.value_at_quantile(0.999),
        "max": latency.max(),
    })
}

pub(super) fn latency_text(latency: &Histogram<u64>) -> String {
    format!(
        "p50 {} µs, p99 {} µs, p99.9 {} µs, max {} µs",
        latency.value_at_quantile(0.5),
        latency.value_at_quantile(0.99),
        latency.value_at_quantile(0.999),
        latency.max()
    )
}

/// Processor time that this process has used.
pub(super) fn cpu_used() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
