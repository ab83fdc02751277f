//! Validates the conversation of a request to Ollama's native chat API.
//!
//! Ollama's server accepts messages in any order, and passes them to the template of the model. The
//! rules describe the order in Ollama's documentation. For any other order, the template generates
//! a text of a form on which the model was not trained.

use std::collections::HashSet;

use serde_json::Value;
use tower_chat_core::pairing::{Answers, Candidate, Matcher, Target};

use super::{
    Citation, Rule,
    json::{conversation, is_set, list, text},
    report::Report,
};

const REFERENCE: &str = "Ollama API reference, Generate a chat message, messages: \
     https://docs.ollama.com/api/chat";
const GUIDE: &str = "Ollama, Tool calling, Calling a single tool: \
     https://docs.ollama.com/capabilities/tool-calling#calling-a-single-tool";
const PARALLEL: &str = "Ollama, Tool calling, Parallel tool calling: \
     https://docs.ollama.com/capabilities/tool-calling#parallel-tool-calling";

const SHAPE: Citation =
    Citation::new(Rule::Shape, "messages is a list of messages, each with a role", REFERENCE);
const KNOWN_ROLE: Citation =
    Citation::new(Rule::KnownRole, "a role is system, user, assistant or tool", REFERENCE);
const SPEAKER: Citation = Citation::new(
    Rule::SpeakerOfPart,
    "only assistant messages have the field tool_calls",
    REFERENCE,
);
const ANSWERED: Citation = Citation::new(
    Rule::CallsAnswered,
    "all tool responses are sent back to the model, right after the message with the tool calls",
    PARALLEL,
);
const ANSWERS_CALL: Citation = Citation::new(
    Rule::ResultAnswersCall,
    "a tool message follows the assistant message with the tool call that it answers, and its \
     tool_name is the name of that call",
    GUIDE,
);
const ANSWERED_ONCE: Citation = Citation::new(
    Rule::OneResultPerCall,
    "each tool call is answered with one tool message",
    PARALLEL,
);

pub(super) const RULES: &[Citation] =
    &[SHAPE, KNOWN_ROLE, SPEAKER, ANSWERED, ANSWERS_CALL, ANSWERED_ONCE];

pub(super) fn check(body: &Value, report: &mut Report) {
    let mut round = Round::default();
    for (index, message) in conversation(body, "messages", &SHAPE, report).iter().enumerate() {
        let Some(role) = text(message, "role") else {
            round.close(report);
            report.message(&SHAPE, index);
            continue;
        };
        match role {
            "tool" => round.result(index, message, report),
            "assistant" => {
                round.close(report);
                round.open(index, list(message, "tool_calls"));
            }
            "system" | "user" => round.close(report),
            _ => {
                round.close(report);
                report.message(&KNOWN_ROLE, index);
            }
        }
        if role != "assistant" && is_set(message, "tool_calls") {
            report.message(&SPEAKER, index);
        }
    }
    round.close(report);
}

/// The calls of one assistant message. Results are matched with calls by the names of the tools,
/// because calls usually have no ids.
#[derive(Debug, Default)]
struct Round<'a> {
    message: usize,
    calls: Matcher<&'a str>,
    ids: Vec<Option<&'a str>>,
    tools: HashSet<&'a str>,
}

impl<'a> Round<'a> {
    fn open(&mut self, message: usize, calls: &'a [Value]) {
        self.message = message;
        for call in calls {
            let name = call.get("function").and_then(|function| text(function, "name"));
            let mut candidate = Candidate::of_id(None);
            candidate.tool = name.unwrap_or_default();
            self.tools.insert(candidate.tool);
            self.calls.push(candidate);
            self.ids.push(text(call, "id"));
        }
    }

    fn result(&mut self, index: usize, message: &'a Value, report: &mut Report) {
        let id = text(message, "tool_call_id");
        let tool = text(message, "tool_name").or_else(|| text(message, "name"));
        let is_known = tool.map_or(!self.ids.is_empty(), |tool| self.tools.contains(tool));
        match self.calls.answer(Target { position: None, id: None, tool }) {
            Answers::Call(_) => {}
            Answers::Again | Answers::Nothing => {
                let rule = if is_known { &ANSWERED_ONCE } else { &ANSWERS_CALL };
                report.call(rule, index, 0, id);
            }
        }
    }

    fn close(&mut self, report: &mut Report) {
        let calls = self.calls.calls().iter().zip(&self.ids).enumerate();
        for (index, (_, id)) in calls.filter(|(_, (call, _))| !call.is_answered) {
            report.call(&ANSWERED, self.message, index, *id);
        }
        *self = Self::default();
    }
}
