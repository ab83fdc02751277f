//! Counters, gauges and histograms by their names, and the installed recorder.

use std::{
    fmt, mem,
    sync::atomic::{AtomicBool, Ordering},
};

use metrics::{Key, Label, Level, Metadata, with_recorder};

use super::metric::ALL;

/// What a value is about: names of labels with their values. A label without a value is left out.
pub type Labels<'a> = &'a [(&'static str, Option<&'a str>)];

/// A metric.
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

/// One of the kinds of metrics.
#[derive(Debug, Clone, Copy)]
pub(super) enum Instrument {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

/// A number that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter(pub(super) Metric);

/// A number that grows and shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge(pub(super) Metric);

/// The distribution of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histogram(pub(super) Metric);

/// A part of a [`Gauge`], which is given back when this is dropped.
///
/// A gauge that is the sum of such parts is right for several stores in one process. What was there
/// before the recorder is not in it.
pub struct GaugeGuard {
    gauge: metrics::Gauge,
    amount: f64,
}

static METADATA: Metadata<'static> = Metadata::new("tower_chat", Level::INFO, None);

/// [`describe`] was called, so a recorder is there.
static IS_DESCRIBED: AtomicBool = AtomicBool::new(false);

/// Whether metrics go anywhere: a recorder is installed, in the process or for the thread.
///
/// The facade does not tell whether there is one. Its stand-in for none has no fields, while a
/// recorder keeps what it records; one without fields, which forwards to a static variable, is found
/// once [`describe`] was called.
pub fn is_recorded() -> bool {
    with_recorder(|recorder| mem::size_of_val(recorder) > 0) || IS_DESCRIBED.load(Ordering::Relaxed)
}

/// Gives the units and descriptions of all metrics to the installed recorder. Call it once, after
/// the recorder was installed.
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
    /// The name under which it is recorded.
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
    /// The name under which it is recorded.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Adds an amount for as long as the guard exists. `None` without a recorder.
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
    /// The name under which it is recorded.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Adds a value: seconds for a duration.
    pub fn record(self, value: f64, labels: Labels<'_>) {
        if is_recorded() {
            let key = self.0.key(labels);
            with_recorder(|recorder| recorder.register_histogram(&key, &METADATA)).record(value);
        }
    }

    /// Adds a number of things, or of bytes.
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
