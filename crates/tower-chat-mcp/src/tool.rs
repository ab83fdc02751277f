//! A tool of an MCP server.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use rmcp::{
    Peer, RoleClient,
    model::{CallToolRequestParams, CallToolResponse, JsonObject},
};
use serde_json::Value;
use tower_chat_layers::{BoxError, Tool, ToolContext, ToolDefinition, ToolOutput};

use crate::{McpError, McpLimits, ToolHints, content, limits::Counter, name};

/// A tool of an MCP server.
///
/// Dropping the future of a call cancels the call at the server, with `notifications/cancelled`.
#[derive(Clone)]
pub struct McpTool {
    definition: ToolDefinition,
    listed: Arc<rmcp::model::Tool>,
    server: Peer<RoleClient>,
    time_limit: Option<Duration>,
    limits: McpLimits,
}

impl McpTool {
    pub(crate) fn new(server: Peer<RoleClient>, listed: rmcp::model::Tool, prefix: &str) -> Self {
        let title = listed.title.as_deref();
        let description = listed.description.as_deref().or(title).unwrap_or_default();
        let parameters = Value::Object((*listed.input_schema).clone());
        let name = name::for_model(prefix, &listed.name);
        let definition = ToolDefinition::new(name, description, parameters);
        let (time_limit, limits) = (None, McpLimits::default());
        Self { definition, listed: Arc::new(listed), server, time_limit, limits }
    }

    /// Changes the name that the model receives for the tool.
    pub(crate) fn rename(&mut self, name: String) {
        self.definition.name = name;
    }

    /// Sets the time limit of a call, and the limits on its answer.
    pub(crate) fn set_limits(&mut self, time_limit: Option<Duration>, limits: McpLimits) {
        self.time_limit = time_limit;
        self.limits = limits;
    }

    /// Sets whether calls of the tool need approval, and whether they are safe to retry.
    pub(crate) fn set_safety(&mut self, needs_approval: bool, safe_to_retry: bool) {
        self.definition.needs_approval = needs_approval;
        self.definition.safe_to_retry = safe_to_retry;
    }

    /// Returns the tool in the form in which the server listed it, with its name at the server.
    pub fn listed(&self) -> &rmcp::model::Tool {
        &self.listed
    }

    /// Returns the server's hints about the effects of the tool.
    pub fn hints(&self) -> ToolHints {
        self.listed.annotations.as_ref().map(ToolHints::of_annotations).unwrap_or_default()
    }

    /// Calls the tool at the server, and converts the server's answer.
    async fn answer(&self, arguments: JsonObject) -> Result<ToolOutput, McpError> {
        let tool = self.listed.name.to_string();
        let params = CallToolRequestParams::new(self.listed.name.clone()).with_arguments(arguments);
        let answer = self.server.call_tool_once(params);
        let answer = match self.time_limit {
            None => answer.await,
            Some(limit) => match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => return Err(McpError::TimedOut { tool, limit }),
            },
        };
        match answer {
            Ok(CallToolResponse::Complete(result)) => {
                let max = self.limits.answer_bytes;
                Counter::new(max, "bytes of an answer", "max_answer_bytes").add_json(&result)?;
                Ok(content::output(result))
            }
            Ok(CallToolResponse::InputRequired(_)) => {
                Err(McpError::Unsupported { tool, what: "a question to the user" })
            }
            Ok(_) => Err(McpError::Unsupported {
                tool,
                what: "a task whose result must be requested later",
            }),
            Err(error) => Err(McpError::of_call(tool, error)),
        }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        match context.parse_arguments::<JsonObject>() {
            Ok(arguments) => Ok(self.answer(arguments).await?),
            Err(error) => Ok(ToolOutput::rejected_arguments(format!(
                "The arguments must be a JSON object: {error}."
            ))),
        }
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool")
            .field("definition", &self.definition)
            .field("server_name", &self.listed.name)
            .finish_non_exhaustive()
    }
}
