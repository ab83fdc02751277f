//! Decides whether the tool loop or the caller executes a call.

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
/// // Another service runs the tools. The next request contains the results of returned calls.
/// let tool_loop = ToolLoopLayer::new(Tools::new()).unknown_tools(UnknownTools::Return);
/// # let _ = tool_loop;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnknownTools {
    /// The model receives an error result that names the unknown tool, and the run continues.
    #[default]
    ErrorResult,
    /// The run ends, and all calls of the answer are returned to the caller unexecuted. If a call
    /// of the answer needs approval, only the calls of unknown tools are returned.
    Return,
}

/// The rules that decide by the name of the tool whether the tool loop or the caller executes a
/// call.
#[derive(Clone, Copy)]
pub(crate) struct CallRules<'a> {
    pub(crate) tools: &'a Tools,
    /// The tools that the request's options declare.
    pub(crate) callers_tools: &'a [ToolDefinition],
    pub(crate) unknown_tools: UnknownTools,
}

impl CallRules<'_> {
    pub(crate) fn is_callers(&self, name: &str) -> bool {
        match self.tools.find(name) {
            Some((_, tool)) => tool.is_none(),
            None => {
                self.unknown_tools == UnknownTools::Return
                    || self.callers_tools.iter().any(|tool| tool.name == name)
            }
        }
    }

    fn needs_approval(&self, name: &str) -> bool {
        let found = self.tools.find(name);
        found.is_some_and(|(definition, tool)| tool.is_some() && definition.needs_approval)
    }

    /// Replaces all calls of a response that the caller does not execute by approval requests, if
    /// one of the calls needs approval.
    pub(crate) fn request_approvals(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        request_pending(messages, |name| self.needs_approval(name), |name| self.is_callers(name))
    }

    /// Returns the step that follows from the calls of an answer, without limits and queued
    /// messages. Calls for which `settled` returns `true` have results, and neither need approval
    /// nor are returned to the caller.
    pub(crate) fn step_after(
        &self,
        answer: &[Arc<Message>],
        settled: impl Fn(&PendingCall) -> bool,
    ) -> NextStep {
        let calls = pending_calls(answer);
        if calls.is_empty() {
            // A persistence layer below the tool loop has replaced the calls of an answer with
            // approval requests.
            let is_asking = answer.iter().any(|message| asks_for_approval(message));
            return match (is_asking, is_paused(answer)) {
                (true, _) => NextStep::ReturnCalls,
                (false, true) => NextStep::ContinuePaused,
                (false, false) => NextStep::Finish,
            };
        }
        let mut planned = Vec::with_capacity(calls.len());
        let (mut is_returned, mut needs_approval) = (false, false);
        for call in calls {
            // A call that was cut off gets an error result of the tool loop.
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

/// Returns whether the service paused the answer. The service continues a paused answer if it
/// receives a request with the same messages, followed by the paused answer.
///
/// Anthropic pauses an answer in which the model has called Anthropic's own tools many times
/// (<https://docs.claude.com/en/docs/build-with-claude/handling-stop-reasons>: `pause_turn`), and
/// an answer after a compaction of the context (`compaction`).
pub(crate) fn is_paused(answer: &[Arc<Message>]) -> bool {
    let reason = answer.last().and_then(|last| last.finish_reason.as_ref());
    let Some(FinishReason::Other(reason)) = reason else { return false };
    matches!(reason.as_str(), "pause_turn" | "compaction")
}

fn asks_for_approval(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::ApprovalRequest(_)))
}
