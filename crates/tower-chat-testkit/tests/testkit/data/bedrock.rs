//! Generates exchanges with Bedrock's Converse and ConverseStream
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>), whose
//! framing is described in <https://smithy.io/2.0/aws/amazon-eventstream.html>.

use flate2::Crc;
use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Call, Dialogue, Item, Tool},
    exchange::Provider,
    text::{pieces, text},
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Converse;

fn messages(dialogue: &Dialogue) -> Vec<Value> {
    let mut messages = Vec::new();
    for item in &dialogue.items {
        match item {
            Item::User(text) => {
                messages.push(json!({"role": "user", "content": [{"text": text}]}));
            }
            Item::Answer(answer) => {
                messages.push(json!({"role": "assistant", "content": content(answer)}));
                let results: Vec<Value> = answer.calls.iter().map(result).collect();
                if !results.is_empty() {
                    messages.push(json!({"role": "user", "content": results}));
                }
            }
        }
    }
    messages
}

fn result(call: &Call) -> Value {
    let id = format!("tooluse_{}", call.token);
    match call.is_error {
        true => json!({"toolResult": {"toolUseId": id, "status": "error",
            "content": [{"text": text(&call.result)}]}}),
        false => json!({"toolResult": {"toolUseId": id, "status": "success",
            "content": [{"json": call.result}]}}),
    }
}

fn content(answer: &Answer) -> Vec<Value> {
    let mut blocks = Vec::new();
    if let Some(thought) = &answer.thought {
        blocks.push(json!({"reasoningContent": {"reasoningText": {"text": thought,
            "signature": answer.signature()}}}));
    }
    if !answer.text.is_empty() {
        blocks.push(json!({"text": answer.text}));
    }
    blocks.extend(answer.calls.iter().map(|call| {
        json!({"toolUse": {"toolUseId": format!("tooluse_{}", call.token),
            "name": call.tool.name, "input": call.arguments}})
    }));
    blocks
}

fn usage(answer: &Answer) -> Value {
    let (input, output) = (answer.input_tokens, answer.output_tokens);
    json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output})
}

/// Returns the event that begins a block, if there is one, and the deltas of the block.
fn block_events(block: &Value) -> (Option<Value>, Vec<Value>) {
    let split = |text: &Value, delta: &dyn Fn(String) -> Value| -> Vec<Value> {
        pieces(text.as_str().unwrap(), 24).into_iter().map(delta).collect()
    };
    if let Some(call) = block.get("toolUse") {
        let start = json!({"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}});
        let input = json!(text(&call["input"]));
        return (Some(start), split(&input, &|piece| json!({"toolUse": {"input": piece}})));
    }
    if let Some(reasoning) = block.pointer("/reasoningContent/reasoningText") {
        let piece = |piece| json!({"reasoningContent": {"text": piece}});
        let mut deltas = split(&reasoning["text"], &piece);
        deltas.push(json!({"reasoningContent": {"signature": reasoning["signature"]}}));
        return (None, deltas);
    }
    (None, split(&block["text"], &|piece| json!({"text": piece})))
}

/// Returns the events of a stream up to and including the end of the last block.
pub(crate) fn events(answer: &Answer) -> Vec<u8> {
    let mut stream = event("messageStart", &json!({"role": "assistant"}));
    for (index, block) in content(answer).iter().enumerate() {
        let (start, deltas) = block_events(block);
        let at = |name: &str, value: Value| json!({"contentBlockIndex": index, name: value});
        if let Some(start) = start {
            stream.extend(event("contentBlockStart", &at("start", start)));
        }
        for delta in deltas {
            stream.extend(event("contentBlockDelta", &at("delta", delta)));
        }
        stream.extend(event("contentBlockStop", &json!({"contentBlockIndex": index})));
    }
    stream
}

pub(crate) fn stream_with(answer: &Answer, reason: &str) -> Vec<u8> {
    let mut stream = events(answer);
    stream.extend(event("messageStop", &json!({"stopReason": reason})));
    let metadata = json!({"usage": usage(answer), "metrics": {"latencyMs": 250}});
    stream.extend(event("metadata", &metadata));
    stream
}

fn event(name: &str, payload: &Value) -> Vec<u8> {
    framed(
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")],
        payload,
    )
}

/// Returns the message with the exception that ends a failed stream.
pub(crate) fn exception(name: &str, message: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", name),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    framed(headers, &json!({"message": message}))
}

fn framed(headers: [(&str, &str); 3], payload: &Value) -> Vec<u8> {
    let mut header_bytes = Vec::new();
    for (name, value) in headers {
        header_bytes.push(u8::try_from(name.len()).unwrap());
        header_bytes.extend(name.as_bytes());
        header_bytes.push(7);
        header_bytes.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        header_bytes.extend(value.as_bytes());
    }
    let payload = text(payload);
    let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let mut message = Vec::new();
    message.extend(length(16 + header_bytes.len() + payload.len()));
    message.extend(length(header_bytes.len()));
    message.extend(checksum(&message));
    message.extend(header_bytes);
    message.extend(payload.as_bytes());
    message.extend(checksum(&message));
    message
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum().to_be_bytes()
}

impl Provider for Converse {
    fn folder(&self) -> &'static str {
        "bedrock"
    }

    fn url(&self, is_streamed: bool) -> String {
        let method = if is_streamed { "converse-stream" } else { "converse" };
        format!(
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/\
             eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/{method}"
        )
    }

    fn request(&self, dialogue: &Dialogue, _: bool) -> Value {
        let tool = |tool: &Tool| {
            json!({"toolSpec": {"name": tool.name, "description": tool.description,
                "inputSchema": {"json": tool.schema()}}})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"system": [{"text": dialogue.system}],
            "messages": messages(dialogue), "inferenceConfig": {"maxTokens": 1024}});
        if !tools.is_empty() {
            body["toolConfig"] = json!({"tools": tools});
        }
        body
    }

    fn whole(&self, answer: &Answer) -> Value {
        json!({"output": {"message": {"role": "assistant", "content": content(answer)}},
            "stopReason": finish(answer), "usage": usage(answer),
            "metrics": {"latencyMs": answer.output_tokens}})
    }

    fn stream(&self, answer: &Answer) -> Vec<u8> {
        stream_with(answer, finish(answer))
    }

    fn stream_type(&self) -> &'static str {
        "application/vnd.amazon.eventstream"
    }
}

fn finish(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "end_turn" } else { "tool_use" }
}
