//! Validates the conversation of a request to Anthropic's Messages API.
//!
//! Consecutive messages with the same role form one turn, because Anthropic merges them.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    Citation, Rule,
    json::{conversation, is_identifier, text},
    report::Report,
    rounds::{RoundRules, Rounds},
};

const REFERENCE: &str = "Anthropic API reference, Create a message, messages: \
     https://platform.claude.com/docs/en/api/messages/create";
const RESULTS: &str = "Anthropic, Handle tool calls, Handling results from client tools (important \
     formatting requirements): \
     https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls";
const THINKING: &str = "Anthropic, Extended thinking, Extended thinking with tool use, Preserving \
     thinking blocks: https://platform.claude.com/docs/en/build-with-claude/extended-thinking";
const ERRORS: &str = "400 of Anthropic's server, named in its error; see Anthropic, Errors, Common \
     validation errors: https://platform.claude.com/docs/en/api/errors";

const SHAPE: Citation = Citation::new(
    Rule::Shape,
    "messages is a list of messages, each with a role, whose content is a text or a list of blocks",
    REFERENCE,
);
const KNOWN_ROLE: Citation = Citation::new(
    Rule::KnownRole,
    "a role is user, assistant or, for models that accept it between messages, system",
    REFERENCE,
);
const CONTENT_PRESENT: Citation = Citation::new(
    Rule::ContentPresent,
    "all messages must have non-empty content except for the optional final assistant message",
    ERRORS,
);
const TEXT: Citation =
    Citation::new(Rule::TextNotEmpty, "text content blocks must be non-empty", ERRORS);
const SPEAKER: Citation = Citation::new(
    Rule::SpeakerOfPart,
    "tool_use blocks can only be in assistant messages, tool_result blocks in user messages",
    RESULTS,
);
const CALL_ID: Citation = Citation::new(
    Rule::CallIdForm,
    "the id of a tool_use and the tool_use_id of a tool_result match ^[a-zA-Z0-9_-]+$",
    REFERENCE,
);
const DISTINCT: Citation = Citation::new(
    Rule::CallIdsDistinct,
    "tool_use ids must be unique (within a turn; repeated in later turns they are accepted)",
    ERRORS,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "each tool_use block must have a corresponding tool_result block in the next message",
    RESULTS,
);
const DIRECTLY: Citation = Citation::new(
    Rule::ResultsDirectlyAfterCalls,
    "tool_result blocks immediately follow their tool_use blocks: they come first in the content \
     of the next user message, any text comes after them",
    RESULTS,
);
const ANSWERS_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "each tool_result block must have a corresponding tool_use block in the previous message",
    RESULTS,
);
const ANSWERED_ONCE: Citation =
    Citation::new(Rule::OneResultPerCall, "each tool_use must have a single result", ERRORS);
const KEEPS_ITEM: Citation = Citation::new(
    Rule::ReasoningKeepsItem,
    "the final block in an assistant message cannot be thinking",
    ERRORS,
);
const REASONING_FIRST: Citation = Citation::new(
    Rule::ReasoningFirst,
    "when thinking is enabled, a final assistant message must start with a thinking block",
    THINKING,
);
const SIGNED: Citation = Citation::new(
    Rule::ReasoningSigned,
    "a thinking block is passed back complete and unmodified, with its signature",
    THINKING,
);

pub(super) const RULES: &[Citation] = &[
    SHAPE,
    KNOWN_ROLE,
    CONTENT_PRESENT,
    TEXT,
    SPEAKER,
    CALL_ID,
    DISTINCT,
    ANSWERED,
    DIRECTLY,
    ANSWERS_CALL,
    ANSWERED_ONCE,
    KEEPS_ITEM,
    REASONING_FIRST,
    SIGNED,
];

static ROUNDS: RoundRules = RoundRules {
    answered: &ANSWERED,
    answers_call: &ANSWERS_CALL,
    answered_once: &ANSWERED_ONCE,
    distinct: &DISTINCT,
};

pub(super) fn check(body: &Value, report: &mut Report) {
    let messages = conversation(body, "messages", &SHAPE, report);
    let mut conversation = Conversation::new();
    for (index, message) in messages.iter().enumerate() {
        let Some(role) = text(message, "role") else {
            conversation.end_turn(report);
            report.message(&SHAPE, index);
            continue;
        };
        let is_last = index + 1 == messages.len();
        match role {
            "assistant" => conversation.assistant(index, message, is_last, report),
            "user" => conversation.user(index, message, report),
            "system" => conversation.end_turn(report),
            _ => {
                conversation.end_turn(report);
                report.message(&KNOWN_ROLE, index);
            }
        }
    }
    let thinks = body.pointer("/thinking/type").and_then(Value::as_str) == Some("enabled");
    conversation.finish(thinks, report);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Assistant,
    User,
    Other,
}

#[derive(Debug)]
struct Conversation<'a> {
    turn: Turn,
    rounds: Rounds<'a>,
    /// The ids of all previous calls of tools that the provider ran.
    server_calls: HashSet<&'a str>,
    /// Whether the current turn of the user contains content other than results.
    user_spoke: bool,
    /// The index of the message with the most recent block, if that block is thinking.
    ends_thinking: Option<usize>,
    /// The index of the first message of the current answer, and whether it begins with thinking.
    answer: Option<(usize, bool)>,
    /// Whether the most recent block is a result.
    awaits_answer: bool,
}

