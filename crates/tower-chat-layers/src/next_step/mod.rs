//! Decides the next step after an answer of the model. The layer that stores the answer makes this
//! decision. The write of the answer can then also contain the start of the first tools, or the end
//! of the run. If no such layer is below the tool loop, the tool loop makes the decision.

mod call_rules;
mod pending_calls;
mod planned_call;

use std::sync::Arc;

use tower_chat_core::{ChatOptions, ConversationKey, Message, Part, RunHandle};

pub use self::call_rules::UnknownTools;
pub(crate) use self::{
    call_rules::{CallRules, is_paused},
    pending_calls::pending_calls,
    planned_call::{Action, PlannedCall, Refusal, charge, rejection},
};
use crate::{
    ToolLoopError,
    tool::{CallOfRun, Tools},
    tool_loop::Settings,
};

/// The maximum number of paused answers that one run continues. Anthropic pauses an answer after 10
/// calls of its own tools by default.
pub(crate) const MAX_PAUSES: u32 = 16;

/// The step that follows a complete answer of the model.
#[derive(Clone)]
pub(crate) enum NextStep {
    /// The tool loop executes or refuses the calls, and calls the model again with the results.
    RunTools(Vec<PlannedCall>),
    /// The tool loop calls the model again, with the queued messages.
    CallAgain,
    /// The tool loop calls the model again with the same messages and the paused answer, which the
    /// next answer continues.
    ContinuePaused,
    /// The run ends, and approval requests replace the calls of the answer.
    AskApproval,
    /// The run ends, and the caller receives the calls of the answer, or the approval requests by
    /// which a layer below has replaced them.
    ReturnCalls,
    Finish,
}

impl NextStep {
    pub(crate) fn ends_run(&self) -> bool {
        match self {
            Self::RunTools(_) | Self::CallAgain | Self::ContinuePaused => false,
            Self::AskApproval | Self::ReturnCalls | Self::Finish => true,
        }
    }
}

/// The rules for the next step after a service call. The tool loop adds them to the request as an
/// extension, for the layer below that stores the answer.
#[derive(Clone)]
pub(crate) struct LoopPolicy {
    pub(crate) tools: Tools,
    /// The caller's options, which may declare tools that the caller executes.
    pub(crate) options: Arc<ChatOptions>,
    pub(crate) settings: Arc<Settings>,
    /// Whether the run has reached its maximum number of rounds (answers with tool calls), so that
    /// this request contains no tools.
    pub(crate) is_last_call: bool,
    pub(crate) tool_calls: usize,
    /// The number of paused answers that the run may still continue.
    pub(crate) pauses_left: u32,
    pub(crate) handle: RunHandle,
}

impl LoopPolicy {
    /// Checks the number of calls in an answer. The layer that stores the answer calls this method
    /// first, so that nothing of an answer over the limit is stored. The tool loop also calls this
    /// method, because the stack may contain no such layer.
    pub(crate) fn check(
        &self,
        answer: &[Arc<Message>],
        conversation: Option<&ConversationKey>,
    ) -> Result<(), ToolLoopError> {
        let Some(limit) = self.settings.max_calls_per_answer else { return Ok(()) };
        let is_call = |part: &&Part| matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_));
        let parts = answer.iter().flat_map(|message| &message.parts);
        let calls = parts.filter(is_call).count();
        if calls <= limit {
            return Ok(());
        }
        Err(ToolLoopError::TooManyCalls { calls, limit, conversation: conversation.cloned() })
    }

    pub(crate) fn rules(&self) -> CallRules<'_> {
        CallRules {
            tools: &self.tools,
            callers_tools: &self.options.tools,
            unknown_tools: self.settings.unknown_tools,
        }
    }

    pub(crate) fn next_step(&self, answer: &[Arc<Message>]) -> NextStep {
        match self.rules().step_after(answer, |_| false) {
            NextStep::RunTools(_) if self.is_last_call => NextStep::Finish,
            NextStep::RunTools(mut calls) => {
                charge(&mut calls, self.tool_calls, self.settings.max_calls);
                NextStep::RunTools(calls)
            }
            NextStep::Finish | NextStep::ContinuePaused if self.handle.has_queued() => {
                NextStep::CallAgain
            }
            NextStep::ContinuePaused if self.pauses_left == 0 => {
                tracing::warn!(
                    "the answer of the model is paused, and {MAX_PAUSES} paused answers of the run were continued \
                     before: the run ends with this answer"
                );
                NextStep::Finish
            }
            step => step,
        }
    }

    pub(crate) fn first_calls(&self, step: &NextStep) -> Vec<CallOfRun> {
        let NextStep::RunTools(calls) = step else { return Vec::new() };
        let to_run = calls.iter().filter(|call| matches!(call.action, Action::Run(_)));
        let at_once = if self.settings.concurrent { calls.len() } else { 1 };
        to_run.take(at_once).filter_map(|call| call.pending.position()).collect()
    }
}
