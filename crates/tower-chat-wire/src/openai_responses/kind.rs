//! The types of call items and of output items.
//!
//! A call item calls a tool, and an output item contains the result of the call.

use crate::fields::Fields;

/// A type of call item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallKind {
    /// The `type` of the item.
    pub(super) item: &'static str,
    /// The name of the tool, if all items of this type call the same tool and have no `name`.
    pub(super) tool: Option<&'static str>,
    /// The name of the field with the arguments.
    pub(super) arguments: &'static str,
    /// The name of the field with the call id.
    pub(super) id: &'static str,
    /// The type of the output item. `None` if the provider runs all calls of this type.
    pub(super) output: Option<OutputKind>,
}

/// A type of output item: an item with the output of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputKind {
    /// The `type` of the item.
    pub(super) item: &'static str,
    /// The name of the field with the output.
    pub(super) field: &'static str,
}

const fn call_with_name(
    item: &'static str,
    arguments: &'static str,
    output: &'static str,
) -> CallKind {
    let output = Some(OutputKind { item: output, field: "output" });
    CallKind { item, tool: None, arguments, id: "call_id", output }
}

const fn built_in_call(
    item: &'static str,
    tool: &'static str,
    arguments: &'static str,
    output: OutputKind,
) -> CallKind {
    CallKind { item, tool: Some(tool), arguments, id: "call_id", output: Some(output) }
}

const fn provider_call(
    item: &'static str,
    tool: Option<&'static str>,
    arguments: &'static str,
) -> CallKind {
    CallKind { item, tool, arguments, id: "id", output: None }
}

const fn output_item(item: &'static str) -> OutputKind {
    OutputKind { item, field: "output" }
}

/// The type of call item that is written for calls that were read from another provider's format.
pub(super) const FUNCTION: &CallKind =
    &call_with_name("function_call", "arguments", "function_call_output");

/// The type of call items whose input is free text.
pub(super) const CUSTOM: &str = "custom_tool_call";

/// All known types of call items. Source: OpenAI API reference, "Create a model response", field
/// `input`.
const KINDS: [&CallKind; 12] = [
    FUNCTION,
    &call_with_name(CUSTOM, "input", "custom_tool_call_output"),
    &built_in_call("computer_call", "computer", "action", output_item("computer_call_output")),
    &built_in_call(
        "local_shell_call",
        "local_shell",
        "action",
        output_item("local_shell_call_output"),
    ),
    &built_in_call("shell_call", "shell", "action", output_item("shell_call_output")),
    &built_in_call(
        "apply_patch_call",
        "apply_patch",
        "operation",
        output_item("apply_patch_call_output"),
    ),
    &built_in_call(
        "tool_search_call",
        "tool_search",
        "arguments",
        OutputKind { item: "tool_search_output", field: "tools" },
    ),
    &provider_call("web_search_call", Some("web_search"), "action"),
    &provider_call("file_search_call", Some("file_search"), "queries"),
    &provider_call("code_interpreter_call", Some("code_interpreter"), "code"),
    &provider_call("image_generation_call", Some("image_generation"), "revised_prompt"),
    &provider_call("mcp_call", None, "arguments"),
];

impl CallKind {
    /// Returns the call item type with this `type`, if it is known.
    pub(super) fn of_item(item: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.item == item)
    }

    /// Returns whether the provider runs the call of an item. `fields` are all fields of the item.
    pub(super) fn runs_at_provider(&self, fields: &Fields) -> bool {
        match self.item {
            "tool_search_call" => is_executed_by_server(fields),
            CUSTOM => is_x_search(fields),
            "shell_call" => fields
                .get("environment")
                .and_then(|environment| environment.parse::<Fields>().ok())
                .and_then(|environment| environment.text("type"))
                .is_some_and(|environment| environment != "local"),
            _ => self.output.is_none(),
        }
    }
}

impl OutputKind {
    /// Returns the output item type with this `type`, if it is known.
    pub(super) fn of_item(item: &str) -> Option<&'static Self> {
        KINDS.into_iter().filter_map(|kind| kind.output.as_ref()).find(|kind| kind.item == item)
    }

    /// Returns whether the fields of an output item show that the provider ran the call.
    pub(super) fn is_provider_executed(&self, fields: &Fields) -> bool {
        self.item == "tool_search_output" && is_executed_by_server(fields)
    }
}

/// Returns whether xAI runs the call of a custom tool, to search X. The call has no output item.
/// Source: recorded streams of `grok-4` with the tool `x_search`.
fn is_x_search(fields: &Fields) -> bool {
    let text = |name| fields.text(name).unwrap_or_default();
    text("call_id").starts_with(X_SEARCH_ID_PREFIX)
        || text("id").contains(X_SEARCH_ID_PREFIX)
        || X_SEARCH_TOOLS.contains(&text("name").as_str())
}

/// The beginning of the ids of calls that search X.
const X_SEARCH_ID_PREFIX: &str = "xs_call";

/// The names of the tools that xAI runs to search X.
const X_SEARCH_TOOLS: [&str; 4] =
    ["x_keyword_search", "x_semantic_search", "x_user_search", "x_thread_fetch"];

fn is_executed_by_server(fields: &Fields) -> bool {
    fields.is_text("execution", "server")
}
