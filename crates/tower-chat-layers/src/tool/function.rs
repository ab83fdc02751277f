//! Tools made of closures.

use std::{fmt, marker::PhantomData};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tower_chat_core::{BoxError, ToolDefinition};

use super::{Tool, ToolContext, ToolOutput};

/// A tool made of an async closure that reads its arguments from the context.
///
/// See the [module](super) for an example.
pub fn tool_fn<F, R, O>(definition: ToolDefinition, function: F) -> FnTool<F>
where
    F: Fn(ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    FnTool { definition, function }
}

/// A tool made of an async closure that takes its arguments parsed.
///
/// Arguments that do not parse are an error result that tells the model what is wrong with them;
/// the closure is not called.
///
/// ```
/// use serde_json::json;
/// use tower_chat::{ToolDefinition, tool::typed_tool_fn};
/// #[derive(serde::Deserialize)]
/// struct City {
///     city: String,
/// }
/// let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
/// let weather = typed_tool_fn(
///     ToolDefinition::new("weather", "The weather in a city.", parameters),
///     |City { city }, _context| async move { Ok(format!("Rain in {city}.")) },
/// );
/// ```
pub fn typed_tool_fn<A, F, R, O>(definition: ToolDefinition, function: F) -> TypedFnTool<A, F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    TypedFnTool { definition, function, arguments: PhantomData }
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
    O: Into<ToolOutput>,
{
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        (self.function)(context).await.map(Into::into)
    }
}

impl<F> fmt::Debug for FnTool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnTool").field("definition", &self.definition).finish_non_exhaustive()
    }
}

/// A tool made by [`typed_tool_fn`].
pub struct TypedFnTool<A, F> {
    definition: ToolDefinition,
    function: F,
    arguments: PhantomData<fn(A)>,
}

#[async_trait]
impl<A, F, R, O> Tool for TypedFnTool<A, F>
where
    A: DeserializeOwned + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        match context.parse_arguments() {
            Ok(arguments) => (self.function)(arguments, context).await.map(Into::into),
            Err(error) => {
                let text = format!("The arguments do not fit the tool: {error}.");
                Ok(ToolOutput::rejected_arguments(text))
            }
        }
    }
}

impl<A, F> fmt::Debug for TypedFnTool<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedFnTool").field("definition", &self.definition).finish_non_exhaustive()
    }
}
