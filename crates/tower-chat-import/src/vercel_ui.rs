//! Reads the messages that Vercel's AI SDK displays and stores. One message contains, as its parts,
//! all answers of the model and all tool calls of a turn.
//!
//! A message is split in the same way as by the SDK's `convertToModelMessages`: each step of a
//! turn, which is one answer of the model with its calls, becomes an assistant message, and a
//! message with the results of the step's calls.

use serde_json::Value;
use tower_chat_core::{Message, Part, Role, ToolCall, ToolResult};

use crate::{
    ImportedConversation,
    content::{self, Signature},
    document::Document,
    error::{ContentError, WrongValue},
    node::{Node, Object},
};

/// The metadata keys under which a message contains data that models do not receive: the metadata
/// of the Vercel message, and the parts that are only displayed.
const METADATA: &str = "vercel-ui.metadata";
const PARTS: &str = "vercel-ui.parts";

/// The text for a rejected call without a reason. `convertToModelMessages` uses the same text.
const DENIED: &str = "Tool call execution denied.";

pub(crate) fn read(document: &Document, stem: &str) -> Result<ImportedConversation, ContentError> {
    let mut conversation = document.conversation(stem)?;
    for (index, item) in document.items()?.iter().enumerate() {
        let position = document.position(index);
        let mut reading = Reading::default();
        reading.message(item).map_err(|error| ContentError::at(&position, error))?;
        for what in reading.lost {
            conversation.lose(&position, what, "its arguments were not complete");
        }
        conversation.messages.extend(reading.messages);
    }
    conversation.created_at = conversation.messages.first().and_then(|message| message.added_at);
    Ok(conversation)
}

/// The state while a message is split.
#[derive(Default)]
struct Reading {
    messages: Vec<Message>,
    parts: Vec<Part>,
    results: Vec<Part>,
    /// The parts of the message that are displayed and not sent to models.
    beside: Vec<Value>,
    /// Descriptions of the calls that are not stored, because their arguments are incomplete.
    lost: Vec<String>,
}

impl Reading {
    fn message(&mut self, node: &Node) -> Result<(), WrongValue> {
        let message = node.object()?;
        let role = message.need("role", "system, user or assistant")?;
        let role = match role.text()?.as_str() {
            "system" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => return Err(role.wrong("system, user or assistant")),
        };
        let parts = message.need_list("parts")?;
        for part in &parts {
            self.part(role, part)?;
        }
        self.end_step(role);
        if self.messages.is_empty() && (parts.is_empty() || !self.beside.is_empty()) {
            self.messages.push(Message::new(role, Vec::new()));
        }
        let time = message.get("createdAt").map(|time| content::time(&time)).transpose()?;
        for message in &mut self.messages {
            message.added_at = time;
        }
        let metadata = message.get("metadata").and_then(|metadata| metadata.json.parse().ok());
        let beside = std::mem::take(&mut self.beside);
        if let Some(first) = self.messages.first_mut() {
            first.metadata.extend(metadata.map(|metadata: Value| (METADATA.to_owned(), metadata)));
            if !beside.is_empty() {
                first.metadata.insert(PARTS.to_owned(), Value::Array(beside));
            }
        }
        Ok(())
    }

    fn part(&mut self, role: Role, node: &Node) -> Result<(), WrongValue> {
        let part = node.object()?;
        let kind = part.need_text("type")?;
        match kind.as_str() {
            "step-start" => self.end_step(role),
            "text" => self.parts.push(Part::text(part.need_text("text")?)),
            "reasoning" => {
                let text = part.text("text")?.unwrap_or_default();
                self.parts.push(content::reasoning(text, signature(&part)?));
            }
            "file" => {
                let media = content::media(part.need_text("url")?, part.text("mediaType")?);
                self.parts.push(media.into());
            }
            "dynamic-tool" => self.tool(&part.need_text("toolName")?, &part)?,
            kind => match kind.strip_prefix("tool-") {
                Some(name) => self.tool(name, &part)?,
                None => {
                    let value = node.json.parse();
                    self.beside
                        .push(value.map_err(|_| node.wrong("JSON with fewer levels of nesting"))?);
                }
            },
        }
        Ok(())
    }

