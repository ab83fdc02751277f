//! Tests of tools that Bedrock runs, in streams of Converse.

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tower_chat_core::{ChatUpdate, Part};
use tower_chat_wire::{
    AnswerError,
    body::BodyWire,
    stream::{Frame, updates},
};

fn frame(event: &str, data: Value) -> Result<Frame, AnswerError> {
    Ok(Frame { event: Some(event.to_owned()), data: data.to_string() })
}

#[tokio::test]
async fn a_streamed_server_tool_call_and_its_result_equal_those_of_the_whole_answer() {
    let start = |index, start| {
        frame("contentBlockStart", json!({"contentBlockIndex": index, "start": start}))
    };
    let delta = |index, delta| {
        frame("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}))
    };
    let search = json!({"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use"});
    let found = json!({"toolUseId": "s1", "type": "nova_grounding_result", "status": "success"});
    let own = json!({"toolUseId": "t1", "name": "book"});
    let frames = vec![
        frame("messageStart", json!({"role": "assistant"})),
        start(0, json!({"toolUse": search})),
        delta(0, json!({"toolUse": {"input": "{\"query\":"}})),
        delta(0, json!({"toolUse": {"input": "\"Bern\"}"}})),
        start(1, json!({"toolResult": found})),
        delta(1, json!({"toolResult": [{"text": "sunny "}]})),
        delta(1, json!({"toolResult": [{"text": "today"}, {"json": {"degrees": 21}}]})),
        start(2, json!({"toolUse": own})),
        delta(2, json!({"toolUse": {"input": "{}"}})),
        frame("messageStop", json!({"stopReason": "tool_use"})),
        frame("metadata", json!({"usage": {"inputTokens": 3, "outputTokens": 4}})),
    ];
    let content = json!([
        {"toolUse": {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use",
            "input": {"query": "Bern"}}},
        {"toolResult": {"toolUseId": "s1", "type": "nova_grounding_result", "status": "success",
            "content": [{"text": "sunny today"}, {"json": {"degrees": 21}}]}},
        {"toolUse": {"toolUseId": "t1", "name": "book", "input": {}}},
    ]);
    let whole = json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 3, "outputTokens": 4},
    });
    let expected = BodyWire::BedrockConverse.parse_answer(&whole.to_string()).unwrap();

    let accumulator = BodyWire::BedrockConverse.accumulator();
    let updates = updates(stream::iter(frames), accumulator);
    let updates: Vec<ChatUpdate> = updates.map(Result::unwrap).collect().await;
    // Only the call of the client's tool results in an update.
    let announced = updates.iter().filter_map(|update| match update {
        ChatUpdate::ToolCallDelta(delta) => Some((delta.index, delta.name.as_deref())),
        _ => None,
    });
    assert_eq!(announced.collect::<Vec<_>>(), [(0, Some("book")), (0, None)]);
    let [.., ChatUpdate::Message(message), ChatUpdate::Finish(_)] = updates.as_slice() else {
        panic!("{updates:?}")
    };
    assert_eq!(parts_json(&message.parts), parts_json(&expected.messages[0].parts));
}

/// Returns the parts as JSON, in which native items are JSON values instead of strings.
fn parts_json(parts: &[Part]) -> Vec<Value> {
    let part = |part: &Part| match part {
        Part::Native(native) => native.item.parse().unwrap(),
        Part::ToolCall(call) => {
            let native: Option<Value> = call.native.as_ref().map(|it| it.item.parse().unwrap());
            json!([call.id, call.name, call.parse_arguments::<Value>().unwrap(), native])
        }
        other => json!(format!("{other:?}")),
    };
    parts.iter().map(part).collect()
}
