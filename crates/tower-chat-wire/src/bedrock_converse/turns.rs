//! Joins messages into turns, because the service requires that user and assistant messages
//! alternate.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A mark is a native part at the beginning of a message, with the JSON from which the
//! message was read. The usual form of a message is the JSON that is written for a message without
//! a mark. A round is the calls of consecutive assistant messages and their results.

use tower_chat_core::{Message, Native, Part, RawJson, Role};

use super::{
    WIRE,
    block::{render_call, render_part},
    documents::DocumentNames,
    message, result,
};
use crate::{
    as_read,
    call_ids::Round,
    object::{Object, raw},
    provider_calls::assistant_provider_call_ids,
    text_parts::{is_system, native_fields},
};

/// Builds the conversation of a request, message by message.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) system: Vec<RawJson>,
    turns: Vec<Turn>,
    /// The call ids of the last assistant turn and its results.
    round: Round,
}

#[derive(Debug)]
enum Turn {
    Usual(UsualTurn),
    /// One message that is written as it was read, as `json`. If another message is joined with it,
    /// it is written in its usual form, `usual`.
    AsRead {
        json: RawJson,
        is_assistant: bool,
        usual: Vec<Turn>,
    },
}

#[derive(Debug)]
struct UsualTurn {
    is_assistant: bool,
    /// The fields of the message besides its role and content.
    fields: Object,
    results: Vec<RawJson>,
    blocks: Vec<RawJson>,
}

impl Conversation {
    /// Adds a message. If the previous turn has the same role, the message is joined with this
    /// turn, which is then written in the usual form. Otherwise, the message begins a new turn. An
    /// unchanged message with a [mark](as_read) is then written as it was read, unless it has a
    /// blank text.
    pub(super) fn push(&mut self, message: &Message) {
        let is_assistant = message.role == Role::Assistant;
        let joins = self.turns.last().is_some_and(|turn| turn.is_assistant() == is_assistant);
        let json = as_read::unchanged(message, WIRE, message::parse);
        match json.filter(|_| !joins && !has_blank_text(message)) {
            Some(json) => {
                let mut alone = Self { round: std::mem::take(&mut self.round), ..Self::default() };
                alone.push_usual(message);
                let Self { turns: usual, round, .. } = alone;
                self.round = round;
                self.turns.push(Turn::AsRead { json, is_assistant, usual });
            }
            None => self.push_usual(message),
        }
    }

    /// Adds a message in the usual form.
    pub(super) fn push_usual(&mut self, message: &Message) {
        if is_system(message) {
            let blocks = message.parts.iter().filter_map(|part| render_part(part, message.role));
            return self.system.extend(blocks);
        }
        let is_assistant = message.role == Role::Assistant;
        let provider_call_ids = assistant_provider_call_ids(message);
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if call.provider_executed => {}
                Part::ToolCall(call) => {
                    self.turn(true);
                    let id = self.round.call(call.id.as_deref());
                    self.turn(true).blocks.push(render_call(call, &id));
                }
                Part::ToolResult(found)
                    if provider_call_ids.contains(&found.call_id.as_deref()) => {}
                Part::ToolResult(found) => {
                    let id = self.round.result(found.call_id.as_deref());
                    self.turn(false).results.push(result::render(found, &id));
                }
                Part::Native(native) if is_envelope(native) => {
                    let fields = native_fields(Some(native), WIRE).unwrap_or_default();
                    self.turn(is_assistant).fields.extend(fields);
                }
                part => {
                    if let Some(block) = render_part(part, message.role) {
                        self.turn(is_assistant).blocks.push(block);
                    }
                }
            }
        }
    }

    /// Returns the JSON of the messages, with results before other blocks and unique document
    /// names.
    pub(super) fn messages(self) -> Vec<RawJson> {
        let mut names = DocumentNames::default();
        self.turns.into_iter().map(|turn| names.rename_in_message(turn.into_json())).collect()
    }

    /// Returns the last turn in the usual form, or a new turn if the last turn has another role.
    fn turn(&mut self, is_assistant: bool) -> &mut UsualTurn {
        if let Some(Turn::AsRead { .. }) =
            self.turns.last().filter(|turn| turn.is_assistant() == is_assistant)
            && let Some(Turn::AsRead { usual, .. }) = self.turns.pop()
        {
            self.turns.extend(usual);
        }
        let is_same_turn = matches!(self.turns.last(),
            Some(Turn::Usual(turn)) if turn.is_assistant == is_assistant);
        if !is_same_turn {
            if is_assistant {
                self.round = Round::default();
            }
            let (fields, results, blocks) = (Object::new(), Vec::new(), Vec::new());
            self.turns.push(Turn::Usual(UsualTurn { is_assistant, fields, results, blocks }));
        }
        match self.turns.last_mut() {
            Some(Turn::Usual(turn)) => turn,
            #[allow(clippy::unreachable, reason = "the last turn is converted or pushed above")]
            _ => unreachable!("the last turn has the usual form"),
        }
    }
}

impl Turn {
    fn is_assistant(&self) -> bool {
        match self {
            Self::Usual(turn) => turn.is_assistant,
            Self::AsRead { is_assistant, .. } => *is_assistant,
        }
    }

    fn into_json(self) -> RawJson {
        match self {
            Self::AsRead { json, .. } => json,
            Self::Usual(UsualTurn { is_assistant, mut fields, mut results, blocks }) => {
                results.extend(blocks);
                let role = if is_assistant { "assistant" } else { "user" };
                fields.insert("role".to_owned(), raw(role));
                fields.insert("content".to_owned(), raw(&results));
                raw(&fields)
            }
        }
    }
}

/// The name of a field that only native items with the fields of a message have, and blocks do not.
/// The value of the field is `null`.
pub(super) const ENVELOPE: &str = "role";

/// Returns whether the native item contains the fields of a message instead of a block.
pub(super) fn is_envelope(native: &Native) -> bool {
    let role = native_fields(Some(native), WIRE).and_then(|mut fields| fields.remove(ENVELOPE));
    role.is_some_and(|role| role.get() == "null")
}

/// Returns whether the message has a blank text, which the service refuses even if it has sent the
/// text itself.
fn has_blank_text(message: &Message) -> bool {
    let is_blank = |part: &Part| part.as_text().is_some_and(|text| text.trim().is_empty());
    message.parts.iter().any(|part| match part {
        Part::ToolResult(found) => found.content.iter().any(is_blank),
        part => is_blank(part),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tower_chat_core::Part;

    use crate::{
        as_read,
        bedrock_converse::{WIRE, parse_messages, render_messages},
    };

    #[test]
    fn a_content_block_with_a_role_is_written_again_as_a_block() {
        let block = json!({"role": "nobody", "content": [7]});
        for role in ["user", "assistant"] {
            let messages = json!([{"role": role, "content": [block, {"text": "hi"}], "new": 1}]);
            let mut message = parse_messages(&messages.to_string()).unwrap().remove(0);
            // Without the mark, the message is written in the usual form.
            message.parts.retain(
                |part| !matches!(part, Part::Native(native) if as_read::is_mark(native, WIRE)),
            );
            let written: Value = render_messages([&message]).messages[0].parse().unwrap();
            assert_eq!(written, messages[0]);
        }
    }
}
