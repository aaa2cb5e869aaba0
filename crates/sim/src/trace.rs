//! The run's fingerprint: a hash over every input and output in order. Two runs of one seed are the same run exactly if
//! it is equal. On demand each step is printed as well.

use std::fmt::Arguments;

use crate::time::Time;

const MULTIPLIER: u64 = 0xf135_7aea_2e62_a9c5;

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

    /// A step: when, what kind, which numbers tell it apart. The text is only made when it is printed.
    pub(crate) fn step(&mut self, at: Time, kind: &str, numbers: &[u64], text: Arguments<'_>) {
        self.steps += 1;
        self.mix(at);
        self.bytes(kind.as_bytes());
        numbers.iter().for_each(|number| self.mix(*number));
        if self.prints {
            self.print(at, kind, numbers, text);
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

    #[allow(clippy::print_stdout, reason = "printing is what was asked for")]
    fn print(&self, at: Time, kind: &str, numbers: &[u64], text: Arguments<'_>) {
        const LINE_CHARS: usize = 400;
        let line: String =
            format!("{:>14.6}ms {kind} {numbers:?} {text}", at as f64 / 1e6).chars().take(LINE_CHARS).collect();
        println!("{}", line.replace('\n', " "));
    }
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
