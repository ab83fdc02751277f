//! A `metrics` recorder that forwards all metrics to OpenTelemetry.
//!
//! The `metrics` crate requests a handle from the recorder each time a metric is recorded. The
//! recorder therefore stores each instrument under its name, and the current value of each gauge
//! under its labels. The published bridge (`metrics-exporter-opentelemetry` 0.2.2) stores neither,
//! so that each change of a gauge would be a change from zero.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use opentelemetry::{KeyValue, metrics::Meter};

/// The bucket boundaries for durations in seconds: the boundaries of the semantic conventions for
/// generative AI, and smaller ones for stores. The SDK has default boundaries for milliseconds.
const SECONDS: [f64; 17] = [
    0.0001, 0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48,
    40.96, 81.92,
];
/// The bucket boundaries for numbers of tokens.
const COUNTS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

pub(crate) struct OtelRecorder {
    meter: Meter,
    instruments: Mutex<Instruments>,
}

#[derive(Default)]
struct Instruments {
    described: HashMap<String, (&'static str, String)>,
    counters: HashMap<String, opentelemetry::metrics::Counter<u64>>,
    gauges: HashMap<String, opentelemetry::metrics::Gauge<f64>>,
    histograms: HashMap<String, opentelemetry::metrics::Histogram<f64>>,
    present: HashMap<Key, Arc<Mutex<f64>>>,
}

impl OtelRecorder {
    pub(crate) fn new(meter: Meter) -> Self {
        Self { meter, instruments: Mutex::default() }
    }

    fn instruments(&self) -> MutexGuard<'_, Instruments> {
        lock(&self.instruments)
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, description: &SharedString) {
        // OpenTelemetry requires the unit codes of UCUM.
        let unit = match unit {
            Some(Unit::Seconds) => "s",
            Some(Unit::Bytes) => "By",
            _ => "1",
        };
        let described = (unit, description.to_string());
        self.instruments().described.insert(name.as_str().to_owned(), described);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|it| KeyValue::new(it.key().to_owned(), it.value().to_owned())).collect()
}

impl Recorder for OtelRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&name, unit, &description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&name, unit, &description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(&name, unit, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let Instruments { counters, described, .. } = &mut *self.instruments();
        let name = key.name().to_owned();
        let instrument = counters.entry(name.clone()).or_insert_with(|| {
            let (unit, description) = described.get(&name).cloned().unwrap_or_default();
            self.meter.u64_counter(name).with_unit(unit).with_description(description).build()
        });
        let attributes = attributes(key);
        Counter::from_arc(Arc::new(Labelled { instrument: instrument.clone(), attributes }))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let Instruments { gauges, described, present, .. } = &mut *self.instruments();
        let name = key.name().to_owned();
        let instrument = gauges.entry(name.clone()).or_insert_with(|| {
            let (unit, description) = described.get(&name).cloned().unwrap_or_default();
            self.meter.f64_gauge(name).with_unit(unit).with_description(description).build()
        });
        let present = present.entry(key.clone()).or_default().clone();
        let labelled = Labelled { instrument: instrument.clone(), attributes: attributes(key) };
        Gauge::from_arc(Arc::new(LabelledGauge { labelled, present }))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let Instruments { histograms, described, .. } = &mut *self.instruments();
        let name = key.name().to_owned();
        let instrument = histograms.entry(name.clone()).or_insert_with(|| {
            let (unit, description) = described.get(&name).cloned().unwrap_or_default();
            let boundaries = if unit == "s" { SECONDS.to_vec() } else { COUNTS.to_vec() };
            self.meter
                .f64_histogram(name)
                .with_unit(unit)
                .with_description(description)
                .with_boundaries(boundaries)
                .build()
        });
        let attributes = attributes(key);
        Histogram::from_arc(Arc::new(Labelled { instrument: instrument.clone(), attributes }))
    }
}

struct Labelled<I> {
    instrument: I,
    attributes: Vec<KeyValue>,
}

struct LabelledGauge {
    labelled: Labelled<opentelemetry::metrics::Gauge<f64>>,
    present: Arc<Mutex<f64>>,
}

impl CounterFn for Labelled<opentelemetry::metrics::Counter<u64>> {
    fn increment(&self, value: u64) {
        self.instrument.add(value, &self.attributes);
    }

    /// Does nothing: tower-chat only increments counters, and a counter of OpenTelemetry cannot be
    /// set to a value.
    fn absolute(&self, _: u64) {}
}

impl LabelledGauge {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut present = lock(&self.present);
        *present = change(*present);
        self.labelled.instrument.record(*present, &self.labelled.attributes);
    }
}

impl GaugeFn for LabelledGauge {
    fn increment(&self, value: f64) {
        self.change(|present| present + value);
    }

    fn decrement(&self, value: f64) {
        self.change(|present| present - value);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Labelled<opentelemetry::metrics::Histogram<f64>> {
    fn record(&self, value: f64) {
        self.instrument.record(value, &self.attributes);
    }
}
