//! A call, and where its result comes from.

use std::sync::Arc;

use tower_chat_core::ToolResult;

use crate::tool::{PendingCall, Tool, ToolReport, Tools};

/// A call that gets a result in this batch.
#[derive(Clone)]
pub(crate) struct PlannedCall {
    pub(crate) pending: PendingCall,
    pub(crate) action: Action,
}

/// Where a call's result comes from.
#[derive(Clone)]
pub(crate) enum Action {
    Run(Arc<dyn Tool>),
    Refuse(Refusal),
    /// It was run by an earlier attempt at the run, or by an earlier run that it was approved for.
    Reuse(Box<(ToolResult, ToolReport)>),
}

/// Why a call is not run, although it gets a result.
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
    /// A token limit or a filter ended the answer inside of the call.
    CutOff,
}

impl PlannedCall {
    /// A call that is run, if its tool is known and it is whole.
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

    /// Whether its tool is to run.
    pub(crate) fn is_to_run(&self) -> bool {
        matches!(self.action, Action::Run(_))
    }

    /// A call that somebody refused.
    pub(crate) fn rejected(pending: PendingCall, reason: Option<String>) -> Self {
        Self { pending, action: Action::Refuse(Refusal::Rejected { reason }) }
    }
}

/// Refuses those of the calls to run that are over the budget of a run which has made some already.
pub(crate) fn charge(calls: &mut [PlannedCall], made: usize, budget: Option<usize>) {
    let Some(budget) = budget else { return };
    let to_run = calls.iter_mut().filter(|call| call.is_to_run());
    for call in to_run.skip(budget.saturating_sub(made)) {
        call.action = Action::Refuse(Refusal::OverBudget { budget });
    }
}
