//! A run with three service calls that sends its trace and metrics to an OpenTelemetry collector.
//!
//! By default, the collector is part of this program, and prints the trace as a tree and the
//! metrics as a table. If `OTEL_EXPORTER_OTLP_ENDPOINT` is set, the program sends OTLP as JSON over
//! HTTP to that endpoint, for example to Jaeger or the collector of OpenTelemetry:
//!
//! ```console
//! $ cargo run -p tower-chat-examples --features otlp --bin otlp
//! $ docker run --rm -p 16686:16686 -p 4318:4318 jaegertracing/jaeger
//! $ OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 \
//!     cargo run -p tower-chat-examples --features otlp --bin otlp
//! ```

mod collector;
mod recorder;

use opentelemetry::{metrics::MeterProvider, trace::TracerProvider};
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tower::ServiceExt;
use tower_chat::{
    ToolCall,
    prelude::*,
    request::{FinishReason, Usage},
    telemetry,
};
use tower_chat_testkit::{ScriptedModel, Step};
use tracing_subscriber::{filter::Targets, prelude::*};

use self::{collector::Collector, recorder::OtelRecorder};

/// The weather in a city.
#[tool]
async fn weather(city: String) -> String {
    format!("Rain in {city}.")
}

/// What hangs in the wardrobe.
#[tool]
async fn wardrobe() -> &'static str {
    "A coat."
}

fn main() -> Result<(), BoxError> {
    let runtime = tokio::runtime::Runtime::new()?;
    let (collector, endpoint) = match std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT") {
        Ok(endpoint) => (None, endpoint),
        Err(_) => {
            let collector = runtime.block_on(Collector::start())?;
            let endpoint = collector.endpoint();
            (Some(collector), endpoint)
        }
    };
    // Each exporter has its own thread with a blocking client. A blocking client cannot be created
    // inside the runtime.
    let exporting = Exporting::to(&endpoint)?;
    runtime.block_on(run())?;
    exporting.finish()?;
    if let Some(collector) = collector {
        println!("{}", collector.trace()?);
        println!("{}", collector.metrics()?);
    }
    Ok(())
}

struct Exporting {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Exporting {
    fn to(endpoint: &str) -> Result<Self, BoxError> {
        let resource = Resource::builder().with_service_name("stylist").build();
        let spans = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .build()?;
        let traces = SdkTracerProvider::builder()
            .with_resource(resource.clone())
            .with_batch_exporter(spans)
            .build();
        // tower-chat creates spans at the level `info`, and events at the level `debug`.
        let filter = Targets::new().with_target("tower_chat", tracing::Level::DEBUG);
        let layer = tracing_opentelemetry::layer()
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_tracer(traces.tracer("tower-chat"));
        tracing_subscriber::registry().with(layer.with_filter(filter)).try_init()?;

        let exporter = MetricExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(format!("{endpoint}/v1/metrics"))
            .build()?;
        let metrics = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_periodic_exporter(exporter)
            .build();
        let recorder = OtelRecorder::new(metrics.meter("tower-chat"));
        metrics::set_global_recorder(recorder).map_err(|error| error.to_string())?;
        telemetry::describe();
        Ok(Self { traces, metrics })
    }

    /// Exports the remaining spans and metrics.
    fn finish(self) -> Result<(), BoxError> {
        self.traces.shutdown()?;
        self.metrics.shutdown()?;
        Ok(())
    }
}

async fn run() -> Result<(), BoxError> {
    let answer = |message, reason| {
        Step::answer([message], Finish::new(reason).with_usage(Usage::new(300, 20)))
    };
    let call = |id, name, arguments| {
        let message = Message::tool_calls([ToolCall::new(id, name, arguments)]);
        answer(message, FinishReason::ToolCalls)
    };
    let model = ScriptedModel::new([
        call("call_1", "weather", r#"{"city": "Paris"}"#),
        call("call_2", "wardrobe", "{}"),
        answer(Message::assistant("Take the coat."), FinishReason::Stop),
    ]);
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("wardrobe.db")).await?;
    let agent = ChatPipeline::builder(model)
        .tools(Tools::new().with(weather()).with(wardrobe()))
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .agent_name("stylist")
        .provider_name("anthropic")
        .build()?;
    let mut options = ChatOptions::default();
    options.model = Some("claude".to_owned());
    let request = ChatRequest::user("What should I wear in Paris?")
        .in_conversation(ConversationKey::new("alice", "wardrobe"))
        .with_options(options);
    agent.oneshot(request).await?.collect().await?;
    store.close().await?;
    Ok(())
}
