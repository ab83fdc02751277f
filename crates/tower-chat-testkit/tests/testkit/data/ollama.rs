//! Generates exchanges with Ollama's native chat API
//! (<https://github.com/ollama/ollama/blob/main/docs/api.md>).

use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Dialogue, Item, Tool},
    exchange::Provider,
    text::{pieces, text},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Ollama;

fn messages(dialogue: &Dialogue) -> Vec<Value> {
    let mut messages = vec![json!({"role": "system", "content": dialogue.system})];
    for item in &dialogue.items {
        match item {
            Item::User(text) => messages.push(json!({"role": "user", "content": text})),
            Item::Answer(answer) => {
                messages.push(message(answer));
                messages.extend(answer.calls.iter().map(|call| {
                    json!({"role": "tool", "tool_name": call.tool.name,
                        "content": text(&call.result)})
                }));
            }
        }
    }
    messages
}

/// Returns the message of an answer. The calls have no ids, and their arguments are JSON objects.
fn message(answer: &Answer) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if let Some(thought) = &answer.thought {
        message["thinking"] = json!(thought);
    }
    if !answer.calls.is_empty() {
        let calls = answer
            .calls
            .iter()
            .map(|call| json!({"function": {"name": call.tool.name, "arguments": call.arguments}}));
        message["tool_calls"] = calls.collect();
    }
    message
}

fn line(message: &Value) -> Value {
    json!({"model": "qwen3:8b", "created_at": "2026-03-01T06:40:00.5Z", "message": message,
        "done": false})
}

fn end(mut line: Value, answer: &Answer, reason: &str) -> Value {
    let more = json!({"done": true, "done_reason": reason, "total_duration": 812_000_000,
        "load_duration": 51_000_000, "prompt_eval_count": answer.input_tokens,
        "prompt_eval_duration": 99_000_000, "eval_count": answer.output_tokens,
        "eval_duration": 640_000_000});
    let fields = line.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    line
}

pub(crate) fn lines(lines: &[Value]) -> Vec<u8> {
    lines.iter().map(|line| text(line) + "\n").collect::<String>().into_bytes()
}

impl Ollama {
    pub(crate) fn whole_with(self, answer: &Answer, reason: &str) -> Value {
        end(line(&message(answer)), answer, reason)
    }

    /// Returns the lines of a stream, without the last line.
    pub(crate) fn lines(self, answer: &Answer) -> Vec<Value> {
        let whole = message(answer);
        let of = |field: &str, length: usize| -> Vec<Value> {
            let pieces = pieces(whole[field].as_str().unwrap_or_default(), length).into_iter();
            let delta = |piece: String| {
                let mut delta = json!({"role": "assistant", "content": ""});
                delta[field] = json!(piece);
                line(&delta)
            };
            pieces.map(delta).collect()
        };
        let mut lines = of("thinking", 21);
        lines.extend(of("content", 12));
        for call in whole["tool_calls"].as_array().into_iter().flatten() {
            lines.push(line(&json!({"role": "assistant", "content": "", "tool_calls": [call]})));
        }
        lines
    }
}

impl Provider for Ollama {
    fn folder(&self) -> &'static str {
        "ollama"
    }

    fn url(&self, _: bool) -> String {
        "http://localhost:11434/api/chat".to_owned()
    }

    fn request(&self, dialogue: &Dialogue, is_streamed: bool) -> Value {
        let tool = |tool: &Tool| {
            json!({"type": "function", "function": {"name": tool.name,
                "description": tool.description, "parameters": tool.schema()}})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"model": "qwen3:8b", "messages": messages(dialogue),
            "stream": is_streamed});
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        body
    }

    fn whole(&self, answer: &Answer) -> Value {
        self.whole_with(answer, "stop")
    }

    fn stream(&self, answer: &Answer) -> Vec<u8> {
        let mut lines = self.lines(answer);
        let empty = line(&json!({"role": "assistant", "content": ""}));
        lines.push(end(empty, answer, "stop"));
        self::lines(&lines)
    }

    fn stream_type(&self) -> &'static str {
        "application/x-ndjson"
    }
}
