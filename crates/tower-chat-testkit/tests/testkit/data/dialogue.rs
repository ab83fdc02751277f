//! The content of a generated conversation, without the format of a provider.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::data::text::Texts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
}

pub(crate) const TOOLS: [Tool; 3] = [
    Tool { name: "find_berth", description: "A free berth for a ship" },
    Tool { name: "tide", description: "High water of a port" },
    Tool { name: "crane", description: "Orders a crane" },
];

impl Tool {
    pub(crate) fn schema(self) -> Value {
        json!({"type": "object", "properties": {"ship": {"type": "string"}}, "required": ["ship"]})
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Letters and digits, from which the id of the call is formed in the format of each provider.
    pub(crate) token: String,
    pub(crate) tool: Tool,
    pub(crate) arguments: Value,
    pub(crate) result: Value,
    pub(crate) is_error: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) token: String,
    pub(crate) thought: Option<String>,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) input_tokens: usize,
    pub(crate) output_tokens: usize,
}

impl Answer {
    /// Returns the signature that the service adds to its answer and verifies in later requests.
    pub(crate) fn signature(&self) -> String {
        STANDARD.encode(format!("made by {}", self.token))
    }
}

/// A message of the user, or an answer of the model with the results of its calls.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    User(String),
    Answer(Answer),
}

#[derive(Debug, Clone)]
pub(crate) struct Dialogue {
    pub(crate) system: String,
    pub(crate) tools: Vec<Tool>,
    pub(crate) items: Vec<Item>,
}

impl Dialogue {
    /// Iterates over the answers, each with the part of the dialogue that precedes the answer.
    pub(crate) fn exchanges(&self) -> impl Iterator<Item = (Dialogue, &Answer)> {
        self.items.iter().enumerate().filter_map(|(at, item)| match item {
            Item::Answer(answer) => {
                let items = self.items[..at].to_vec();
                Some((Dialogue { items, ..self.clone() }, answer))
            }
            Item::User(_) => None,
        })
    }

    pub(crate) fn answers(&self) -> impl Iterator<Item = &Answer> {
        self.items.iter().filter_map(|item| match item {
            Item::Answer(answer) => Some(answer),
            Item::User(_) => None,
        })
    }
}

impl Texts {
    fn call(&mut self, tool: Tool) -> Call {
        let (arguments, result) = (self.arguments(tool.name), self.result(tool.name));
        Call { token: self.rng.token(12), tool, arguments, result, is_error: false }
    }

    pub(crate) fn final_answer(&mut self) -> Answer {
        let (input_tokens, output_tokens) = (self.rng.below(900) + 50, self.rng.below(90) + 5);
        let token = self.rng.token(12);
        Answer {
            token,
            thought: None,
            text: self.answer(),
            calls: Vec::new(),
            input_tokens,
            output_tokens,
        }
    }

    pub(crate) fn called(&mut self, tools: &[usize]) -> Answer {
        let calls = tools.iter().map(|tool| self.call(TOOLS[*tool])).collect();
        Answer { text: String::new(), calls, ..self.final_answer() }
    }

    pub(crate) fn user(&mut self) -> Item {
        Item::User(self.question())
    }

    pub(crate) fn dialogue(&mut self, items: Vec<Item>) -> Dialogue {
        let mut dialogue = Dialogue { system: self.rules(), tools: Vec::new(), items };
        let is_called = |tool: &Tool| {
            dialogue.answers().any(|answer| answer.calls.iter().any(|call| call.tool == *tool))
        };
        dialogue.tools = TOOLS.into_iter().filter(is_called).collect();
        dialogue
    }

    /// Returns a dialogue with three parallel calls, one of which fails, and a final answer.
    pub(crate) fn parallel(&mut self) -> Dialogue {
        let mut called = self.called(&[0, 1, 2]);
        called.calls[2].result = self.failure();
        called.calls[2].is_error = true;
        let items = vec![self.user(), Item::Answer(called), Item::Answer(self.final_answer())];
        self.dialogue(items)
    }

    /// Returns a dialogue with two parallel calls and a final answer.
    pub(crate) fn pair(&mut self) -> Dialogue {
        let items = vec![
            self.user(),
            Item::Answer(self.called(&[1, 0])),
            Item::Answer(self.final_answer()),
        ];
        self.dialogue(items)
    }

    /// Returns a dialogue of two questions. The second is answered after two rounds with texts.
    pub(crate) fn rounds(&mut self) -> Dialogue {
        let mut first = self.called(&[1]);
        first.text = self.preamble();
        let mut second = self.called(&[0, 0]);
        second.text = self.preamble();
        let items = vec![
            self.user(),
            Item::Answer(self.final_answer()),
            self.user(),
            Item::Answer(first),
            Item::Answer(second),
            Item::Answer(self.final_answer()),
        ];
        self.dialogue(items)
    }

    /// Returns a dialogue with reasoning before a call and before the final answer.
    pub(crate) fn thinking(&mut self) -> Dialogue {
        let mut called = self.called(&[0]);
        called.thought = Some(self.thought());
        let mut final_answer = self.final_answer();
        final_answer.thought = Some(self.thought());
        let items = vec![self.user(), Item::Answer(called), Item::Answer(final_answer)];
        self.dialogue(items)
    }

    /// Returns a dialogue that consists of one question, for an exchange that fails.
    pub(crate) fn only_question(&mut self) -> Dialogue {
        let items = vec![self.user()];
        self.dialogue(items)
    }
}
