//! The spans and their fields. This module defines all names, except the names of the spans of
//! stores, which `tower-chat-core` defines.
//!
//! The names are those of the semantic conventions for generative AI, version 1.41.0
//! (<https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai>).
//! `tracing-opentelemetry` reads the fields `otel.*`. The fields `tower_chat.*` are defined by this
//! crate.

use serde_json::Value;
use tower_chat_core::{
    BoxError, ChatRequest, Conversation, ConversationKey, Finish, FinishReason, Message,
    TruncatedStream, telemetry::Outcome,
};
use tracing::{
    Span,
    field::{Empty, display},
    info_span,
};

use crate::{
    DeadlineExceeded, PersistenceError, ToolLoopError, idle_timeout::IdleTimeoutExceeded,
    tool::PendingCall,
};

pub(super) fn agent(request: &ChatRequest, name: Option<&str>) -> Span {
    let key = key(request);
    info_span!(
        "invoke_agent",
        "otel.name" = name.map(|name| format!("invoke_agent {name}")),
        "otel.kind" = "internal",
        "otel.status_code" = Empty,
        "gen_ai.operation.name" = "invoke_agent",
        "gen_ai.agent.name" = name,
        "gen_ai.conversation.id" = key.map(|key| key.id()),
        "gen_ai.request.model" = request.options.model.as_deref(),
        "gen_ai.response.model" = Empty,
        "gen_ai.response.finish_reasons" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.input.messages" = Empty,
        "gen_ai.output.messages" = Empty,
        "error.type" = Empty,
        "tower_chat.scope" = key.map(|key| key.scope()),
        "tower_chat.mode" = Empty,
        "tower_chat.streamed" = request.options.stream,
        "tower_chat.ended_by" = Empty,
        "tower_chat.outcome" = Empty,
    )
}

pub(super) fn chat(request: &ChatRequest, provider: Option<&str>) -> Span {
    let options = &request.options;
    let model = options.model.as_deref();
    info_span!(
        "chat",
        "otel.name" = model.map(|model| format!("chat {model}")),
        "otel.kind" = "client",
        "otel.status_code" = Empty,
        "gen_ai.operation.name" = "chat",
        "gen_ai.provider.name" = provider,
        "gen_ai.conversation.id" = key(request).map(|key| key.id()),
        "gen_ai.request.model" = model,
        "gen_ai.request.temperature" = options.temperature,
        "gen_ai.request.top_p" = options.top_p,
        "gen_ai.request.max_tokens" = options.max_output_tokens,
        "gen_ai.response.model" = Empty,
        "gen_ai.response.finish_reasons" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.input.messages" = Empty,
        "gen_ai.output.messages" = Empty,
        "error.type" = Empty,
        "tower_chat.streamed" = options.stream,
        "tower_chat.messages" = request.messages().len(),
        "tower_chat.ended_by" = Empty,
        "tower_chat.outcome" = Empty,
    )
}

pub(crate) fn tool(call: &PendingCall, key: Option<&ConversationKey>, has_content: bool) -> Span {
    info_span!(
        "execute_tool",
        "otel.name" = format!("execute_tool {}", call.name()),
        "otel.kind" = "internal",
        "otel.status_code" = Empty,
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.conversation.id" = key.map(|key| key.id()),
        "gen_ai.tool.name" = call.name(),
        "gen_ai.tool.type" = "function",
        "gen_ai.tool.call.id" = call.id(),
        "gen_ai.tool.call.arguments" = has_content.then(|| &*call.call().arguments),
        "gen_ai.tool.call.result" = Empty,
        "error.type" = Empty,
        "tower_chat.outcome" = Empty,
    )
}

pub(super) fn record_outcome(span: &Span, outcome: Outcome) {
    span.record("tower_chat.outcome", outcome.as_str());
}

/// Records the fields that are known when an answer is complete.
pub(super) fn record_finish(span: &Span, finish: &Finish) {
    if let Some(reason) = &finish.reason {
        span.record("gen_ai.response.finish_reasons", finish_reason(reason));
    }
    if let Some(model) = &finish.model {
        span.record("gen_ai.response.model", &**model);
    }
    if let Some(ended_by) = &finish.ended_by {
        span.record("tower_chat.ended_by", tracing::field::debug(ended_by));
    }
    let usage = &finish.usage;
    if usage.total_tokens() > 0 {
        span.record("gen_ai.usage.input_tokens", usage.input_tokens);
        span.record("gen_ai.usage.output_tokens", usage.output_tokens);
        span.record("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens);
    }
}

/// Records the type of an error. The text may contain content.
pub(super) fn record_error(span: &Span, error: &'static str) {
    span.record("error.type", error);
    span.record("otel.status_code", "ERROR");
}

pub(super) fn record_mode(span: &Span, mode: &'static str) {
    span.record("tower_chat.mode", mode);
}

pub(super) fn record_input<'m>(span: &Span, messages: impl Iterator<Item = &'m Message>) {
    span.record("gen_ai.input.messages", display(content(messages)));
}

pub(super) fn record_output<'m>(span: &Span, messages: impl Iterator<Item = &'m Message>) {
    span.record("gen_ai.output.messages", display(content(messages)));
}

pub(super) fn record_result(span: &Span, text: Option<&str>) {
    if let Some(text) = text {
        span.record("gen_ai.tool.call.result", text);
    }
}

/// The value that the conventions define for an error whose type has no name.
const OTHER: &str = "_OTHER";

/// The error type of a tool call that failed or whose result is an error.
pub(super) const TOOL_ERROR: &str = "tool_error";

pub(super) fn error_type(error: &BoxError) -> &'static str {
    if error.is::<ToolLoopError>() {
        "tool_loop"
    } else if error.is::<PersistenceError>() {
        "persistence"
    } else if error.is::<DeadlineExceeded>() || error.is::<IdleTimeoutExceeded>() {
        "timeout"
    } else if error.is::<TruncatedStream>() {
        "truncated_stream"
    } else {
        OTHER
    }
}

fn finish_reason(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Other(other) => other,
        _ => OTHER,
    }
}

fn content<'m>(messages: impl Iterator<Item = &'m Message>) -> Value {
    messages.map(|message| serde_json::to_value(message).unwrap_or_default()).collect()
}

fn key(request: &ChatRequest) -> Option<&ConversationKey> {
    request.extensions.get::<Conversation>().map(|conversation| &conversation.key)
}
