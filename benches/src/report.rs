//! The lines of the output. Each line compares a measured time with a floor, which is the time of a
//! simpler operation.

use std::time::Instant;

use serde::Serialize;

/// A line of the output. Values that do not apply are null: the durability of a case that only
/// reads, and the bytes of a store that does not write to a disk.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    pub(crate) case: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) store: &'static str,
    pub(crate) durability: Option<&'static str>,
    /// The number of stored messages before the run.
    pub(crate) history: usize,
    /// The number of concurrent conversations.
    pub(crate) concurrency: usize,
    pub(crate) us_per_call: f64,
    pub(crate) floor_us: f64,
    pub(crate) ratio: f64,
    /// The bytes written to the log of the store for each service call.
    pub(crate) bytes_written_per_call: Option<f64>,
    pub(crate) floor_bytes: Option<f64>,
    /// The number of syncs for each service call.
    pub(crate) fsyncs_per_call: Option<f64>,
}

/// The bytes that a store has written to its disk for each service call; see [`crate::written`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) bytes: f64,
    pub(crate) floor_bytes: f64,
    pub(crate) fsyncs: f64,
}

/// Times in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Line {
    /// Creates a line for one conversation.
    pub(crate) fn new(
        case: &'static str,
        mode: &'static str,
        store: &'static str,
        history: usize,
        us: f64,
        floor: f64,
    ) -> Self {
        Self {
            case,
            mode,
            store,
            durability: None,
            history,
            concurrency: 1,
            us_per_call: rounded(us),
            floor_us: rounded(floor),
            ratio: rounded(us / floor),
            bytes_written_per_call: None,
            floor_bytes: None,
            fsyncs_per_call: None,
        }
    }

    pub(crate) fn with_written(mut self, written: Written) -> Self {
        self.bytes_written_per_call = Some(rounded(written.bytes));
        self.floor_bytes = Some(rounded(written.floor_bytes));
        self.fsyncs_per_call = Some(rounded(written.fsyncs));
        self
    }

    /// Changes the ratio to the speedup over the floor.
    pub(crate) fn with_speedup(mut self) -> Self {
        self.ratio = rounded(self.floor_us / self.us_per_call);
        self
    }

    pub(crate) fn print(&self) -> Result<(), serde_json::Error> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

impl Samples {
    pub(crate) fn add(&mut self, us: f64) {
        self.0.push(us);
    }

    pub(crate) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Returns the median, or NaN if there are no samples.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
        match sorted.len() % 2 {
            0 => {
                (upper + sorted.get((sorted.len() / 2).wrapping_sub(1)).unwrap_or(&f64::NAN)) / 2.0
            }
            _ => upper,
        }
    }
}

impl Extend<f64> for Samples {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, times: I) {
        self.0.extend(times);
    }
}

pub(crate) fn us_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

pub(crate) fn us_between(start: Instant, end: Instant) -> f64 {
    end.duration_since(start).as_secs_f64() * 1e6
}

pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(Samples(vec![3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Samples(vec![4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert!(Samples::default().median().is_nan());
    }
}
