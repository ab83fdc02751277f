//! Records the metrics of the store of a process.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use serde::{Deserialize, Serialize};
use tower_chat::telemetry::metric::{CONFLICTS, QUEUE_LENGTH, STORE_OPERATION_DURATION, label};

/// The number of buckets from a duration to its double.
const STEPS: f64 = 16.0;

/// A histogram of durations. The upper bound of a bucket is about 4 % greater than its lower bound.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Durations(Vec<(u16, u64)>);

/// The measurements since the last report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Measures {
    pub(super) queue: u64,
    pub(super) appends: Durations,
    pub(super) conflicts: u64,
    /// The number of conversations with failed writes, which the outbox submits again.
    pub(super) outbox: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Recorded(Arc<Values>);

#[derive(Debug, Default)]
struct Values {
    queue: AtomicI64,
    longest: AtomicI64,
    conflicts: AtomicU64,
    appends: Mutex<Durations>,
}

impl Durations {
    pub(super) fn add(&mut self, seconds: f64) {
        // The first bucket also counts durations below one microsecond. The last one also counts
        // durations whose bucket number would not fit into `u16`.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is clamped"
        )]
        let bucket = ((seconds * 1e6).max(1.0).log2() * STEPS).clamp(0.0, 65_535.0) as u16;
        self.count(bucket, 1);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            self.count(*bucket, *count);
        }
    }

    fn count(&mut self, bucket: u16, count: u64) {
        match self.0.iter_mut().find(|(of, _)| *of == bucket) {
            Some((_, counted)) => *counted += count,
            None => self.0.push((bucket, count)),
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Returns a percentile in milliseconds. `part` is the share of durations that are not longer,
    /// such as 0.99.
    pub(super) fn percentile(&self, part: f64) -> f64 {
        let mut buckets = self.0.clone();
        buckets.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let wanted = self.len() as f64 * part;
        let mut below = 0.0;
        for (bucket, count) in &buckets {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            let count = *count as f64;
            below += count;
            if below >= wanted {
                return 2_f64.powf((f64::from(*bucket) + 1.0) / STEPS) / 1e3;
            }
        }
        0.0
    }
}

impl Recorded {
    pub(super) fn take(&self) -> Measures {
        let values = &self.0;
        let queue = values.longest.swap(values.queue.load(Ordering::SeqCst), Ordering::SeqCst);
        let mut appends = values.appends.lock().unwrap_or_else(PoisonError::into_inner);
        Measures {
            queue: u64::try_from(queue).unwrap_or_default(),
            appends: std::mem::take(&mut *appends),
            conflicts: values.conflicts.swap(0, Ordering::SeqCst),
            outbox: 0,
        }
    }
}

impl CounterFn for Values {
    fn increment(&self, value: u64) {
        self.conflicts.fetch_add(value, Ordering::SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.conflicts.fetch_max(value, Ordering::SeqCst);
    }
}

impl GaugeFn for Values {
    fn increment(&self, value: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "a number of submissions")]
        let value = value as i64;
        let length = self.queue.fetch_add(value, Ordering::SeqCst) + value;
        self.longest.fetch_max(length, Ordering::SeqCst);
    }

    fn decrement(&self, value: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "a number of submissions")]
        self.queue.fetch_sub(value as i64, Ordering::SeqCst);
    }

    fn set(&self, value: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "a number of submissions")]
        self.queue.store(value as i64, Ordering::SeqCst);
    }
}

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner).add(value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() == CONFLICTS.name() {
            true => Counter::from_arc(self.0.clone()),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match key.name() == QUEUE_LENGTH.name() {
            true => Gauge::from_arc(self.0.clone()),
            false => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let is_append =
            key.labels().any(|it| it.key() == label::STORE_OPERATION && it.value() == "append");
        match key.name() == STORE_OPERATION_DURATION.name() && is_append {
            true => Histogram::from_arc(self.0.clone()),
            false => Histogram::noop(),
        }
    }
}
