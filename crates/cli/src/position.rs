//! A position in a topic as users write it: `earliest`, `latest`, `offset:N`, `time:T`, `last:N`, `cursor:NAME`.

use std::str::FromStr;

use lockgate_client::Start;
use lockgate_wire::Offset;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    Earliest,
    Latest,
    Offset(u64),
    /// Milliseconds since 1970.
    Time(i64),
    Last(u64),
    Cursor(String),
}

impl Position {
    pub(crate) fn start(&self) -> Start {
        match self {
            Self::Earliest => Start::Earliest,
            Self::Latest => Start::Latest,
            Self::Offset(offset) => Start::Offset(Offset(*offset)),
            Self::Time(ms) => Start::Time(*ms),
            Self::Last(records) => Start::Last(*records),
            Self::Cursor(name) => Start::Cursor(name.clone()),
        }
    }
}

impl FromStr for Position {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| {
            digits.parse::<u64>().map_err(|_| format!("`{digits}` in `{text}` is not a number from 0 on"))
        };
        match text.split_once(':') {
            None if text == "earliest" => Ok(Self::Earliest),
            None if text == "latest" => Ok(Self::Latest),
            Some(("offset", offset)) => Ok(Self::Offset(number(offset)?)),
            Some(("last", records)) => Ok(Self::Last(number(records)?)),
            Some(("time", time)) => time_ms(time).map(Self::Time),
            Some(("cursor", name)) if !name.is_empty() => Ok(Self::Cursor(name.to_owned())),
            _ => Err("it must be earliest, latest, offset:N, time:T, last:N or cursor:NAME".into()),
        }
    }
}

/// Milliseconds since 1970, or a date with or without a time of day, in UTC: `2026-11-29`, `2026-11-29T18:30:00Z`.
fn time_ms(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!(
            "`{text}` is not a time: give milliseconds since 1970, or a time in UTC like 2026-11-29T18:30:00Z, or a date"
        )
    };
    if let Ok(ms) = text.parse::<i64>() {
        return if ms >= 0 { Ok(ms) } else { Err(wrong()) };
    }
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z').ok_or_else(wrong)?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(date, '-').ok_or_else(wrong)?;
    let [hour, minute, second] = numbers(time, ':').ok_or_else(wrong)?;
    let month_days = if month == 2 && is_leap(year) { 29 } else { *MONTH_DAYS.get(month as usize).unwrap_or(&0) };
    let in_bounds = (1970..=9999).contains(&year) && (1..=month_days).contains(&day) && hour < 24 && minute < 60;
    if !in_bounds || second >= 60 {
        return Err(wrong());
    }
    let year_days: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let leap_day = u64::from(month > 2 && is_leap(year));
    let days = year_days + MONTH_DAYS[..month as usize].iter().sum::<u64>() + leap_day + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    i64::try_from(seconds * 1000).map_err(|_| wrong())
}

/// Days of each month of a common year, by the month's number.
const MONTH_DAYS: [u64; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Exactly three numbers of digits alone.
fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?;
    let numbers: Vec<u64> = text.split(separator).map(number).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_position_is_read() {
        let cases = [
            ("earliest", Position::Earliest),
            ("latest", Position::Latest),
            ("offset:17", Position::Offset(17)),
            ("last:0", Position::Last(0)),
            ("cursor:billing", Position::Cursor("billing".into())),
            ("time:0", Position::Time(0)),
            ("time:1700000000123", Position::Time(1_700_000_000_123)),
            ("time:1970-01-01", Position::Time(0)),
            ("time:2000-02-29T00:00:00Z", Position::Time(951_782_400_000)),
            ("time:2024-03-01", Position::Time(1_709_251_200_000)),
            ("time:2026-11-29T18:45:49Z", Position::Time(1_795_977_949_000)),
        ];
        for (text, position) in cases {
            assert_eq!(text.parse(), Ok(position), "{text}");
        }
    }

    #[test]
    fn what_is_no_position_is_refused_with_what_is_one() {
        for text in ["", "first", "offset:-1", "offset:", "last:x", "cursor:", "earliest:1"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
        for text in ["yesterday", "-5", "2026-13-01", "2026-02-29", "2026-11-29T24:00:00Z", "2026-11-29T1:1", "1-1-1"] {
            let error = format!("time:{text}").parse::<Position>().unwrap_err();
            assert!(error.contains("milliseconds since 1970"), "{error}");
        }
    }
}
