//! Ollama's own chat API.
//!
//! Its server hands whatever it gets to the model's template and refuses no sequence. The rules
//! are the form that its documents show: a conversation that breaks it is one the template turns
//! into something the model was not trained on.

use std::collections::HashMap;

use serde_json::Value;

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
    "tool_calls are what the assistant message of the model carries",
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

/// The calls of one assistant message. They mostly have no ids and are told apart by their tools.
#[derive(Debug, Default)]
struct Round<'a> {
    message: usize,
    calls: Vec<Call<'a>>,
    /// For each tool, the first of its calls that may still wait.
    next_of_tool: HashMap<&'a str, usize>,
    /// The first call of all that may still wait.
    next: usize,
}

#[derive(Debug)]
struct Call<'a> {
    id: Option<&'a str>,
    answered: bool,
    /// The next call of the same tool.
    next_of_tool: Option<usize>,
}

impl<'a> Round<'a> {
    fn open(&mut self, message: usize, calls: &'a [Value]) {
        self.message = message;
        self.next = 0;
        for (index, call) in calls.iter().enumerate().rev() {
            let name = call.get("function").and_then(|function| text(function, "name"));
            let next_of_tool = self.next_of_tool.insert(name.unwrap_or_default(), index);
            self.calls.push(Call { id: text(call, "id"), answered: false, next_of_tool });
        }
        self.calls.reverse();
    }

    fn result(&mut self, index: usize, message: &'a Value, report: &mut Report) {
        let id = text(message, "tool_call_id");
        let waiting = match text(message, "tool_name").or_else(|| text(message, "name")) {
            Some(name) if !self.next_of_tool.contains_key(name) => {
                report.call(&ANSWERS_CALL, index, 0, id);
                return;
            }
            Some(name) => self.next_waiting_of(name),
            None => self.next_waiting(),
        };
        let unmatched = if self.calls.is_empty() { &ANSWERS_CALL } else { &ANSWERED_ONCE };
        match waiting.and_then(|call| self.calls.get_mut(call)) {
            Some(call) => call.answered = true,
            None => report.call(unmatched, index, 0, id),
        }
    }

    fn next_waiting_of(&mut self, name: &'a str) -> Option<usize> {
        let mut index = *self.next_of_tool.get(name)?;
        while let Some(call) = self.calls.get(index) {
            if !call.answered {
                return Some(index);
            }
            index = call.next_of_tool?;
            self.next_of_tool.insert(name, index);
        }
        None
    }

    fn next_waiting(&mut self) -> Option<usize> {
        while self.calls.get(self.next).is_some_and(|call| call.answered) {
            self.next += 1;
        }
        (self.next < self.calls.len()).then_some(self.next)
    }

    fn close(&mut self, report: &mut Report) {
        for (index, call) in self.calls.drain(..).enumerate() {
            if !call.answered {
                report.call(&ANSWERED, self.message, index, call.id);
            }
        }
        self.next_of_tool = HashMap::new();
    }
}
