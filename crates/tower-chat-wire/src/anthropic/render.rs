//! Writes a conversation.

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
use crate::{call_ids::Round, fields::Fields, provider_calls::ids_of_assistants_provider_calls};

/// The conversation of a request body. It serializes as an object with these fields, to which a client
/// adds the other fields of a body (`model`, `max_tokens`, `tools`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Body {
    /// The system instructions: a string or a list of blocks. The field is absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<RawJson>,
    /// The messages, in their order.
    pub messages: Vec<RawJson>,
}

/// Writes a conversation by the rules in the [module documentation](super).
pub fn render_body<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Body {
    let mut writing = Writing { keeps_open_calls: true, ..Writing::default() };
    for message in messages {
        writing.message(message);
    }
    writing.into_body()
}

/// Writes a conversation that the service is to continue. Calls of the service's own tools without
/// results are left out, unless the service continues them.
pub(super) fn render_to_go_on<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Body {
    let messages: Vec<&Message> = messages.into_iter().collect();
    let mut writing = Writing { answered: answered_hosted_calls(&messages), ..Writing::default() };
    for (index, message) in messages.iter().enumerate() {
        writing.keeps_open_calls = keeps_open_calls(messages.get(index + 1..).unwrap_or_default());
        writing.message(message);
    }
    writing.into_body()
}

/// Returns the ids of calls of the service's own tools that have results. If a paused answer ends with a
/// call, the result is in the answer that continues it.
fn answered_hosted_calls(messages: &[&Message]) -> HashSet<String> {
    let of_assistant = messages.iter().filter(|message| message.role == Role::Assistant);
    let ids = of_assistant.flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::ToolResult(result) => result.call_id.clone(),
        Part::Native(native) => Fields::of_native(Some(native), WIRE)?.text("tool_use_id"),
        _ => None,
    });
    ids.collect()
}

/// Returns whether the service accepts calls of its own tools without results in a message, given
/// the messages after it. It does in a paused answer, which is the last message of the request, and
/// before results of the client's tools, after which it continues these calls. At any other
/// position it refuses them.
fn keeps_open_calls(later: &[&Message]) -> bool {
    let next = later.iter().find(|message| message.role != Role::Assistant);
    next.is_none_or(|next| next.results().next().is_some())
}

#[derive(Debug, Default)]
struct Writing {
    system: Vec<Block>,
    /// The field `system` as it was read, for a conversation whose system message has no blocks.
    empty_system: Option<RawJson>,
    turns: Vec<Turn>,
    round: Round,
    /// The ids of calls of the service's own tools that have results.
    answered: HashSet<String>,
    /// Whether such calls of the current message are written without results.
    keeps_open_calls: bool,
}

impl Writing {
    fn message(&mut self, message: &Message) {
        let speaker = match message.role {
            Role::System | Role::Developer if envelope::begins(message) => Speaker::System,
            Role::System | Role::Developer => return self.instructions(message),
            Role::Assistant => Speaker::Assistant,
            _ => Speaker::User,
        };
        let by_provider = ids_of_assistants_provider_calls(message);
        for part in &message.parts {
            self.part(&by_provider, speaker, part);
        }
    }

    fn instructions(&mut self, message: &Message) {
        for part in &message.parts {
            match part {
                Part::Text(text) if !content::is_blank(text) => self.system.push(Block::text(text)),
                Part::Native(native) => match Item::of(native) {
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

    fn part(&mut self, by_provider: &HashSet<Option<&str>>, speaker: Speaker, part: &Part) {
        use Speaker::{Assistant, System, User};
        match part {
            Part::Text(text) if speaker == System || !content::is_blank(text) => {
                self.push(speaker, Block::text(text));
            }
            Part::Reasoning(reasoning) if speaker == Assistant => {
                let block = thinking::render(reasoning);
                self.push_any(Assistant, Kind::Thinking, block);
            }
            Part::ToolCall(call) if call.provider_executed => {
                let is_answered = || call.id.as_ref().is_some_and(|id| self.answered.contains(id));
                if self.keeps_open_calls || is_answered() {
                    self.push_any(Assistant, Kind::Other, call::render_of_provider(call));
                }
            }
            Part::ToolCall(call) => {
                self.join(Assistant);
                let id = self.round.call(call.id.as_deref());
                self.push(Assistant, Block::new(Kind::Call, call::render(call, &id)));
            }
            Part::ToolResult(result) if by_provider.contains(&result.call_id.as_deref()) => {
                self.push_any(Assistant, Kind::Other, result::render_of_provider(result));
            }
            Part::ToolResult(result) => {
                let id = self.round.result(result.call_id.as_deref());
                self.push_any(User, Kind::Result, result::render(result, &id));
            }
            Part::Media(media) if speaker == User => {
                self.push_any(User, Kind::Other, content::render_media(media));
            }
            Part::Native(native) => match Item::of(native) {
                Some(Item::Message(rest)) => self.begin(speaker, rest),
                Some(Item::Block) => {
                    self.push(speaker, Block::new(Kind::Other, native.item.clone()));
                }
                Some(Item::System(_)) | None => {}
            },
            // Approvals and errors are not part of a request.
            _ => {}
        }
    }

    fn push_any(&mut self, speaker: Speaker, kind: Kind, block: Option<RawJson>) {
        if let Some(json) = block {
            self.push(speaker, Block::new(kind, json));
        }
    }

    fn push(&mut self, speaker: Speaker, block: Block) {
        self.join(speaker);
        if let Some(turn) = self.turns.last_mut() {
            turn.blocks.push(block);
        }
    }

    /// Continues the last message if it has this role, and begins a message otherwise.
    fn join(&mut self, speaker: Speaker) {
        if self.turns.last().is_none_or(|last| last.speaker != speaker) {
            self.begin(speaker, Fields::default());
        }
    }

    fn begin(&mut self, speaker: Speaker, rest: Fields) {
        let goes_on = self.turns.last().is_some_and(|last| last.speaker == Speaker::Assistant);
        if speaker == Speaker::Assistant && !goes_on {
            self.round = Round::default();
        }
        self.turns.push(Turn::new(speaker, rest));
    }

    fn into_body(self) -> Body {
        Body {
            system: content_of(self.system).or(self.empty_system),
            messages: ordered_blocks(self.turns),
        }
    }
}
