//! Finds stored calls without a stored result, and defines the policy for these calls. The replay is
//! the part of the history that the model receives. A round consists of the calls of one answer and
//! their results. The open round is the last one, if results may still arrive for it.

use std::{error::Error, fmt, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{MessageId, Retryability, RunId};

use super::{Replay, round::RoundCall};

/// The policy of the replay for a dangling call: a stored tool call without a stored result.
///
/// Every provider refuses a request with a dangling call. The policy changes only the request. The
/// stored call does not change.
///
/// ```
/// use tower_chat::{PersistencePolicy, replay::DanglingCalls};
///
/// let policy = PersistencePolicy::default().with_dangling_calls(DanglingCalls::Drop);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DanglingCalls {
    /// Does not send the call, whether or not the run of the call was interrupted. If no call of an
    /// answer has a result, only the text of the answer is sent.
    Drop,
    /// Like [`Interrupted`](Self::Interrupted), but also sends the calls of a run that ended
    /// intentionally, if the record of tool calls contains their results.
    FromRecord,
    /// Sends a call of an interrupted run with the result from the record of tool calls. If the
    /// record contains no result, the call is sent with an error result, which reports that the
    /// call may or may not have run.
    ///
    /// Does not send a call of a run that ended intentionally, such as a run that returned the call
    /// to the caller, who then sent no result.
    ///
    /// A run that ended intentionally has stored a mark. A run without this mark, such as an
    /// imported run, is treated as interrupted.
    #[default]
    Interrupted,
    /// Fails the request with [`DanglingCallError`].
    Fail,
}

impl DanglingCalls {
    pub(crate) fn needs_record(self) -> bool {
        matches!(self, Self::FromRecord | Self::Interrupted)
    }
}

/// Whether a replay repairs dangling calls and orphan results, which are results without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// For a stored history. The replay repairs dangling calls by this policy, and the output is
    /// valid for every provider.
    Repair(DanglingCalls),
    /// For messages of a caller, which may refer to stored calls and results. Dangling calls and
    /// orphan results remain.
    Lenient,
}

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
