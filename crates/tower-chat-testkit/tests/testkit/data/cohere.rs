//! Generates exchanges with Cohere's Chat API, version 2
//! (<https://docs.cohere.com/reference/chat>).

use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Dialogue, Item, Tool},
    exchange::{Provider, sse},
    text::{pieces, text},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cohere;

fn messages(dialogue: &Dialogue) -> Vec<Value> {
    let mut messages = vec![json!({"role": "system", "content": dialogue.system})];
    for item in &dialogue.items {
        match item {
            Item::User(text) => messages.push(json!({"role": "user", "content": text})),
            Item::Answer(answer) => {
                messages.push(message(answer));
                messages.extend(answer.calls.iter().map(|call| {
                    json!({"role": "tool", "tool_call_id": id(&call.token, call.tool),
                        "content": text(&call.result)})
                }));
            }
        }
    }
    messages
}

fn id(token: &str, tool: Tool) -> String {
    format!("{}_{token}", tool.name)
}

fn calls(answer: &Answer) -> Vec<Value> {
    let calls = answer.calls.iter().map(|call| {
        json!({"id": id(&call.token, call.tool), "type": "function",
            "function": {"name": call.tool.name, "arguments": text(&call.arguments)}})
    });
    calls.collect()
}

/// Returns the message of an answer. The text of an answer with calls is in the field `tool_plan`.
fn message(answer: &Answer) -> Value {
    if answer.calls.is_empty() {
        return json!({"role": "assistant", "content": [{"type": "text", "text": answer.text}]});
    }
    json!({"role": "assistant", "tool_plan": plan(answer), "tool_calls": calls(answer)})
}

fn plan(answer: &Answer) -> String {
    match answer.text.as_str() {
        "" => format!("I will ask {} at once.", answer.token),
        text => text.to_owned(),
    }
}

fn usage(answer: &Answer) -> Value {
    let (input, output) = (answer.input_tokens, answer.output_tokens);
    json!({"billed_units": {"input_tokens": input / 3, "output_tokens": output},
        "tokens": {"input_tokens": input, "output_tokens": output}})
}

impl Cohere {
    /// Returns the events of a stream, without the last event.
    pub(crate) fn events(self, answer: &Answer) -> Vec<Value> {
        let start = json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [],
            "citations": []});
        let mut events = vec![json!({"type": "message-start", "id": answer.token,
            "delta": {"message": start}})];
        if answer.calls.is_empty() {
            let content = |kind: &str, text: &str| {
                json!({"type": kind, "index": 0,
                    "delta": {"message": {"content": {"type": "text", "text": text}}}})
            };
            events.push(content("content-start", ""));
            let pieces = pieces(&answer.text, 22);
            events.extend(pieces.into_iter().map(|piece| {
                json!({"type": "content-delta", "index": 0,
                    "delta": {"message": {"content": {"text": piece}}}})
            }));
            events.push(json!({"type": "content-end", "index": 0}));
            return events;
        }
        for piece in pieces(&plan(answer), 30) {
            events.push(
                json!({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": piece}}}),
            );
        }
        for (index, mut call) in calls(answer).into_iter().enumerate() {
            let arguments = call["function"]["arguments"].take();
            call["function"]["arguments"] = json!("");
            let event = |kind: &str, call: Value| json!({"type": kind, "index": index, "delta": {"message": {"tool_calls": call}}});
            events.push(event("tool-call-start", call));
            for piece in pieces(arguments.as_str().unwrap(), 28) {
                let call = json!({"function": {"arguments": piece}});
                events.push(event("tool-call-delta", call));
            }
            events.push(json!({"type": "tool-call-end", "index": index}));
        }
        events
    }

    pub(crate) fn ended(self, mut events: Vec<Value>, answer: &Answer, reason: &str) -> Vec<u8> {
        let delta = json!({"finish_reason": reason, "usage": usage(answer)});
        events.push(json!({"type": "message-end", "delta": delta}));
        sse(&events)
    }

    pub(crate) fn whole_with(self, answer: &Answer, reason: &str) -> Value {
        json!({"id": answer.token, "finish_reason": reason, "message": message(answer),
            "usage": usage(answer)})
    }
}

impl Provider for Cohere {
    fn folder(&self) -> &'static str {
        "cohere"
    }

    fn url(&self, _: bool) -> String {
        "https://api.cohere.com/v2/chat".to_owned()
    }

    fn request(&self, dialogue: &Dialogue, is_streamed: bool) -> Value {
        let tool = |tool: &Tool| {
            json!({"type": "function", "function": {"name": tool.name,
                "description": tool.description, "parameters": tool.schema()}})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"model": "command-a-03-2025", "messages": messages(dialogue),
            "stream": is_streamed});
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        body
    }

    fn whole(&self, answer: &Answer) -> Value {
        self.whole_with(answer, finish(answer))
    }

    fn stream(&self, answer: &Answer) -> Vec<u8> {
        self.ended(self.events(answer), answer, finish(answer))
    }
}

fn finish(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "COMPLETE" } else { "TOOL_CALL" }
}
