//! Stored calls without a stored result.

use std::{error::Error, fmt, sync::Arc};

use tower_chat_core::{Message, MessageId, Retryability, RunId};

use super::{DanglingCalls, Replay, policy::Strictness, round::Unanswered};

/// A stored call without a stored result, as a replay treats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DanglingCall {
    /// The run that asked for it, if its message has an id.
    pub(crate) run: Option<RunId>,
    pub(crate) tool: String,
    pub(crate) call_id: String,
    /// It is shown, with a result that says it was interrupted; else it is left out.
    pub(crate) is_visible: bool,
}

/// A stored tool call has no stored result, and the policy is to fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DanglingCallError {
    /// The tool that was called.
    pub tool: String,
    /// The call's id, as replays show it.
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
    /// The dangling call that the policy [`DanglingCalls::Fail`] objects to, if the messages
    /// ended here.
    ///
    /// # Errors
    ///
    /// The first dangling call.
    pub fn check(&self) -> Result<(), DanglingCallError> {
        if self.strictness != Strictness::Repair(DanglingCalls::Fail) {
            return Ok(());
        }
        let mut ended = self.clone();
        ended.close_round();
        ended.first_dangling.map_or(Ok(()), |dangling| Err(Arc::unwrap_or_clone(dangling)))
    }

    /// The positions of the calls that nothing has answered and that need no approval.
    pub(crate) fn dangling_calls(&self) -> Vec<(MessageId, usize)> {
        // The open round may hold results that answer calls before it.
        let mut ended = self.clone();
        ended.close_round();
        let dangling = ended.left_out.iter().filter(|call| call.approval.is_none());
        dangling.filter_map(|call| call.call_position).collect()
    }

    /// Those of the calls that nothing has answered yet which further messages answer.
    pub(crate) fn dangling_calls_answered_by(
        &self,
        further: &[Arc<Message>],
    ) -> Vec<(MessageId, usize)> {
        if further.iter().all(|message| message.results().next().is_none()) {
            return Vec::new();
        }
        let answered = self.clone().push_answering(further);
        answered.into_iter().flatten().flatten().map(|call| call.call_position).collect()
    }

    /// What becomes of the calls that nothing has answered and that need no approval, if
    /// the messages ended here.
    pub(crate) fn dangling(&self) -> Vec<DanglingCall> {
        let mut ended = self.clone();
        ended.close_round();
        let of_call = |call: &Arc<Unanswered>| {
            let (tool, call_id) = call.dangling()?;
            let run = call.call_position.map(|(message, _)| message.run);
            Some(DanglingCall { run, tool, call_id, is_visible: call.is_visible })
        };
        ended.left_out.iter().filter_map(of_call).collect()
    }

    pub(super) fn leave_out(&mut self, calls: Vec<Unanswered>) {
        if let (Strictness::Repair(DanglingCalls::Fail), None) =
            (self.strictness, &self.first_dangling)
        {
            let dangling = calls.iter().find_map(Unanswered::dangling);
            self.first_dangling =
                dangling.map(|(tool, call_id)| Arc::new(DanglingCallError { tool, call_id }));
        }
        calls.into_iter().for_each(|call| self.left_out.push(call));
    }
}
