//! The run's fingerprint: a hash over every input and output in order. Two runs of one seed are the same run exactly if
//! it is equal. On demand each step is printed as well: a line with the time, whose it is, and what.

use std::fmt;
use std::fmt::Arguments;

use crate::history::{ClientNo, WORLD};
use crate::time::{SECOND, Time};

const MULTIPLIER: u64 = 0xf135_7aea_2e62_a9c5;

/// Whose step it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// The world's: it stands out.
    World,
    /// A shard's.
    Shard(usize),
    /// An oracle's.
    Client(ClientNo),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Who::World => "========".to_owned(),
            Who::Shard(number) => format!("shard {number}"),
            Who::Client(WORLD) => "world".to_owned(),
            Who::Client(number) => format!("client {number}"),
        };
        f.pad(&text)
    }
}

/// Collects what happens.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    steps: u64,
    prints: bool,
}

impl Trace {
    /// An empty trace; `prints`: each step goes to the standard output as a line.
    pub(crate) fn new(prints: bool) -> Self {
        Self { hash: 0, steps: 0, prints }
    }

    /// A step: when, whose, what kind, which numbers tell it apart. The text is only made when it is printed.
    pub(crate) fn step(&mut self, at: Time, who: Who, kind: &str, numbers: &[u64], text: Arguments<'_>) {
        self.steps += 1;
        self.mix(at);
        self.bytes(kind.as_bytes());
        if let Who::Shard(shard) = who {
            self.mix(shard as u64);
        }
        numbers.iter().for_each(|number| self.mix(*number));
        if self.prints {
            print(at, who, kind, text);
        }
    }

    /// Bytes that belong to the last step.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.mix(fingerprint(bytes));
    }

    /// The fingerprint so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Steps so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    fn mix(&mut self, word: u64) {
        self.hash = mix(self.hash, word);
    }
}

#[allow(clippy::print_stdout, reason = "printing is what was asked for")]
fn print(at: Time, who: Who, kind: &str, text: Arguments<'_>) {
    const LINE_CHARS: usize = 400;
    let line = format!("{:>11.6} s  {who:<9} {kind:<10} {text}", at as f64 / SECOND as f64);
    let line: String = line.chars().take(LINE_CHARS).collect();
    println!("{}", line.replace('\n', " ").trim_end());
}

/// A hash of bytes, equal in every run.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let whole = words.by_ref().map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight")));
    let hash = whole.fold(bytes.len() as u64, mix);
    mix(hash, words.remainder().iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(26) ^ word).wrapping_mul(MULTIPLIER)
}
