//! Writes the conversation of a request.
//!
//! A block is an entry of the `content` of a message. A provider-executed call is a call of a tool
//! that the provider runs itself. A round is the calls of consecutive assistant messages and their
//! results.

use std::collections::HashSet;

use serde::Serialize;
use tower_chat_core::{Message, Part, RawJson, Role};

use super::{
    WIRE,
    block_order::{Block, Kind, Speaker, Turn, content_of, ordered_blocks},
    call, content,
    envelope::{self, Item},
    result, thinking,
};
use crate::{call_ids::Round, fields::Fields, provider_calls::assistant_provider_call_ids};

/// The conversation of a request body, which serializes as a JSON object with the fields `system`
/// and `messages`. A client adds the other fields of the body (`model`, `max_tokens`, `tools`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Body {
    /// The system instructions: a string or a list of blocks. `None` is not serialized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<RawJson>,
    /// The messages, in their order.
    pub messages: Vec<RawJson>,
}

/// Writes a conversation according to the rules in the [module documentation](super).
pub fn render_body<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Body {
    let mut writer = Writer { keeps_open_calls: true, ..Writer::default() };
    for message in messages {
        writer.write_message(message);
    }
    writer.into_body()
}

/// Writes the conversation of a request, without the provider-executed calls that have no result
/// and that the service will not continue.
pub(super) fn render_conversation<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Body {
    let messages: Vec<&Message> = messages.into_iter().collect();
    let mut writer =
        Writer { answered_calls: answered_hosted_calls(&messages), ..Writer::default() };
    for (index, message) in messages.iter().enumerate() {
        writer.keeps_open_calls = keeps_open_calls(messages.get(index + 1..).unwrap_or_default());
        writer.write_message(message);
    }
    writer.into_body()
}

/// Returns the ids of the provider-executed calls that have results in any assistant message. If an
/// answer paused after a call, the result is in the next answer.
fn answered_hosted_calls(messages: &[&Message]) -> HashSet<String> {
    let of_assistant = messages.iter().filter(|message| message.role == Role::Assistant);
    let ids = of_assistant.flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::ToolResult(result) => result.call_id.clone(),
        Part::Native(native) => Fields::of_native(Some(native), WIRE)?.text("tool_use_id"),
        _ => None,
    });
    ids.collect()
}

/// Returns whether the service continues provider-executed calls without results in a message. It
/// does so in a paused answer (stop reason `pause_turn`) at the end of the request, and in an
/// answer before results of the client's tools. `later` are the messages after this message.
fn keeps_open_calls(later: &[&Message]) -> bool {
    let next = later.iter().find(|message| message.role != Role::Assistant);
    next.is_none_or(|next| next.results().next().is_some())
}

/// Builds the conversation of a request, message by message.
#[derive(Debug, Default)]
struct Writer {
    /// The blocks of the field `system`.
    system: Vec<Block>,
    /// The empty value with which a field `system` was read. Written if `system` has no blocks.
    empty_system: Option<RawJson>,
    /// The messages that have been added, with their blocks in the order of the parts.
    turns: Vec<Turn>,
    /// The call ids of the current [round](Round).
    round: Round,
    /// The ids of the provider-executed calls that have results.
    answered_calls: HashSet<String>,
    /// Whether provider-executed calls without results are written for the current message.
    keeps_open_calls: bool,
}

impl Writer {
    fn write_message(&mut self, message: &Message) {
        let speaker = match message.role {
            Role::System | Role::Developer if envelope::is_at_beginning(message) => Speaker::System,
            Role::System | Role::Developer => return self.write_instructions(message),
            Role::Assistant => Speaker::Assistant,
            _ => Speaker::User,
        };
        let provider_call_ids = assistant_provider_call_ids(message);
        for part in &message.parts {
            self.write_part(&provider_call_ids, speaker, part);
        }
    }

