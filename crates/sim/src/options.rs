//! The command line.

use std::ops::Range;

/// What to do.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Command {
    /// One seed.
    Replay { seed: u64, trace: bool },
    /// These seeds.
    Range { seeds: Range<u64>, jobs: usize },
    /// Fresh seeds for so long.
    Search { minutes: u64, jobs: usize },
}

/// How to say it.
pub(crate) const USAGE: &str = "\
usage: cargo sim --seed N [--trace]            replays one seed, on demand step by step
       cargo sim --seeds A..B [--jobs J]       runs the seeds from A up to, not including, B
       cargo sim --minutes M [--jobs J]        searches fresh seeds for M minutes, J at a time (default 1)
exit codes: 0 nothing is broken; 1 a seed failed; 2 wrong usage";

/// Most seeds at a time.
const JOBS_MAX: u64 = 256;

pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut seed, mut seeds, mut minutes, mut jobs, mut trace) = (None, None, None, 1, false);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seed" => seed = Some(number(&value()?)?),
            "--seeds" => seeds = Some(range(&value()?)?),
            "--minutes" => minutes = Some(number(&value()?)?),
            "--jobs" => jobs = number(&value()?)?,
            "--trace" => trace = true,
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if !(1..=JOBS_MAX).contains(&jobs) {
        return Err(format!("--jobs {jobs}: must be from 1 to {JOBS_MAX}"));
    }
    let jobs = jobs as usize;
    match (seed, seeds, minutes) {
        (Some(seed), None, None) => Ok(Command::Replay { seed, trace }),
        (None, Some(seeds), None) if !trace => Ok(Command::Range { seeds, jobs }),
        (None, None, Some(minutes)) if !trace => Ok(Command::Search { minutes, jobs }),
        _ => Err("one of --seed, --seeds and --minutes is needed; --trace goes with --seed".to_owned()),
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
    fn the_three_forms_are_understood_and_nothing_else_is() {
        assert_eq!(parsed("--seed 7 --trace"), Ok(Command::Replay { seed: 7, trace: true }));
        assert_eq!(parsed("--seeds 3..9 --jobs 2"), Ok(Command::Range { seeds: 3..9, jobs: 2 }));
        assert_eq!(parsed("--minutes 5"), Ok(Command::Search { minutes: 5, jobs: 1 }));
        for wrong in [
            "",
            "--seed",
            "--seed x",
            "--seeds 3",
            "--seed 1 --minutes 2",
            "--minutes 1 --trace",
            "--jobs 0 --minutes 1",
            "seed",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
