//! Messages as turns: the service wants the user and the assistant by turns.

use tower_chat_core::{Message, Part, RawJson, Role};

use super::{
    WIRE,
    message::{render_call, render_part, render_result},
};
use crate::{
    object::{Object, raw},
    provider_calls::ids_of_assistants_provider_calls,
    text_parts::{fields_of, is_system},
};

/// The conversation of a request.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) system: Vec<RawJson>,
    turns: Vec<Turn>,
}

#[derive(Debug)]
struct Turn {
    is_assistant: bool,
    /// Its other fields.
    fields: Object,
    results: Vec<RawJson>,
    blocks: Vec<RawJson>,
}

impl Conversation {
    /// Adds a message. Left out are reasoning and native items of other wires, what other
    /// providers ran, approvals, errors, and media that the service does not take.
    pub(super) fn push(&mut self, message: &Message) {
        if is_system(message) {
            let blocks = message.parts.iter().filter_map(|part| render_part(part, message.role));
            return self.system.extend(blocks);
        }
        let is_assistant = message.role == Role::Assistant;
        let by_provider = ids_of_assistants_provider_calls(message);
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if call.provider_executed => {}
                Part::ToolCall(call) => self.turn(true).blocks.push(render_call(call)),
                Part::ToolResult(result) if by_provider.contains(&result.call_id.as_deref()) => {}
                Part::ToolResult(result) => self.turn(false).results.push(render_result(result)),
                Part::Native(native) if is_assistant && is_shell(native) => {
                    let fields = fields_of(Some(native), WIRE).unwrap_or_default();
                    self.turn(true).fields.extend(fields);
                }
                part => {
                    if let Some(block) = render_part(part, message.role) {
                        self.turn(is_assistant).blocks.push(block);
                    }
                }
            }
        }
    }

    /// The messages, each with its results before its other blocks.
    pub(super) fn messages(self) -> Vec<RawJson> {
        let messages = self.turns.into_iter().map(|turn| {
            let Turn { is_assistant, mut fields, mut results, blocks } = turn;
            results.extend(blocks);
            let role = if is_assistant { "assistant" } else { "user" };
            fields.insert("role".to_owned(), raw(role));
            fields.insert("content".to_owned(), raw(&results));
            raw(&fields)
        });
        messages.collect()
    }

    /// The turn of this speaker, which goes on or begins.
    fn turn(&mut self, is_assistant: bool) -> &mut Turn {
        let goes_on = self.turns.last().is_some_and(|turn| turn.is_assistant == is_assistant);
        if !goes_on {
            let (fields, results, blocks) = (Object::new(), Vec::new(), Vec::new());
            self.turns.push(Turn { is_assistant, fields, results, blocks });
        }
        #[allow(clippy::expect_used, reason = "one was pushed, or was there")]
        self.turns.last_mut().expect("a turn")
    }
}

/// Whether the item holds fields of the message; a block has a field that no message has.
fn is_shell(native: &tower_chat_core::Native) -> bool {
    fields_of(Some(native), WIRE).is_some_and(|fields| fields.len() != 1)
}
