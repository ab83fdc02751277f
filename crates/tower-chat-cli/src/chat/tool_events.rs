//! Events of tool calls, for the output of a chat.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::mpsc;
use tower_chat::{
    BoxError, Tool, ToolContext, ToolDefinition,
    tool::{Retention, StoredCall, ToolOutput},
};

/// An event of a tool call.
#[derive(Debug)]
pub(crate) enum ToolEvent {
    /// The call has begun.
    Began { call_id: String, tool: String, arguments: String },
    /// The call has ended.
    Ended { tool: String, outcome: ToolOutcome, duration: Duration },
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) enum ToolOutcome {
    /// The tool returned a result.
    Done(ToolOutput),
    /// The tool failed with this error.
    Failed(String),
    /// The run was interrupted before the tool returned.
    Interrupted,
}

/// A tool that sends an event when a call begins and when it ends.
///
/// The stream of an answer has the results of a batch only when all of them are ready, and has no times.
/// The tool itself therefore sends the events.
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
        // Sending fails only after the chat has ended, when the event is no longer needed.
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

/// Sends the end of a call when it is dropped. An interrupted call is dropped without an outcome.
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
