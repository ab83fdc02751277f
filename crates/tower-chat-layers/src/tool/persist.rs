//! Hooks that decide which parts of a tool's calls are stored.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use async_trait::async_trait;
use tower_chat_core::{BoxError, Part, ToolCall, ToolDefinition, ToolResult};

use super::{Tool, ToolContext, ToolOutput};

/// A call that is about to be stored. The [`persist`](Tool::persist) hook of the call's tool may
/// change the call.
///
/// The hook is called twice: without a result when the model's answer is stored, and with the
/// result when the result is stored. The changes of the hook apply to the stored messages and to
/// the record of tool calls. The active run continues with the unchanged call and result.
#[derive(Debug)]
pub struct StoredCall<'a> {
    call: &'a ToolCall,
    result: Option<&'a ToolResult>,
    error: Option<&'a str>,
    new: Redaction,
    /// Whether the tool overrides the default hook.
    is_hooked: bool,
}

/// Whether a call is stored.
///
/// ```
/// use tower_chat::{BoxError, tool::{Retention, StoredCall}};
///
/// /// A hook by which calls without a hit are not stored.
/// fn without_misses(call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
///     let is_miss = call.result().is_some_and(|result| result.text() == "nothing found");
///     Ok(if is_miss { Retention::Forget } else { Retention::Keep })
/// }
/// # let _ = without_misses;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// Stores the call, with the changes of the hook.
    Keep,
    /// Stores neither the call nor its result. If hooks forget all calls of an answer, and the run
    /// is interrupted before the next answer, the run calls the model again when it is resumed.
    ///
    /// A call that waits for approval must be stored, because a later run executes the stored call.
    /// If the hook forgets such a call or fails, the run fails with
    /// [`PendingCallNotKept`](crate::PersistenceError::PendingCallNotKept), and does not request
    /// approval.
    Forget,
}

impl<'a> StoredCall<'a> {
    pub(super) fn note_no_hook(&mut self) {
        self.is_hooked = false;
    }

    /// Returns the call as the model made it.
    pub fn call(&self) -> &ToolCall {
        self.call
    }

    /// Returns the result of the tool, or `None` if the tool has not run.
    pub fn result(&self) -> Option<&ToolResult> {
        self.new.result.as_deref().or(self.result)
    }

    /// Returns the description of the failure in the record of tool calls. This description is for
    /// people, and is not sent to the model.
    pub fn error(&self) -> Option<&str> {
        match &self.new.error {
            Some(error) => error.as_deref(),
            None => self.error,
        }
    }

    /// Replaces the stored arguments. The original item of the provider is then not stored.
    ///
    /// Two kinds of calls run with the stored arguments: calls that waited for approval, and calls
    /// of an interrupted journaled run. If the hook replaced the arguments of such a call, the call
    /// runs only if the tool declares
    /// [`accepts_stored_arguments`](ToolDefinition::accepts_stored_arguments). Otherwise:
    ///
    /// - A call of an interrupted run does not run, whatever the policy for unknown calls is. The
    ///   model receives an error result.
    /// - A call that waited for approval does not run either. The request with the approval fails
    ///   with [`ArgumentsNotKept`](crate::ToolLoopError::ArgumentsNotKept). If the application
    ///   sends the approval again, the model receives an error result.
    pub fn redact_arguments(&mut self, arguments: impl Into<String>) {
        self.new.arguments = Some(arguments.into());
    }

    /// Replaces the text of the stored result, if the call has a result. The error flag of the
    /// result does not change. The original item of the provider is then not stored.
    pub fn redact_result(&mut self, text: impl Into<String>) {
        let Some(result) = self.result() else { return };
        self.new.result = Some(Box::new(result.with_content(vec![Part::text(text)])));
    }

    /// Replaces or removes the recorded description of the failure.
    pub fn redact_error(&mut self, error: Option<String>) {
        self.new.error = Some(error);
    }
}

/// The part of a call that is stored.
#[derive(Debug)]
pub(crate) enum Retained {
    /// The whole call, because the tool does not override the default hook.
    Whole,
    /// The call with the changes of the hook, which may be empty.
    Redacted(Box<Redaction>),
    Nothing(NotKept),
}

/// The reason why a call is not stored.
#[derive(Debug, Clone)]
pub(crate) enum NotKept {
    Forgotten,
    HookFailed(String),
}

/// The changes of a hook.
#[derive(Debug, Default)]
pub(crate) struct Redaction {
    pub(crate) arguments: Option<String>,
    pub(crate) result: Option<Box<ToolResult>>,
    pub(crate) error: Option<Option<String>>,
}

/// Calls the hook of a tool. If the hook fails or panics, nothing of the call is stored, because it
/// may contain data that must not be stored.
pub(crate) fn retained(
    tool: &dyn Tool,
    call: &ToolCall,
    result: Option<&ToolResult>,
    error: Option<&str>,
) -> Retained {
    let new = Redaction::default();
    let mut stored = StoredCall { call, result, error, new, is_hooked: true };
    let outcome = catch_unwind(AssertUnwindSafe(|| tool.persist(&mut stored)));
    let failure = match outcome {
        Ok(Ok(Retention::Keep)) => {
            return match stored.new {
                Redaction { arguments: None, result: None, error: None } if !stored.is_hooked => {
                    Retained::Whole
                }
                new => Retained::Redacted(Box::new(new)),
            };
        }
        Ok(Ok(Retention::Forget)) => return Retained::Nothing(NotKept::Forgotten),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked".to_owned(),
    };
    tracing::error!(
        tool = %call.name,
        "the persist hook failed, so nothing of the call is stored: {failure}"
    );
    Retained::Nothing(NotKept::HookFailed(failure))
}

/// Wraps a tool, and uses a closure as its [`persist`](Tool::persist) hook.
///
/// ```
/// use tower_chat::{ToolDefinition, Tools, tool::{Retention, persist_with}, tool_fn};
/// let definition = ToolDefinition::new("pay", "Pays.", serde_json::json!({}));
/// let pay = tool_fn(definition, |_| async { Ok("paid with card 4111 1111 1111 1111") });
/// let pay = persist_with(pay, |call| {
///     call.redact_arguments("{}");
///     call.redact_result("paid");
///     Ok(Retention::Keep)
/// });
/// let tools = Tools::new().with(pay);
/// ```
pub fn persist_with<T, F>(tool: T, hook: F) -> PersistWith<T, F>
where
    T: Tool,
    F: Fn(&mut StoredCall<'_>) -> Result<Retention, BoxError> + Send + Sync + 'static,
{
    PersistWith { tool, hook }
}

/// A tool that [`persist_with`] creates.
#[derive(Clone)]
pub struct PersistWith<T, F> {
    tool: T,
    hook: F,
}

#[async_trait]
impl<T, F> Tool for PersistWith<T, F>
where
    T: Tool,
    F: Fn(&mut StoredCall<'_>) -> Result<Retention, BoxError> + Send + Sync + 'static,
{
    fn definition(&self) -> &ToolDefinition {
        self.tool.definition()
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        self.tool.call(context).await
    }

    fn persist(&self, call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
        (self.hook)(call)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for PersistWith<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistWith").field("tool", &self.tool).finish_non_exhaustive()
    }
}
