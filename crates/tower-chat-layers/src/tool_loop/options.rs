//! The options of each service call: the caller's options, to which the declarations of the loop's
//! tools are added.

use std::sync::Arc;

use tower_chat_core::{ChatOptions, ToolChoice, ToolDefinition};

use crate::tool::Tools;

pub(super) struct CallOptions {
    caller: Arc<ChatOptions>,
    declared: Option<Declared>,
}

/// A cache of one entry: the caller's options with the tools of a set declared.
struct Declared {
    tools: Tools,
    options: Arc<ChatOptions>,
}

impl CallOptions {
    pub(super) fn new(caller: Arc<ChatOptions>) -> Self {
        Self { caller, declared: None }
    }

    pub(super) fn callers_tools(&self) -> &[ToolDefinition] {
        &self.caller.tools
    }

    /// Returns the options of the caller that apply to the next service call.
    pub(super) fn callers(&self) -> Arc<ChatOptions> {
        self.caller.clone()
    }

    pub(super) fn with_tools(&mut self, tools: &Tools) -> Arc<ChatOptions> {
        if tools.is_empty() {
            return self.caller.clone();
        }
        let is_current = |declared: &&Declared| declared.tools.is_same(tools);
        if let Some(declared) = self.declared.as_ref().filter(is_current) {
            return declared.options.clone();
        }
        let options = Arc::new(declare(&self.caller, tools));
        self.declared = Some(Declared { tools: tools.clone(), options: options.clone() });
        options
    }

    pub(super) fn without_tools(&self) -> Arc<ChatOptions> {
        let mut options = self.caller.clone();
        if !options.tools.is_empty() || options.tool_choice.is_some() {
            let options = Arc::make_mut(&mut options);
            options.tools.clear();
            options.tool_choice = None;
        }
        options
    }

    /// Removes the options that only apply to the first service call. With a required tool choice,
    /// the model would call tools in every answer and never finish. A continuation token belongs to
    /// the first service call, which has requested its answer.
    pub(super) fn after_first_call(&mut self) {
        let demands_tool =
            matches!(self.caller.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)));
        if !demands_tool && self.caller.continuation.is_none() {
            return;
        }
        let caller = Arc::make_mut(&mut self.caller);
        caller.continuation = None;
        if demands_tool {
            caller.tool_choice = None;
        }
        self.declared = None;
    }
}

/// Returns the caller's options with the tools of a set, which replace declarations of the same
/// name.
fn declare(caller: &ChatOptions, tools: &Tools) -> ChatOptions {
    let mut options = caller.clone();
    options.tools.retain(|declared| tools.get(&declared.name).is_none());
    options.tools.extend_from_slice(tools.definitions());
    options
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, description: &str) -> ToolDefinition {
        ToolDefinition::new(name, description, json!({}))
    }

    fn names(options: &ChatOptions) -> Vec<(&str, &str)> {
        options.tools.iter().map(|t| (t.name.as_str(), t.description.as_str())).collect()
    }

    #[test]
    fn a_tool_of_the_set_replaces_the_callers_declaration_with_the_same_name() {
        let mut caller = ChatOptions::default();
        caller.tools = vec![definition("a", "caller"), definition("b", "caller")];
        let mut options = CallOptions::new(Arc::new(caller));
        let tools = Tools::new().declare(definition("a", "set"));
        assert_eq!(names(&options.with_tools(&tools)), [("b", "caller"), ("a", "set")]);
    }

    #[test]
    fn the_last_service_call_has_no_tools_and_no_tool_choice() {
        for tool_choice in [None, Some(ToolChoice::Auto)] {
            let mut caller = ChatOptions::default();
            caller.tools = vec![definition("a", "caller")];
            caller.tool_choice = tool_choice;
            caller.max_output_tokens = Some(7);
            let last = CallOptions::new(Arc::new(caller)).without_tools();
            assert_eq!((names(&last), &last.tool_choice), (Vec::new(), &None));
            assert_eq!(last.max_output_tokens, Some(7));
        }
    }

    #[test]
    fn the_options_are_rebuilt_only_if_the_tool_set_has_changed() {
        let mut options = CallOptions::new(Arc::default());
        let tools = Tools::new().declare(definition("a", "1"));
        assert_eq!(names(&options.with_tools(&tools)), [("a", "1")]);
        assert!(Arc::ptr_eq(&options.with_tools(&tools), &options.with_tools(&tools.clone())));
        let tools = tools.declare(definition("b", "2"));
        assert_eq!(names(&options.with_tools(&tools)), [("a", "1"), ("b", "2")]);
    }
}
