//! `lockgate bench all`: the budgets of a node, each as a ratio against what the machine allows in the same run.
//!
//! Every row has a broker of its own with one shard, so that rows do not share journals, memory or files. A row is one
//! function in [`rows`]; how the table looks is in [`view`].

mod rows;
mod view;

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::machine::Machine;
use super::options::Load;
use super::stop;
use super::target::Target;
use crate::args::{AckArg, Global};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct All {
    /// Measure each load this long
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// A second a load and little data: to see that it works, not for the figures
    #[arg(long)]
    small: bool,
    /// Only these measurements
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(rows::ROWS.map(|(name, _)| name)))]
    only: Vec<String>,
}

/// One budget and how it was met.
struct Row {
    work: String,
    /// What was measured.
    measured: String,
    /// What it is compared with.
    against: String,
    ratio: f64,
    budget: Budget,
}

/// What a ratio must be.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Budget {
    AtLeast(f64),
    AtMost(f64),
    /// It is only told.
    None,
}

impl Budget {
    /// `None` where nothing is to be met.
    fn is_met(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::None => None,
        }
    }
}

/// How much to do.
struct Extent<'a> {
    global: &'a Global,
    seconds: u64,
    warmup: u64,
    /// Bytes of the log that is read cold.
    cold_bytes: u64,
    many_partitions: u32,
    /// How long large batches are published.
    sustained_seconds: u64,
    /// Bytes of the log that a restart finds.
    restart_bytes: u64,
}

impl Extent<'_> {
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// A load that rows change to their needs: single 1 KiB records, not numbered.
    fn load(&self) -> Load {
        Load {
            topic: None,
            size: 1024,
            records: None,
            seconds: Some(self.seconds),
            in_flight: 16,
            batch_records: 1,
            producers: 1,
            partitions: 1,
            ack: AckArg::Quorum,
            idempotent: Some(super::options::Switch::Off),
            fsync: "always".into(),
            warmup: self.warmup,
            rate: None,
            settings: &[],
            own: true,
        }
    }

    /// A broker with one shard and a topic for the load.
    fn target(&self, load: &Load, settings: &[(&str, &str)]) -> Result<Target, Failure> {
        let mut settings = settings.to_vec();
        settings.push(("LOCKGATE_SHARDS_COUNT", "1"));
        Target::prepare_with(load, self.global, &settings)
    }
}

pub(crate) fn run(args: &All, global: &Global) -> Result<(), Failure> {
    const MIB: u64 = 1024 * 1024;
    let extent = match args.small {
        true => Extent {
            global,
            seconds: 1,
            warmup: 0,
            cold_bytes: 32 * MIB,
            many_partitions: 50,
            sustained_seconds: 1,
            restart_bytes: 16 * MIB,
        },
        false => Extent {
            global,
            seconds: args.seconds,
            warmup: 1,
            cold_bytes: 1024 * MIB,
            many_partitions: 1000,
            sustained_seconds: 20,
            restart_bytes: 1024 * MIB,
        },
    };
    let mut table = Vec::new();
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    for (_, measure) in rows::ROWS.into_iter().filter(|(name, _)| wanted(name)) {
        if stop::is_wanted() {
            break;
        }
        for row in measure(&extent)? {
            output::note(global, format_args!("{}: {:.2}", row.work, row.ratio));
            table.push(row);
        }
    }
    let machine = Machine::here(&std::env::temp_dir());
    output::print(global, || view::text(&machine, &table), || view::json(&machine, &table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_met_at_its_bound_and_not_beyond() {
        assert_eq!(Budget::AtLeast(0.8).is_met(0.8), Some(true));
        assert_eq!(Budget::AtLeast(0.8).is_met(0.79), Some(false));
        assert_eq!(Budget::AtMost(2.0).is_met(2.0), Some(true));
        assert_eq!(Budget::AtMost(2.0).is_met(2.01), Some(false));
        assert_eq!(Budget::AtLeast(0.8).is_met(f64::NAN), Some(false), "what could not be measured is not met");
        assert_eq!(Budget::None.is_met(9.0), None);
    }
}
