//! Pairs the recorded results with the calls of an answer.

use tower_chat::{ToolCall, ToolResult};
use tower_chat_core::pairing::{Answers, Candidate, Ids, Matcher, Target};

/// Returns the position of the call of each result, and `None` for a result without a call.
pub(super) fn pair(calls: &[ToolCall], results: &[ToolResult]) -> Vec<Option<usize>> {
    let candidate = |call| Candidate::new(call, None, call.id.as_deref().unwrap_or_default());
    let mut calls = Matcher::new(calls.iter().map(candidate).collect(), Ids::MayBeMissing);
    let answered = |result| match calls.answer(Target { position: None, ..Target::from(result) }) {
        Answers::Call(call) => Some(call),
        Answers::Again | Answers::Nothing => None,
    };
    results.iter().map(answered).collect()
}

pub(super) fn has_text(id: &Option<String>) -> bool {
    id.as_deref().is_some_and(|id| !id.is_empty())
}
