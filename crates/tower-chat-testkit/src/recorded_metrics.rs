//! [`RecordedMetrics`], a recorder of metrics whose values a test can read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, LocalRecorderGuard,
    Metadata, Recorder, SetRecorderError, SharedString, Unit,
};

/// Records metrics of a thread or of the process, and returns the recorded values.
///
/// ```
/// use tower_chat_core::telemetry::metric::{RETRIES, label};
/// use tower_chat_testkit::RecordedMetrics;
///
/// let metrics = RecordedMetrics::new();
/// let _recording = metrics.record_this_thread();
/// RETRIES.add(2, &[(label::SYSTEM, Some("redis"))]);
/// assert_eq!(metrics.lines(), ["tower_chat.store.retries{db.system.name=redis} 2"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct RecordedMetrics(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    metrics: BTreeMap<String, Values>,
    described: BTreeMap<String, (Option<Unit>, String)>,
}

#[derive(Debug, Clone)]
enum Values {
    Counter(u64),
    Gauge(f64),
    Histogram(Vec<f64>),
}

impl RecordedMetrics {
    /// Creates a recorder without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the metrics of this thread until the returned guard is dropped.
    pub fn record_this_thread(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    /// Records the metrics of the process until the process ends.
    ///
    /// # Errors
    ///
    /// Fails if the process already has a recorder.
    pub fn record_process(&self) -> Result<(), SetRecorderError<Self>> {
        metrics::set_global_recorder(self.clone())
    }

    /// Returns one line for each combination of a metric and its labels, in byte order. The line
    /// contains the sum of a counter, the number of values of a histogram, or the current value of
    /// a gauge.
    pub fn lines(&self) -> Vec<String> {
        let recorded = self.recorded();
        let line = |(key, values): (&String, &Values)| match values {
            Values::Counter(sum) => format!("{key} {sum}"),
            Values::Gauge(value) => format!("{key} = {value}"),
            Values::Histogram(values) => format!("{key} {} values", values.len()),
        };
        recorded.metrics.iter().map(line).collect()
    }

    /// Returns the lines of the metrics whose name begins with this prefix.
    pub fn lines_of(&self, prefix: &str) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| line.starts_with(prefix));
        lines
    }

    /// Returns the values of a histogram for all combinations of labels, in the order of the
    /// labels.
    pub fn values(&self, name: &str) -> Vec<f64> {
        let recorded = self.recorded();
        let of_name =
            recorded.metrics.iter().filter(|(key, _)| key.split('{').next() == Some(name));
        let values = of_name.filter_map(|(_, values)| match values {
            Values::Histogram(values) => Some(values.clone()),
            Values::Counter(_) | Values::Gauge(_) => None,
        });
        values.flatten().collect()
    }

    /// Returns the unit and the description of a metric, if it was described.
    pub fn described(&self, name: &str) -> Option<(Option<Unit>, String)> {
        self.recorded().described.get(name).cloned()
    }

    /// Returns the names of the described metrics, in byte order.
    pub fn described_names(&self) -> Vec<String> {
        self.recorded().described.keys().cloned().collect()
    }

    /// Removes all recorded values.
    pub fn clear(&self) {
        self.recorded().metrics.clear();
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, description: &SharedString) {
        let described = (unit, description.to_string());
        self.recorded().described.insert(name.as_str().to_owned(), described);
    }

    fn handle(&self, key: &Key, empty: Values) -> Arc<Handle> {
        let mut labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort_unstable();
        let key = match labels.is_empty() {
            true => key.name().to_owned(),
            false => format!("{}{{{}}}", key.name(), labels.join(",")),
        };
        Arc::new(Handle { recorded: self.clone(), key, empty })
    }
}

/// A metric with its labels.
struct Handle {
    recorded: RecordedMetrics,
    key: String,
    empty: Values,
}

impl Handle {
    fn change(&self, change: impl FnOnce(&mut Values)) {
        let mut recorded = self.recorded.recorded();
        change(recorded.metrics.entry(self.key.clone()).or_insert_with(|| self.empty.clone()));
    }

    fn change_gauge(&self, change: impl FnOnce(f64) -> f64) {
        self.change(|values| {
            if let Values::Gauge(value) = values {
                *value = change(*value);
            }
        });
    }

    fn change_counter(&self, change: impl FnOnce(u64) -> u64) {
        self.change(|values| {
            if let Values::Counter(sum) = values {
                *sum = change(*sum);
            }
        });
    }
}

impl CounterFn for Handle {
    fn increment(&self, value: u64) {
        self.change_counter(|sum| sum.saturating_add(value));
    }

    fn absolute(&self, value: u64) {
        self.change_counter(|sum| sum.max(value));
    }
}

impl GaugeFn for Handle {
    fn increment(&self, value: f64) {
        self.change_gauge(|before| before + value);
    }

    fn decrement(&self, value: f64) {
        self.change_gauge(|before| before - value);
    }

    fn set(&self, value: f64) {
        self.change_gauge(|_| value);
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        self.change(|values| {
            if let Values::Histogram(values) = values {
                values.push(value);
            }
        });
    }
}

impl Recorder for RecordedMetrics {
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
        Counter::from_arc(self.handle(key, Values::Counter(0)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key, Values::Gauge(0.0)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key, Values::Histogram(Vec::new())))
    }
}
