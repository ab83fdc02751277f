//! Plans how each call of a batch gets its result.

use std::sync::Arc;

use tower_chat_core::ToolResult;

use crate::tool::{PendingCall, Tool, ToolReport, Tools};

/// A call that gets a result in this batch.
#[derive(Clone)]
pub(crate) struct PlannedCall {
    pub(crate) pending: PendingCall,
    pub(crate) action: Action,
}

/// The origin of a call's result.
#[derive(Clone)]
pub(crate) enum Action {
    Run(Arc<dyn Tool>),
    Refuse(Refusal),
    /// The call was run by an earlier attempt at the run, or by an earlier run for which it was
    /// approved.
    Reuse(Box<(ToolResult, ToolReport)>),
}

/// The reason why a call is not run, although it gets a result.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    UnknownTool,
    Rejected {
        reason: Option<String>,
    },
    OverBudget {
        budget: usize,
    },
    /// The run was stopped.
    Stopped,
    /// A token limit or a filter ended the answer inside the call.
    CutOff,
}

impl PlannedCall {
    /// Creates a planned call, which is run if its tool is known and the call is complete.
    pub(crate) fn run(pending: PendingCall, tools: &Tools) -> Self {
        if pending.call().is_cut_off {
            return Self { pending, action: Action::Refuse(Refusal::CutOff) };
        }
        let tool = tools.tool(pending.name());
        Self::of(pending, tool)
    }

    fn of(pending: PendingCall, tool: Option<&Arc<dyn Tool>>) -> Self {
        let action = match tool {
            Some(tool) => Action::Run(tool.clone()),
            None => Action::Refuse(Refusal::UnknownTool),
        };
        Self { pending, action }
    }

    /// Returns whether the tool of the call will run.
    pub(crate) fn is_to_run(&self) -> bool {
        matches!(self.action, Action::Run(_))
    }

    /// Creates a planned call that was rejected.
    pub(crate) fn rejected(pending: PendingCall, reason: Option<String>) -> Self {
        Self { pending, action: Action::Refuse(Refusal::Rejected { reason }) }
    }
}

/// Refuses the calls over the budget of a run that has already made `made` calls.
pub(crate) fn charge(calls: &mut [PlannedCall], made: usize, budget: Option<usize>) {
    let Some(budget) = budget else { return };
    let to_run = calls.iter_mut().filter(|call| call.is_to_run());
    for call in to_run.skip(budget.saturating_sub(made)) {
        call.action = Action::Refuse(Refusal::OverBudget { budget });
    }
}
