//! Finds the tools whose `persist` hooks decide which parts of a call are stored.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;
use tower_chat_core::{Message, Messages, ToolCall};

use crate::tool::{CallOfRun, Tool, ToolSource, Tools};

/// The metadata key for the calls of a stored message whose tools have hooks. The value contains
/// the indices of these calls among the stored calls of the message. If such a tool is no longer
/// registered, the result of its call must not be stored unchanged.
pub(super) const HOOKED_CALLS: &str = "hooked_calls";

/// The tools whose hooks a run calls.
///
/// The set of tools may change during a run. Each call uses the hook of the tool that was
/// registered when the call was planned. Later calls of an unregistered name use the last tool of
/// this name.
#[derive(Default)]
pub(crate) struct Hooks {
    /// The source of the tools, until a tool loop sets its tools.
    source: Option<Arc<dyn ToolSource>>,
    /// The most recent set of tools, from which `tools_by_name` was updated.
    newest_tools: Option<Tools>,
    /// The most recent tool of each name in the run.
    tools_by_name: HashMap<String, Arc<dyn Tool>>,
    /// The tools of calls that were planned or stored.
    pinned: HashMap<CallOfRun, Arc<dyn Tool>>,
    /// The calls whose name had no tool when they were planned or stored. The results that the tool
    /// loop writes for them are stored unchanged.
    without_tool: HashSet<CallOfRun>,
    /// Whether hooks were called for calls that this attempt has stored.
    were_called: bool,
    /// Whether hooks were called for calls in the loaded history, after the first look-up.
    were_called_before: OnceCell<bool>,
}

impl Hooks {
    /// Creates the value for tools that are read from `source` until a tool loop sets the tools.
    pub(super) fn of_source(source: Option<Arc<dyn ToolSource>>) -> Self {
        let mut hooks = Self { source, ..Self::default() };
        hooks.refresh_from_source();
        hooks
    }

    /// Adds the current tools of the source, if no tool loop has set tools.
    pub(super) fn refresh_from_source(&mut self) {
        if let Some(tools) = self.source.as_ref().map(|source| source.tools()) {
            self.add_tools(&tools);
        }
    }

    pub(super) fn newest_tools(&self) -> Option<Tools> {
        self.newest_tools.clone()
    }

    /// Sets the tools of the next service call.
    pub(crate) fn use_tools(&mut self, tools: &Tools) {
        self.source = None;
        self.add_tools(tools);
    }

    fn add_tools(&mut self, tools: &Tools) {
        if self.newest_tools.as_ref().is_some_and(|newest| newest.is_same(tools)) {
            return;
        }
        self.newest_tools = Some(tools.clone());
        let named = tools.runnable().map(|tool| (tool.definition().name.clone(), tool.clone()));
        self.tools_by_name.extend(named);
    }

    /// Pins the tools of the calls in an answer. The run calls the hooks of these tools even if a
    /// later service call has another set of tools.
    pub(crate) fn pin_answer(&mut self, answer: &[Arc<Message>]) {
        answer.iter().for_each(|message| self.pin_calls(message));
    }

    pub(super) fn pin_calls(&mut self, message: &Message) {
        let Some(id) = message.id else { return };
        for (index, call) in message.asked_calls().enumerate() {
            match self.tools_by_name.get(&call.name) {
                Some(_) if self.without_tool.contains(&(id, index)) => {}
                Some(tool) => _ = self.pinned.entry((id, index)).or_insert_with(|| tool.clone()),
                None => _ = self.without_tool.insert((id, index)),
            }
        }
    }

    /// Pins the tool with which a call is about to run, or records that the call has no tool.
    pub(crate) fn pin(&mut self, call: CallOfRun, tool: Option<Arc<dyn Tool>>) {
        match tool {
            Some(tool) => _ = self.pinned.insert(call, tool),
            None => _ = self.without_tool.insert(call),
        }
    }

    /// Marks the calls of a message whose tools have hooks. `positions` are the indices of these
    /// calls among the stored calls of the message.
    pub(super) fn mark_hooked(&mut self, message: &mut Arc<Message>, positions: Vec<u32>) {
        self.were_called = true;
        let positions = positions.into_iter().map(Value::from).collect();
        let metadata = &mut Arc::make_mut(message).metadata;
        metadata.insert(HOOKED_CALLS.to_owned(), Value::Array(positions));
    }

    /// Returns whether a hook may have removed a call. A result without a stored call may then
    /// belong to the removed call.
    pub(super) fn may_have_removed_calls(&self, history: &Messages) -> bool {
        let before = || history.iter().any(|message| hooks_were_called(message));
        self.were_called || *self.were_called_before.get_or_init(before)
    }

    pub(super) fn had_no_tool(&self, call: CallOfRun) -> bool {
        self.without_tool.contains(&call)
    }

    pub(super) fn tool(&self, of_run: CallOfRun, call: &ToolCall) -> Option<&dyn Tool> {
        let tool = self.pinned.get(&of_run).or_else(|| self.tools_by_name.get(&call.name));
        tool.map(|tool| &**tool)
    }
}

/// Returns whether hooks were called for the calls of a stored message, which may then differ from
/// the model's answer.
pub(crate) fn hooks_were_called(stored: &Message) -> bool {
    stored.metadata.contains_key(HOOKED_CALLS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower_chat_core::{MessageId, Part, RunId, ToolDefinition};

    use super::*;
    use crate::tool::tool_fn;

    fn tools(description: &str) -> Tools {
        let definition = ToolDefinition::new("look", description, json!({}));
        Tools::new().with(tool_fn(definition, |_| async { Ok("looked") }))
    }

    #[test]
    fn a_call_without_a_tool_is_not_pinned_to_a_tool_that_is_registered_later() {
        let call = ToolCall::new("c1", "look", "{}");
        let mut message = Message::assistant("").with_parts(vec![Part::ToolCall(call.clone())]);
        let id = MessageId { run: RunId::new(), index: 1 };
        message.id = Some(id);
        let mut hooks = Hooks::default();
        hooks.pin_calls(&message);
        assert!(hooks.tool((id, 0), &call).is_none());
        for description in ["the first tool", "the second tool"] {
            hooks.use_tools(&tools(description));
            hooks.pin_calls(&message);
            let tool = hooks.tool((id, 0), &call).unwrap();
            assert_eq!(tool.definition().description, description);
        }
        assert!(hooks.had_no_tool((id, 0)));

        let planned = MessageId { index: 2, ..id };
        message.id = Some(planned);
        hooks.pin_calls(&message);
        hooks.use_tools(&tools("the third tool"));
        let tool = hooks.tool((planned, 0), &call).unwrap();
        assert_eq!(tool.definition().description, "the second tool");
        assert!(!hooks.had_no_tool((planned, 0)));
    }
}
