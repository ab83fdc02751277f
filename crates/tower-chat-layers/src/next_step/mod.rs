//! What follows an answer of the model. It is decided once: by the layer that stores the answer, so
//! that the start of a tool or the end of the run is stored with it, and by the tool loop where no
//! such layer stands below.

mod call_count;
mod call_rules;
mod pending_calls;
mod planned_call;

use std::sync::Arc;

use tower_chat_core::{ChatOptions, Message, RunHandle};

pub use self::call_rules::UnknownTools;
pub(crate) use self::{
    call_count::{CallCount, TooManyCalls},
    call_rules::{CallRules, is_paused},
    pending_calls::pending_calls,
    planned_call::{Action, PlannedCall, Refusal, charge},
};
use crate::tool::{CallOfRun, Tools};

/// How many paused answers of one run go on. Anthropic pauses an answer after 10 calls of its own tools by
/// default; a run that pauses without end must end all the same.
pub(crate) const MAX_PAUSES: u32 = 16;

/// What follows a complete answer of the model.
#[derive(Clone)]
pub(crate) enum NextStep {
    /// The calls get their results here, and the model is called again.
    RunTools(Vec<PlannedCall>),
    /// The model is called again, with a message that was queued.
    CallAgain,
    /// The model is called again with the same messages: its answer is paused, and goes on with the next.
    GoOn,
    /// The run ends, and the calls of the answer become requests for approval.
    AskApproval,
    /// The run ends, and the calls go back to the caller, as calls or as requests for approval.
    ReturnCalls,
    /// The run ends with this answer.
    Finish,
}

impl NextStep {
    /// Whether the run ends with the answer.
    pub(crate) fn ends_run(&self) -> bool {
        match self {
            Self::RunTools(_) | Self::CallAgain | Self::GoOn => false,
            Self::AskApproval | Self::ReturnCalls | Self::Finish => true,
        }
    }
}

/// How a tool loop decides what follows the answer to a service call: a request extension that it
/// puts on the request of that call, for the layer below that stores the answer.
#[derive(Clone)]
pub(crate) struct LoopPolicy {
    pub(crate) tools: Tools,
    /// The caller's options, for the tools they declare.
    pub(crate) options: Arc<ChatOptions>,
    pub(crate) unknown_tools: UnknownTools,
    /// All rounds are used up: the model was given no tools.
    pub(crate) is_last_call: bool,
    /// The calls of an answer run at the same time.
    pub(crate) concurrent: bool,
    /// How many tool calls a run may make.
    pub(crate) max_calls: Option<usize>,
    /// How many the run has made.
    pub(crate) tool_calls: usize,
    pub(crate) max_calls_per_answer: Option<usize>,
    /// How many more paused answers of the run go on.
    pub(crate) pauses_left: u32,
    pub(crate) handle: RunHandle,
}

impl LoopPolicy {
    /// A count of the calls of the answer.
    pub(crate) fn call_count(&self) -> CallCount {
        CallCount::up_to(self.max_calls_per_answer)
    }

    /// Who answers the calls of the answer.
    pub(crate) fn rules(&self) -> CallRules<'_> {
        CallRules {
            tools: &self.tools,
            callers_tools: &self.options.tools,
            unknown_tools: self.unknown_tools,
        }
    }

    /// What follows an answer.
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
                    "the answer of the model is paused, and {MAX_PAUSES} paused answers of the run went \
                     on before: the run ends with it"
                );
                NextStep::Finish
            }
            step => step,
        }
    }

    /// The calls that start as soon as the answer is stored.
    pub(crate) fn first_calls(&self, step: &NextStep) -> Vec<CallOfRun> {
        let NextStep::RunTools(calls) = step else { return Vec::new() };
        let to_run = calls.iter().filter(|call| matches!(call.action, Action::Run(_)));
        let at_once = if self.concurrent { calls.len() } else { 1 };
        to_run.take(at_once).filter_map(|call| call.pending.position()).collect()
    }
}
