//! Pairing: matches each tool result with the call that it answers.
//!
//! Recorded traffic contains calls without ids, with empty ids and with ids that are used again,
//! and answers whose calls are in several messages. All code that pairs calls with results applies
//! these rules:
//!
//! 1. A **round** consists of the calls in consecutive messages of the model that may belong to one
//!    answer ([`AnswerKey`]), and of the results after these messages. Calls in messages of other
//!    roles are ignored.
//! 2. Within an answer, each call is assigned a unique id ([`AnswerIds`]). A call keeps its own id,
//!    unless the id is missing, empty or used by an earlier call of the answer. Such a call is
//!    assigned a generated id.
//! 3. A result with the position of its call ([`ToolResult::call`]) answers the call at that
//!    position.
//! 4. A result without a position answers the first call of the round that has the same id and no
//!    result. If no call of the round has this id, the order decides: the result answers the first
//!    call of the same tool that has no result. A result with an id then answers only a
//!    call without an id ([`Matcher`]).
//! 5. If all results without a position match calls of the last message of the round, they answer
//!    these calls ([`RoundMatcher`]). The reason is that two answers can look like one round. If a
//!    run is interrupted before its tools run, and is then sent again, the run stores its next
//!    answer directly after the first one.
//! 6. A result that answers no call of its round may answer a call of an earlier round that has no
//!    result, and has the id or the position in the result. If there are several such calls, the
//!    result answers the first one of the latest round ([`UnansweredCalls`]).
//!
//! [`CallLog`] applies the rules to a sequence of messages. The other types are for code that
//! changes messages while it reads them, such as the replay, which converts a history into a form
//! that every provider accepts.

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
    /// The result answers the call with this index.
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

/// Returns the call in a part, if the call needs a result now or after its approval. Returns `None`
/// for a call that the provider executed itself.
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
