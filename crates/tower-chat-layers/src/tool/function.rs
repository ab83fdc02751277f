//! Tools made of closures that read their arguments themselves.

use std::fmt;

use async_trait::async_trait;
use tower_chat_core::{BoxError, ToolDefinition};

use super::{IntoToolOutput, Tool, ToolContext, ToolOutput};

/// A tool made of an async closure that reads its arguments from the context. Where they are a type,
/// a [`TypedTool`](super::TypedTool) reads them, and makes their schema.
///
/// See the [module](super) for an example.
pub fn tool_fn<F, R, O>(definition: ToolDefinition, function: F) -> FnTool<F>
where
    F: Fn(ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: IntoToolOutput,
{
    FnTool { definition, function }
}

/// A tool made by [`tool_fn`].
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
