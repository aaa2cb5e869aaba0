//! How often what happened: each kind of fault by its name, so that one sees that it happens at all.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// Numbers by name.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// It happened once more.
    pub(super) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        for (what, number) in &other.0 {
            *self.0.entry(what).or_default() += number;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no faults");
        }
        for (index, (what, number)) in self.0.iter().enumerate() {
            write!(f, "{}{number} {what}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
