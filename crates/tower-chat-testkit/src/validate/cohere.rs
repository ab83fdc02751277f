//! Validates the conversation of a request to Cohere's Chat API, version 2.

use serde_json::Value;

use super::{
    Citation, Rule,
    json::{conversation, is_set, list, text},
    report::Report,
    rounds::{RoundRules, Rounds},
};

const REFERENCE: &str =
    "Cohere API reference, Chat (v2), messages: https://docs.cohere.com/reference/chat";
const PATTERNS: &str = "Cohere, Usage patterns for tool use, Parallel tool calling, State \
     management: https://docs.cohere.com/docs/tool-use-usage-patterns";
const ERROR: &str = "400 of Cohere's server, recorded in \
     https://github.com/oracle/langchain-oracle/issues/10";

const SHAPE: Citation =
    Citation::new(Rule::Shape, "messages is a list of messages, each with a role", REFERENCE);
const KNOWN_ROLE: Citation =
    Citation::new(Rule::KnownRole, "a role is system, user, assistant or tool", REFERENCE);
const CONTENT_PRESENT: Citation = Citation::new(
    Rule::ContentPresent,
    "system, user and tool messages have content; assistant messages have content, tool_calls or \
     a tool_plan",
    REFERENCE,
);
const SPEAKER: Citation = Citation::new(
    Rule::SpeakerOfPart,
    "only assistant messages have the field tool_calls",
    REFERENCE,
);
const CALL_ID: Citation = Citation::new(
    Rule::CallIdForm,
    "a tool call has an id, and a tool message names it in tool_call_id",
    REFERENCE,
);
const DISTINCT: Citation = Citation::new(
    Rule::CallIdsDistinct,
    "a tool message is matched with its tool call by the id, so each tool call has its own id",
    REFERENCE,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "an assistant message with tool_calls must be followed by tool messages responding to each \
     tool_call_id",
    ERROR,
);
const ANSWERS_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "the tool messages of a round follow one assistant message that contains all its tool calls",
    PATTERNS,
);
const ANSWERED_ONCE: Citation =
    Citation::new(Rule::OneResultPerCall, "there is one tool message for each tool call", PATTERNS);

pub(super) const RULES: &[Citation] = &[
    SHAPE,
    KNOWN_ROLE,
    CONTENT_PRESENT,
    SPEAKER,
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
    let mut rounds = Rounds::new(&ROUNDS);
    for (index, message) in messages.iter().enumerate() {
        let Some(role) = text(message, "role") else {
            rounds.close(report);
            report.message(&SHAPE, index);
            continue;
        };
        if role == "tool" {
            let id = text(message, "tool_call_id");
            check_id(id, index, 0, report);
            rounds.result(index, 0, id, report);
        } else {
            rounds.close(report);
        }
        match role {
            "assistant" => {
                let calls = list(message, "tool_calls");
                for (position, call) in calls.iter().enumerate() {
                    let id = text(call, "id");
                    check_id(id, index, position, report);
                    rounds.call(index, position, id, report);
                }
                let says = |field| is_set(message, field);
                if calls.is_empty() && !says("content") && !says("tool_plan") {
                    report.message(&CONTENT_PRESENT, index);
                }
            }
            "system" | "user" | "tool" => {
                if is_set(message, "tool_calls") {
                    report.message(&SPEAKER, index);
                }
                if !is_set(message, "content") {
                    report.message(&CONTENT_PRESENT, index);
                }
            }
            _ => report.message(&KNOWN_ROLE, index),
        }
    }
    rounds.close(report);
}

fn check_id(id: Option<&str>, index: usize, position: usize, report: &mut Report) {
    if id.unwrap_or_default().is_empty() {
        report.call(&CALL_ID, index, position, id);
    }
}
