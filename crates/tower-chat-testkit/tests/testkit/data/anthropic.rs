//! Generates exchanges with Anthropic's Messages API
//! (<https://docs.anthropic.com/en/api/messages>), served by Anthropic, Vertex AI and Bedrock.

use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Call, Dialogue, Item, Tool},
    exchange::{Provider, sse},
    text::{pieces, text},
};

/// The service that runs Claude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claude {
    Anthropic,
    Vertex,
    BedrockInvoke,
}

fn messages(dialogue: &Dialogue) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    for item in &dialogue.items {
        match item {
            // If results precede the user's text, one message contains the results and then the
            // text.
            Item::User(text) if !results.is_empty() => {
                results.push(json!({"type": "text", "text": text}));
                messages.push(json!({"role": "user", "content": std::mem::take(&mut results)}));
            }
            Item::User(text) => messages.push(json!({"role": "user", "content": text})),
            Item::Answer(answer) => {
                if !results.is_empty() {
                    messages.push(json!({"role": "user", "content": std::mem::take(&mut results)}));
                }
                messages.push(json!({"role": "assistant", "content": content(answer)}));
                results = answer.calls.iter().map(result).collect();
            }
        }
    }
    if !results.is_empty() {
        messages.push(json!({"role": "user", "content": results}));
    }
    messages
}

fn result(call: &Call) -> Value {
    let (id, result_text) = (format!("toolu_01{}", call.token), text(&call.result));
    match call.is_error {
        true => {
            json!({"type": "tool_result", "tool_use_id": id, "content": result_text, "is_error": true})
        }
        false => {
            json!({"type": "tool_result", "tool_use_id": id,
                "content": [{"type": "text", "text": result_text}]})
        }
    }
}

fn content(answer: &Answer) -> Vec<Value> {
    let mut blocks = Vec::new();
    if let Some(thought) = &answer.thought {
        blocks.push(json!({"type": "thinking", "thinking": thought,
            "signature": answer.signature()}));
        if !answer.calls.is_empty() {
            let hidden = format!("hidden: {}", answer.signature());
            blocks.push(json!({"type": "redacted_thinking", "data": hidden}));
        }
    }
    if !answer.text.is_empty() {
        blocks.push(json!({"type": "text", "text": answer.text}));
    }
    blocks.extend(answer.calls.iter().map(|call| {
        json!({"type": "tool_use", "id": format!("toolu_01{}", call.token),
            "name": call.tool.name, "input": call.arguments})
    }));
    blocks
}

impl Claude {
    pub(crate) fn whole_with(self, answer: &Answer, reason: &str) -> Value {
        json!({"id": format!("msg_{}", answer.token), "type": "message", "role": "assistant",
            "model": "claude-sonnet-4-5-20250929", "content": content(answer),
            "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": answer.input_tokens, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": answer.input_tokens / 2,
                "output_tokens": answer.output_tokens, "service_tier": "standard"}})
    }

    /// Returns the events of a stream up to and including the end of the last block.
    pub(crate) fn events(self, answer: &Answer) -> Vec<Value> {
        let mut message = self.whole_with(answer, "");
        let blocks = message["content"].take();
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        message["usage"]["output_tokens"] = json!(1);
        let mut events = vec![json!({"type": "message_start", "message": message})];
        for (index, block) in blocks.as_array().unwrap().iter().enumerate() {
            let (begun, deltas) = block_events(block);
            events.push(json!({"type": "content_block_start", "index": index,
                "content_block": begun}));
            if index == 0 {
                events.push(json!({"type": "ping"}));
            }
            let delta =
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
            events.extend(deltas.into_iter().map(delta));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events
    }

    pub(crate) fn ended(self, mut events: Vec<Value>, answer: &Answer, reason: &str) -> Vec<u8> {
        events.push(json!({"type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": answer.output_tokens}}));
        events.push(json!({"type": "message_stop"}));
        sse(&events)
    }
}

/// Returns the event that begins a block, and the deltas of the block.
fn block_events(block: &Value) -> (Value, Vec<Value>) {
    let text_of = |field: &str| block[field].as_str().unwrap();
    let in_deltas = |kind: &str, field: &str, whole: &str| -> Vec<Value> {
        let pieces = pieces(whole, 24).into_iter();
        pieces.map(|piece| json!({"type": kind, field: piece})).collect()
    };
    match text_of("type") {
        "text" => {
            (json!({"type": "text", "text": ""}), in_deltas("text_delta", "text", text_of("text")))
        }
        "thinking" => {
            let mut deltas = in_deltas("thinking_delta", "thinking", text_of("thinking"));
            deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }
        "tool_use" => {
            let mut begun = block.clone();
            begun["input"] = json!({});
            let input = text(&block["input"]);
            let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
            deltas.extend(in_deltas("input_json_delta", "partial_json", &input));
            (begun, deltas)
        }
        _ => (block.clone(), Vec::new()),
    }
}

impl Provider for Claude {
    fn folder(&self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Vertex => "vertex",
            Self::BedrockInvoke => "bedrock",
        }
    }

    fn url(&self, is_streamed: bool) -> String {
        match (self, is_streamed) {
            (Self::Anthropic, _) => "https://api.anthropic.com/v1/messages".to_owned(),
            (Self::Vertex, _) => {
                let method = if is_streamed { "streamRawPredict" } else { "rawPredict" };
                format!(
                    "https://europe-west1-aiplatform.googleapis.com/v1/projects/harbour/locations/\
                     europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929:{method}"
                )
            }
            (Self::BedrockInvoke, _) => "https://bedrock-runtime.eu-west-1.amazonaws.com/model/\
                 eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke"
                .to_owned(),
        }
    }

    fn request(&self, dialogue: &Dialogue, is_streamed: bool) -> Value {
        let tool = |tool: &Tool| {
            json!({"name": tool.name, "description": tool.description,
                "input_schema": tool.schema()})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"max_tokens": 2048, "system": dialogue.system,
            "messages": messages(dialogue)});
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        match self {
            Self::Anthropic => body["model"] = json!("claude-sonnet-4-5"),
            Self::Vertex => body["anthropic_version"] = json!("vertex-2023-10-16"),
            Self::BedrockInvoke => body["anthropic_version"] = json!("bedrock-2023-05-31"),
        }
        if dialogue.answers().any(|answer| answer.thought.is_some()) {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        }
        if is_streamed {
            body["stream"] = json!(true);
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
    if answer.calls.is_empty() { "end_turn" } else { "tool_use" }
}
