//! Spans of `tracing` for runs, service calls, tools and stores, with the names of OpenTelemetry's
//! conventions for generative AI.
//!
//! | span | operation | created by |
//! |---|---|---|
//! | `invoke_agent` | a run | [`TelemetryLayer::agent`], above all other layers |
//! | `chat` | a service call | [`TelemetryLayer::chat`], directly above the client |
//! | `execute_tool` | a call of a tool | the tool loop |
//! | `load`, `append`, ... | an operation of a store | [`TracedStore`] |
//!
//! [`ChatPipeline`](crate::ChatPipeline) creates all four kinds. With
//! [`use_client_as_is`](crate::ChatPipelineBuilder::use_client_as_is), the pipeline creates only
//! the spans of runs and of the store. The span of a streamed answer ends at the end of the stream.
//! The field `tower_chat.outcome` of a span is `completed`, `failed`, or `dropped` if the caller
//! has dropped the response. If no subscriber is interested in the spans, nothing is recorded.
//! `tracing-opentelemetry` sends the spans to a collector.
//!
//! Spans contain the text of users, models and tools only if [`TelemetryLayer::with_content`]
//! enables this.
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_chat::{
//!     MemoryStore, Tools,
//!     layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
//! };
//! use tower_chat::telemetry::{TelemetryLayer, TracedStore};
//! # let model = tower_chat_testkit::ScriptedModel::new([]);
//! let store = TracedStore::new(MemoryStore::new());
//! let stack = ServiceBuilder::new()
//!     .layer(TelemetryLayer::agent().with_name("wardrobe"))
//!     .layer(PerRunPersistence::new(store.clone()))
//!     .layer(ToolLoopLayer::new(Tools::new()))
//!     .layer(PerServiceCallPersistence::new(store))
//!     .layer(TelemetryLayer::chat().with_name("openai"))
//!     .service(model);
//! # let _ = stack;
//! ```

mod layer;
mod measured;
mod open_span;
mod run_events;
mod run_span;
mod spans;

pub use self::layer::{Telemetry, TelemetryLayer};
pub(crate) use self::{
    measured::Measured,
    open_span::OpenSpan,
    run_events::{lease_renewed, nothing_to_summarize, repaired, summarized, taken_over},
    run_span::{records_content, report_mode},
    spans::tool,
};
pub use tower_chat_core::telemetry::{TracedStore, describe, metric};
