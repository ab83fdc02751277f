//! What tools do, as it happens.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::mpsc;
use tower_chat::{
    BoxError, ToolDefinition,
    tool::{Retention, StoredCall, Tool, ToolContext, ToolOutput},
};

/// What a tool does.
#[derive(Debug)]
pub(crate) enum ToolEvent {
    /// It is called.
    Began { call_id: String, tool: String, arguments: String },
    /// The call has ended.
    Ended { tool: String, outcome: ToolOutcome, duration: Duration },
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum ToolOutcome {
    /// With a result, whose text this is.
    Done(ToolOutput),
    /// It failed, and why.
    Failed(String),
    /// The run was interrupted before the tool had a result.
    Interrupted,
}

/// A tool that tells what it does.
///
/// The stream of an answer has the results of a batch when all of them are there, and not the times,
/// so it is the tool itself that tells.
#[derive(Debug)]
pub(crate) struct ReportingTool<T> {
    tool: T,
    events: mpsc::UnboundedSender<ToolEvent>,
}

impl<T> ReportingTool<T> {
    pub(crate) fn new(tool: T, events: mpsc::UnboundedSender<ToolEvent>) -> Self {
        Self { tool, events }
    }
}

#[async_trait]
impl<T: Tool> Tool for ReportingTool<T> {
    fn definition(&self) -> &ToolDefinition {
        self.tool.definition()
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        let tool = self.definition().name.clone();
        let began = ToolEvent::Began {
            call_id: context.call_id().to_owned(),
            tool: tool.clone(),
            arguments: context.arguments().to_owned(),
        };
        // It fails only once the chat has ended, and then nothing is to be printed.
        let _ = self.events.send(began);
        let mut report =
            Report { tool, began: Instant::now(), events: &self.events, outcome: None };
        let output = self.tool.call(context).await;
        report.outcome = Some(match &output {
            Ok(output) => ToolOutcome::Done(output.clone()),
            Err(error) => ToolOutcome::Failed(crate::error::chain(&**error)),
        });
        output
    }

    fn persist(&self, call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
        self.tool.persist(call)
    }
}

/// Tells the end of a call when it is dropped, which an interrupted one is without an outcome.
struct Report<'a> {
    tool: String,
    began: Instant,
    events: &'a mpsc::UnboundedSender<ToolEvent>,
    outcome: Option<ToolOutcome>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or(ToolOutcome::Interrupted);
        let tool = std::mem::take(&mut self.tool);
        let _ =
            self.events.send(ToolEvent::Ended { tool, outcome, duration: self.began.elapsed() });
    }
}
