//! Plans how each call of a batch gets its result. A batch consists of the calls of one answer,
//! which run together.

use std::sync::Arc;

use tower_chat_core::ToolResult;

use crate::tool::{PendingCall, Tool, ToolReport, Tools};

/// A call of a batch, and the source of its result.
#[derive(Clone)]
pub(crate) struct PlannedCall {
    pub(crate) pending: PendingCall,
    pub(crate) action: Action,
}

/// The source of a call's result.
#[derive(Clone)]
pub(crate) enum Action {
    Run(Arc<dyn Tool>),
    Refuse(Refusal),
    /// The result of an earlier attempt at (execution of) this run, or of an earlier run that
    /// executed the approved call.
    Reuse(Box<(ToolResult, ToolReport)>),
}

/// The reason for which a call gets an error result instead of being run.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    UnknownTool,
    Rejected {
        reason: Option<String>,
    },
    OverBudget {
        budget: usize,
    },
    Stopped,
    /// A token limit or a filter ended the answer before the call was complete.
    CutOff,
}

impl PlannedCall {
    /// Plans a call, which is refused if the set does not contain its tool or the call was cut off.
    pub(crate) fn run(pending: PendingCall, tools: &Tools) -> Self {
        let action = match tools.tool(pending.name()) {
            _ if pending.call().is_cut_off => Action::Refuse(Refusal::CutOff),
            Some(tool) => Action::Run(tool.clone()),
            None => Action::Refuse(Refusal::UnknownTool),
        };
        Self { pending, action }
    }

    /// Returns whether the tool of the call will run.
    pub(crate) fn is_to_run(&self) -> bool {
        matches!(self.action, Action::Run(_))
    }

    /// Plans the refusal of a call that was rejected instead of approved.
    pub(crate) fn rejected(pending: PendingCall, reason: Option<String>) -> Self {
        Self { pending, action: Action::Refuse(Refusal::Rejected { reason }) }
    }
}

/// Refuses the calls that exceed the budget of the run, which has made `made` calls before.
pub(crate) fn charge(calls: &mut [PlannedCall], made: usize, budget: Option<usize>) {
    let Some(budget) = budget else { return };
    let to_run = calls.iter_mut().filter(|call| call.is_to_run());
    for call in to_run.skip(budget.saturating_sub(made)) {
        call.action = Action::Refuse(Refusal::OverBudget { budget });
    }
}

/// Returns the result text of a rejected call.
pub(crate) fn rejection(reason: Option<&str>) -> String {
    match reason {
        None | Some("") => "The call was rejected, and not run.".to_owned(),
        Some(reason) => format!("The call was rejected, and not run: {reason}"),
    }
}
