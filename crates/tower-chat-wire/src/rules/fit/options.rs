//! The definitions of tools, and the choice between them.

use serde_json::json;
use tower_chat_core::{Change, ChangeKind, ChatOptions, ToolChoice, ToolDefinition};

use super::Fitting;
use crate::{
    body::BodyWire,
    rules::{natives::wire_name, schema::add_properties},
};

impl Fitting<'_> {
    /// The options, if they change.
    pub(super) fn options(&mut self, options: &ChatOptions) -> Option<ChatOptions> {
        let mut sent = options.clone();
        let mut has_changed = self.leave_out_tools(&mut sent);
        for tool in &mut sent.tools {
            if tool.parameters.is_null() && tool.native.is_some() {
                continue;
            }
            if let Some(name) = self.name(&tool.name) {
                tool.name = name;
                has_changed = true;
            }
            // A definition that was read from the wire is written as it was, where that is accepted.
            let is_of_wire = tool
                .native
                .as_ref()
                .is_some_and(|native| &*native.wire == wire_name(self.rules.wire));
            let is_openai =
                matches!(self.rules.wire, BodyWire::OpenAiChat | BodyWire::OpenAiResponses);
            if (is_openai || !is_of_wire) && add_properties(&mut tool.parameters) {
                has_changed = true;
                let what = format!("the schema of {:?} gets empty properties", tool.name);
                self.changes.push(Change::new(ChangeKind::Definition, what));
            }
        }
        if let Some(ToolChoice::Tool(name)) = &sent.tool_choice
            && let Some(name) = self.name(name)
        {
            sent.tool_choice = Some(ToolChoice::Tool(name));
            has_changed = true;
        }
        has_changed |= self.define_called(&mut sent);
        has_changed.then_some(sent)
    }

    /// Leaves out tools none of which may be called, where the wire has no word for that.
    fn leave_out_tools(&mut self, options: &mut ChatOptions) -> bool {
        let may_call_none = options.tool_choice == Some(ToolChoice::None);
        if self.rules.wire != BodyWire::BedrockConverse || !may_call_none {
            return false;
        }
        options.tool_choice = None;
        if !options.tools.is_empty() {
            options.tools.clear();
            let what = "the tools are left out, since none of them may be called";
            self.changes.push(Change::new(ChangeKind::Definition, what));
        }
        true
    }

    /// Defines the tools that the history calls, where the service wants definitions and there are none.
    fn define_called(&mut self, options: &mut ChatOptions) -> bool {
        let has_blocks = !self.called.is_empty() || self.has_results;
        let is_defined = options
            .tools
            .iter()
            .any(|tool| self.rules.wire.render_tool(tool).is_some())
            || options.extra.get("toolConfig").is_some_and(|config| config.get("tools").is_some());
        if !self.rules.definitions_with_calls || !has_blocks || is_defined {
            return false;
        }
        let mut names = std::mem::take(&mut self.called);
        if names.is_empty() {
            names.push("tool".to_owned());
        }
        let what = "definitions are made of the tools that the history calls";
        self.changes.push(Change::new(ChangeKind::Definition, what));
        options.tool_choice = None;
        options.tools.extend(names.into_iter().map(|name| {
            let schema = json!({"type": "object", "properties": {}});
            ToolDefinition::new(
                name,
                "A tool of an earlier answer. It cannot be called now.",
                schema,
            )
        }));
        true
    }
}
