//! Two scripted answers in the JSON format of each provider, whole and streamed. The first answer
//! contains reasoning and a tool call, and the second one contains a text.

use aws_smithy_eventstream::frame::write_message_to;
use aws_smithy_types::event_stream::{Header, HeaderValue, Message};
use serde_json::{Value, json};
use tower_chat_testkit::validate::Wire;

pub(crate) const TOOL: &str = "f";

/// The name of these conversations.
pub(crate) const SOURCE: &str = "scripted";

pub(crate) fn answers(wire: Wire, is_streamed: bool) -> Vec<Vec<u8>> {
    match (wire, is_streamed) {
        (Wire::OpenAiChat, false) => whole(chat()),
        (Wire::OpenAiChat, true) => chat().map(|answer| chat_stream(&answer)).into(),
        (Wire::OpenAiResponses, false) => whole(responses()),
        (Wire::OpenAiResponses, true) => responses().map(|it| responses_stream(&it)).into(),
        (Wire::Anthropic, false) => whole(anthropic()),
        (Wire::Anthropic, true) => anthropic().map(|answer| anthropic_stream(&answer)).into(),
        (Wire::Gemini, false) => whole(gemini()),
        (Wire::Gemini, true) => gemini().map(|answer| sse([&answer])).into(),
        (Wire::BedrockConverse, false) => whole(bedrock()),
        (Wire::BedrockConverse, true) => bedrock_streams().map(event_stream).into(),
        (Wire::Ollama, false) => whole(ollama()),
        (Wire::Ollama, true) => ollama().map(ollama_stream).into(),
        (Wire::Cohere, false) => whole(cohere()),
        (Wire::Cohere, true) => cohere_streams().map(|events| sse(&events)).into(),
        (other, _) => panic!("nothing is written for {other}"),
    }
}

fn whole(answers: [Value; 2]) -> Vec<Vec<u8>> {
    answers.map(|answer| answer.to_string().into_bytes()).into()
}

fn sse<'a>(events: impl IntoIterator<Item = &'a Value>) -> Vec<u8> {
    let name = |event: &Value| match event["type"].as_str() {
        Some(name) => format!("event: {name}\n"),
        None => String::new(),
    };
    let event = |event: &Value| format!("{}data: {event}\n\n", name(event));
    events.into_iter().map(event).collect::<String>().into_bytes()
}

fn chat() -> [Value; 2] {
    let call = json!({"id": "call_1", "type": "function",
        "function": {"name": TOOL, "arguments": "{\"z\": 1,  \"a\": 2.50}"}});
    let called = json!({"role": "assistant", "content": null, "reasoning_content": "Hm.",
        "tool_calls": [call]});
    let reply = json!({"role": "assistant", "content": "done"});
    [(called, "tool_calls"), (reply, "stop")].map(|(message, reason)| {
        json!({"choices": [{"index": 0, "finish_reason": reason, "message": message}]})
    })
}

fn chat_stream(answer: &Value) -> Vec<u8> {
    let choice = &answer["choices"][0];
    let mut delta = choice["message"].clone();
    if let Some(call) = delta.pointer_mut("/tool_calls/0") {
        call["index"] = json!(0);
    }
    let chunk = |delta: &Value, reason: &Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let mut body =
        sse([&chunk(&delta, &Value::Null), &chunk(&json!({}), &choice["finish_reason"])]);
    body.extend(b"data: [DONE]\n\n");
    body
}

fn responses() -> [Value; 2] {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [],
        "encrypted_content": "gAAA"});
    let call = json!({"id": "fc_1", "type": "function_call", "status": "completed",
        "call_id": "call_1", "name": TOOL, "arguments": "{ \"z\": 1 }"});
    let text = json!({"type": "output_text", "text": "done", "annotations": []});
    let reply = json!({"id": "msg_1", "type": "message", "status": "completed",
        "role": "assistant", "content": [text]});
    [json!([reasoning, call]), json!([reply])].map(|output| {
        json!({"id": "resp_1", "object": "response", "status": "completed", "output": output})
    })
}

fn responses_stream(response: &Value) -> Vec<u8> {
    let mut events = vec![json!({"type": "response.created", "response": {"id": "resp_1"}})];
    for (index, item) in response["output"].as_array().unwrap().iter().enumerate() {
        for kind in ["added", "done"] {
            let kind = format!("response.output_item.{kind}");
            events.push(json!({"type": kind, "output_index": index, "item": item}));
        }
    }
    events.push(json!({"type": "response.completed", "response": response}));
    sse(&events)
}

fn anthropic() -> [Value; 2] {
    let called = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": {"z": 1, "a": 2}},
    ]);
    let reply = json!([{"type": "text", "text": "done"}]);
    [(called, "tool_use"), (reply, "end_turn")].map(|(content, reason)| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
            "content": content, "stop_reason": reason,
            "usage": {"input_tokens": 1, "output_tokens": 2}})
    })
}

