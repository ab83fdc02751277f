//! Prints a conversation as JSON.

use serde::Serialize;
use serde_json::Value;
use tower_chat::Part;
use tower_chat_explain::Explained;

use super::conversation::{StoredCall, StoredConversation, StoredMessage};
use crate::time::{between, exact};

/// Returns the line of JSON for each message, the oldest message first.
pub(super) fn of(found: &StoredConversation) -> impl Iterator<Item = MessageLine<'_>> {
    found.messages.iter().map(|stored| MessageLine::of(found, stored))
}

#[derive(Serialize)]
pub(super) struct MessageLine<'a> {
    scope: &'a str,
    id: &'a str,
    number: u64,
    run: Option<String>,
    /// The index of the message within its run.
    index: Option<u32>,
    staged: bool,
    role: Value,
    author: Option<&'a str>,
    added_at: Option<String>,
    /// The parts in their stored form.
    parts: &'a [Part],
    metadata: &'a serde_json::Map<String, Value>,
    calls: Vec<CallLine<'a>>,
    /// The form of the message in the next request to the model; `null` if unknown.
    sent: Option<&'static str>,
    reasons: Vec<ReasonLine>,
}

#[derive(Serialize)]
struct CallLine<'a> {
    round: u32,
    status: &'static str,
    error: Option<&'a str>,
    started_at: Option<String>,
    finished_at: Option<String>,
    duration_ms: Option<u64>,
    /// The number of the message that contains the result.
    result_message: Option<u64>,
    /// The result, if it is in the record (the row of the call) and in no message.
    recorded_result: Option<&'a [Part]>,
}

#[derive(Serialize)]
struct ReasonLine {
    part: Option<usize>,
    reason: &'static str,
}

impl<'a> MessageLine<'a> {
    fn of(found: &'a StoredConversation, stored: &'a StoredMessage) -> Self {
        let message = &stored.message;
        let reasons = stored.explained.as_ref().map(Explained::reasons).unwrap_or_default();
        let reasons = reasons
            .iter()
            .map(|reason| ReasonLine { part: reason.part, reason: reason.kind.as_str() });
        Self {
            scope: found.summary.key.scope(),
            id: found.summary.key.id(),
            number: stored.number,
            run: message.id.map(|id| id.run.to_string()),
            index: message.id.map(|id| id.index),
            staged: stored.is_staged,
            role: serde_json::to_value(message.role).unwrap_or_default(),
            author: message.author.as_deref(),
            added_at: message.time().map(exact),
            parts: &message.parts,
            metadata: &message.metadata,
            calls: stored.calls.iter().map(CallLine::of).collect(),
            sent: stored.explained.as_ref().map(Explained::as_str),
            reasons: reasons.collect(),
        }
    }
}

impl<'a> CallLine<'a> {
    fn of(call: &'a StoredCall) -> Self {
        let taken = between(call.started_at, call.finished_at);
        let result = call.result.as_ref();
        let apart = result.filter(|result| result.number.is_none());
        Self {
            round: call.round,
            status: call.status.as_str(),
            error: call.error.as_deref(),
            started_at: call.started_at.map(exact),
            finished_at: call.finished_at.map(exact),
            duration_ms: taken.and_then(|taken| u64::try_from(taken.as_millis()).ok()),
            result_message: result.and_then(|result| result.number),
            recorded_result: apart.map(|apart| &apart.result.content[..]),
        }
    }
}
