//! Reads conversations in the formats of providers.

use tower_chat_core::{Message, RawJson};
use tower_chat_wire::{WireError, anthropic, gemini, openai_chat, openai_responses};

use crate::{Format, ImportedConversation, document::Document, error::ContentError};

/// Returns the possible names of the field with the messages of a conversation.
pub(crate) fn lists(format: Format) -> &'static [&'static str] {
    match format {
        Format::OpenAiResponses => &["messages", "input", "items"],
        Format::Gemini => &["messages", "contents"],
        _ => &["messages"],
    }
}

/// The possible names of the field with the instructions of a conversation.
const INSTRUCTIONS: [&str; 4] =
    ["instructions", "system", "systemInstruction", "system_instruction"];

/// Reads the messages of a conversation with the parser for the provider's JSON.
pub(crate) fn read(
    format: Format,
    document: &Document,
    stem: &str,
) -> Result<ImportedConversation, ContentError> {
    let mut conversation = document.conversation(stem)?;
    let object = document.object.as_ref();
    let instructions = INSTRUCTIONS.iter().find_map(|name| object?.get(name));
    let instructions = instructions.map(|instructions| instructions.json);
    let parsed = parse(format, &document.list, instructions.as_ref());
    conversation.messages = parsed.map_err(|error| located(document, error))?;
    Ok(conversation)
}

fn parse(
    format: Format,
    list: &RawJson,
    instructions: Option<&RawJson>,
) -> Result<Vec<Message>, WireError> {
    match (format, instructions) {
        (Format::Anthropic, Some(system)) => anthropic::parse_body(&format!(
            r#"{{"system":{},"messages":{}}}"#,
            system.get(),
            list.get()
        )),
        (Format::Anthropic, None) => anthropic::parse_messages(list.get()),
        (Format::Gemini, Some(system)) => gemini::parse_body(&format!(
            r#"{{"systemInstruction":{},"contents":{}}}"#,
            system.get(),
            list.get()
        )),
        (Format::Gemini, None) => gemini::parse_contents(list.get()),
        (Format::OpenAiResponses, Some(instructions)) => openai_responses::parse_body(&format!(
            r#"{{"instructions":{},"input":{}}}"#,
            instructions.get(),
            list.get()
        ))
        .map(|body| {
            let instructions = body.instructions.map(Message::system);
            instructions.into_iter().chain(body.messages).collect()
        }),
        (Format::OpenAiResponses | Format::OpenAiAgents, _) => {
            openai_responses::parse_input(list.get())
        }
        (_, _) => openai_chat::parse_messages(list.get()),
    }
}

/// Adds the position of the message in the document to an error of a parser.
pub(crate) fn located(document: &Document, error: WireError) -> ContentError {
    match error {
        WireError::InMessage { index, source } => {
            ContentError::at(document.position(index), source)
        }
        other => ContentError::at("the list of messages", other),
    }
}
