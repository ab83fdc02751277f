//! Events about tool calls, which a chat prints.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::mpsc;
use tower_chat::{
    BoxError, Tool, ToolContext, ToolDefinition,
    tool::{Retention, StoredCall, ToolOutput},
};

#[derive(Debug)]
pub(crate) enum ToolEvent {
    Began { call_id: String, tool: String, arguments: String },
    Ended { tool: String, outcome: ToolOutcome, duration: Duration },
}

#[derive(Debug)]
pub(crate) enum ToolOutcome {
    Done(ToolOutput),
    Failed(String),
    /// The run was interrupted before the tool returned.
    Interrupted,
}

/// A tool that wraps another tool, and sends an event at the beginning and at the end of each call.
///
/// The stream of an answer does not have this information: it contains results only after all calls
/// of the answer have ended, and no times.
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
        // Sending fails only after the chat has ended.
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

/// Sends the event at the end of a call when this value is dropped. If the call was interrupted, no
/// outcome is set.
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
