//! Functions that parse and encode the messages of a request body. A wire is the JSON format of a
//! provider.

use serde_json::{Value, json};
use tower_chat::Message;
use tower_chat_testkit::validate::Wire;
use tower_chat_wire::{
    anthropic,
    gemini::{self, Unsigned},
    openai_chat::{self, Audience},
    openai_responses,
};

/// The wires that can be both parsed and encoded.
pub(crate) const WIRES: [Wire; 4] =
    [Wire::OpenAiChat, Wire::OpenAiResponses, Wire::Anthropic, Wire::Gemini];

pub(crate) fn parse(wire: Wire, body: &Value) -> Vec<Message> {
    let text = body.to_string();
    match wire {
        Wire::OpenAiChat => openai_chat::parse_messages(&body["messages"].to_string()).unwrap(),
        Wire::OpenAiResponses => openai_responses::parse_body(&text).unwrap().messages,
        Wire::Anthropic => anthropic::parse_body(&text).unwrap(),
        Wire::Gemini => gemini::parse_body(&text).unwrap(),
        other => panic!("there is no codec for {other}"),
    }
}

pub(crate) fn render<'a>(wire: Wire, messages: impl IntoIterator<Item = &'a Message>) -> Value {
    match wire {
        Wire::OpenAiChat => {
            json!({"messages": openai_chat::render_messages(messages, Audience::Model)})
        }
        Wire::OpenAiResponses => json!({"input": openai_responses::render_input(messages)}),
        Wire::Anthropic => serde_json::to_value(anthropic::render_body(messages)).unwrap(),
        Wire::Gemini => {
            let written = gemini::render_messages(messages, Unsigned::AsRecorded);
            match written.system_instruction {
                Some(system) => {
                    json!({"systemInstruction": system, "contents": written.contents})
                }
                None => json!({"contents": written.contents}),
            }
        }
        other => panic!("there is no codec for {other}"),
    }
}

pub(crate) fn conversation(wire: Wire, body: &Value) -> Value {
    let mut conversation = serde_json::Map::new();
    let field = wire.conversation_field();
    conversation.insert(field.to_owned(), body[field].clone());
    let system = match wire {
        Wire::Anthropic => body.get("system").map(|system| ("system", system)),
        Wire::Gemini => body
            .get("systemInstruction")
            .or_else(|| body.get("system_instruction"))
            .map(|system| ("systemInstruction", system)),
        _ => None,
    };
    conversation.extend(system.map(|(name, system)| (name.to_owned(), system.clone())));
    conversation.into()
}
