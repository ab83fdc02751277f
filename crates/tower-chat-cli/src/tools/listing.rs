//! Lists each tool call.

use serde::Serialize;
use tower_chat::{ConversationKey, tool::ToolInvocation};

use super::totals::milliseconds;
use crate::output::table;

/// The calls, ordered by conversation, message and position.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) calls: Vec<ListedCall>,
}

#[derive(Debug, Serialize)]
pub(super) struct ListedCall {
    scope: String,
    conversation: String,
    /// The number of the message that contains the call, from 1.
    message: u64,
    /// The index of the call's round, from 0. A round is the calls of one answer of the model. The
    /// index counts the rounds since the last message of the user.
    round: u32,
    /// The index of the call among the calls of the message, from 0.
    index: u32,
    call_id: String,
    name: String,
    arguments: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

impl Listing {
    pub(super) fn push(&mut self, key: &ConversationKey, call: &ToolInvocation) {
        let taken = call.started_at.zip(call.finished_at);
        self.calls.push(ListedCall {
            scope: key.scope().to_owned(),
            conversation: key.id().to_owned(),
            message: call.sequence,
            round: call.round_index,
            index: call.sequence_index,
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            status: call.status.as_str(),
            result: call.result.as_ref().map(|result| result.text()),
            error: call.error.clone(),
            duration_ms: taken.map(|(started, finished)| {
                milliseconds(finished.duration_since(started).unwrap_or_default())
            }),
        });
    }

    /// Returns a table with a line for each call, and an empty line, unless there are no calls.
    pub(super) fn to_lines(&self) -> Vec<String> {
        if self.calls.is_empty() {
            return Vec::new();
        }
        let heading = ["conversation", "message", "round", "call", "tool", "status", "ms"];
        let mut rows = vec![heading.map(str::to_owned)];
        rows.extend(self.calls.iter().map(|call| {
            [
                format!("{}/{}", call.scope, call.conversation),
                call.message.to_string(),
                call.round.to_string(),
                call.index.to_string(),
                call.name.clone(),
                call.status.to_owned(),
                call.duration_ms.map_or_else(|| "-".to_owned(), |taken| taken.to_string()),
            ]
        }));
        let mut lines = table(&rows);
        lines.push(String::new());
        lines
    }
}
