//! Sets of tools that can change during runs.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use super::Tools;

/// The source of a tool loop's tools. The loop reads the source before each service call.
///
/// [`Tools`] is a source that never changes, and [`SharedTools`] one that can be changed from any
/// clone. Returning the same set (a clone) is free. A set that is built for each call costs a copy of
/// its definitions.
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

/// A set of tools that all clones share and that can be changed at any time.
///
/// A change takes effect at the next service call. The calls of the current answer run with the tools
/// that were declared to the model.
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

    /// Replaces the set with the output of a function. The function must not use this handle.
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
