//! Writes conversations in the format of a request to a provider.

use serde::Serialize;
use tower_chat::{
    ConversationKey,
    message::{Messages, RawJson},
    replay::{DanglingCalls, Replay},
};
use tower_chat_wire::{
    anthropic,
    gemini::{self, Unsigned},
    openai_chat::{self, Audience},
    openai_responses,
};

use super::record;

/// The format of the messages in a line of the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    OpenAiChat,
    /// The OpenAI chat format with all stored data.
    OpenAiChatRecord,
    OpenAiResponses,
    Anthropic,
    Gemini,
}

/// A line: the key of a conversation, and the fields of a request with its messages.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    scope: &'a str,
    id: &'a str,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Fields {
    OpenAiChat {
        messages: Vec<RawJson>,
    },
    OpenAiResponses {
        input: Vec<RawJson>,
    },
    Anthropic(anthropic::Body),
    Gemini {
        #[serde(rename = "systemInstruction", skip_serializing_if = "Option::is_none")]
        system_instruction: Option<RawJson>,
        contents: Vec<RawJson>,
    },
}

impl<'a> Line<'a> {
    pub(super) fn new(key: &'a ConversationKey, stored: &Messages, wire: Wire) -> Self {
        Self { scope: key.scope(), id: key.id(), fields: fields(stored, wire) }
    }
}

/// Returns the fields with the messages that a model would receive, or with all messages.
fn fields(stored: &Messages, wire: Wire) -> Fields {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(stored, 0);
    let view = replay.view();
    let messages = view.iter().map(|message| &**message);
    match wire {
        Wire::OpenAiChat => {
            let messages = openai_chat::render_messages(messages, Audience::Transcript);
            Fields::OpenAiChat { messages }
        }
        Wire::OpenAiChatRecord => Fields::OpenAiChat { messages: record::messages(stored) },
        Wire::OpenAiResponses => {
            Fields::OpenAiResponses { input: openai_responses::render_input(messages) }
        }
        Wire::Anthropic => Fields::Anthropic(anthropic::render_body(messages)),
        Wire::Gemini => {
            let rendered = gemini::render_messages(messages, Unsigned::AsRecorded);
            let (system_instruction, contents) = (rendered.system_instruction, rendered.contents);
            Fields::Gemini { system_instruction, contents }
        }
    }
}