impl<'a> Conversation<'a> {
    fn new() -> Self {
        Self {
            turn: Turn::Other,
            rounds: Rounds::new(&ROUNDS),
            server_calls: HashSet::new(),
            user_spoke: false,
            ends_thinking: None,
            answer: None,
            awaits_answer: false,
        }
    }

    fn assistant(&mut self, index: usize, message: &'a Value, is_last: bool, report: &mut Report) {
        if self.turn != Turn::Assistant {
            self.end_turn(report);
            self.turn = Turn::Assistant;
            self.awaits_answer = false;
        }
        let blocks = Block::all(index, message, report);
        if blocks.is_empty() && !is_last {
            report.message(&CONTENT_PRESENT, index);
        }
        for (position, block) in blocks.iter().enumerate() {
            self.answer.get_or_insert((index, block.is_thinking()));
            self.ends_thinking = block.is_thinking().then_some(index);
            match block {
                Block::Text(text) => {
                    check_text(text, index, report);
                    if self.rounds.is_open() {
                        report.message(&DIRECTLY, index);
                    }
                }
                Block::Item("tool_use", item) => {
                    let id = text(item, "id");
                    check_id(id, index, position, report);
                    self.rounds.call(index, position, id, report);
                }
                Block::Item("server_tool_use" | "mcp_tool_use", item) => {
                    self.server_calls.extend(text(item, "id"));
                }
                Block::Item("tool_result", item) => {
                    report.call(&SPEAKER, index, position, text(item, "tool_use_id"));
                }
                Block::Item("thinking", item) => {
                    if text(item, "signature").unwrap_or_default().is_empty() {
                        report.message(&SIGNED, index);
                    }
                }
                Block::Item(kind, item) => self.server_result(kind, index, position, item, report),
            }
        }
    }

    fn user(&mut self, index: usize, message: &'a Value, report: &mut Report) {
        if self.turn != Turn::User {
            self.end_assistant(report);
            self.turn = Turn::User;
            self.user_spoke = false;
            self.awaits_answer = false;
        }
        let blocks = Block::all(index, message, report);
        if blocks.is_empty() {
            report.message(&CONTENT_PRESENT, index);
        }
        for (position, block) in blocks.iter().enumerate() {
            if let Block::Item("tool_result", item) = block {
                let id = text(item, "tool_use_id");
                check_id(id, index, position, report);
                if self.user_spoke && self.rounds.is_waiting() {
                    report.call(&DIRECTLY, index, position, id);
                }
                self.awaits_answer = true;
                self.rounds.result(index, position, id, report);
                continue;
            }
            self.user_spoke = true;
            self.awaits_answer = false;
            self.answer = None;
            match block {
                Block::Text(text) => check_text(text, index, report),
                Block::Item("tool_use", item) => {
                    report.call(&SPEAKER, index, position, text(item, "id"));
                }
                Block::Item(..) => {}
            }
        }
    }

    /// Checks that the result of a tool that the provider ran follows its call.
    fn server_result(
        &mut self,
        kind: &str,
        index: usize,
        position: usize,
        item: &'a Value,
        report: &mut Report,
    ) {
        if !kind.ends_with("_tool_result") {
            return;
        }
        let id = text(item, "tool_use_id");
        if !id.is_some_and(|id| self.server_calls.contains(id)) {
            report.call(&ANSWERS_CALL, index, position, id);
        }
    }

    fn end_assistant(&mut self, report: &mut Report) {
        if let Some(message) = self.ends_thinking.take() {
            report.message(&KEEPS_ITEM, message);
        }
    }

    fn end_turn(&mut self, report: &mut Report) {
        self.end_assistant(report);
        self.rounds.close(report);
        self.turn = Turn::Other;
    }

    fn finish(mut self, thinks: bool, report: &mut Report) {
        self.end_turn(report);
        if let (true, true, Some((message, false))) = (thinks, self.awaits_answer, self.answer) {
            report.message(&REASONING_FIRST, message);
        }
    }
}

/// A content block. A string is treated as one text block.
#[derive(Debug)]
enum Block<'a> {
    Text(&'a str),
    Item(&'a str, &'a Value),
}

impl<'a> Block<'a> {
    /// Returns the blocks of a message, and reports content that is neither a string nor a list.
    fn all(index: usize, message: &'a Value, report: &mut Report) -> Vec<Self> {
        match message.get("content") {
            Some(Value::String(text)) if text.is_empty() => Vec::new(),
            Some(Value::String(text)) => vec![Self::Text(text)],
            Some(Value::Array(blocks)) => blocks
                .iter()
                .filter_map(|block| match (text(block, "type"), text(block, "text")) {
                    (Some("text"), Some(text)) => Some(Self::Text(text)),
                    (Some(kind), _) => Some(Self::Item(kind, block)),
                    (None, _) => {
                        report.message(&SHAPE, index);
                        None
                    }
                })
                .collect(),
            _ => {
                report.message(&SHAPE, index);
                Vec::new()
            }
        }
    }

    fn is_thinking(&self) -> bool {
        matches!(self, Self::Item("thinking" | "redacted_thinking", _))
    }
}

fn check_text(text: &str, index: usize, report: &mut Report) {
    if text.trim().is_empty() {
        report.message(&TEXT, index);
    }
}

fn check_id(id: Option<&str>, index: usize, position: usize, report: &mut Report) {
    if !id.is_some_and(|id| is_identifier(id, b"_-")) {
        report.call(&CALL_ID, index, position, id);
    }
}
