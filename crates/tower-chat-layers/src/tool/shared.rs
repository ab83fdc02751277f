//! Sets of tools that can change during runs.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use super::Tools;

/// Provides the tools of a tool loop. The loop reads the tools before each service call.
///
/// [`Tools`] always returns the same set. [`SharedTools`] returns a set that can be changed through
/// any clone. A source should return a clone of one set: the definitions are copied for each
/// service call if the source builds a new set each time.
pub trait ToolSource: Send + Sync + 'static {
    /// Returns the current tools.
    fn tools(&self) -> Tools;
}

impl ToolSource for Tools {
    fn tools(&self) -> Tools {
        self.clone()
    }
}

impl<T: ToolSource + ?Sized> ToolSource for Arc<T> {
    fn tools(&self) -> Tools {
        (**self).tools()
    }
}

/// A set of tools that can be changed at any time. All clones share the set.
///
/// A change takes effect at the next service call of each run. The calls in an answer
/// are executed by the tools that were declared in the request for this answer.
///
/// ```
/// use serde_json::json;
/// use tower_chat::{
///     ToolDefinition, Tools, layer::ToolLoopLayer,
///     tool::{SharedTools, ToolSource},
///     tool_fn,
/// };
///
/// let tools = SharedTools::new(Tools::new());
/// let tool_loop = ToolLoopLayer::new(tools.clone());
///
/// // Any clone can change the set later. Runs use the change from their next service call on.
/// let weather = ToolDefinition::new("weather", "The weather.", json!({"type": "object"}));
/// tools.update(|set| set.with(tool_fn(weather, |_| async { Ok("Rain.") })));
/// assert_eq!(tools.tools().len(), 1);
/// # let _ = tool_loop;
/// ```
#[derive(Clone, Default)]
pub struct SharedTools(Arc<RwLock<Tools>>);

impl SharedTools {
    /// Creates a shared set with these tools.
    pub fn new(tools: Tools) -> Self {
        Self(Arc::new(RwLock::new(tools)))
    }

    /// Replaces the set.
    pub fn set(&self, tools: Tools) {
        self.update(|_| tools);
    }

    /// Replaces the set with the output of `change`. The set is locked while `change` runs, so
    /// `change` must not use this `SharedTools`.
    pub fn update(&self, change: impl FnOnce(Tools) -> Tools) {
        let mut tools = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *tools = change(tools.clone());
    }
}

impl ToolSource for SharedTools {
    fn tools(&self) -> Tools {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for SharedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tools().fmt(f)
    }
}
