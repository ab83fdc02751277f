//! Validates the conversation of a request to OpenAI's Responses API.
//!
//! The input is a flat list of items. A round consists of the calls of one answer and their
//! outputs. The outputs follow the calls, and no message may be between a call and its output.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    Citation, Rule,
    json::{is_set, text},
    report::Report,
};

const REFERENCE: &str = "OpenAI API reference, Create a model response, input: \
     https://platform.openai.com/docs/api-reference/responses/create#responses-create-input";
const NO_OUTPUT: &str = "OpenAI, Function calling, Handling function calls: \
     https://platform.openai.com/docs/guides/function-calling#handling-function-calls; 400 \
     recorded in https://github.com/bytedance/trae-agent/issues/245";
const BETWEEN: &str = "400 of DeepSeek's Responses server (\"No tool output found for tool call\", \
     for an output after a message), recorded in pydantic-ai, \
     tests/models/cassettes/test_deepseek_responses; for the order, see OpenAI, Function calling";
const NO_CALL: &str = "400 of OpenAI's server (\"No tool call found for function call output with \
     call_id\"), recorded in https://github.com/vercel/ai/issues/8216";
const DUPLICATE: &str = "400 (\"Duplicate function_call_output for call_id\"), recorded in \
     https://github.com/NousResearch/hermes-agent/issues/102629";
const REASONING: &str = "OpenAI, Reasoning models, Keeping reasoning items in context: \
     https://platform.openai.com/docs/guides/reasoning#keeping-reasoning-items-in-context; 400 \
     recorded in https://github.com/openai/openai-node/issues/1567 and, for a message without an \
     id, in https://github.com/mastra-ai/mastra/issues/11103";

const SHAPE: Citation = Citation::new(
    Rule::Shape,
    "input is a text or a list of items, each with a type or a role",
    REFERENCE,
);
const KNOWN_ROLE: Citation =
    Citation::new(Rule::KnownRole, "a role is user, assistant, system or developer", REFERENCE);
const CALL_ID: Citation = Citation::new(
    Rule::CallIdForm,
    "the call_id of a call and of its output has at least one character",
    REFERENCE,
);
const DISTINCT: Citation = Citation::new(
    Rule::CallIdsDistinct,
    "each function_call must have exactly one matching function_call_output",
    DUPLICATE,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "the output of every call is part of the input (\"No tool output found for function call\")",
    NO_OUTPUT,
);
const DIRECTLY: Citation = Citation::new(
    Rule::ResultsDirectlyAfterCalls,
    "the outputs of a round come directly after its calls, before any message",
    BETWEEN,
);
const AFTER_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "an output has the call_id of an earlier call, unless the service stores the call",
    NO_CALL,
);
const ANSWERED_ONCE: Citation = Citation::new(
    Rule::OneResultPerCall,
    "each function_call must have exactly one matching function_call_output",
    DUPLICATE,
);
const KEEPS_ITEM: Citation = Citation::new(
    Rule::ReasoningKeepsItem,
    "a reasoning item is not provided without its required following item",
    REASONING,
);
pub(super) const RULES: &[Citation] = &[
    SHAPE,
    KNOWN_ROLE,
    CALL_ID,
    DISTINCT,
    ANSWERED,
    DIRECTLY,
    AFTER_CALL,
    ANSWERED_ONCE,
    KEEPS_ITEM,
];

pub(super) fn check(body: &Value, report: &mut Report) {
    let items = match body.get("input") {
        Some(Value::Array(items)) => items.as_slice(),
        Some(Value::String(_)) => &[],
        _ => {
            report.message(&SHAPE, 0);
            &[]
        }
    };
    let mut input = Input {
        calls: HashMap::new(),
        last_message: None,
        reasoning: None,
        link: None,
        service_holds_items: is_set(body, "previous_response_id") || is_set(body, "conversation"),
    };
    for (index, item) in items.iter().enumerate() {
        input.item(index, item, report);
    }
    input.finish(report);
}

