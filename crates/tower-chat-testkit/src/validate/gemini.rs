//! Validates the conversation of a request to Gemini's `generateContent`.
//!
//! Consecutive contents of the same speaker form one turn, because Gemini merges them. The speaker
//! of a content is the model if its role is `model`, and the user if its role is `user`, `function`
//! or missing. Calls of older models have no ids, unless the client has set them.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Citation, Rule,
    json::{conversation, list, text},
    report::Report,
};

const REFERENCE: &str = "Gemini API reference, Content: https://ai.google.dev/api/caching#Content";
const CALLS: &str = "Gemini API reference, FunctionCall and FunctionResponse: \
     https://ai.google.dev/api/caching#FunctionCall";
const ROLE: &str = "400 of Gemini's server (\"Please use a valid role: user, model.\"); Gemini API \
     reference, Content, role: https://ai.google.dev/api/caching#Content";
const COUNT: &str = "400 of Gemini's server, recorded in \
     https://github.com/google-gemini/gemini-cli/issues/4217; Gemini API, Function calling, \
     Parallel function calling: https://ai.google.dev/gemini-api/docs/function-calling";
const RESPONSE_TURN: &str = "400 of Gemini's server, recorded in \
     https://github.com/langchain-ai/langchain/issues/27799; Gemini API, Function calling: \
     https://ai.google.dev/gemini-api/docs/function-calling";
const CALL_TURN: &str = "400 of Gemini's server, recorded in \
     https://github.com/google-gemini/gemini-cli/issues/11814; Gemini API, Function calling: \
     https://ai.google.dev/gemini-api/docs/function-calling";

const SHAPE: Citation =
    Citation::new(Rule::Shape, "contents is a list of contents, each with parts", REFERENCE);
const KNOWN_ROLE: Citation =
    Citation::new(Rule::KnownRole, "a role is user or model, or function in older clients", ROLE);
const CONTENT_PRESENT: Citation =
    Citation::new(Rule::ContentPresent, "the parts of a content must not be empty", REFERENCE);
const SPEAKER: Citation = Citation::new(
    Rule::SpeakerOfPart,
    "function calls are in contents of the model, function responses in contents of the client",
    CALLS,
);
const CALL_ID: Citation = Citation::new(
    Rule::CallIdForm,
    "a function response has the id of its function call or, if the call has no id, the name of \
     the call",
    CALLS,
);
const CALLS_AFTER_USER: Citation = Citation::new(
    Rule::CallsAfterUser,
    "a function call turn comes immediately after a user turn or after a function response turn",
    CALL_TURN,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "the number of function response parts is equal to the number of function call parts of the \
     function call turn",
    COUNT,
);
const DIRECTLY: Citation = Citation::new(
    Rule::ResultsDirectlyAfterCalls,
    "function responses come immediately after the function call turn, before all other parts of \
     the user's turn",
    RESPONSE_TURN,
);
const ANSWERS_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "a function response turn comes immediately after a function call turn",
    RESPONSE_TURN,
);
const ANSWERED_ONCE: Citation = Citation::new(
    Rule::OneResultPerCall,
    "the number of function response parts is equal to the number of function call parts of the \
     function call turn",
    COUNT,
);

pub(super) const RULES: &[Citation] = &[
    SHAPE,
    KNOWN_ROLE,
    CONTENT_PRESENT,
    SPEAKER,
    CALL_ID,
    CALLS_AFTER_USER,
    ANSWERED,
    DIRECTLY,
    ANSWERS_CALL,
    ANSWERED_ONCE,
];

pub(super) fn check(body: &Value, report: &mut Report) {
    let mut turns = Turns::default();
    for (index, content) in conversation(body, "contents", &SHAPE, report).iter().enumerate() {
        if !content.is_object() {
            report.message(&SHAPE, index);
            continue;
        }
        let speaker = match text(content, "role") {
            None | Some("user" | "function") => Speaker::User,
            Some("model") => Speaker::Model,
            Some(_) => {
                report.message(&KNOWN_ROLE, index);
                continue;
            }
        };
        turns.begin(speaker, report);
        let parts = list(content, "parts");
        if parts.is_empty() {
            report.message(&CONTENT_PRESENT, index);
        }
        for (position, part) in parts.iter().enumerate() {
            turns.part(Part::new(part), index, position, report);
        }
    }
    turns.finish(report);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    User,
    Model,
}

