//! Which call a tool result answers: the one matcher of calls and results.
//!
//! Real traffic has calls without ids, with empty ids, with ids that come back later, and answers
//! whose calls stand in several messages. Everything that pairs calls with results does so by these
//! rules:
//!
//! 1. A **round** is everything that one answer of the model asks for, in however many messages
//!    ([`AnswerKey`]), and the results behind it. Only the model calls tools.
//! 2. Each call of an answer has an id of its own ([`AnswerIds`]). A call that came without one, or with
//!    that of another call of the answer, gets one that is made of its position.
//! 3. A result that names its call by position ([`ToolResult::call`]) answers that call.
//! 4. Another result answers the first call of the round that has its id and no result; if no call
//!    has its id, the first call without a result where one of the two came without an id, and the
//!    names of their tools agree ([`Matcher`]).
//! 5. Results that fit the calls of the answer's last message answer those: a run that was interrupted
//!    between an answer and its tools stores two answers side by side ([`RoundMatcher`]).
//! 6. A result that answers no call of its round answers an earlier call without a result that it
//!    names: of the last round with such a call, the first ([`UnansweredCalls`]).
//!
//! [`CallLog`] applies them to messages one after the other. Replays, which change what they read,
//! use the parts.

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

/// What a result is to the calls of its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// The answer of the call at this index.
    Call(usize),
    /// One more answer of a call that has one; it says nothing new.
    Again,
    /// The answer of none of them.
    Nothing,
}

/// What a result says of the call that it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Where the call is stored.
    pub position: Option<CallPosition>,
    /// The id of the call, if that is not empty.
    pub id: Option<&'a str>,
    /// The name of the tool.
    pub tool: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// A result that says nothing but an id, which may be missing or empty.
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

/// The call of a part that needs, or will need, a result: not one that the provider ran itself.
pub fn asked_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some(call),
        Part::ApprovalRequest(request) => Some(&request.call),
        _ => None,
    }
}

/// The id that a call came with, if that is not empty.
fn given_id(call: &ToolCall) -> Option<&str> {
    call.id.as_deref().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests;
