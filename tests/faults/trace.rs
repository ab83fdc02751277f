//! The trace of a case: the events that the model, the tools, the store and the caller have
//! observed.

use serde::{Deserialize, Serialize};
use tower_chat::{
    Message, Part, ToolResult,
    store::author::{Close, RecordedResult, Write},
};

use crate::faults::{compacted, other_arguments, pictures};

/// An event. A message is represented by its [`label`], and each execution of a tool has a unique
/// token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A caller sends the request of a run, which may answer approval requests. `answers` contains
    /// the numbers of the service calls that returned these approval requests, and `changed` the
    /// approved calls with other arguments than those of the model, each with these arguments.
    Began { run: usize, answers: Vec<u32>, changed: Vec<(String, String)> },
    /// The model was called with these messages. `serial` is the unique number of the service call.
    Asked { run: usize, serial: u32, shown: Vec<String> },
    /// The model has sent the end of its answer. `has_item` is whether the answer contains a summary
    /// by the service.
    Answered { run: usize, serial: u32, calls: Vec<Call>, waits: bool, has_item: bool },
    /// The service call failed.
    Unanswered { serial: u32 },
    /// The service that writes summaries has returned this text.
    Summarized { text: String },
    /// The service would not receive this number of messages of a request, because they are
    /// summarized.
    Compacted { omitted: usize },
    /// A caller has created a branch, or has tried to. `exists` is whether the branch exists
    /// afterwards.
    Branched { exists: bool, is_acknowledged: bool },
    /// A run has called the tool of a call with these arguments. `key` is the idempotency key of the call.
    Started { run: usize, call: String, token: String, key: String, arguments: String },
    /// A tool call finished.
    Finished { token: String },
    /// Writes were submitted.
    Submitted { run: usize, labels: Vec<String> },
    /// A write is durable.
    Stored { run: usize, labels: Vec<String>, close: Option<Closed> },
    /// A fault was injected.
    Fault { what: String },
    /// The process ended or was killed, and another process begins.
    Restarted,
    /// The open run will be committed without being resumed.
    Closing { run: usize },
    /// The caller received an outcome, or has disconnected.
    Ended { run: usize, outcome: Outcome },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: String,
    /// The arguments of the model.
    pub(crate) arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Closed {
    Commit,
    Discard,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Answer {
        labels: Vec<String>,
        unsaved: usize,
    },
    Error(String),
    /// The caller disconnected.
    Gone,
    /// The process died.
    Killed,
}

pub(crate) fn in_lines(trace: &[Event]) -> String {
    trace.iter().map(|event| format!("  {event:?}")).collect::<Vec<_>>().join("\n")
}

/// Formats a message on one line: its role, its text, `^` for a summary by the service, `*` for
/// a picture, `[calls]`, `(calls that wait)`, `+` and `-`
/// for approvals, and `call=execution` for results.
pub(crate) fn label(message: &Message) -> String {
    let mut label = format!("{:?}:", message.role).to_lowercase();
    for part in &message.parts {
        match part {
            Part::Text(text) => label.push_str(&text.text),
            Part::Native(_) => label.push(compacted::SIGN),
            Part::Media(_) => label.push(pictures::SIGN),
            Part::ToolCall(call) => {
                label.push_str(&format!("[{}]", call.id.as_deref().unwrap_or_default()));
            }
            Part::ApprovalRequest(request) => {
                label.push_str(&format!("({})", request.call.id.as_deref().unwrap_or_default()));
            }
            Part::ApprovalResponse(answer) => label.push(if answer.approved { '+' } else { '-' }),
            Part::ToolResult(result) => label.push_str(&format!(" {}", result_label(result))),
            other => label.push_str(&format!("{other:?}")),
        }
    }
    label
}

/// Formats a result: the token of the execution that returned it, `?` if the tool may or may not
/// have run, and `never` or `refused` if the tool did not run. If the result reports the arguments of
/// an approval, `~` and these arguments follow.
pub(crate) fn result_label(result: &ToolResult) -> String {
    let text = result.text();
    let token = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    let what = match token {
        Some((token, _)) => token,
        None if text.contains("may or may not") => "?",
        None if text.contains("interrupted before") => "never",
        None if text.contains("rejected") => "refused",
        None => return format!("{}={text:?}", result.call_id.as_deref().unwrap_or_default()),
    };
    let report = other_arguments::reported(&text).map(|arguments| format!("~{arguments}"));
    let report = report.unwrap_or_default();
    format!("{}={what}{report}", result.call_id.as_deref().unwrap_or_default())
}

pub(crate) fn labels(write: &Write) -> Vec<String> {
    let messages = write.messages().iter().flat_map(|message| {
        let results = message.results().map(|result| format!("result {}", result_label(result)));
        std::iter::once(label(message)).chain(results.collect::<Vec<_>>())
    });
    let rows = write.tools().iter().flat_map(|row| {
        let result = match &row.result {
            RecordedResult::Apart(result) => Some(format!("result {}", result_label(result))),
            RecordedResult::None | RecordedResult::InMessage(_) => None,
        };
        let start = row.started_at.map(|_| format!("start {}", row.call_id));
        result.into_iter().chain(start)
    });
    messages.chain(rows).collect()
}

pub(crate) fn closed(write: &Write) -> Option<Closed> {
    write.close().map(|close| match close {
        Close::Commit => Closed::Commit,
        Close::Discard { .. } => Closed::Discard,
    })
}
