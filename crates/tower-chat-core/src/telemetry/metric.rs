//! All metrics, with their units and descriptions. The names are defined only here.
//!
//! The names `gen_ai.client.*`, and the names of the spans, are those of OpenTelemetry's semantic
//! conventions for generative AI, version 1.41.0
//! (<https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai>).
//! `gen_ai.invoke_agent.duration` and `gen_ai.execute_tool.duration` are from
//! <https://github.com/open-telemetry/semantic-conventions-genai>, the successor of these
//! conventions, which has no release yet (2026-11). The names `tower_chat.*` are defined by this
//! project.
//!
//! Each label has a small number of values: an operation, a kind of store, a model, a tool or a
//! type of error. A conversation is never a label. If the conventions have an attribute for a
//! label, the label has the name of that attribute ([`label`]).

use super::instrument::{Counter, Gauge, Histogram, Instrument, Metric, Unit};

/// The names of labels.
pub mod label {
    /// The operation: `invoke_agent`, `chat` or `execute_tool`.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// The provider of the model.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// The requested model.
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    /// The model that returned the answer.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// `input` or `output`.
    pub const TOKEN_TYPE: &str = "gen_ai.token.type";
    /// The agent.
    pub const AGENT: &str = "gen_ai.agent.name";
    /// The tool.
    pub const TOOL: &str = "gen_ai.tool.name";
    /// The type of the error.
    pub const ERROR: &str = "error.type";
    /// The store's system: `sqlite`, `postgresql`, `redis` or `memory`.
    pub const SYSTEM: &str = "db.system.name";
    /// An operation of a store: `load`, `append`, `reserve` and so on.
    pub const STORE_OPERATION: &str = "db.operation.name";
    /// The persistence mode: `per_run`, `per_service_call` or `journaled`.
    pub const MODE: &str = "tower_chat.mode";
    /// The outcome of an operation: `completed`, `failed` or `dropped`.
    pub const OUTCOME: &str = "tower_chat.outcome";
    /// The result of a cache lookup: `hit`, `revalidated` or `miss`.
    pub const CACHE_RESULT: &str = "tower_chat.cache.result";
}

macro_rules! metrics {
    ($($id:ident: $kind:ident = $name:literal, $unit:ident, $description:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $description)]
            pub const $id: $kind = $kind(Metric {
                name: $name,
                unit: Unit::$unit,
                description: $description,
            });
        )*
        pub(super) const ALL: &[Instrument] = &[$(Instrument::$kind($id)),*];
    };
}

metrics! {
    RUN_DURATION: Histogram = "gen_ai.invoke_agent.duration", Seconds,
        "The duration of a run, from its request to the end of its answer.";
    SERVICE_CALL_DURATION: Histogram = "gen_ai.client.operation.duration", Seconds,
        "The duration of a service call, from its request to the end of its answer.";
    TIME_TO_FIRST_CHUNK: Histogram = "gen_ai.client.operation.time_to_first_chunk", Seconds,
        "The time from a request to the first chunk of its streamed answer.";
    TOKENS: Histogram = "gen_ai.client.token.usage", Count,
        "The number of input and output tokens of a service call.";
    CACHED_TOKENS: Histogram = "tower_chat.client.cached_tokens", Count,
        "The number of input tokens of a service call that the provider read from its cache.";
    REASONING_TOKENS: Histogram = "tower_chat.client.reasoning_tokens", Count,
        "The number of output tokens of a service call that are reasoning.";
    TOOL_DURATION: Histogram = "gen_ai.execute_tool.duration", Seconds,
        "The duration of a tool call.";
    ERRORS: Counter = "tower_chat.errors", Count,
        "The number of failed runs, service calls, tool calls and store operations.";

    REPAIRED_CALLS: Counter = "tower_chat.run.repaired_calls", Count,
        "The number of stored tool calls without a result that were sent with a made-up result, or \
         omitted from the request.";
    TAKEOVERS: Counter = "tower_chat.run.takeovers", Count,
        "The number of open runs that were resumed after an earlier attempt.";
    LEASE_RENEWALS: Counter = "tower_chat.run.lease_renewals", Count,
        "The number of renewals of leases of open runs, including failed renewals.";
    SUMMARIES: Counter = "tower_chat.run.summaries", Count,
        "The number of runs that have made a summary of their conversation, or failed to make one.";

    STORE_OPERATION_DURATION: Histogram = "tower_chat.store.operation.duration", Seconds,
        "The duration of a store operation for its caller. An append ends when it is durable.";
    QUEUE_DURATION: Histogram = "tower_chat.store.queue.duration", Seconds,
        "The time that a submission waited in the queue of a store.";
    QUEUE_LENGTH: Gauge = "tower_chat.store.queue.length", Count,
        "The number of submissions that are in the queue of a store, or being stored.";
    QUEUE_WRITES: Gauge = "tower_chat.store.queue.writes", Count,
        "The number of writes that are in the queue of a store, or being stored.";
    QUEUE_BYTES: Gauge = "tower_chat.store.queue.size", Bytes,
        "The size of the writes that are in the queue of a store, or being stored.";
    COMMIT_DURATION: Histogram = "tower_chat.store.commit.duration", Seconds,
        "The duration of the commit of a group of writes.";
    COMMIT_WRITES: Histogram = "tower_chat.store.commit.writes", Count,
        "The number of writes that a store committed as a group.";
    COMMIT_BYTES: Histogram = "tower_chat.store.commit.size", Bytes,
        "The size of the messages that a store committed as a group; in SQLite, also of results that \
         are stored outside messages.";
    READ_BYTES: Histogram = "tower_chat.store.read.size", Bytes,
        "The size of the messages that a store read to load a conversation.";
    CONFLICTS: Counter = "tower_chat.store.conflicts", Count,
        "The number of writes that were refused, because the conversation was not at the expected \
         revision.";
    RETRIES: Counter = "tower_chat.store.retries", Count,
        "The number of retried requests to the server of a store.";
    CONNECTIONS: Gauge = "tower_chat.store.connections", Count,
        "The number of open connections to the server of a store.";

    OUTBOX_MESSAGES: Gauge = "tower_chat.outbox.messages", Count,
        "The number of messages in memory that could not be stored yet.";
    OUTBOX_FAILURES: Counter = "tower_chat.outbox.failures", Count,
        "The number of failed submissions whose writes were added to the outbox.";

    CACHE_LOADS: Counter = "tower_chat.cache.loads", Count,
        "The number of loads of histories and heads through a cache.";
    CACHE_EVICTIONS: Counter = "tower_chat.cache.evictions", Count,
        "The number of conversations that a cache evicted to free space for others.";
    CACHE_ENTRIES: Gauge = "tower_chat.cache.entries", Count,
        "The number of conversations in a cache.";
    CACHE_BYTES: Gauge = "tower_chat.cache.size", Bytes,
        "The size of the conversations in a cache, without their keys.";
}
