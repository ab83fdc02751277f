//! Functions for messages and their parts that several wires share.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::{Map, Value, json};
use tower_chat_core::{ChatRequest, Message, Native, RawJson, Role, ToolCall, ToolResult};

use crate::object::{Object, raw};

/// Returns the fields of a native item, if the item belongs to the wire and is an object.
pub(crate) fn native_fields(native: Option<&Native>, wire: &str) -> Option<Object> {
    native.filter(|native| &*native.wire == wire)?.item.parse().ok()
}

/// Converts the fields to a native item of the wire. Returns `None` if there are no fields.
pub(crate) fn native(wire: &str, fields: Object) -> Option<Native> {
    (!fields.is_empty()).then(|| Native::new(wire, raw(&fields)))
}

/// Returns the messages of a request, with its instructions as the first system message.
pub(crate) fn messages(request: &ChatRequest) -> impl Iterator<Item = Arc<Message>> {
    let instructions = request.options.instructions.clone().map(Message::system).map(Arc::new);
    instructions.into_iter().chain(request.messages().iter().cloned())
}

/// Returns whether the role of the message is system or developer.
pub(crate) fn is_system(message: &Message) -> bool {
    matches!(message.role, Role::System | Role::Developer)
}

/// Returns the arguments of a call as a JSON object, for wires that require an object. Blank
/// arguments and `null` become an empty object. Any other text that is not an object becomes the
/// field `arguments` of an object.
pub(crate) fn arguments_object(arguments: &str) -> RawJson {
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(object)) => arguments.parse().unwrap_or_else(|_| raw(&object)),
        Ok(Value::Null) => raw(&Map::new()),
        _ if arguments.trim().is_empty() => raw(&Map::new()),
        _ => raw(&json!({"arguments": arguments})),
    }
}

/// The calls of a conversation that have no result yet.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    /// The id and the tool name of each call, by the number of the call in the conversation.
    calls: BTreeMap<usize, (Option<String>, String)>,
    /// For each id: the numbers of the calls with this id.
    by_id: HashMap<Option<String>, BTreeSet<usize>>,
    /// The number of the next call.
    next_number: usize,
}

impl OpenCalls {
    pub(crate) fn push(&mut self, call: &ToolCall) {
        self.calls.insert(self.next_number, (call.id.clone(), call.name.clone()));
        self.by_id.entry(call.id.clone()).or_default().insert(self.next_number);
        self.next_number += 1;
    }

    /// Removes the call that a result answers: the first open call with the result's id, or the
    /// first open call if no open call has this id. Returns the tool name of the result, or of the
    /// removed call if the result has none. Returns `None` if no call is open.
    pub(crate) fn answer(&mut self, result: &ToolResult) -> Option<String> {
        let same = self.by_id.get(&result.call_id).and_then(BTreeSet::first).copied();
        let number = same.or_else(|| self.calls.keys().next().copied())?;
        let (id, name) = self.calls.remove(&number)?;
        if let Some(of_id) = self.by_id.get_mut(&id) {
            of_id.remove(&number);
        }
        Some(result.name.clone().unwrap_or(name))
    }
}
