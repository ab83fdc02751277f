//! Tools that return the recorded results.

use async_trait::async_trait;
use serde_json::json;
use tower_chat::{
    BoxError, Tool, ToolContext, ToolDefinition, Tools,
    tool::{ToolOutput, ToolSource},
};

use super::script::Script;

/// The tools of the calls in the next answer. If the script has no results for them, the tools are
/// only declared, and the tool loop cannot execute them.
pub(super) struct RecordedTools(pub(super) Script);

struct RecordedTool {
    definition: ToolDefinition,
    script: Script,
}

impl ToolSource for RecordedTools {
    fn tools(&self) -> Tools {
        let Some((message, are_run)) = self.0.next_calls() else { return Tools::new() };
        let definitions = message.calls().map(|call| recorded(&call.name));
        definitions.fold(Tools::new(), |tools, definition| {
            if are_run {
                tools.with(RecordedTool { definition, script: self.0.clone() })
            } else {
                tools.declare(definition)
            }
        })
    }
}

#[async_trait]
impl Tool for RecordedTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        let (message, ends_run) = self.script.result(context.sequence_index(), context.call())?;
        let result = message.results().next().cloned();
        let output = result.map_or_else(|| ToolOutput::new(Vec::new()), ToolOutput::from);
        Ok(if ends_run { output.terminate() } else { output })
    }
}

/// Returns the definition of a recorded tool. It is safe to retry, because each execution of a call
/// returns the same result.
fn recorded(name: &str) -> ToolDefinition {
    ToolDefinition::new(name, "recorded", json!({})).safe_to_retry()
}
