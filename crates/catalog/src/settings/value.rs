//! How numbers of settings are written: `500ms`, `12h`, `7d`; `64KiB`, `1MiB`; or the bare number.

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Milliseconds.
    Duration,
    /// Bytes.
    Size,
    /// Things.
    Count,
}

impl Unit {
    /// The suffixes and what they multiply by, the largest first.
    fn suffixes(self) -> &'static [(&'static str, u64)] {
        match self {
            Unit::Duration => &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)],
            Unit::Size => {
                &[("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)]
            }
            Unit::Count => &[],
        }
    }

    /// What such a value looks like, for error messages.
    pub(crate) fn form(self) -> &'static str {
        match self {
            Unit::Duration => "a whole number of ms, s, m, h or d (500ms, 12h, 7d; a bare number is milliseconds)",
            Unit::Size => "a whole number of B, KiB, MiB, GiB, TiB or PiB (64KiB, 1MiB; a bare number is bytes)",
            Unit::Count => "a whole number",
        }
    }

    /// Reads a number; `None` when it is not one, or above 64 bits.
    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(digits_end);
        let number: u64 = digits.parse().ok()?;
        if suffix.is_empty() {
            return Some(number);
        }
        let (_, factor) = self.suffixes().iter().find(|(name, _)| *name == suffix)?;
        number.checked_mul(*factor)
    }

    /// Writes a number in the largest unit that keeps it whole; [`Unit::parse`] reads it back.
    pub(crate) fn show(self, number: u64) -> String {
        match self.suffixes().iter().find(|(_, factor)| number != 0 && number.is_multiple_of(*factor)) {
            Some((suffix, factor)) => format!("{}{suffix}", number / factor),
            None => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_and_without_their_unit() {
        for (text, expected) in
            [("0", 0), ("7d", 604_800_000), ("12h", 43_200_000), ("3m", 180_000), ("2s", 2000), ("500ms", 500)]
        {
            assert_eq!(Unit::Duration.parse(text), Some(expected), "{text}");
        }
        for (text, expected) in
            [("1", 1), ("1B", 1), ("64KiB", 65_536), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(Unit::Size.parse(text), Some(expected), "{text}");
        }
        assert_eq!(Unit::Count.parse("18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn what_is_no_whole_number_of_a_known_unit_is_refused() {
        for text in
            ["", "ms", "-1", "+1", "1.5h", "1 h", "1H", "1d2h", "7days", "18446744073709551616", "213503982335d", "٣"]
        {
            assert_eq!(Unit::Duration.parse(text), None, "{text}");
        }
        for text in ["1KB", "1kib", "1M", "16384PiB"] {
            assert_eq!(Unit::Size.parse(text), None, "{text}");
        }
        assert_eq!(Unit::Count.parse("1s"), None);
    }

    proptest::proptest! {
        #[test]
        fn a_shown_number_reads_back_as_itself(number: u64, exponent in 0_u32..20) {
            for unit in [Unit::Duration, Unit::Size, Unit::Count] {
                for number in [number, 10_u64.pow(exponent), 1 << exponent, 86_400_000 * u64::from(exponent)] {
                    proptest::prop_assert_eq!(unit.parse(&unit.show(number)), Some(number));
                }
            }
        }
    }
}
