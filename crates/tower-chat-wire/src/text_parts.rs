//! What the smaller wires have in common: how a message's parts become their fields.

use std::{collections::VecDeque, sync::Arc};

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ChatRequest, Message, Native, Part, RawJson, Role, ToolCall, ToolDefinition, ToolResult,
};

use crate::object::{Object, raw};

/// The fields of a native item of the wire.
pub(crate) fn fields_of(native: Option<&Native>, wire: &str) -> Option<Object> {
    native.filter(|native| &*native.wire == wire)?.item.parse().ok()
}

/// The fields, as a native item of the wire; `None` if there are none.
pub(crate) fn native(wire: &str, fields: Object) -> Option<Native> {
    (!fields.is_empty()).then(|| Native::new(wire, raw(&fields)))
}

/// The instructions of this request, as a system message before the others.
pub(crate) fn messages(request: &ChatRequest) -> impl Iterator<Item = Arc<Message>> {
    let instructions = request.options.instructions.clone().map(Message::system).map(Arc::new);
    instructions.into_iter().chain(request.messages.iter().cloned())
}

/// A tool in the words of OpenAI, which others took over.
pub(crate) fn function(definition: &ToolDefinition) -> Value {
    let ToolDefinition { name, description, parameters, .. } = definition;
    let mut function = json!({"name": name, "description": description});
    // A tool without parameters is one without this field; `{}` is no schema of an object.
    let is_empty = parameters.as_object().is_some_and(Map::is_empty) || parameters.is_null();
    if let (false, Some(fields)) = (is_empty, function.as_object_mut()) {
        fields.insert("parameters".to_owned(), parameters.clone());
    }
    json!({"type": "function", "function": function})
}

/// Whether the message speaks for the system.
pub(crate) fn is_system(message: &Message) -> bool {
    matches!(message.role, Role::System | Role::Developer)
}

/// Whether the call, or the result of it, is one that another provider ran itself.
pub(crate) fn is_of_provider(message: &Message, result: &ToolResult) -> bool {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    message.role == Role::Assistant
        && calls.filter(|call| call.provider_executed).any(|call| call.id == result.call_id)
}

/// The arguments as the JSON object that the wire wants; the text of one stays as it is.
pub(crate) fn object_of(arguments: &str) -> RawJson {
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(object)) => arguments.parse().unwrap_or_else(|_| raw(&object)),
        Ok(Value::Null) => raw(&Map::new()),
        _ if arguments.trim().is_empty() => raw(&Map::new()),
        _ => raw(&json!({"arguments": arguments})),
    }
}

/// The calls that wait for a result.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls(VecDeque<(Option<String>, String)>);

impl OpenCalls {
    pub(crate) fn push(&mut self, call: &ToolCall) {
        self.0.push_back((call.id.clone(), call.name.clone()));
    }

    /// The name of the tool that a result is of: that of the first open call with its id, or else
    /// of the first open call.
    pub(crate) fn answer(&mut self, result: &ToolResult) -> Option<String> {
        let same = self.0.iter().position(|(id, _)| *id == result.call_id);
        let (_, name) = self.0.remove(same.unwrap_or_default())?;
        Some(result.name.clone().unwrap_or(name))
    }
}
