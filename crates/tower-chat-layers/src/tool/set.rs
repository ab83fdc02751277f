//! A set of tools.

use std::{collections::HashMap, fmt, sync::Arc};

use tower_chat_core::ToolDefinition;

use super::Tool;

/// A set of tools, in the order in which requests declare them to the model. Cloning a set is O(1).
///
/// The set contains tools that the tool loop runs, and definitions of tools that only the caller
/// can run. A call of a tool that only the caller can run is returned to the caller. Names are
/// unique: if the set contains a tool with the same name, [`with`](Self::with) replaces this tool
/// at its index, and [`try_with`](Self::try_with) fails.
///
/// ```
/// use serde_json::json;
/// use tower_chat::{ToolDefinition, Tools, tool_fn};
///
/// let schema = json!({"type": "object"});
/// let weather = ToolDefinition::new("weather", "The weather.", schema.clone());
/// let location = ToolDefinition::new("location", "Where the user is.", schema);
/// let tools = Tools::new()
///     .with(tool_fn(weather, |_| async { Ok("Rain.") })) // the tool loop runs it
///     .declare(location); // the caller runs it
///
/// let names: Vec<&str> = tools.definitions().iter().map(|it| it.name.as_str()).collect();
/// assert_eq!(names, ["weather", "location"]);
/// assert!(tools.tool("weather").is_some() && tools.tool("location").is_none());
/// ```
#[derive(Clone, Default)]
pub struct Tools(Arc<Set>);

#[derive(Clone, Default)]
struct Set {
    definitions: Vec<ToolDefinition>,
    /// For each definition, the tool, or `None` if only the caller can run the tool.
    tools: Vec<Option<Arc<dyn Tool>>>,
    indexes: HashMap<String, usize>,
}

impl Tools {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. If the set contains a tool with the same name, that tool is replaced.
    #[must_use]
    pub fn with(self, tool: impl Tool) -> Self {
        let definition = tool.definition().clone();
        self.insert(definition, Some(Arc::new(tool)))
    }

    /// Adds a tool, unless the set contains a tool with the same name. Use this method for tools
    /// from several sources, such as MCP servers, whose tools must not replace each other.
    ///
    /// # Errors
    ///
    /// Returns [`DuplicateTool`] if the set contains a tool with the same name.
    pub fn try_with(self, tool: impl Tool) -> Result<Self, DuplicateTool> {
        let name = &tool.definition().name;
        if self.get(name).is_some() {
            return Err(DuplicateTool { name: name.clone() });
        }
        Ok(self.with(tool))
    }

    /// Declares a tool that the caller runs. If an answer contains a call of this tool, the run
    /// ends, and all calls of the answer are returned to the caller unexecuted. If another call of
    /// the answer needs approval, only the calls of declared tools are returned. The other calls
    /// then wait for approval and for the caller's results.
    #[must_use]
    pub fn declare(self, definition: ToolDefinition) -> Self {
        self.insert(definition, None)
    }

    /// Returns the number of tools, including declared ones.
    pub fn len(&self) -> usize {
        self.0.definitions.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.definitions.is_empty()
    }

    /// Returns the definitions that the model receives, in order.
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.0.definitions
    }

    /// Returns the definition of the tool with this name, including tools that the caller runs.
    pub fn get(&self, name: &str) -> Option<&ToolDefinition> {
        Some(self.find(name)?.0)
    }

    /// Returns the tool with this name, or `None` if the set contains no such tool or only the
    /// caller can run it.
    pub fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.find(name)?.1
    }

    pub(crate) fn find(&self, name: &str) -> Option<(&ToolDefinition, Option<&Arc<dyn Tool>>)> {
        let index = self.index(name)?;
        Some((self.0.definitions.get(index)?, self.0.tools.get(index)?.as_ref()))
    }

    pub(crate) fn runnable(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.0.tools.iter().flatten()
    }

    /// Returns whether a tool of the set needs approval.
    pub fn any_needs_approval(&self) -> bool {
        self.0.definitions.iter().any(|definition| definition.needs_approval)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.0.indexes.get(name).copied()
    }

    fn insert(mut self, definition: ToolDefinition, tool: Option<Arc<dyn Tool>>) -> Self {
        let set = Arc::make_mut(&mut self.0);
        let index = *set.indexes.entry(definition.name.clone()).or_insert(set.definitions.len());
        if let (Some(old), Some(old_tool)) =
            (set.definitions.get_mut(index), set.tools.get_mut(index))
        {
            *old = definition;
            *old_tool = tool;
        } else {
            set.definitions.push(definition);
            set.tools.push(tool);
        }
        self
    }
}

impl<T: Tool> FromIterator<T> for Tools {
    fn from_iter<I: IntoIterator<Item = T>>(tools: I) -> Self {
        tools.into_iter().fold(Self::new(), Self::with)
    }
}

impl<T: Tool> Extend<T> for Tools {
    fn extend<I: IntoIterator<Item = T>>(&mut self, tools: I) {
        *self = tools.into_iter().fold(std::mem::take(self), Self::with);
    }
}

impl<T: Tool, const N: usize> From<[T; N]> for Tools {
    fn from(tools: [T; N]) -> Self {
        tools.into_iter().collect()
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.definitions().iter().map(|tool| &tool.name)).finish()
    }
}

/// The error for a tool whose name another tool of the set already has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a tool named {name:?} already: rename one, or replace it with `Tools::with`")]
#[non_exhaustive]
pub struct DuplicateTool {
    /// The name of the tool.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::tool_fn;

    fn tool(name: &str, description: &str) -> impl Tool + use<> {
        tool_fn(ToolDefinition::new(name, description, json!({})), |_| async { Ok("") })
    }

    #[test]
    fn the_last_tool_with_a_name_replaces_the_first_at_its_position() {
        let tools = Tools::new().with(tool("a", "1")).with(tool("b", "2")).with(tool("a", "3"));
        let seen: Vec<_> = tools.definitions().iter().map(|t| t.description.as_str()).collect();
        assert_eq!(seen, ["3", "2"]);
    }

    #[test]
    fn every_tool_is_found_by_its_name_in_sets_of_all_sizes() {
        let mut tools = Tools::new();
        for count in 0..40 {
            let found = |name: &str| tools.get(name).map(|tool| tool.name.clone());
            assert!((0..count).all(|at| found(&format!("t{at}")) == Some(format!("t{at}"))));
            assert_eq!((found(&format!("t{count}")), found("")), (None, None));
            tools = tools.with(tool(&format!("t{count}"), ""));
        }
    }

    #[test]
    fn try_with_refuses_a_tool_with_a_duplicate_name() {
        let tools = Tools::from([tool("a", "1")]);
        let error = tools.try_with(tool("a", "2")).unwrap_err();
        assert_eq!(error.name, "a");
    }

    #[test]
    fn a_declared_tool_has_a_definition_but_no_implementation() {
        let tools =
            Tools::new().with(tool("a", "1")).declare(ToolDefinition::new("b", "2", json!({})));
        assert!(tools.tool("a").is_some() && tools.tool("b").is_none());
        assert_eq!(tools.get("b").map(|t| t.description.as_str()), Some("2"));
        assert_eq!(tools.get("c"), None);
    }

    #[test]
    fn a_clone_does_not_see_later_tools() {
        let before = Tools::from([tool("a", "1")]);
        let definition = ToolDefinition::new("b", "2", json!({})).needs_approval();
        let after = before.clone().declare(definition);
        assert_eq!((before.len(), after.len()), (1, 2));
        assert_eq!((before.any_needs_approval(), after.any_needs_approval()), (false, true));
    }
}