    fn end_step(&mut self, role: Role) {
        let (parts, results) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.results));
        if !parts.is_empty() {
            self.messages.push(Message::new(role, content::join_reasoning(parts)));
        }
        if !results.is_empty() {
            self.messages.push(Message::new(Role::Tool, results));
        }
    }

    fn tool(&mut self, name: &str, part: &Object) -> Result<(), WrongValue> {
        let state = part.need("state", "the state of a tool call")?;
        let state_name = state.text()?;
        let failed = state_name == "output-error";
        let input = part.get("input").or_else(|| part.get("rawInput").filter(|_| failed));
        let arguments = input.map(|input| input.as_shown()).transpose()?.unwrap_or_default();
        let id = part.need_text("toolCallId")?;
        let mut call = ToolCall::new(&id, name, arguments);
        call.provider_executed = part.flag("providerExecuted")?;
        if let Some(signature) = provider(part, "callProviderMetadata", "google")?
            .and_then(|google| google.text("thoughtSignature").transpose())
        {
            call = content::signed_call(call, &signature?);
        }
        let result = match state_name.as_str() {
            "input-streaming" => {
                self.lost.push(format!("a call of the tool {name:?}"));
                return Ok(());
            }
            "input-available" | "approval-requested" | "approval-responded" => None,
            "output-available" => {
                let output = part.get("output").map(|output| output.as_shown()).transpose()?;
                Some(ToolResult::new(&id, output.unwrap_or_default()))
            }
            "output-error" => {
                Some(ToolResult::error(&id, part.text("errorText")?.unwrap_or_default()))
            }
            "output-denied" => {
                let approval = part.get("approval").map(|node| node.object()).transpose()?;
                let reason = approval.map(|approval| approval.text("reason")).transpose()?;
                Some(ToolResult::error(&id, reason.flatten().unwrap_or_else(|| DENIED.to_owned())))
            }
            _ => return Err(state.wrong("the state of a tool call")),
        };
        let result = result.map(|mut result| {
            result.name = Some(name.to_owned());
            Part::from(result)
        });
        let of_provider = call.provider_executed;
        self.parts.push(call.into());
        match of_provider {
            // The result belongs to the same message as the call.
            true => self.parts.extend(result),
            false => self.results.extend(result),
        }
        Ok(())
    }
}

/// Returns the signature that a reasoning part contains for its provider.
fn signature(part: &Object) -> Result<Signature, WrongValue> {
    const FIELD: &str = "providerMetadata";
    if let Some(anthropic) = provider(part, FIELD, "anthropic")? {
        if let Some(data) = anthropic.text("redactedData")? {
            return Ok(Signature::AnthropicRedacted(data));
        }
        if let Some(signature) = anthropic.text("signature")? {
            return Ok(Signature::Anthropic(signature));
        }
    }
    if let Some(openai) = provider(part, FIELD, "openai")?
        && let Some(id) = openai.text("itemId")?
    {
        return Ok(Signature::OpenAi { id, encrypted: openai.text("reasoningEncryptedContent")? });
    }
    let google = provider(part, FIELD, "google")?;
    let signature = google.map(|google| google.text("thoughtSignature")).transpose()?.flatten();
    Ok(signature.map_or(Signature::None, Signature::Gemini))
}

/// Returns the data that the field `field` of a part contains for the provider `name`, if any.
fn provider(part: &Object, field: &str, name: &str) -> Result<Option<Object>, WrongValue> {
    let Some(all) = part.get(field) else { return Ok(None) };
    all.object()?.get(name).map(|of_one| of_one.object()).transpose()
}
