//! Creates tools from closures that parse their arguments.

use std::fmt;

use async_trait::async_trait;
use tower_chat_core::{BoxError, ToolDefinition};

use super::{IntoToolOutput, Tool, ToolContext, ToolOutput};

/// Creates a tool from an async closure. The closure parses the arguments from the context. A
/// [`TypedTool`](super::TypedTool) parses the arguments into a type, and generates the schema of
/// this type.
///
/// The [module](super) has another example.
///
/// ```
/// use serde_json::json;
/// use tower_chat::{BoxError, ToolDefinition, Tools, tool::Json, tool_fn};
///
/// #[derive(serde::Deserialize)]
/// struct Sum {
///     of: Vec<i64>,
/// }
///
/// let parameters = json!({
///     "type": "object",
///     "properties": {"of": {"type": "array", "items": {"type": "integer"}}},
///     "required": ["of"]
/// });
/// let add = tool_fn(ToolDefinition::new("add", "Adds numbers.", parameters), |context| async move {
///     let Sum { of } = context.parse_arguments()?;
///     Ok::<_, BoxError>(Json(of.iter().sum::<i64>()))
/// });
/// let tools = Tools::new().with(add);
/// # assert_eq!(tools.len(), 1);
/// ```
pub fn tool_fn<F, R, O>(definition: ToolDefinition, function: F) -> FnTool<F>
where
    F: Fn(ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: IntoToolOutput,
{
    FnTool { definition, function }
}

/// A tool that [`tool_fn`] creates.
#[derive(Clone)]
pub struct FnTool<F> {
    definition: ToolDefinition,
    function: F,
}

#[async_trait]
impl<F, R, O> Tool for FnTool<F>
where
    F: Fn(ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: IntoToolOutput,
{
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        (self.function)(context).await?.into_tool_output()
    }
}

impl<F> fmt::Debug for FnTool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("definition", &self.definition).finish_non_exhaustive()
    }
}
