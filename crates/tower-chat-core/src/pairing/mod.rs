//! Pairing: matches each tool result with the call that it answers.
//!
//! Recorded traffic contains calls without ids, with empty ids and with ids that are used again,
//! and answers whose calls are in several messages. All code that pairs calls with results applies
//! these rules:
//!
//! 1. A **round** consists of all calls of one answer of the model, in any number of messages
//!    ([`AnswerKey`]), and of the results after it. Only the model calls tools.
//! 2. Each call of an answer has a unique id ([`AnswerIds`]). A call without an id, or with that of
//!    another call of the answer, gets a generated id.
//! 3. A result with the position of its call ([`ToolResult::call`]) answers that call.
//! 4. Any other result answers the first call of the round that has its id and no result. If no
//!    call has its id, it answers the first call without a result for which the call or the result
//!    has no id and the names of their tools agree ([`Matcher`]).
//! 5. Results that match the calls of the answer's last message answer those calls: a run that was
//!    interrupted between an answer and its tools stores two consecutive answers
//!    ([`RoundMatcher`]).
//! 6. A result that answers no call of its round answers an earlier call without a result that has
//!    its id or position: the first such call of the latest round that contains one
//!    ([`UnansweredCalls`]).
//!
//! [`CallLog`] applies the rules to a sequence of messages. Replay, which changes the messages that
//! it reads, uses the other types.

mod answer;
mod call_ids;
mod call_log;
mod in_order;
mod index;
mod matcher;
mod open_round;
mod pieces;
mod round;
mod unanswered;

use crate::{CallPosition, Part, ToolCall, ToolResult};

pub use self::{
    answer::{AnswerKey, PendingBatches, RUN_ENDED, is_marked_ended},
    call_ids::{AnswerIds, IdBase, have_distinct_ids, ids_of_calls},
    call_log::{CallLog, LoggedCall, LoggedResult, ResultPosition},
    in_order::InOrder,
    matcher::{Candidate, Ids, Matcher},
    pieces::{Piece, foreign_results, pieces},
    round::RoundMatcher,
    unanswered::{CallNumber, UnansweredCalls},
};

/// The match of a result with the calls of its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// The result answers the call at this index.
    Call(usize),
    /// The result answers a call that already has a result, and is ignored.
    Again,
    /// The result answers none of the calls.
    Nothing,
}

/// The information in a result that identifies its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The stored position of the call.
    pub position: Option<CallPosition>,
    /// The id of the call, if it is not empty.
    pub id: Option<&'a str>,
    /// The name of the tool.
    pub tool: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Creates a target with only an id, which may be missing or empty.
    pub fn id(id: Option<&'a str>) -> Self {
        Self { position: None, id: id.filter(|id| !id.is_empty()), tool: None }
    }
}

impl<'a> From<&'a ToolResult> for Target<'a> {
    fn from(result: &'a ToolResult) -> Self {
        let tool = result.name.as_deref();
        Self { position: result.call, tool, ..Self::id(result.call_id.as_deref()) }
    }
}

/// Returns the call of a part that needs a result now or after its approval. A call that the
/// provider executed itself needs none.
pub fn asked_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        Part::ApprovalRequest(request) => Some(&request.call),
        _ => None,
    }
}

/// Returns the call's own id, if it is not empty.
fn given_id(call: &ToolCall) -> Option<&str> {
    call.id.as_deref().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