    /// Adds a system message to the field `system`.
    fn write_instructions(&mut self, message: &Message) {
        for part in &message.parts {
            match part {
                Part::Text(text) if !content::is_blank(text) => self.system.push(Block::text(text)),
                Part::Native(native) => match Item::of_native(native) {
                    Some(Item::System(value)) => self.empty_system = Some(value),
                    Some(Item::Block) => {
                        self.system.push(Block::new(Kind::Other, native.item.clone()));
                    }
                    Some(Item::Message(_)) | None => {}
                },
                _ => {}
            }
        }
    }

    /// Writes a part as a block of a message of `speaker`. Calls are always written to an assistant
    /// message, and results of the client's tools to a user message. `provider_call_ids` are the
    /// ids of the provider-executed calls in the message that contains the part.
    fn write_part(
        &mut self,
        provider_call_ids: &HashSet<Option<&str>>,
        speaker: Speaker,
        part: &Part,
    ) {
        use Speaker::{Assistant, System, User};
        match part {
            Part::Text(text) if speaker == System || !content::is_blank(text) => {
                self.push(speaker, Block::text(text));
            }
            Part::Reasoning(reasoning) if speaker == Assistant => {
                let block = thinking::render(reasoning);
                self.push_json(Assistant, Kind::Thinking, block);
            }
            Part::ToolCall(call) if call.provider_executed => {
                let is_answered =
                    || call.id.as_ref().is_some_and(|id| self.answered_calls.contains(id));
                if self.keeps_open_calls || is_answered() {
                    self.push_json(Assistant, Kind::Other, call::render_provider_executed(call));
                }
            }
            Part::ToolCall(call) => {
                self.ensure_turn(Assistant);
                let id = self.round.call(call.id.as_deref());
                self.push(Assistant, Block::new(Kind::Call, call::render(call, &id)));
            }
            Part::ToolResult(result) if provider_call_ids.contains(&result.call_id.as_deref()) => {
                self.push_json(Assistant, Kind::Other, result::render_provider_executed(result));
            }
            Part::ToolResult(result) => {
                let id = self.round.result(result.call_id.as_deref());
                self.push_json(User, Kind::Result, result::render(result, &id));
            }
            Part::Media(media) if speaker == User => {
                self.push_json(User, Kind::Other, content::render_media(media));
            }
            Part::Native(native) => match Item::of_native(native) {
                Some(Item::Message(other_fields)) => self.begin_turn(speaker, other_fields),
                Some(Item::Block) => {
                    self.push(speaker, Block::new(Kind::Other, native.item.clone()));
                }
                Some(Item::System(_)) | None => {}
            },
            // Approvals and errors are not sent.
            _ => {}
        }
    }

    fn push_json(&mut self, speaker: Speaker, kind: Kind, block: Option<RawJson>) {
        if let Some(json) = block {
            self.push(speaker, Block::new(kind, json));
        }
    }

    fn push(&mut self, speaker: Speaker, block: Block) {
        self.ensure_turn(speaker);
        if let Some(turn) = self.turns.last_mut() {
            turn.blocks.push(block);
        }
    }

    /// Begins a message if the previous message has another speaker.
    fn ensure_turn(&mut self, speaker: Speaker) {
        if self.turns.last().is_none_or(|last| last.speaker != speaker) {
            self.begin_turn(speaker, Fields::default());
        }
    }

    /// Begins a message. An assistant message after a message of another role begins a new round.
    fn begin_turn(&mut self, speaker: Speaker, other_fields: Fields) {
        let is_same_turn = self.turns.last().is_some_and(|last| last.speaker == Speaker::Assistant);
        if speaker == Speaker::Assistant && !is_same_turn {
            self.round = Round::default();
        }
        self.turns.push(Turn::new(speaker, other_fields));
    }

    fn into_body(self) -> Body {
        Body {
            system: content_of(self.system).or(self.empty_system),
            messages: ordered_blocks(self.turns),
        }
    }
}
