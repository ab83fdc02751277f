//! Decides the next step after an answer of the model. The layer that stores the answer decides once,
//! so that the start of a tool or the end of the run is stored with the answer. Without such a layer
//! below, the tool loop decides.

mod call_rules;
mod pending_calls;
mod planned_call;

use std::sync::Arc;

use tower_chat_core::{ChatOptions, ConversationKey, Message, Part, RunHandle};

pub use self::call_rules::UnknownTools;
pub(crate) use self::{
    call_rules::{CallRules, is_paused},
    pending_calls::pending_calls,
    planned_call::{Action, PlannedCall, Refusal, charge},
};
use crate::{
    ToolLoopError,
    tool::{CallOfRun, Tools},
};

/// The maximum number of paused answers of one run that are continued. Anthropic pauses an answer after
/// 10 calls of its own tools by default. The limit ends a run that would pause forever.
pub(crate) const MAX_PAUSES: u32 = 16;

/// The step that follows a complete answer of the model.
#[derive(Clone)]
pub(crate) enum NextStep {
    /// The loop answers the calls, and calls the model again.
    RunTools(Vec<PlannedCall>),
    /// The loop calls the model again, with a queued message.
    CallAgain,
    /// The loop calls the model again with the same messages, because the answer was paused and the
    /// next one continues it.
    GoOn,
    /// The run ends, and the calls of the answer become approval requests.
    AskApproval,
    /// The run ends, and the calls are returned to the caller, as calls or as approval requests.
    ReturnCalls,
    /// The run ends with this answer.
    Finish,
}

impl NextStep {
    /// Returns whether the run ends with the answer.
    pub(crate) fn ends_run(&self) -> bool {
        match self {
            Self::RunTools(_) | Self::CallAgain | Self::GoOn => false,
            Self::AskApproval | Self::ReturnCalls | Self::Finish => true,
        }
    }
}

/// The rules by which a tool loop decides the next step after a service call: a request extension of that
/// call, for the layer below that stores the answer.
#[derive(Clone)]
pub(crate) struct LoopPolicy {
    pub(crate) tools: Tools,
    /// The caller's options, for the tools that they declare.
    pub(crate) options: Arc<ChatOptions>,
    pub(crate) unknown_tools: UnknownTools,
    /// Whether the run has no round left. The model then received no tools.
    pub(crate) is_last_call: bool,
    /// Whether the calls of an answer run concurrently.
    pub(crate) concurrent: bool,
    /// The maximum number of tool calls of a run.
    pub(crate) max_calls: Option<usize>,
    /// The number of tool calls that the run has made.
    pub(crate) tool_calls: usize,
    /// The maximum number of calls in one answer, including those that a provider ran.
    pub(crate) max_calls_per_answer: Option<usize>,
    /// The number of paused answers that the run may still continue.
    pub(crate) pauses_left: u32,
    pub(crate) handle: RunHandle,
}

impl LoopPolicy {
    /// Checks the number of calls in an answer, including those that a provider ran. The first layer
    /// that would store the answer checks, so that nothing of an answer over the limit is stored. The
    /// tool loop also checks before any tool runs, for stacks without such a layer.
    ///
    /// # Errors
    ///
    /// Returns [`ToolLoopError::TooManyCalls`] if there are more calls than the limit allows.
    pub(crate) fn check(
        &self,
        answer: &[Arc<Message>],
        conversation: Option<&ConversationKey>,
    ) -> Result<(), ToolLoopError> {
        let Some(limit) = self.max_calls_per_answer else { return Ok(()) };
        let is_call = |part: &&Part| matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_));
        let parts = answer.iter().flat_map(|message| &message.parts);
        let calls = parts.filter(is_call).count();
        if calls <= limit {
            return Ok(());
        }
        Err(ToolLoopError::TooManyCalls { calls, limit, conversation: conversation.cloned() })
    }

    /// Returns the rules that decide who answers the calls of the answer.
    pub(crate) fn rules(&self) -> CallRules<'_> {
        CallRules {
            tools: &self.tools,
            callers_tools: &self.options.tools,
            unknown_tools: self.unknown_tools,
        }
    }

    /// Returns the next step after an answer.
    pub(crate) fn next_step(&self, answer: &[Arc<Message>]) -> NextStep {
        match self.rules().step_after(answer, |_| false) {
            NextStep::RunTools(_) if self.is_last_call => NextStep::Finish,
            NextStep::RunTools(mut calls) => {
                charge(&mut calls, self.tool_calls, self.max_calls);
                NextStep::RunTools(calls)
            }
            NextStep::Finish | NextStep::GoOn if self.handle.has_queued() => NextStep::CallAgain,
            NextStep::GoOn if self.pauses_left == 0 => {
                tracing::warn!(
                    "the answer of the model is paused, and {MAX_PAUSES} paused answers of the run were continued \
                     before: the run ends with this answer"
                );
                NextStep::Finish
            }
            step => step,
        }
    }

    /// Returns the calls that start as soon as the answer is stored.
    pub(crate) fn first_calls(&self, step: &NextStep) -> Vec<CallOfRun> {
        let NextStep::RunTools(calls) = step else { return Vec::new() };
        let to_run = calls.iter().filter(|call| matches!(call.action, Action::Run(_)));
        let at_once = if self.concurrent { calls.len() } else { 1 };
        to_run.take(at_once).filter_map(|call| call.pending.position()).collect()
    }
}