#[derive(Debug)]
struct Input<'a> {
    calls: HashMap<&'a str, Call>,
    /// The index of the most recent message.
    last_message: Option<usize>,
    /// The index of the first reasoning item that no other item of the model has followed yet.
    reasoning: Option<usize>,
    /// The index of the previous item, if the previous item is reasoning with an id of OpenAI.
    link: Option<usize>,
    /// Whether the service may have stored items of the conversation. An output may then answer a
    /// call that the input does not contain.
    service_holds_items: bool,
}

#[derive(Debug)]
struct Call {
    /// The index of the call in the input.
    item: usize,
    answered: bool,
    /// Whether the input must contain the output of the call.
    is_pending: bool,
}

impl<'a> Input<'a> {
    fn item(&mut self, index: usize, item: &'a Value, report: &mut Report) {
        let role = text(item, "role");
        let id = text(item, "id").filter(|id| !id.is_empty());
        if let (Some(reasoning), Some("assistant"), None) = (self.link.take(), role, id) {
            report.message(&KEEPS_ITEM, reasoning);
        }
        match (text(item, "type"), role) {
            (Some("message") | None, Some(role)) => self.message(index, role, report),
            (Some("message") | None, None) => report.message(&SHAPE, index),
            (Some("reasoning"), _) => {
                self.reasoning.get_or_insert(index);
                // OpenAI refuses an assistant message without an id directly after its reasoning. Only
                // ids of OpenAI begin with `rs_`.
                self.link = id.filter(|id| id.starts_with("rs_")).map(|_| index);
            }
            (Some("function_call" | "custom_tool_call" | "computer_call"), _) => {
                self.reasoning = None;
                self.call(index, text(item, "call_id"), report);
            }
            (Some(kind), _) if kind.ends_with("_call") => {
                self.reasoning = None;
                if let Some(id) = text(item, "call_id").filter(|id| !id.is_empty()) {
                    let call = Call { item: index, answered: false, is_pending: false };
                    self.calls.entry(id).or_insert(call);
                }
            }
            (
                Some("function_call_output" | "custom_tool_call_output" | "computer_call_output"),
                _,
            ) => {
                self.end_reasoning(report);
                self.output(index, text(item, "call_id"), report);
            }
            (Some("item_reference"), _) => {
                self.service_holds_items = true;
                self.reasoning = None;
            }
            (Some(kind), _) if kind.ends_with("_output") => self.end_reasoning(report),
            // Any other item that the model generated.
            (Some(_), _) => self.reasoning = None,
        }
    }

    fn message(&mut self, index: usize, role: &str, report: &mut Report) {
        self.last_message = Some(index);
        match role {
            "assistant" => self.reasoning = None,
            "user" | "system" | "developer" => self.end_reasoning(report),
            _ => {
                self.end_reasoning(report);
                report.message(&KNOWN_ROLE, index);
            }
        }
    }

    fn call(&mut self, index: usize, id: Option<&'a str>, report: &mut Report) {
        let Some(key) = id.filter(|id| !id.is_empty()) else {
            report.call(&CALL_ID, index, 0, id);
            return;
        };
        if self.calls.insert(key, Call { item: index, answered: false, is_pending: true }).is_some()
        {
            report.call(&DISTINCT, index, 0, id);
        }
    }

    fn output(&mut self, index: usize, id: Option<&'a str>, report: &mut Report) {
        let Some(key) = id.filter(|id| !id.is_empty()) else {
            report.call(&CALL_ID, index, 0, id);
            return;
        };
        match self.calls.get_mut(key) {
            None if self.service_holds_items => {}
            None => report.call(&AFTER_CALL, index, 0, id),
            Some(call) if call.answered => report.call(&ANSWERED_ONCE, index, 0, id),
            Some(call) => {
                call.answered = true;
                if self.last_message.is_some_and(|message| message > call.item) {
                    report.call(&DIRECTLY, index, 0, id);
                }
            }
        }
    }

    fn end_reasoning(&mut self, report: &mut Report) {
        if let Some(item) = self.reasoning.take() {
            report.message(&KEEPS_ITEM, item);
        }
    }

    fn finish(mut self, report: &mut Report) {
        self.end_reasoning(report);
        let mut unanswered: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.is_pending && !call.answered).collect();
        unanswered.sort_by_key(|(_, call)| call.item);
        for (id, call) in unanswered {
            report.call(&ANSWERED, call.item, 0, Some(id));
        }
    }
}
