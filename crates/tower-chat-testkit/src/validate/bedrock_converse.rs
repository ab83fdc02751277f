//! Validates the conversation of a request to Amazon Bedrock's Converse API.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    Citation, Rule,
    json::{conversation, is_identifier, list, text},
    report::Report,
    rounds::{RoundRules, Rounds},
};

const REFERENCE: &str = "Amazon Bedrock API reference, Message: \
     https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html";
const TOOL_USE: &str = "Amazon Bedrock API reference, ToolUseBlock and ToolResultBlock: \
     https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html";
const GUIDE: &str = "Amazon Bedrock user guide, Call a tool with the Converse API: \
     https://docs.aws.amazon.com/bedrock/latest/userguide/tool-use-inference-call.html";
const ALTERNATE: &str = "ValidationException of Amazon Bedrock, recorded in \
     https://github.com/langgenius/dify/issues/9294";
const EXPECTED: &str = "ValidationException of Amazon Bedrock (\"Expected toolResult blocks at \
     messages.N.content for the following Ids\"), recorded in \
     https://github.com/genkit-ai/aws-bedrock-js-plugin/issues/664";
const EXCEEDS: &str = "ValidationException of Amazon Bedrock, recorded in \
     https://github.com/strands-agents/harness-sdk/issues/1435";
const BEGINNING: &str = "ValidationException of Amazon Bedrock (\"Did not find 1 tool_result \
     block(s) at the beginning of this message\"), recorded in \
     https://github.com/langchain-ai/langchain-aws/issues/451";
const DUPLICATE: &str = "ValidationException of Amazon Bedrock, recorded in \
     https://github.com/BerriAI/litellm/pull/20049";

const SHAPE: Citation = Citation::new(
    Rule::Shape,
    "messages is a list of messages, each with a role and a list of content blocks",
    REFERENCE,
);
const KNOWN_ROLE: Citation =
    Citation::new(Rule::KnownRole, "a role is user or assistant", REFERENCE);
const USER_FIRST: Citation =
    Citation::new(Rule::UserFirst, "a conversation must start with a user message", ALTERNATE);
const ALTERNATES: Citation = Citation::new(
    Rule::RolesAlternate,
    "a conversation must alternate between user and assistant roles",
    ALTERNATE,
);
const CONTENT_PRESENT: Citation =
    Citation::new(Rule::ContentPresent, "a message has at least one content block", REFERENCE);
const TEXT: Citation =
    Citation::new(Rule::TextNotEmpty, "the text of a content block is not blank", REFERENCE);
const SPEAKER: Citation = Citation::new(
    Rule::SpeakerOfPart,
    "toolUse blocks are in assistant messages, toolResult blocks in user messages (except results \
     of tools that the service ran, which are in the assistant message)",
    GUIDE,
);
const CALL_ID: Citation = Citation::new(
    Rule::CallIdForm,
    "a toolUseId has 1 to 64 characters and matches [a-zA-Z0-9_.:-]+",
    TOOL_USE,
);
const DISTINCT: Citation = Citation::new(
    Rule::CallIdsDistinct,
    "the toolUse blocks of a message have different ids",
    DUPLICATE,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "the message after one with toolUse blocks has a toolResult block for each of their ids",
    EXPECTED,
);
const DIRECTLY: Citation = Citation::new(
    Rule::ResultsDirectlyAfterCalls,
    "messages following tool use blocks must begin with a matching number of tool result blocks",
    BEGINNING,
);
const ANSWERS_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "the number of toolResult blocks does not exceed the number of toolUse blocks of the previous \
     turn, and each names one of them",
    EXCEEDS,
);
const ANSWERED_ONCE: Citation = Citation::new(
    Rule::OneResultPerCall,
    "the toolResult blocks of a message have different ids",
    DUPLICATE,
);

pub(super) const RULES: &[Citation] = &[
    SHAPE,
    KNOWN_ROLE,
    USER_FIRST,
    ALTERNATES,
    CONTENT_PRESENT,
    TEXT,
    SPEAKER,
    CALL_ID,
    DISTINCT,
    ANSWERED,
    DIRECTLY,
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
    let mut before = None;
    for (index, message) in messages.iter().enumerate() {
        let (Some(role), Some(Value::Array(blocks))) =
            (text(message, "role"), message.get("content"))
        else {
            rounds.close(report);
            report.message(&SHAPE, index);
            before = text(message, "role");
            continue;
        };
        if before == Some(role) {
            report.message(&ALTERNATES, index);
        }
        if before.is_none() && index == 0 && role == "assistant" {
            report.message(&USER_FIRST, index);
        }
        before = Some(role);
        if blocks.is_empty() {
            report.message(&CONTENT_PRESENT, index);
        }
        if blocks.iter().any(|block| text(block, "text").is_some_and(|text| text.trim().is_empty()))
        {
            report.message(&TEXT, index);
        }
        match role {
            "assistant" => {
                rounds.close(report);
                check_assistant(index, blocks, &mut rounds, report);
            }
            "user" => {
                check_user(index, blocks, &mut rounds, report);
                rounds.close(report);
            }
            _ => {
                rounds.close(report);
                report.message(&KNOWN_ROLE, index);
            }
        }
    }
    rounds.close(report);
}

fn check_assistant<'a>(
    index: usize,
    blocks: &'a [Value],
    rounds: &mut Rounds<'a>,
    report: &mut Report,
) {
    let mut server_calls = HashSet::new();
    for (position, block) in blocks.iter().enumerate() {
        if let Some(call) = block.get("toolUse") {
            let id = text(call, "toolUseId");
            check_id(id, index, position, report);
            if text(call, "type") == Some("server_tool_use") {
                server_calls.extend(id);
            } else {
                rounds.call(index, position, id, report);
            }
        }
        if let Some(result) = block.get("toolResult") {
            let id = text(result, "toolUseId");
            if !id.is_some_and(|id| server_calls.contains(id)) {
                report.call(&SPEAKER, index, position, id);
            }
        }
    }
}

fn check_user<'a>(index: usize, blocks: &'a [Value], rounds: &mut Rounds<'a>, report: &mut Report) {
    let mut spoke = false;
    for (position, block) in blocks.iter().enumerate() {
        if let Some(call) = block.get("toolUse") {
            report.call(&SPEAKER, index, position, text(call, "toolUseId"));
        }
        let Some(result) = block.get("toolResult") else {
            spoke |= block.get("cachePoint").is_none();
            continue;
        };
        let id = text(result, "toolUseId");
        check_id(id, index, position, report);
        if spoke && rounds.is_waiting() {
            report.call(&DIRECTLY, index, position, id);
        }
        if list(result, "content").is_empty() && text(result, "status") == Some("error") {
            report.call(&CONTENT_PRESENT, index, position, id);
        }
        rounds.result(index, position, id, report);
    }
}

fn check_id(id: Option<&str>, index: usize, position: usize, report: &mut Report) {
    if !id.is_some_and(|id| is_identifier(id, b"_.:-") && id.len() <= 64) {
        report.call(&CALL_ID, index, position, id);
    }
}
