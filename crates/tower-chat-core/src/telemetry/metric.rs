//! All metrics, with their units and descriptions. The names are defined only here.
//!
//! The names `gen_ai.client.*`, and the names of the spans, are those of OpenTelemetry's semantic
//! conventions for generative AI, version 1.41.0
//! (<https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai>).
//! `gen_ai.invoke_agent.duration` and `gen_ai.execute_tool.duration` are from
//! <https://github.com/open-telemetry/semantic-conventions-genai>, which continues these
//! conventions and has no release yet (2026-11). The names `tower_chat.*` are our own.
//!
//! Each label has few values: an operation, a store's system, a model, a tool or a type of error,
//! never a conversation. If the conventions have an attribute for a label, the label has its name
//! ([`label`]).

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
    /// How an operation ended: `completed`, `failed` or `dropped`.
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
        "How long a run took, from its request to the end of its answer.";
    SERVICE_CALL_DURATION: Histogram = "gen_ai.client.operation.duration", Seconds,
        "How long a service call took, from its request to the end of its answer.";
    TIME_TO_FIRST_CHUNK: Histogram = "gen_ai.client.operation.time_to_first_chunk", Seconds,
        "How long the first chunk of a streamed answer took.";
    TOKENS: Histogram = "gen_ai.client.token.usage", Count,
        "How many tokens a service call read and wrote.";
    CACHED_TOKENS: Histogram = "tower_chat.client.cached_tokens", Count,
        "How many of the tokens that a service call read came from the provider's cache.";
    REASONING_TOKENS: Histogram = "tower_chat.client.reasoning_tokens", Count,
        "How many of the tokens that a service call wrote were reasoning.";
    TOOL_DURATION: Histogram = "gen_ai.execute_tool.duration", Seconds,
        "How long a call of a tool took.";
    ERRORS: Counter = "tower_chat.errors", Count,
        "Runs, service calls, tool calls and operations of stores that failed.";

    REPAIRED_CALLS: Counter = "tower_chat.run.repaired_calls", Count,
        "Stored tool calls without a result, of which the model was told or which it was not shown.";
    TAKEOVERS: Counter = "tower_chat.run.takeovers", Count,
        "Open runs that were taken over from an earlier attempt.";
    LEASE_RENEWALS: Counter = "tower_chat.run.lease_renewals", Count,
        "Renewals of leases of open runs, those that failed too.";

    STORE_OPERATION_DURATION: Histogram = "tower_chat.store.operation.duration", Seconds,
        "How long an operation of a store took for its caller: a load, an append until it is durable.";
    QUEUE_DURATION: Histogram = "tower_chat.store.queue.duration", Seconds,
        "How long a submission waited in a store's queue.";
    QUEUE_LENGTH: Gauge = "tower_chat.store.queue.length", Count,
        "Submissions that are in a store's queue, or being stored.";
    QUEUE_WRITES: Gauge = "tower_chat.store.queue.writes", Count,
        "Writes that are in a store's queue, or being stored.";
    QUEUE_BYTES: Gauge = "tower_chat.store.queue.size", Bytes,
        "Bytes of the writes that are in a store's queue, or being stored.";
    COMMIT_DURATION: Histogram = "tower_chat.store.commit.duration", Seconds,
        "How long a store took to make writes durable that it stores together.";
    COMMIT_WRITES: Histogram = "tower_chat.store.commit.writes", Count,
        "How many writes a store made durable together.";
    COMMIT_BYTES: Histogram = "tower_chat.store.commit.size", Bytes,
        "Bytes of the messages that a store made durable together; in SQLite of results apart, too.";
    READ_BYTES: Histogram = "tower_chat.store.read.size", Bytes,
        "Bytes of messages that a store read to load a conversation.";
    CONFLICTS: Counter = "tower_chat.store.conflicts", Count,
        "Writes that were refused since the conversation was not at the revision they expect.";
    RETRIES: Counter = "tower_chat.store.retries", Count,
        "Requests to a store's server that were sent again.";
    CONNECTIONS: Gauge = "tower_chat.store.connections", Count,
        "Open connections to a store's server.";

    OUTBOX_MESSAGES: Gauge = "tower_chat.outbox.messages", Count,
        "Messages that could not be stored and wait in memory.";
    OUTBOX_FAILURES: Counter = "tower_chat.outbox.failures", Count,
        "Failed submissions whose writes went into the outbox.";

    CACHE_LOADS: Counter = "tower_chat.cache.loads", Count,
        "Loads and heads that a cache was asked for.";
    CACHE_EVICTIONS: Counter = "tower_chat.cache.evictions", Count,
        "Conversations that a cache dropped to make room for others.";
    CACHE_ENTRIES: Gauge = "tower_chat.cache.entries", Count,
        "Conversations in a cache.";
    CACHE_BYTES: Gauge = "tower_chat.cache.size", Bytes,
        "Bytes that a cache counts for its conversations, without their names.";

    UNSTORED_WRITES: Gauge = "tower_chat.write_behind.unstored_writes", Count,
        "Writes that were acknowledged by a write-behind store and are not stored yet.";
    FLUSH_WRITES: Histogram = "tower_chat.write_behind.flush.writes", Count,
        "How many gathered writes of a conversation were stored together.";
    FLUSH_DURATION: Histogram = "tower_chat.write_behind.flush.duration", Seconds,
        "How long it took to store the gathered writes of a conversation.";
}
