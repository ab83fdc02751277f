//! Writes messages as the conversation of a request.

use tower_chat_core::{Message, Part, RawJson, Role, ToolCall, ToolResult};

use super::{
    call, content,
    part::{self, spelling},
    result,
    turn::{Content, OpenCalls, put_results_first},
};
use crate::{
    fields::{Fields, raw},
    provider_calls::provider_call_ids,
};

/// The thought signature that Gemini's document defines for calls that Gemini did not make:
/// `skip_thought_signature_validator` in base64
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
pub(crate) const STAND_IN: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";
const SIGNATURE: part::Name = ["thoughtSignature", "thought_signature"];

/// The conversation of a request body.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RequestContents {
    /// The value of `systemInstruction`. `None` if there are no system messages.
    pub system_instruction: Option<RawJson>,
    /// The value of `contents`.
    pub contents: Vec<RawJson>,
}

/// How the first call of a content (a message of the model) is written if the call has no thought
/// signature.
///
/// A first call has no signature if a model of another provider or an older model of Gemini made
/// the call, or if an earlier call that had the signature was removed from the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unsigned {
    /// The call is written without a signature.
    AsRecorded,
    /// The call is written with a value that Gemini 3 accepts instead of a signature. Use this
    /// variant only for Gemini 3 and later models. Older models need no signature.
    StandIn,
}

/// Writes messages as the conversation of a request.
pub fn render_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    unsigned: Unsigned,
) -> RequestContents {
    let mut writer = Writer::new(unsigned);
    for message in messages {
        match message.role {
            Role::System | Role::Developer => writer.write_system(message),
            Role::Assistant => writer.write_assistant(message),
            _ => writer.write_user(message),
        }
    }
    writer.finish()
}

#[derive(Debug)]
struct Writer<'a> {
    unsigned: Unsigned,
    /// The fields of the system instruction besides its parts.
    system: Fields,
    system_parts: Vec<RawJson>,
    contents: Vec<Content>,
    /// The calls without results in the latest consecutive contents (messages) of the model.
    calls: OpenCalls<'a>,
    /// Whether a content of the user has been added.
    has_user_content: bool,
    /// Whether the model called a tool before the first content of the user.
    begins_with_call: bool,
}

impl<'a> Writer<'a> {
    fn new(unsigned: Unsigned) -> Self {
        Self {
            unsigned,
            system: Fields::default(),
            system_parts: Vec::new(),
            contents: Vec::new(),
            calls: OpenCalls::default(),
            has_user_content: false,
            begins_with_call: false,
        }
    }

    fn write_system(&mut self, message: &Message) {
        let parts: Vec<RawJson> = message.parts.iter().filter_map(part::render).collect();
        if !parts.is_empty() {
            self.system.extend(content::envelope_of(message).unwrap_or_default());
            self.system_parts.extend(parts);
        }
    }

    fn write_assistant(&mut self, message: &'a Message) {
        let mut needs_signature = self.unsigned == Unsigned::StandIn;
        let mut calls = Vec::new();
        let mut parts = Vec::new();
        for part in &message.parts {
            let Part::ToolCall(call) = part else {
                parts.extend(part::render(part));
                continue;
            };
            if call.provider_executed {
                continue;
            }
            let mut fields = call::render(call);
            if std::mem::take(&mut needs_signature) && spelling(&fields, SIGNATURE).is_none() {
                fields.set(SIGNATURE[0], raw(STAND_IN));
            }
            calls.push(call);
            parts.push(raw(&fields));
        }
        if !parts.is_empty() {
            let envelope = content::envelope_of(message).unwrap_or_default();
            self.push_model(envelope, parts, calls);
        }
        self.push_user(Content::results(), pending_results(message), Vec::new());
    }

    fn write_user(&mut self, message: &'a Message) {
        let other_parts: Vec<RawJson> = message.parts.iter().filter_map(part::render).collect();
        let content = match content::envelope_of(message) {
            None if message.role == Role::Tool && other_parts.is_empty() => Content::results(),
            envelope => Content::user(envelope),
        };
        self.push_user(content, message.results(), other_parts);
    }

    fn push_model(&mut self, envelope: Fields, parts: Vec<RawJson>, calls: Vec<&'a ToolCall>) {
        if self.contents.last().is_some_and(Content::is_user) {
            self.calls = OpenCalls::default();
            put_results_first(&mut self.contents);
        }
        self.begins_with_call |= !self.has_user_content && !calls.is_empty();
        self.calls.extend(calls);
        self.contents.push(Content::model(envelope, parts));
    }

    /// Adds the results and the other parts to `content`, a content of the user, and adds the
    /// content to the list unless it is empty. Joins it with the previous content if possible.
    fn push_user(
        &mut self,
        mut content: Content,
        results: impl Iterator<Item = &'a ToolResult>,
        other_parts: Vec<RawJson>,
    ) {
        for result in results {
            let written = result::render(result, self.calls.answer(result));
            content.push_result(written.response, written.media);
        }
        content.push_other_parts(other_parts);
        if content.is_empty() {
            return;
        }
        self.has_user_content = true;
        match self.contents.last_mut() {
            Some(last) if last.can_join(&content) => last.join(content),
            _ => self.contents.push(content),
        }
    }

    fn finish(mut self) -> RequestContents {
        put_results_first(&mut self.contents);
        if self.begins_with_call {
            let mut nothing = Content::user(None);
            nothing.push_other_parts(part::render(&Part::text("")).into_iter().collect());
            self.contents.insert(0, nothing);
        }
        let contents = self.contents.into_iter().filter(|content| !content.is_empty());
        let system_instruction = (!self.system_parts.is_empty())
            .then(|| content::render(self.system, &self.system_parts));
        RequestContents { system_instruction, contents: contents.map(Content::into_json).collect() }
    }
}

/// Returns the results in a message that answer calls of the client's tools.
fn pending_results(message: &Message) -> impl Iterator<Item = &ToolResult> {
    let provider_call_ids = provider_call_ids(message);
    message.results().filter(move |result| {
        result.call_id.is_none() || !provider_call_ids.contains(&result.call_id.as_deref())
    })
}
