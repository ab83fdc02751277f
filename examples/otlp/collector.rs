//! A local collector. It receives spans and metrics as OTLP in JSON over HTTP, and formats them as
//! text.

use std::{
    fmt::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Json, Router, extract::State, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_chat::BoxError;

#[derive(Clone, Default)]
struct Received(Arc<Mutex<Everything>>);

#[derive(Default)]
struct Everything {
    spans: Vec<Span>,
    /// All metrics of every export. Each value is a total since the start of the program. The last
    /// export of a metric therefore contains its final value.
    metrics: Vec<Metric>,
}

pub(crate) struct Collector {
    received: Received,
    endpoint: String,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Span {
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Deserialize, Clone)]
struct Event {
    name: String,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize, Clone)]
struct Attribute {
    key: String,
    value: Value,
}

#[derive(Deserialize, Clone)]
struct Metric {
    name: String,
    #[serde(default)]
    unit: String,
    histogram: Option<Points>,
    sum: Option<Points>,
    gauge: Option<Points>,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Points {
    data_points: Vec<Point>,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Point {
    #[serde(default)]
    attributes: Vec<Attribute>,
    /// The number of recorded values, if the metric is a histogram.
    count: Option<Value>,
    sum: Option<f64>,
    as_int: Option<Value>,
    as_double: Option<f64>,
}

impl Collector {
    /// Starts the collector on a free port of this machine.
    pub(crate) async fn start() -> Result<Self, BoxError> {
        let received = Received::default();
        let router = Router::new()
            .route("/v1/traces", post(take_spans))
            .route("/v1/metrics", post(take_metrics))
            .with_state(received.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async { axum::serve(listener, router).await });
        Ok(Self { received, endpoint })
    }

    pub(crate) fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// Formats the spans as a tree. Each span is followed by its events and the spans inside it.
    pub(crate) fn trace(&self) -> Result<String, BoxError> {
        let mut spans = self.received.everything().spans.clone();
        spans.sort_by_key(|span| span.started().unwrap_or_default());
        let mut text = String::new();
        let is_root = |span: &&Span| !spans.iter().any(|it| it.span_id == span.parent_span_id);
        for root in spans.iter().filter(is_root) {
            draw(&mut text, root, &spans, 0)?;
        }
        Ok(text)
    }

    /// Formats the metrics as a table, by name and labels.
    pub(crate) fn metrics(&self) -> Result<String, BoxError> {
        let metrics = self.received.everything().metrics.clone();
        let mut rows = Vec::new();
        for metric in &metrics {
            let kinds = [&metric.histogram, &metric.sum, &metric.gauge];
            for point in kinds.into_iter().flatten().flat_map(|points| &points.data_points) {
                let labels = fields(&point.attributes);
                rows.push((&metric.name, labels, point.value(metric)));
            }
        }
        rows.sort_unstable();
        let mut text = format!("{:52} {:>14}  labels\n", "metric", "value");
        for (name, labels, value) in rows {
            writeln!(text, "{name:52} {value:>14}  {labels}")?;
        }
        Ok(text)
    }
}

impl Received {
    fn everything(&self) -> MutexGuard<'_, Everything> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Span {
    fn started(&self) -> Result<u64, BoxError> {
        Ok(self.start_time_unix_nano.parse()?)
    }

    fn milliseconds(&self) -> Result<f64, BoxError> {
        let nanoseconds = self.end_time_unix_nano.parse::<u64>()?.saturating_sub(self.started()?);
        Ok(std::time::Duration::from_nanos(nanoseconds).as_secs_f64() * 1e3)
    }
}

impl Point {
    /// Formats the value. A histogram is formatted as the number of its values and their mean.
    fn value(&self, metric: &Metric) -> String {
        let number = |value: &Value| match value {
            // In the JSON of OTLP, integers of 64 bits are strings.
            Value::String(text) => text.parse().ok(),
            other => other.as_f64(),
        };
        match (self.count.as_ref().and_then(number), &self.as_int, self.as_double) {
            (Some(count), _, _) if metric.unit == "s" => {
                format!("{count} x {:.1} ms", self.sum.unwrap_or_default() / count * 1e3)
            }
            (Some(count), _, _) => {
                format!("{count} x {:.1}", self.sum.unwrap_or_default() / count)
            }
            (None, Some(value), _) => number(value).unwrap_or_default().to_string(),
            (None, None, value) => value.unwrap_or_default().to_string(),
        }
    }
}

/// Returns the spans or metrics in the body of an export. They are in lists by scope, inside lists
/// by resource.
fn lists(body: &Value, outer: &str, middle: &str, inner: &str) -> Vec<Value> {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let scopes = list(body, outer).into_iter().flat_map(|it| list(&it, middle));
    scopes.flat_map(|it| list(&it, inner)).collect()
}

async fn take_spans(State(received): State<Received>, Json(body): Json<Value>) -> Json<Value> {
    let spans = lists(&body, "resourceSpans", "scopeSpans", "spans");
    received.everything().spans.extend(spans.into_iter().filter_map(read));
    Json(json!({}))
}

async fn take_metrics(State(received): State<Received>, Json(body): Json<Value>) -> Json<Value> {
    let metrics = lists(&body, "resourceMetrics", "scopeMetrics", "metrics");
    received.everything().metrics = metrics.into_iter().filter_map(read).collect();
    Json(json!({}))
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value).inspect_err(|error| eprintln!("not OTLP: {error}")).ok()
}

fn draw(text: &mut String, span: &Span, all: &[Span], depth: usize) -> Result<(), BoxError> {
    let (indent, name) = ("  ".repeat(depth), &span.name);
    writeln!(text, "{indent}{name}  {:.1} ms  {}", span.milliseconds()?, fields(&span.attributes))?;
    for event in &span.events {
        writeln!(text, "{indent}  * {}  {}", event.name, fields(&event.attributes))?;
    }
    for child in all.iter().filter(|it| it.parent_span_id == span.span_id) {
        draw(text, child, all, depth + 1)?;
    }
    Ok(())
}

fn fields(attributes: &[Attribute]) -> String {
    let mut fields: Vec<String> = attributes
        .iter()
        .filter(|attribute| !["level", "target"].contains(&attribute.key.as_str()))
        .map(|Attribute { key, value }| {
            let value = value.as_object().and_then(|value| value.values().next());
            match value {
                Some(Value::String(text)) => format!("{key}={text}"),
                other => format!("{key}={}", other.unwrap_or(&Value::Null)),
            }
        })
        .collect();
    fields.sort_unstable();
    fields.join(" ")
}
