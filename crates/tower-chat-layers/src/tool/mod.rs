//! Tools that a model can call, and sets of tools.
//!
//! A [`Tool`] consists of a definition and an async function. The function can be a closure:
//!
//! ```
//! use serde_json::json;
//! use tower_chat::{ToolDefinition, Tools, tool_fn};
//! let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
//! let weather = tool_fn(
//!     ToolDefinition::new("weather", "The weather in a city.", parameters),
//!     |context| async move {
//!         let arguments: serde_json::Value = context.parse_arguments()?;
//!         Ok(format!("Rain in {}.", arguments["city"].as_str().unwrap_or("nowhere")))
//!     },
//! );
//! let tools = Tools::new().with(weather);
//! assert_eq!(tools.len(), 1);
//! ```

mod context;
mod error;
mod function;
mod nesting;
mod output;
mod pending_call;
mod persist;
mod report;
pub(crate) mod returned;
mod set;
mod shared;
mod typed;

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{BoxError, ToolDefinition};

pub use self::{
    context::ToolContext,
    error::ToolError,
    function::{FnTool, tool_fn},
    nesting::{NestedInAncestor, RunAncestry},
    output::{IntoToolOutput, Json, ToolOutput},
    persist::{PersistWith, Retention, StoredCall, persist_with},
    set::{DuplicateTool, Tools},
    shared::{SharedTools, ToolSource},
    typed::TypedTool,
};
pub(crate) use self::{
    context::{RunContext, SourceNumbers, idempotency_key},
    error::Effect,
    output::ResultName,
    pending_call::{CallOfRun, PendingCall},
    persist::{NotKept, Redaction, Retained, retained},
    report::{ResultSource, ToolOutcome, ToolReport, ToolReports},
};

/// A tool that a model can call.
///
/// The future of a call may be dropped at any await, because a cancelled run cancels its tools. If
/// the tool panics, the model receives an error result, as after a returned error.
///
/// ```
/// use tower_chat::{BoxError, Tool, ToolContext, ToolDefinition, tool::ToolOutput};
///
/// struct Clock(ToolDefinition);
///
/// #[async_trait::async_trait]
/// impl Tool for Clock {
///     fn definition(&self) -> &ToolDefinition {
///         &self.0
///     }
///
///     async fn call(&self, _: ToolContext) -> Result<ToolOutput, BoxError> {
///         Ok("Five past twelve.".into())
///     }
/// }
/// ```
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Returns the definition that the model receives. The model calls the tool by its name.
    fn definition(&self) -> &ToolDefinition;

    /// Runs the tool for one call.
    ///
    /// # Errors
    ///
    /// A [`ToolError`] sends its text to the model, or fails the run. After any other error, the
    /// model receives an error result that does not contain the text of the error, unless
    /// [`ToolLoopLayer::include_error_details`](crate::tool_loop::ToolLoopLayer::include_error_details)
    /// is set.
    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError>;

    /// Decides which parts of a call are stored. By default the call is stored without changes.
    ///
    /// The hook runs twice: without a result when the model's answer is stored, and with the result
    /// when the result is stored. The hook runs while the write is built, and therefore must be
    /// fast and must not block.
    ///
    /// If the set of tools changes before the result is stored, the run still uses the hook of the
    /// tool that the model called. If a later run stores the result, the later run uses the hook of
    /// the tool that is then registered with this name. If no such tool is registered, and the tool
    /// of the call had a hook, a fixed text is stored instead of the result.
    ///
    /// # Errors
    ///
    /// If the hook returns an error or panics, nothing of the call is stored, and the run continues
    /// with the call and the result that the tool returned. If the call needs approval, the run
    /// fails before approval is requested.
    fn persist(&self, call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
        call.note_no_hook();
        Ok(Retention::Keep)
    }
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn definition(&self) -> &ToolDefinition {
        (**self).definition()
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        (**self).call(context).await
    }

    fn persist(&self, call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
        (**self).persist(call)
    }
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Box<T> {
    fn definition(&self) -> &ToolDefinition {
        (**self).definition()
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        (**self).call(context).await
    }

    fn persist(&self, call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
        (**self).persist(call)
    }
}
