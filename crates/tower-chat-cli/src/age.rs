//! Parses ages, which are the values of some options.

use std::time::Duration;

/// An age on the command line: `30d`, `12h`, `15m` or `45s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Duration);

/// The error of parsing a text that is not an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an age has a unit: 30d, 12h, 15m or 45s")]
pub(crate) struct NoAge;

impl std::str::FromStr for Age {
    type Err = NoAge;

    fn from_str(text: &str) -> Result<Self, NoAge> {
        let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
        let found = units.iter().find_map(|(unit, seconds)| {
            let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(*seconds)
        });
        found.map(|seconds| Self(Duration::from_secs(seconds))).ok_or(NoAge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_parsed_only_with_a_unit() {
        let seconds = |text: &str| text.parse::<Age>().map(|Age(age)| age.as_secs());
        assert_eq!(seconds("2d"), Ok(172_800));
        assert_eq!(seconds("3h"), Ok(10_800));
        assert_eq!(seconds("5m"), Ok(300));
        assert_eq!(seconds("0s"), Ok(0));
        for text in ["", "d", "5", "-1d", "1.5h", "1 d", "1w", "99999999999999999999d"] {
            assert_eq!(seconds(text), Err(NoAge), "{text}");
        }
        assert_eq!(seconds("18446744073709551615d"), Err(NoAge), "too many seconds");
    }
}
