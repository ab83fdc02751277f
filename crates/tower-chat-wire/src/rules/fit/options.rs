//! Changes the options of a request: the tool definitions, the tool choice, and the options that
//! enable thinking.
//!
//! A wire is a provider's JSON format.

use serde_json::{Value, json};
use tower_chat_core::{Change, ChangeKind, ChatOptions, ToolChoice, ToolDefinition};

use super::Fitter;
use crate::{
    body::BodyWire,
    rules::{
        natives::wire_name,
        root_keywords,
        schema::{self, Demands},
        thinking,
    },
};

/// The names of the fields that contain the tool choice in the request bodies of all wires.
const CHOICES: [&str; 4] = ["tool_choice", "toolChoice", "toolConfig", "tool_config"];

impl Fitter<'_> {
    /// Returns the options to send, or `None` if the options are sent unchanged.
    pub(super) fn fit_options(&mut self, options: &ChatOptions) -> Option<ChatOptions> {
        let mut sent = options.clone();
        let mut has_changed = self.leave_out_tools(&mut sent) | self.leave_out_thinking(&mut sent);
        for tool in &mut sent.tools {
            if tool.parameters.is_null() && tool.native.is_some() {
                continue;
            }
            if let Some(name) = self.sent_name(&tool.name) {
                tool.name = name;
                has_changed = true;
            }
            let has_fields = tool.parameters.as_object().is_some_and(|fields| !fields.is_empty());
            if tool.native.is_none() && !has_fields {
                tool.parameters = json!({"type": "object", "properties": {}});
                has_changed = true;
            }
            has_changed |= self.fit_schema(tool);
        }
        if let Some(ToolChoice::Tool(name)) = &sent.tool_choice
            && let Some(name) = self.sent_name(name)
        {
            sent.tool_choice = Some(ToolChoice::Tool(name));
            has_changed = true;
        }
        for name in CHOICES {
            let choice = sent.extra.get_mut(name);
            has_changed |= choice.is_some_and(|choice| self.rename_chosen_tool(choice));
        }
        has_changed |= self.define_called_tools(&mut sent);
        has_changed.then_some(sent)
    }

    /// Changes the schema of a tool so that the service accepts it. Returns whether it was changed.
    fn fit_schema(&mut self, tool: &mut ToolDefinition) -> bool {
        let is_of_wire =
            tool.native.as_ref().is_some_and(|native| &*native.wire == wire_name(self.rules.wire));
        let is_openai = matches!(self.rules.wire, BodyWire::OpenAiChat | BodyWire::OpenAiResponses);
        // A definition that was read from this wire is sent unchanged, except to OpenAI.
        if is_of_wire && !is_openai {
            return false;
        }
        let is_replaced =
            root_keywords::replace(&mut tool.parameters, self.rules.refused_in_schemas);
        if is_replaced {
            let what = format!("one object replaces the union in the schema of {:?}", tool.name);
            self.changes.push(Change::new(ChangeKind::Definition, what));
        }
        let demands = if is_openai { Demands::OpenAi } else { Demands::Other };
        let is_completed = schema::complete(&mut tool.parameters, demands);
        if is_completed {
            let what = format!("missing fields are added to the schema of {:?}", tool.name);
            self.changes.push(Change::new(ChangeKind::Definition, what));
        }
        is_replaced || is_completed
    }

    /// Replaces the tool names in a tool choice, which is JSON of the wire. A string is replaced if
    /// it is the name of a tool that is sent under another name. Returns whether a name was
    /// replaced.
    fn rename_chosen_tool(&self, choice: &mut Value) -> bool {
        let mut has_changed = false;
        match choice {
            Value::String(name) => {
                if let Some(sent) = self.names.sent_as(name) {
                    *choice = sent.into();
                    has_changed = true;
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| has_changed |= self.rename_chosen_tool(item));
            }
            Value::Object(fields) => {
                fields.values_mut().for_each(|value| has_changed |= self.rename_chosen_tool(value));
            }
            _ => {}
        }
        has_changed
    }

    /// Removes the options that enable thinking, if the service would refuse them (see
    /// [`crate::rules::thinking`]). Returns whether the options were changed.
    fn leave_out_thinking(&mut self, options: &mut ChatOptions) -> bool {
        let wire = self.rules.wire;
        if !self.rules.thinking_first
            || !thinking::is_enabled(&options.extra, wire)
            || !thinking::continues_without_thinking(&self.messages, wire)
        {
            return false;
        }
        thinking::disable(&mut options.extra, wire);
        let what = "thinking is not enabled: the request continues a round that does not begin \
            with thinking";
        self.changes.push(Change::new(ChangeKind::Setting, what));
        true
    }

    /// Removes the tools if the tool choice is [`ToolChoice::None`], which Bedrock Converse cannot
    /// express. Returns whether the options were changed.
    fn leave_out_tools(&mut self, options: &mut ChatOptions) -> bool {
        let may_call_none = options.tool_choice == Some(ToolChoice::None);
        if self.rules.wire != BodyWire::BedrockConverse || !may_call_none {
            return false;
        }
        options.tool_choice = None;
        if !options.tools.is_empty() {
            options.tools.clear();
            let what = "the tools are omitted, because the tool choice permits no call";
            self.changes.push(Change::new(ChangeKind::Definition, what));
        }
        true
    }

    /// Adds definitions of the tools that the history calls, if the service requires definitions in
    /// such a request, and the request has none. Returns whether definitions were added.
    fn define_called_tools(&mut self, options: &mut ChatOptions) -> bool {
        let has_blocks = !self.called_tools.is_empty() || self.has_results;
        let is_defined = options
            .tools
            .iter()
            .any(|tool| self.rules.wire.render_tool(tool).is_some())
            || options.extra.get("toolConfig").is_some_and(|config| config.get("tools").is_some());
        if !self.rules.definitions_with_calls || !has_blocks || is_defined {
            return false;
        }
        let mut names = std::mem::take(&mut self.called_tools);
        if names.is_empty() {
            names.push("tool".to_owned());
        }
        let what = "definitions of the tools that the history calls are added";
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
