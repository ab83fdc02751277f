//! Validates the conversation of a request to OpenAI's Chat Completions. Accepts forms that
//! compatible servers are known to accept.

use serde_json::Value;

use super::{
    Citation, Rule,
    json::{conversation, is_set, list, text},
    report::Report,
    rounds::{RoundRules, Rounds},
};

const REFERENCE: &str = "OpenAI API reference, Create chat completion, messages: \
     https://platform.openai.com/docs/api-reference/chat/create#chat-create-messages";
const GUIDE: &str = "OpenAI, Function calling, Handling function calls (Chat Completions): \
     https://platform.openai.com/docs/guides/function-calling?api-mode=chat#handling-function-calls";
const DUPLICATE: &str = "400 of OpenAI's server, recorded in \
     https://github.com/agno-agi/agno/issues/5116; see also OpenAI, Function calling, Handling \
     function calls";

const SHAPE: Citation =
    Citation::new(Rule::Shape, "messages is a list of messages, each with a role", REFERENCE);
const KNOWN_ROLE: Citation = Citation::new(
    Rule::KnownRole,
    "a role is developer, system, user, assistant, tool or function",
    REFERENCE,
);
const CONTENT_PRESENT: Citation = Citation::new(
    Rule::ContentPresent,
    "content is required, except in an assistant message with tool_calls or function_call",
    REFERENCE,
);
const SPEAKER: Citation = Citation::new(
    Rule::SpeakerOfPart,
    "only assistant messages have the field tool_calls",
    REFERENCE,
);
const CALL_LIST: Citation = Citation::new(
    Rule::CallListNotEmpty,
    "if tool_calls is present, it has at least one call (\"empty array. Expected an array with \
     minimum length 1\")",
    REFERENCE,
);
const CALL_ID: Citation = Citation::new(
    Rule::CallIdForm,
    "the id of a call and the tool_call_id of its result are required (except for servers that \
     send no ids at all)",
    REFERENCE,
);
const DISTINCT: Citation = Citation::new(
    Rule::CallIdsDistinct,
    "the calls of a round have different ids (\"Duplicate value for 'tool_call_id'\")",
    DUPLICATE,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "an assistant message with tool_calls must be followed by tool messages responding to each \
     tool_call_id",
    GUIDE,
);
const ANSWERS_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "messages with role tool must be a response to a preceding message with tool_calls",
    GUIDE,
);
const ANSWERED_ONCE: Citation = Citation::new(
    Rule::OneResultPerCall,
    "no tool_call_id is answered twice (\"Duplicate value for 'tool_call_id'\")",
    DUPLICATE,
);

pub(super) const RULES: &[Citation] = &[
    SHAPE,
    KNOWN_ROLE,
    CONTENT_PRESENT,
    SPEAKER,
    CALL_LIST,
    CALL_ID,
    DISTINCT,
    ANSWERED,
    ANSWERS_CALL,
    ANSWERED_ONCE,
];

static ROUNDS: RoundRules = RoundRules {
    answered: &ANSWERED,
    answers_call: &ANSWERS_CALL,
    answered_once: &ANSWERED_ONCE,
    distinct: &DISTINCT,
};

pub(super) fn check(body: &Value, report: &mut Report) {
    let messages = conversation(body, "messages", &SHAPE, report);
    let ids_are_given = messages.iter().any(gives_an_id);
    let mut rounds = Rounds::new(&ROUNDS);
    for (index, message) in messages.iter().enumerate() {
        let Some(role) = text(message, "role") else {
            rounds.close(report);
            report.message(&SHAPE, index);
            continue;
        };
        if role == "tool" {
            let id = text(message, "tool_call_id");
            check_id(id, ids_are_given, index, 0, report);
            rounds.result(index, 0, id, report);
        } else {
            rounds.close(report);
        }
        match role {
            "assistant" => {
                let calls = list(message, "tool_calls");
                for (position, call) in calls.iter().enumerate() {
                    let id = text(call, "id");
                    check_id(id, ids_are_given, index, position, report);
                    rounds.call(index, position, id, report);
                }
                if calls.is_empty() && is_set(message, "tool_calls") {
                    report.message(&CALL_LIST, index);
                }
                if calls.is_empty() && !is_set(message, "function_call") && !has_content(message) {
                    report.message(&CONTENT_PRESENT, index);
                }
            }
            "developer" | "system" | "user" | "tool" | "function" => {
                if is_set(message, "tool_calls") {
                    report.message(&SPEAKER, index);
                }
                // The content of a result of a legacy function call may be `null`.
                if role != "function" && !is_set(message, "content") {
                    report.message(&CONTENT_PRESENT, index);
                }
            }
            _ => report.message(&KNOWN_ROLE, index),
        }
    }
    rounds.close(report);
}

fn check_id(
    id: Option<&str>,
    ids_are_given: bool,
    index: usize,
    position: usize,
    report: &mut Report,
) {
    if ids_are_given && id.unwrap_or_default().is_empty() {
        report.call(&CALL_ID, index, position, id);
    }
}

/// Returns whether a message contains the id of a call.
fn gives_an_id(message: &Value) -> bool {
    let is_id = |id: Option<&str>| id.is_some_and(|id| !id.is_empty());
    is_id(text(message, "tool_call_id"))
        || list(message, "tool_calls").iter().any(|call| is_id(text(call, "id")))
}

/// Returns whether an assistant message has content. A refusal, audio and reasoning have separate
/// fields, and count as content.
fn has_content(message: &Value) -> bool {
    ["content", "refusal", "audio", "reasoning", "reasoning_content", "reasoning_details"]
        .iter()
        .any(|field| is_set(message, field))
}