/// A part of a content. For a call or a response, the variant contains its JSON object.
#[derive(Debug)]
enum Part<'a> {
    Call(&'a Value),
    Response(&'a Value),
    Other,
}

impl<'a> Part<'a> {
    fn new(part: &'a Value) -> Self {
        let field = |camel, snake| part.get(camel).or_else(|| part.get(snake));
        if let Some(call) = field("functionCall", "function_call") {
            Self::Call(call)
        } else if let Some(response) = field("functionResponse", "function_response") {
            Self::Response(response)
        } else {
            Self::Other
        }
    }
}

/// A call or a response. The id and the name determine which response belongs to which call.
#[derive(Debug)]
struct Named<'a> {
    /// The index of the content in the conversation.
    message: usize,
    /// The index of the part in the content.
    index: usize,
    id: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn new(item: &'a Value, message: usize, index: usize) -> Self {
        let id = text(item, "id").filter(|id| !id.is_empty());
        Self { message, index, id, name: text(item, "name") }
    }
}

/// The current turn, the calls of the most recent turn of the model, and their responses.
#[derive(Debug, Default)]
struct Turns<'a> {
    speaker: Option<Speaker>,
    /// Whether the current turn is the first turn of the conversation.
    is_first: bool,
    calls: Vec<Named<'a>>,
    responses: Vec<Named<'a>>,
    /// Whether the current turn of the user contains a part other than calls and responses.
    user_spoke: bool,
}

impl<'a> Turns<'a> {
    /// Begins a new turn if the speaker has changed. When a turn of the model begins, checks the
    /// responses to the calls of the model's previous turn.
    fn begin(&mut self, speaker: Speaker, report: &mut Report) {
        if self.speaker == Some(speaker) {
            return;
        }
        self.is_first = self.speaker.is_none();
        self.speaker = Some(speaker);
        match speaker {
            Speaker::User => self.user_spoke = false,
            Speaker::Model => self.close(report),
        }
    }

    fn part(&mut self, part: Part<'a>, message: usize, index: usize, report: &mut Report) {
        match (self.speaker, part) {
            (Some(Speaker::User), Part::Response(response)) => {
                let response = Named::new(response, message, index);
                if self.user_spoke && self.responses.len() < self.calls.len() {
                    report.call(&DIRECTLY, message, index, response.id);
                }
                self.responses.push(response);
            }
            (Some(Speaker::User), Part::Other) => self.user_spoke = true,
            (Some(Speaker::Model), Part::Call(call)) => {
                let call = Named::new(call, message, index);
                if self.is_first {
                    report.call(&CALLS_AFTER_USER, message, index, call.id);
                }
                self.calls.push(call);
            }
            (Some(Speaker::User), Part::Call(item))
            | (Some(Speaker::Model), Part::Response(item)) => {
                report.call(&SPEAKER, message, index, text(item, "id"));
            }
            (Some(Speaker::Model), Part::Other) | (None, _) => {}
        }
    }

    fn finish(mut self, report: &mut Report) {
        self.close(report);
    }

    /// Compares the calls of a complete turn of the model with the responses in the complete
    /// following turn of the user. Reports the violations, and clears the calls and the responses.
    fn close(&mut self, report: &mut Report) {
        let calls = std::mem::take(&mut self.calls);
        let responses = std::mem::take(&mut self.responses);
        if calls.is_empty() {
            for response in responses {
                report.call(&ANSWERS_CALL, response.message, response.index, response.id);
            }
            return;
        }
        for call in calls.iter().skip(responses.len()) {
            report.call(&ANSWERED, call.message, call.index, call.id);
        }
        for response in responses.iter().skip(calls.len()) {
            report.call(&ANSWERED_ONCE, response.message, response.index, response.id);
        }
        if calls.len() == responses.len() {
            match_names(&calls, &responses, report);
        }
    }
}

/// Reports each response that matches no call. A call and a response match if their ids are equal
/// or, without ids, if their names are equal. There must be as many responses as calls.
fn match_names(calls: &[Named<'_>], responses: &[Named<'_>], report: &mut Report) {
    let mut ids: HashMap<&str, usize> = HashMap::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    for call in calls {
        let (open, key) = match call.id {
            Some(id) => (&mut ids, id),
            None => (&mut names, call.name.unwrap_or_default()),
        };
        *open.entry(key).or_default() += 1;
    }
    for response in responses {
        let open = match response.id {
            Some(id) => ids.get_mut(id),
            None => names.get_mut(response.name.unwrap_or_default()),
        };
        match open {
            Some(count) if *count > 0 => *count -= 1,
            _ => report.call(&CALL_ID, response.message, response.index, response.id),
        }
    }
}
