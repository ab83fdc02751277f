//! What really happened in a case, as those say who saw it: the model, the tools, the store's disk
//! and the caller.

use serde::{Deserialize, Serialize};
use tower_chat::{
    Message, Part, ToolResult,
    store::author::{Close, RecordedResult, Write},
};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// Somebody sends a run's request; `answers` are the service calls whose calls it approves or
    /// refuses.
    Began { run: usize, answers: Vec<u32> },
    /// The model was called, and shown this.
    Asked { run: usize, serial: u32, shown: Vec<String> },
    /// The end of its answer was handed over.
    Answered { run: usize, serial: u32, calls: Vec<Call>, waits: bool },
    /// It failed instead.
    Unanswered { serial: u32 },
    /// A tool began.
    Started { call: String, token: String, key: String },
    /// It came to its end.
    Finished { token: String },
    /// Writes were submitted.
    Submitted { run: usize, says: Vec<String> },
    /// A write is on the disk.
    Stored { run: usize, says: Vec<String>, close: Option<Closed> },
    /// Something was made to go wrong.
    Fault { what: String },
    /// The process ends, by itself or not, and another begins.
    Restarted,
    /// The open run is about to be ended as it is.
    Closing { run: usize },
    /// The caller knows what came of it, or has gone.
    Ended { run: usize, outcome: Outcome },
}

/// A tool call as the model made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) tool: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Closed {
    Commit,
    Discard,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The answer, and how many messages wait to be stored.
    Answer {
        labels: Vec<String>,
        unsaved: usize,
    },
    Error(String),
    /// The caller went away.
    Gone,
    /// The process died.
    Killed,
}

/// A trace to read.
pub(crate) fn in_lines(trace: &[Event]) -> String {
    trace.iter().map(|event| format!("  {event:?}")).collect::<Vec<_>>().join("\n")
}

/// A message in one line: who says it, its text, `[calls]`, `(calls that wait)`, `+` and `-` for
/// approval, and `call=execution` for results.
pub(crate) fn label(message: &Message) -> String {
    let mut label = format!("{:?}:", message.role).to_lowercase();
    for part in &message.parts {
        match part {
            Part::Text(text) => label.push_str(&text.text),
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

/// What the history holds of a call's result: the execution it is of, `?` if nobody knows whether
/// there was one, `never` and `refused` if there was none.
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
    format!("{}={what}", result.call_id.as_deref().unwrap_or_default())
}

/// Everything that a write says, messages and record.
pub(crate) fn says(write: &Write) -> Vec<String> {
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
