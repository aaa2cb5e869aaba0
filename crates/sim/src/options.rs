//! The command line.

use std::ops::Range;

use lockgate_sim::reduction::{Reduction, parse_parts};

/// What to do.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// One seed, or what a reduction leaves of it.
    Replay { seed: u64, reduction: Reduction, trace: bool },
    /// One failing seed, made smaller.
    Shrink { seed: u64 },
    /// These seeds.
    Range { seeds: Range<u64>, jobs: usize },
    /// Fresh seeds for so long.
    Search { minutes: u64, jobs: usize },
}

/// How to say it.
pub(crate) const USAGE: &str = "\
usage: cargo sim --seed N [--trace] [--only PARTS] [--stir MS]
                                           replays one seed, on demand step by step
       cargo sim --seed N --shrink         makes a failing seed smaller and prints the command that replays what is left
       cargo sim --seeds A..B [--jobs J]   runs the seeds from A up to, not including, B
       cargo sim --minutes M [--jobs J]    searches fresh seeds for M minutes, J at a time (default 1)
PARTS: what is left of the run, such as client0:0-3,client4:2,node:1 (the seconds in which clients work, faults by their
       number); --stir MS ends work and faults after so many milliseconds
exit codes: 0 nothing is broken; 1 a seed failed; 2 wrong usage";

/// Most seeds at a time.
const JOBS_MAX: u64 = 256;

#[derive(Default)]
struct Given {
    seed: Option<u64>,
    seeds: Option<Range<u64>>,
    minutes: Option<u64>,
    jobs: Option<u64>,
    reduction: Reduction,
    trace: bool,
    shrink: bool,
}

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut given = Given::default();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seed" => given.seed = Some(number(&value()?)?),
            "--seeds" => given.seeds = Some(range(&value()?)?),
            "--minutes" => given.minutes = Some(number(&value()?)?),
            "--jobs" => given.jobs = Some(number(&value()?)?),
            "--only" => given.reduction.only = Some(parse_parts(&value()?)?),
            "--stir" => given.reduction.stir_ms = Some(number(&value()?)?),
            "--trace" => given.trace = true,
            "--shrink" => given.shrink = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    given.command()
}

impl Given {
    fn command(self) -> Result<Command, String> {
        let jobs = self.jobs.unwrap_or(1);
        if !(1..=JOBS_MAX).contains(&jobs) {
            return Err(format!("--jobs {jobs}: must be from 1 to {JOBS_MAX}"));
        }
        let is_whole = self.reduction == Reduction::default();
        let is_plain = is_whole && !self.trace && !self.shrink;
        let (reduction, trace, jobs) = (self.reduction, self.trace, jobs as usize);
        match (self.seed, self.seeds, self.minutes) {
            (Some(seed), None, None) if !self.shrink => Ok(Command::Replay { seed, reduction, trace }),
            (Some(seed), None, None) if is_whole && !trace => Ok(Command::Shrink { seed }),
            (None, Some(seeds), None) if is_plain => Ok(Command::Range { seeds, jobs }),
            (None, None, Some(minutes)) if is_plain => Ok(Command::Search { minutes, jobs }),
            _ => Err("one of --seed, --seeds and --minutes is needed; --trace, --only and --stir go with --seed, and \
                      --shrink with --seed alone"
                .to_owned()),
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (start, end) = text.split_once("..").ok_or_else(|| format!("`{text}` is no range A..B"))?;
    Ok(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_forms_of_the_command_are_understood_and_nothing_else_is() {
        let whole = Reduction::default();
        assert_eq!(parsed("--seed 7 --trace"), Ok(Command::Replay { seed: 7, reduction: whole, trace: true }));
        for parts in
            ["none", "client0:1-2,node:4", "link:0,node:1,start:2,steps:3-4,full:0,slow:0,clock:5,refused:0,rush:1"]
        {
            let reduction = Reduction { only: Some(parse_parts(parts).unwrap()), stir_ms: Some(900) };
            let text = format!("--seed 7{}", reduction.arguments());
            assert_eq!(parsed(&text), Ok(Command::Replay { seed: 7, reduction, trace: false }));
        }
        assert_eq!(parsed("--seed 7 --shrink"), Ok(Command::Shrink { seed: 7 }));
        assert_eq!(parsed("--seeds 3..9 --jobs 2"), Ok(Command::Range { seeds: 3..9, jobs: 2 }));
        assert_eq!(parsed("--minutes 5"), Ok(Command::Search { minutes: 5, jobs: 1 }));
        for wrong in [
            "",
            "--seed",
            "--seed x",
            "--seeds 3",
            "--seed 1 --minutes 2",
            "--minutes 1 --trace",
            "--minutes 1 --shrink",
            "--seeds 1..2 --stir 5",
            "--seed 1 --shrink --only node:1",
            "--seed 1 --only moon:1",
            "--jobs 0 --minutes 1",
            "seed",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
