//! Counters, gauges and histograms, and access to the installed recorder.

use std::{
    fmt, mem,
    sync::atomic::{AtomicBool, Ordering},
};

use metrics::{Key, Label, Level, Metadata, with_recorder};

use super::metric::ALL;

/// The labels of a value: names and values. A label without a value is omitted.
pub type Labels<'a> = &'a [(&'static str, Option<&'a str>)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) description: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Bytes,
    Count,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Instrument {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// A number that only increases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter(pub(super) Metric);

/// A number that increases and decreases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge(pub(super) Metric);

/// The distribution of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram(pub(super) Metric);

/// An amount added to a [`Gauge`]. Dropping the guard subtracts the amount.
///
/// The gauge is the sum of these amounts, for all stores of the process. Amounts from before the
/// installation of the recorder are not included.
pub struct GaugeGuard {
    gauge: metrics::Gauge,
    amount: f64,
}

static METADATA: Metadata<'static> = Metadata::new("tower_chat", Level::INFO, None);

/// Whether [`describe`] was called, which implies that a recorder is installed.
static IS_DESCRIBED: AtomicBool = AtomicBool::new(false);

/// Returns whether a recorder is installed, in the process or for the thread.
///
/// The `metrics` facade has no such function. This function therefore checks the size of the
/// recorder: the no-op recorder of the facade has no fields, and most other recorders have some. A
/// recorder that has no fields, because it forwards to a static variable, is recognised only after
/// [`describe`] was called.
pub fn is_recorded() -> bool {
    with_recorder(|recorder| mem::size_of_val(recorder) > 0) || IS_DESCRIBED.load(Ordering::Relaxed)
}

/// Registers the units and descriptions of all metrics with the installed recorder. Call this
/// function once, after the installation of the recorder.
///
/// ```
/// // metrics_exporter_prometheus::PrometheusBuilder::new().install()?;
/// tower_chat_core::telemetry::describe();
/// ```
pub fn describe() {
    IS_DESCRIBED.store(true, Ordering::Relaxed);
    with_recorder(|recorder| {
        for instrument in ALL {
            let (Instrument::Counter(Counter(metric))
            | Instrument::Gauge(Gauge(metric))
            | Instrument::Histogram(Histogram(metric))) = instrument;
            let unit = Some(match metric.unit {
                Unit::Seconds => metrics::Unit::Seconds,
                Unit::Bytes => metrics::Unit::Bytes,
                Unit::Count => metrics::Unit::Count,
            });
            let (name, description) = (metric.name.into(), metric.description.into());
            match instrument {
                Instrument::Counter(_) => recorder.describe_counter(name, unit, description),
                Instrument::Gauge(_) => recorder.describe_gauge(name, unit, description),
                Instrument::Histogram(_) => recorder.describe_histogram(name, unit, description),
            }
        }
    });
}

impl Metric {
    fn key(&self, labels: Labels<'_>) -> Key {
        let labels =
            labels.iter().filter_map(|(name, value)| Some(Label::new(*name, (*value)?.to_owned())));
        Key::from_parts(self.name, labels.collect::<Vec<_>>())
    }
}

impl Counter {
    /// Returns the name of the metric.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Adds to the counter.
    pub fn add(self, count: u64, labels: Labels<'_>) {
        if is_recorded() {
            let key = self.0.key(labels);
            with_recorder(|recorder| recorder.register_counter(&key, &METADATA)).increment(count);
        }
    }
}

impl Gauge {
    /// Returns the name of the metric.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Adds an amount to the gauge. Dropping the returned guard subtracts the amount. Returns
    /// `None` without a recorder.
    pub fn hold(self, amount: u64, labels: Labels<'_>) -> Option<GaugeGuard> {
        if !is_recorded() {
            return None;
        }
        let key = self.0.key(labels);
        let gauge = with_recorder(|recorder| recorder.register_gauge(&key, &METADATA));
        #[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
        let amount = amount as f64;
        gauge.increment(amount);
        Some(GaugeGuard { gauge, amount })
    }
}

impl Histogram {
    /// Returns the name of the metric.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Records a value. The unit of durations is seconds.
    pub fn record(self, value: f64, labels: Labels<'_>) {
        if is_recorded() {
            let key = self.0.key(labels);
            with_recorder(|recorder| recorder.register_histogram(&key, &METADATA)).record(value);
        }
    }

    /// Records a number of items or bytes.
    pub fn record_count(self, count: u64, labels: Labels<'_>) {
        #[expect(clippy::cast_precision_loss, reason = "histograms are of floating-point numbers")]
        self.record(count as f64, labels);
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.decrement(self.amount);
    }
}

impl fmt::Debug for GaugeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GaugeGuard").field("amount", &self.amount).finish_non_exhaustive()
    }
}
