//! Running the calls of one batch.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tower_chat_core::{BoxError, Message, ToolResult};

use super::{
    batch::{Action, PlannedCall, Refusal},
    error::{Chain, ToolFailure, ToolPanicked},
    settings::Settings,
};
use crate::tool::{ResultName, RunContext, Tool, ToolContext, ToolOutput};

/// Runs the calls of one batch.
pub(super) struct Executor {
    pub(super) settings: Arc<Settings>,
    pub(super) context: Arc<RunContext>,
    pub(super) round_index: usize,
}

/// What the calls of a batch have come to so far. It is whole at every await, so that results of
/// calls that have finished outlive the cancellation of the others.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Each result with its call's place in the batch, in the order in which they came.
    results: Vec<(usize, ToolResult)>,
    failures: Vec<ToolFailure>,
    terminate: bool,
}

/// What one call came to.
struct Outcome {
    result: ToolResult,
    failure: Option<ToolFailure>,
    terminate: bool,
}

impl Executor {
    /// Runs the calls and adds what they come to as it comes.
    ///
    /// One after the other, a call that terminates the run is the last; at the same time, all run.
    pub(super) async fn execute(&self, calls: Vec<PlannedCall>, outcomes: &mut Outcomes) {
        let calls = calls.into_iter().enumerate();
        if self.settings.concurrent {
            let mut running: FuturesUnordered<_> = calls
                .map(|(index, call)| async move { (index, self.run(index, call).await) })
                .collect();
            while let Some((index, outcome)) = running.next().await {
                outcomes.add(index, outcome);
            }
        } else {
            for (index, call) in calls {
                outcomes.add(index, self.run(index, call).await);
                if outcomes.terminate {
                    break;
                }
            }
        }
    }

    async fn run(&self, sequence_index: usize, planned: PlannedCall) -> Outcome {
        let PlannedCall { call, id, action } = planned;
        let tool_name = call.name.clone();
        match action {
            Action::Refuse(refusal) => {
                let output = refusal.output(&tool_name);
                Outcome { result: result(id, tool_name, output), failure: None, terminate: false }
            }
            Action::Run(tool) => {
                let context = self.context.clone();
                let context =
                    ToolContext::new(context, call, id.clone(), self.round_index, sequence_index);
                match run_caught(tool, context).await {
                    Ok(output) => self.answered(id, tool_name, output),
                    Err(error) => self.failed(id, tool_name, error),
                }
            }
        }
    }

    fn answered(&self, id: String, tool: String, output: ToolOutput) -> Outcome {
        let failure =
            output.is_error.then(|| self.failure(&id, &tool, BoxError::from(output.text())));
        let terminate = output.terminate;
        Outcome { result: result(id, tool, output), failure, terminate }
    }

    fn failed(&self, id: String, tool: String, error: BoxError) -> Outcome {
        let text = if self.settings.include_error_details {
            format!("The tool failed: {}", Chain(&*error))
        } else {
            "The tool failed.".to_owned()
        };
        let failure = self.failure(&id, &tool, error);
        let result = result(id, tool, ToolOutput::error(text));
        Outcome { result, failure: Some(failure), terminate: false }
    }

    fn failure(&self, id: &str, tool: &str, source: BoxError) -> ToolFailure {
        ToolFailure {
            tool: tool.to_owned(),
            call_id: id.to_owned(),
            round_index: self.round_index,
            source,
        }
    }
}

impl Outcomes {
    fn add(&mut self, sequence_index: usize, outcome: Outcome) {
        let Outcome { result, failure, terminate } = outcome;
        self.results.push((sequence_index, result));
        self.failures.extend(failure);
        self.terminate |= terminate;
    }

    /// Whether a tool ended the run.
    pub(super) fn terminate(&self) -> bool {
        self.terminate
    }

    /// Takes the failures, of which there is one for each failed call.
    pub(super) fn take_failures(&mut self) -> Vec<ToolFailure> {
        std::mem::take(&mut self.failures)
    }

    /// One message with all results so far, in call order; `None` if there are none.
    pub(super) fn take_message(&mut self) -> Option<Message> {
        let mut results = std::mem::take(&mut self.results);
        results.sort_by_key(|(sequence_index, _)| *sequence_index);
        (!results.is_empty())
            .then(|| Message::tool_results(results.into_iter().map(|(_, result)| result)))
    }
}

impl Refusal {
    fn output(&self, tool: &str) -> ToolOutput {
        match self {
            Self::UnknownTool => ToolOutput::error(format!("There is no tool named {tool:?}.")),
            Self::Rejected { reason } => match reason.as_deref() {
                None | Some("") => "The call was rejected, and not run.".into(),
                Some(reason) => format!("The call was rejected, and not run: {reason}").into(),
            },
            Self::OverBudget { budget } => ToolOutput::error(format!(
                "The call was not run: no more than {budget} tool calls are allowed here."
            )),
        }
    }
}

async fn run_caught(tool: Arc<dyn Tool>, context: ToolContext) -> Result<ToolOutput, BoxError> {
    // What the tool leaves half-done after a panic is the tool's own; nothing of the loop is.
    let running = AssertUnwindSafe(async move { tool.call(context).await });
    match running.catch_unwind().await {
        Ok(result) => result,
        Err(payload) => Err(ToolPanicked::new(&*payload).into()),
    }
}

fn result(id: String, tool: String, output: ToolOutput) -> ToolResult {
    let mut result = ToolResult::new(id, "");
    result.name = match output.name {
        ResultName::OfTool => Some(tool),
        ResultName::As(name) => name,
    };
    result.content = output.content;
    result.is_error = output.is_error;
    result.native = output.native;
    result
}
