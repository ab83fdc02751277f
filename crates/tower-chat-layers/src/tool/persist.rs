//! What of a tool's calls is stored.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use async_trait::async_trait;
use tower_chat_core::{BoxError, Part, ToolCall, ToolDefinition, ToolResult};

use super::{Tool, ToolContext, ToolOutput};

/// A call on its way into the store: what a tool's [`persist`](Tool::persist) hook may change.
///
/// The hook sees it twice: without a result when the model's answer is stored, and with its result
/// when that is. What it changes is what the message log and the record hold; the run under way
/// goes on with the raw values.
#[derive(Debug)]
pub struct StoredCall<'a> {
    call: &'a ToolCall,
    result: Option<&'a ToolResult>,
    error: Option<&'a str>,
    new_arguments: Option<String>,
    new_result: Option<Box<ToolResult>>,
    new_error: Option<Option<String>>,
    /// A hook was asked that is not the one every tool has by default.
    is_hooked: bool,
}

/// Whether a call is stored at all.
///
/// ```
/// use tower_chat::{BoxError, tool::{Retention, StoredCall}};
///
/// /// A hook: nothing is stored of calls that looked for nothing.
/// fn without_misses(call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
///     let is_miss = call.result().is_some_and(|result| result.text() == "nothing found");
///     Ok(if is_miss { Retention::Forget } else { Retention::Keep })
/// }
/// # let _ = without_misses;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// As the hook left it.
    Keep,
    /// Neither the call nor its result. A run that stops before the next answer, and of whose last
    /// round no call is kept, asks the model again when it is resumed.
    ///
    /// A call that waits for approval cannot be forgotten, since it has to run from the store: the
    /// run fails with
    /// [`PendingCallNotKept`](crate::PersistenceError::PendingCallNotKept) instead of asking for
    /// approval, and so it does where the hook fails.
    Forget,
}

impl<'a> StoredCall<'a> {
    pub(crate) fn new(
        call: &'a ToolCall,
        result: Option<&'a ToolResult>,
        error: Option<&'a str>,
    ) -> Self {
        Self {
            call,
            result,
            error,
            new_arguments: None,
            new_result: None,
            new_error: None,
            is_hooked: true,
        }
    }

    /// Notes that the tool has no hook of its own.
    pub(super) fn note_no_hook(&mut self) {
        self.is_hooked = false;
    }

    /// The call as the model made it.
    pub fn call(&self) -> &ToolCall {
        self.call
    }

    /// What the tool answered; `None` while it has not been run.
    pub fn result(&self) -> Option<&ToolResult> {
        self.new_result.as_deref().or(self.result)
    }

    /// What went wrong, in words for people; the record keeps it.
    pub fn error(&self) -> Option<&str> {
        match &self.new_error {
            Some(error) => error.as_deref(),
            None => self.error,
        }
    }

    /// Stores other arguments. The provider's own form of the call is not stored then.
    ///
    /// A call that is run from the store, because it waited for approval or because a journaled run
    /// was interrupted, has no others. It does not run with them, whatever the policy for unknown
    /// calls says, unless its tool declares
    /// [`accepts_stored_arguments`](ToolDefinition::accepts_stored_arguments); the model is told so.
    /// The run that approves such a call fails with
    /// [`ArgumentsNotKept`](crate::ToolLoopError::ArgumentsNotKept) first.
    pub fn redact_arguments(&mut self, arguments: impl Into<String>) {
        self.new_arguments = Some(arguments.into());
    }

    /// Stores another text as the result, if there is one. Whether the tool failed stays as it
    /// was; the provider's own form of the result is not stored.
    pub fn redact_result(&mut self, text: impl Into<String>) {
        let Some(mut result) = self.result().cloned() else { return };
        result.content = vec![Part::text(text)];
        result.native = None;
        self.new_result = Some(Box::new(result));
    }

    /// Records other words for what went wrong, or none.
    pub fn redact_error(&mut self, error: Option<String>) {
        self.new_error = Some(error);
    }
}

/// What of a call is stored.
#[derive(Debug)]
pub(crate) enum Retained {
    /// All of it, as it is: there is no hook.
    Whole,
    /// What a hook has made of it, be it nothing.
    Redacted(Box<Redaction>),
    Nothing(NotKept),
}

/// Why nothing of a call is stored.
#[derive(Debug, Clone)]
pub(crate) enum NotKept {
    Forgotten,
    /// The hook failed, and what it was to hide must not be stored.
    HookFailed(String),
}

/// What a hook has decided; `None` in a field leaves it as it is.
#[derive(Debug)]
pub(crate) struct Redaction {
    pub(crate) arguments: Option<String>,
    pub(crate) result: Option<Box<ToolResult>>,
    pub(crate) error: Option<Option<String>>,
}

/// Asks a tool what of a call may be stored. A hook that fails, or panics, stores nothing: what it
/// was to hide must not be.
pub(crate) fn retained(
    tool: &dyn Tool,
    call: &ToolCall,
    result: Option<&ToolResult>,
    error: Option<&str>,
) -> Retained {
    let mut stored = StoredCall::new(call, result, error);
    let outcome = catch_unwind(AssertUnwindSafe(|| tool.persist(&mut stored)));
    let failure = match outcome {
        Ok(Ok(Retention::Keep)) => {
            return match stored {
                StoredCall {
                    new_arguments: None,
                    new_result: None,
                    new_error: None,
                    is_hooked: false,
                    ..
                } => Retained::Whole,
                StoredCall { new_arguments, new_result, new_error, .. } => {
                    let ends_run = result.is_some_and(|result| result.ends_run);
                    let with_end = |mut result: Box<ToolResult>| {
                        result.ends_run = ends_run;
                        result
                    };
                    Retained::Redacted(Box::new(Redaction {
                        arguments: new_arguments,
                        result: new_result.map(with_end),
                        error: new_error,
                    }))
                }
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

/// A tool with a [`persist`](Tool::persist) hook made of a closure.
///
/// ```
/// use tower_chat::{ToolDefinition, tool::{Retention, Tools, persist_with, tool_fn}};
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

/// A tool made by [`persist_with`].
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
