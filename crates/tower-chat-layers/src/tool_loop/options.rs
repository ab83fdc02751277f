//! The options of each service call: the caller's options, to which the declarations of the loop's
//! tools are added.

use std::sync::Arc;

use tower_chat_core::{ChatOptions, ToolChoice};

use crate::tool::Tools;

/// Returns the caller's options with the tools of a set, which replace declarations of the same
/// name.
pub(super) fn with_tools(caller: &Arc<ChatOptions>, tools: &Tools) -> Arc<ChatOptions> {
    let mut options = caller.clone();
    if !tools.is_empty() {
        let options = Arc::make_mut(&mut options);
        options.tools.retain(|declared| tools.get(&declared.name).is_none());
        options.tools.extend_from_slice(tools.definitions());
    }
    options
}

pub(super) fn without_tools(caller: &Arc<ChatOptions>) -> Arc<ChatOptions> {
    let mut options = ChatOptions::clone(caller);
    options.tools.clear();
    options.tool_choice = None;
    options.into()
}

/// Removes the options that only apply to the first service call. With a required tool choice, the
/// model would call tools in every answer and never finish. A continuation token belongs to the
/// first service call, which has requested its answer.
pub(super) fn after_first_call(caller: &mut Arc<ChatOptions>) {
    let demands_tool =
        matches!(caller.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)));
    if demands_tool {
        Arc::make_mut(caller).tool_choice = None;
    }
    if caller.continuation.is_some() {
        Arc::make_mut(caller).continuation = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower_chat_core::ToolDefinition;

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
        let tools = Tools::new().declare(definition("a", "set"));
        assert_eq!(names(&with_tools(&Arc::new(caller), &tools)), [("b", "caller"), ("a", "set")]);
    }

    #[test]
    fn the_last_service_call_has_no_tools_and_no_tool_choice() {
        for tool_choice in [None, Some(ToolChoice::Auto)] {
            let mut caller = ChatOptions::default();
            caller.tools = vec![definition("a", "caller")];
            caller.tool_choice = tool_choice;
            caller.max_output_tokens = Some(7);
            let last = without_tools(&Arc::new(caller));
            assert_eq!((names(&last), &last.tool_choice), (Vec::new(), &None));
            assert_eq!(last.max_output_tokens, Some(7));
        }
    }
}