fn anthropic_stream(answer: &Value) -> Vec<u8> {
    let start = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [],
        "model": "claude-x", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let mut events = vec![json!({"type": "message_start", "message": start})];
    for (index, block) in answer["content"].as_array().unwrap().iter().enumerate() {
        let (empty, deltas) = match block["type"].as_str().unwrap() {
            "thinking" => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ],
            ),
            "tool_use" => {
                let input = block["input"].to_string();
                let delta = json!({"type": "input_json_delta", "partial_json": input});
                let mut empty = block.clone();
                empty["input"] = json!({});
                (empty, vec![delta])
            }
            "text" => (
                json!({"type": "text", "text": ""}),
                vec![json!({"type": "text_delta", "text": block["text"]})],
            ),
            _ => (block.clone(), Vec::new()),
        };
        let kind = "content_block_start";
        events.push(json!({"type": kind, "index": index, "content_block": empty}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": answer["stop_reason"]});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 2}}));
    events.push(json!({"type": "message_stop"}));
    sse(&events)
}

fn gemini() -> [Value; 2] {
    let called = json!([
        {"text": "Hm.", "thought": true},
        {"functionCall": {"name": TOOL, "args": {"z": 1}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": TOOL, "args": {}}},
    ]);
    let reply = json!([{"text": "done", "thoughtSignature": "ZW5k"}]);
    [called, reply].map(|parts| {
        json!({"candidates": [{"finishReason": "STOP",
            "content": {"role": "model", "parts": parts}}]})
    })
}

fn bedrock() -> [Value; 2] {
    let called = json!([
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"toolUse": {"toolUseId": "tooluse_1", "name": TOOL, "input": {"z": 1}}},
    ]);
    let reply = json!([{"text": "done"}]);
    [(called, "tool_use"), (reply, "end_turn")].map(|(content, reason)| {
        json!({"output": {"message": {"role": "assistant", "content": content}},
            "stopReason": reason, "usage": {"inputTokens": 1, "outputTokens": 2}})
    })
}

type BedrockEvents = Vec<(&'static str, Value)>;

fn bedrock_streams() -> [BedrockEvents; 2] {
    let delta = |index: u64, delta: Value| {
        ("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}))
    };
    let stop = |index: u64| ("contentBlockStop", json!({"contentBlockIndex": index}));
    let start = json!({"toolUse": {"toolUseId": "tooluse_1", "name": TOOL}});
    let called = vec![
        delta(0, json!({"reasoningContent": {"text": "Hm."}})),
        delta(0, json!({"reasoningContent": {"signature": "c2ln"}})),
        stop(0),
        ("contentBlockStart", json!({"contentBlockIndex": 1, "start": start})),
        delta(1, json!({"toolUse": {"input": "{\"z\": 1.0}"}})),
        stop(1),
    ];
    let reply = vec![delta(0, json!({"text": "done"})), stop(0)];
    [(called, "tool_use"), (reply, "end_turn")].map(|(content, reason)| {
        let mut events = vec![("messageStart", json!({"role": "assistant"}))];
        events.extend(content);
        events.push(("messageStop", json!({"stopReason": reason})));
        let usage = json!({"inputTokens": 1, "outputTokens": 2});
        events.push(("metadata", json!({"usage": usage})));
        events
    })
}

/// Encodes events as `application/vnd.amazon.eventstream`.
fn event_stream(events: BedrockEvents) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, payload) in events {
        let message = Message::new(payload.to_string().into_bytes())
            .add_header(Header::new(":event-type", HeaderValue::String(kind.into())));
        write_message_to(&message, &mut body).unwrap();
    }
    body
}

fn ollama() -> [Value; 2] {
    let call = json!({"function": {"name": TOOL, "arguments": {"z": 1}}});
    let called = json!({"role": "assistant", "content": "", "thinking": "Hm.",
        "tool_calls": [call]});
    let reply = json!({"role": "assistant", "content": "done"});
    [called, reply].map(|message| json!({"message": message, "done": true, "done_reason": "stop"}))
}

/// Splits an answer into two lines. The second line ends the answer.
fn ollama_stream(mut answer: Value) -> Vec<u8> {
    let begun = json!({"message": answer["message"].take(), "done": false});
    answer["message"] = json!({"role": "assistant", "content": ""});
    format!("{begun}\n{answer}\n").into_bytes()
}

fn cohere() -> [Value; 2] {
    let call = json!({"id": "f_1", "type": "function",
        "function": {"name": TOOL, "arguments": "{\"z\": 1}"}});
    let called = json!({"role": "assistant", "tool_plan": "I will look.", "tool_calls": [call]});
    let reply = json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]});
    [(called, "TOOL_CALL"), (reply, "COMPLETE")]
        .map(|(message, reason)| json!({"id": "1", "finish_reason": reason, "message": message}))
}

fn cohere_streams() -> [Vec<Value>; 2] {
    let event = |kind: &str, message: Value| json!({"type": kind, "index": 0, "delta": {"message": message}});
    let call = |id: Value, name: Value, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"tool_calls": {"id": id, "type": "function", "function": function}})
    };
    let more = json!({"tool_calls": {"function": {"arguments": "\"z\": 1}"}}});
    let called = vec![
        event("tool-plan-delta", json!({"tool_plan": "I will look."})),
        event("tool-call-start", call(json!("f_1"), json!(TOOL), "{")),
        event("tool-call-delta", more),
        json!({"type": "tool-call-end", "index": 0}),
    ];
    let text = |text: &str| json!({"content": {"type": "text", "text": text}});
    let reply = vec![
        event("content-start", text("")),
        event("content-delta", json!({"content": {"text": "done"}})),
        json!({"type": "content-end", "index": 0}),
    ];
    [(called, "TOOL_CALL"), (reply, "COMPLETE")].map(|(content, reason)| {
        let start = json!({"role": "assistant", "content": [], "tool_calls": []});
        let mut events = vec![json!({"type": "message-start", "delta": {"message": start}})];
        events.extend(content);
        events.push(json!({"type": "message-end", "delta": {"finish_reason": reason}}));
        events
    })
}
