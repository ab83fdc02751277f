//! Bounds on the growth of a measured series.

/// The maximum by which the median of the last third of a series may exceed the median of the first
/// third.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    what: &'static str,
    percent: u64,
    and: u64,
}

impl Bound {
    /// Returns the bound for the memory of a process: a quarter of the first median plus 16 MiB,
    /// since an allocator does not return all freed memory.
    pub(super) fn memory() -> Self {
        Self { what: "bytes of memory", percent: 25, and: 16 << 20 }
    }

    /// Returns the bound for open files. Two leaked stores exceed it.
    pub(super) fn files() -> Self {
        Self { what: "open files", percent: 25, and: 16 }
    }

    /// Returns the bound for the size of the log. SQLite checkpoints the log at 4 MB, but the log
    /// grows further while reads prevent SQLite from restarting it at its beginning.
    pub(super) fn log() -> Self {
        Self { what: "bytes of the log", percent: 50, and: 8 << 20 }
    }

    pub(super) fn exceeded_by(self, series: &[u64]) -> Option<String> {
        let third = series.len() / 3;
        let first = median(series.get(..third)?)?;
        let last = median(series.get(series.len() - third..)?)?;
        let max = first + first * self.percent / 100 + self.and;
        let Self { what, .. } = self;
        (last > max).then(|| {
            format!("{what} grow: {first} in the first third, {last} in the last, more than {max}")
        })
    }
}

fn median(values: &[u64]) -> Option<u64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn only_a_series_that_grows_by_more_than_its_bound_exceeds_the_bound() {
        let flat: Vec<u64> = (0..30).map(|at| 20 + at % 7).collect();
        assert_eq!(Bound::files().exceeded_by(&flat), None);
        let leaking: Vec<u64> = (0..30).map(|at| 20 + at * 2).collect();
        let found = Bound::files().exceeded_by(&leaking);
        let expected =
            "open files grow: 30 in the first third, 70 in the last, more than 53".to_owned();
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn a_series_of_too_few_samples_does_not_exceed_its_bound() {
        assert_eq!(Bound::log().exceeded_by(&[1, 1 << 40]), None);
    }
}
