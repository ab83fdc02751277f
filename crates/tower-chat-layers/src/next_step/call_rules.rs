//! Decides whether a tool of the loop or the caller answers a call.

use std::sync::Arc;

use tower_chat_core::{FinishReason, Message, Part, ToolDefinition};

use super::{NextStep, PlannedCall, pending_calls};
use crate::{
    approval::request_pending,
    tool::{PendingCall, Tools},
};

/// The policy of a tool loop for calls of unknown tools.
///
/// ```
/// use tower_chat::{Tools, layer::ToolLoopLayer, policy::UnknownTools};
///
/// // Another service runs the tools: their calls are returned, and a later request contains its results.
/// let tool_loop = ToolLoopLayer::new(Tools::new()).unknown_tools(UnknownTools::Return);
/// # let _ = tool_loop;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnknownTools {
    /// The call gets an error result that names the unknown tool, and the run continues.
    #[default]
    ErrorResult,
    /// Returns all calls of the answer to the caller, unexecuted. If one of them needs approval, only
    /// the calls of unknown tools are returned.
    Return,
}

/// The rules that decide who answers a call, by the name of its tool.
#[derive(Clone, Copy)]
pub(crate) struct CallRules<'a> {
    pub(crate) tools: &'a Tools,
    /// The tools that the request's options declare.
    pub(crate) callers_tools: &'a [ToolDefinition],
    pub(crate) unknown_tools: UnknownTools,
}

impl CallRules<'_> {
    /// Returns whether the caller of the loop executes the tool.
    pub(crate) fn is_callers(&self, name: &str) -> bool {
        match self.tools.find(name) {
            Some((_, tool)) => tool.is_none(),
            None => {
                self.unknown_tools == UnknownTools::Return
                    || self.callers_tools.iter().any(|tool| tool.name == name)
            }
        }
    }

    /// Returns whether the tool runs here and needs approval.
    fn needs_approval(&self, name: &str) -> bool {
        let found = self.tools.find(name);
        found.is_some_and(|(definition, tool)| tool.is_some() && definition.needs_approval)
    }

    /// Returns the messages of a response, with its calls replaced by approval requests if one of them
    /// needs approval. Calls that the caller executes are not replaced.
    pub(crate) fn request_approvals(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        if !self.tools.any_needs_approval() {
            return messages;
        }
        request_pending(messages, |name| self.needs_approval(name), |name| self.is_callers(name))
    }

    /// Returns the step that follows from the calls of an answer, without limits and queued messages.
    /// Calls that are `settled` already have their results, and need neither approval nor the caller,
    /// regardless of the current tools.
    pub(crate) fn step_after(
        &self,
        answer: &[Arc<Message>],
        settled: impl Fn(&PendingCall) -> bool,
    ) -> NextStep {
        let calls = pending_calls(answer);
        if calls.is_empty() {
            // A persister below has already replaced the calls by approval requests.
            let is_asking = answer.iter().any(|message| asks_for_approval(message));
            return match (is_asking, is_paused(answer)) {
                (true, _) => NextStep::ReturnCalls,
                (false, true) => NextStep::GoOn,
                (false, false) => NextStep::Finish,
            };
        }
        let mut planned = Vec::with_capacity(calls.len());
        let (mut is_returned, mut needs_approval) = (false, false);
        for call in calls {
            // The loop itself answers a call that was cut off, also if the caller would have run it.
            if !settled(&call) && !call.call().is_cut_off {
                is_returned |= self.is_callers(call.name());
                needs_approval |= self.needs_approval(call.name());
            }
            planned.push(PlannedCall::run(call, self.tools));
        }
        match (needs_approval, is_returned) {
            (true, _) => NextStep::AskApproval,
            (false, true) => NextStep::ReturnCalls,
            (false, false) => NextStep::RunTools(planned),
        }
    }
}

/// Returns whether the service paused the answer. A service continues a paused answer if it receives
/// the same messages again, followed by the paused answer.
///
/// Anthropic pauses if its own tools were called often in one answer
/// (<https://docs.claude.com/en/docs/build-with-claude/handling-stop-reasons>: `pause_turn`), and after
/// a compaction of the context (`compaction`).
pub(crate) fn is_paused(answer: &[Arc<Message>]) -> bool {
    let reason = answer.last().and_then(|last| last.finish_reason.as_ref());
    let Some(FinishReason::Other(reason)) = reason else { return false };
    matches!(reason.as_str(), "pause_turn" | "compaction")
}

fn asks_for_approval(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::ApprovalRequest(_)))
}
