//! Finds stored calls without a stored result. The replay is the part of the history that the model
//! receives. A round consists of the calls of one answer and their results. The open round is the
//! last one, if results may still arrive for it.

use std::{error::Error, fmt, sync::Arc};

use tower_chat_core::{MessageId, Retryability, RunId};

use super::{
    Replay,
    policy::{DanglingCalls, Strictness},
    round::RoundCall,
};

/// A stored call without a stored result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DanglingCall {
    /// `None` if the message of the call has no id.
    pub(crate) run: Option<RunId>,
    pub(crate) tool: String,
    pub(crate) call_id: String,
    /// Whether the replay contains the call, with a result that reports an interruption.
    pub(crate) is_visible: bool,
}

/// The error for a stored tool call without a stored result, under the policy [`DanglingCalls::Fail`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DanglingCallError {
    /// The name of the tool.
    pub tool: String,
    /// The id of the call, as replays contain it.
    pub call_id: String,
}

impl fmt::Display for DanglingCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, call_id } = self;
        write!(
            f,
            "the stored call of tool {tool:?} (id {call_id}) has no result: give its result as input, \
             or choose another policy for dangling calls"
        )
    }
}

impl Error for DanglingCallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(Retryability::Permanent.as_source())
    }
}

impl Replay {
    /// Checks that the pushed messages contain no dangling call. Only a replay with the policy
    /// [`DanglingCalls::Fail`] is checked.
    ///
    /// # Errors
    ///
    /// Returns the first dangling call.
    pub fn check(&self) -> Result<(), DanglingCallError> {
        if self.strictness != Strictness::Repair(DanglingCalls::Fail) {
            return Ok(());
        }
        let ended = self.ended();
        ended.first_dangling.map_or(Ok(()), |dangling| Err(Arc::unwrap_or_clone(dangling)))
    }

    /// Returns the positions of the dangling calls.
    pub(crate) fn dangling_positions(&self) -> Vec<(MessageId, usize)> {
        let ended = self.ended();
        let dangling = ended.omitted_calls.iter().filter(|call| call.approval.is_none());
        dangling.filter_map(|call| call.call_position).collect()
    }

    /// Returns the dangling calls, and for each of them whether the view (the output of the replay)
    /// contains the call.
    pub(crate) fn dangling_with_visibility(&self) -> Vec<DanglingCall> {
        let ended = self.ended();
        let of_call = |call: &Arc<RoundCall>| {
            let (tool, call_id) = call.dangling_tool_and_id()?;
            let run = call.call_position.map(|(message, _)| message.run);
            Some(DanglingCall { run, tool, call_id, is_visible: call.is_visible })
        };
        ended.omitted_calls.iter().filter_map(of_call).collect()
    }

    pub(super) fn omit_calls(&mut self, calls: Vec<RoundCall>) {
        if let (Strictness::Repair(DanglingCalls::Fail), None) =
            (self.strictness, &self.first_dangling)
        {
            let dangling = calls.iter().find_map(RoundCall::dangling_tool_and_id);
            self.first_dangling =
                dangling.map(|(tool, call_id)| Arc::new(DanglingCallError { tool, call_id }));
        }
        calls.into_iter().for_each(|call| self.omitted_calls.push(call));
    }
}
