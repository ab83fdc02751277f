//! Tests of unusual ways in which services divide a message into the deltas of a stream.

use tower_chat_core::{Answer, ChatRequest, FinishReason, Native, Part};

use crate::{
    client::ask,
    server::{Reply, Server},
};

/// Returns the answer of a stream with these deltas.
async fn answer(deltas: &[&str]) -> Answer {
    let mut body = String::new();
    for delta in deltas {
        let delta = delta.replace('\n', "");
        body += &format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    }
    streamed(&(body + "data: [DONE]\n\n")).await
}

async fn streamed(body: &str) -> Answer {
    let server = Server::start([Reply::stream(body)]).await;
    ask(&mut server.model(), ChatRequest::user("hi").streamed()).await.unwrap()
}

fn calls(answer: &Answer) -> Vec<(&str, &str, &str)> {
    let calls = answer.tool_calls();
    calls.map(|call| (call.id.as_deref().unwrap_or("-"), &*call.name, &*call.arguments)).collect()
}

#[tokio::test]
async fn a_call_may_arrive_in_one_piece_or_repeat_its_id_and_name() {
    let found = answer(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\""}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":":1}"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"","function":{"name":"","arguments":""}}]}"#,
    ])
    .await;
    assert_eq!(calls(&found), [("a", "f", "{}"), ("b", "g", r#"{"x":1}"#)]);
}

#[tokio::test]
async fn calls_without_an_index_are_distinguished_by_id_and_name() {
    let found = answer(&[
        r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"1"}}]}"#,
        r#"{"tool_calls":[{"function":{"arguments":"2"}}]}"#,
        r#"{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"3"}}]}"#,
        r#"{"tool_calls":[{"id":"a","function":{"arguments":"4"}}]}"#,
        r#"{"tool_calls":[{"function":{"name":"g","arguments":"5"}},
                          {"function":{"name":"g","arguments":"6"}}]}"#,
    ])
    .await;
    let expected = [("a", "f", "124"), ("b", "f", "3"), ("-", "g", "5"), ("-", "g", "6")];
    assert_eq!(calls(&found), expected);
}

#[tokio::test]
async fn calls_that_all_have_index_0_are_distinguished_by_id() {
    let found = answer(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"2"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"3"}}]}"#,
    ])
    .await;
    assert_eq!(calls(&found), [("a", "f", "1"), ("b", "f", "23")]);
}

#[tokio::test]
async fn arguments_that_are_cut_off_or_an_object_are_returned_as_text() {
    let found = answer(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\": \"y"}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":{"z":1}}}]}"#,
    ])
    .await;
    assert_eq!(calls(&found), [("a", "f", r#"{"x": "y"#), ("b", "g", r#"{"z":1}"#)]);
}

#[tokio::test]
async fn unknown_fields_are_stored_as_native_items() {
    let found = answer(&[
        r#"{"role":"assistant","content":"","reasoning_details":[{"type":"t","text":"a"}]}"#,
        r#"{"content":"hi","reasoning_details":[{"type":"t","text":"b"}],"odd":{"n":1}}"#,
        r#"{"odd":{"m":2},"refusal":null,"annotations":[{"u":1}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"a","extra_content":{"signature":"s"},
            "function":{"name":"f","arguments":"{}"}}]}"#,
    ])
    .await;
    let message = &found.messages[0];
    assert_eq!(found.text(), "hi");
    let Part::Native(Native { item, .. }) = &message.parts[0] else { panic!("{message:?}") };
    let item: serde_json::Value = item.parse().unwrap();
    let details = serde_json::json!([{"type": "t", "text": "a"}, {"type": "t", "text": "b"}]);
    assert_eq!(item["reasoning_details"], details);
    assert_eq!(item["odd"], serde_json::json!({"n": 1, "m": 2}));
    assert_eq!(item["annotations"], serde_json::json!([{"u": 1}]));
    let call = found.tool_calls().next().unwrap();
    assert!(call.native.as_ref().unwrap().item.get().contains(r#""signature":"s""#));
}

#[tokio::test]
async fn the_pieces_of_a_refusal_are_joined() {
    let found = answer(&[r#"{"refusal":"I can"}"#, r#"{"refusal":"not."}"#]).await;
    let Part::Native(Native { item, .. }) = &found.messages[0].parts[0] else { panic!() };
    assert!(item.get().contains(r#""refusal":"I cannot.""#), "{item:?}");
}

#[tokio::test]
async fn thinking_in_content_parts_is_a_part_before_the_text() {
    let found = answer(&[
        r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#,
        r#"{"content":"so"}"#,
    ])
    .await;
    assert_eq!(found.text(), "so");
    assert_eq!(found.messages[0].parts.len(), 2, "{:?}", found.messages[0]);
}

#[tokio::test]
async fn the_usage_of_the_last_chunk_replaces_the_usage_of_earlier_chunks() {
    let found = streamed(concat!(
        "data: {\"id\":\"c\",\"model\":\"\",\"choices\":[]}\n\n",
        "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}],",
        "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n",
        "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},",
        "\"finish_reason\":\"length\"}],\"usage\":null}\n\n",
        "data: {\"id\":\"c\",\"model\":\"\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,",
        "\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4},",
        "\"completion_tokens_details\":{\"reasoning_tokens\":1}}}\n\n",
        "data: [DONE]\n\n",
    ))
    .await;
    let usage = found.finish.usage;
    assert_eq!((usage.input_tokens, usage.cached_input_tokens), (5, 4));
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (2, 1));
    assert_eq!(found.finish.reason, Some(FinishReason::Length));
    assert_eq!(found.finish.model.as_deref(), Some("m"));
    assert_eq!(found.finish.metadata["id"], "c");
}

#[tokio::test]
async fn a_whole_answer_to_a_streamed_request_is_accepted() {
    let body = "{\n \"choices\": [{\"index\": 0, \"finish_reason\": \"stop\",\r\n \"message\":\
                {\"role\": \"assistant\", \"content\": \"hel\\nlo\"}}]\n}";
    let server = Server::start([Reply::json(200, body)]).await;
    let request = ChatRequest::user("hi").streamed();
    let found = ask(&mut server.model(), request).await.unwrap();
    assert_eq!(found.text(), "hel\nlo");
    assert_eq!(found.finish.reason, Some(FinishReason::Stop));
}

/// Returns the fields of the message's native part with this wire.
fn native_item(answer: &Answer, wire: &str) -> serde_json::Value {
    let native = answer.messages[0].parts.iter().find_map(|part| match part {
        Part::Native(native) if &*native.wire == wire => Some(native.item.parse().unwrap()),
        _ => None,
    });
    native.unwrap_or_default()
}

#[tokio::test]
async fn an_unknown_field_that_each_piece_repeats_is_not_concatenated_and_not_sent_again() {
    let body = concat!(
        r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","channel":"analysis","reasoning":"Let "}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"channel":"analysis","reasoning":"me see."}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"channel":"final","token_index":7,"content":"Yes."}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"thought_signature":"sig","odd":{"mode":"a"}}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"thought_signature":"sig","odd":{"mode":"a"}}}]}"#,
        "\n\ndata: [DONE]\n\n",
    );
    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"}}]}"#;
    let server = Server::start([Reply::stream(body), Reply::json(200, whole)]).await;
    let mut model = server.model();
    let found = ask(&mut model, ChatRequest::user("hi").streamed()).await.unwrap();
    assert_eq!(found.text(), "Yes.");
    let of_pieces = serde_json::json!({"channel": "final", "token_index": 7});
    assert_eq!(
        native_item(&found, "openai-chat-delta"),
        of_pieces,
        "the fields of deltas are unchanged"
    );
    let kept = native_item(&found, "openai-chat");
    assert_eq!(kept["odd"], serde_json::json!({"mode": "a"}));
    assert_eq!(kept["thought_signature"], "sig");
    let history = [tower_chat_core::Message::user("hi"), (*found.messages[0]).clone()];
    ask(&mut model, ChatRequest::new(history)).await.unwrap();
    let sent = &server.received()[1].body["messages"][1];
    let expected = serde_json::json!({"role": "assistant", "content": "Yes.",
        "reasoning": "Let me see.", "thought_signature": "sig", "odd": {"mode": "a"}});
    assert_eq!(*sent, expected);
}

/// <https://openrouter.ai/docs/use-cases/reasoning-tokens> describes the format.
#[tokio::test]
async fn fragments_of_one_reasoning_block_are_joined_with_the_last_signature() {
    let detail = |detail: serde_json::Value| {
        serde_json::json!({ "reasoning_details": [detail] }).to_string()
    };
    let text = |index: u64, text: &str| {
        detail(serde_json::json!({"type": "reasoning.text", "text": text, "index": index,
            "format": "anthropic-claude-v1", "signature": null}))
    };
    let signed = |index: u64, signature: &str| {
        detail(serde_json::json!({"type": "reasoning.text", "signature": signature, "index": index,
            "format": "anthropic-claude-v1"}))
    };
    let other = |kind: &str, field: &str, value: &str| {
        detail(serde_json::json!({"type": kind, field: value, "index": 0}))
    };
    let pieces = [
        text(0, "Let"),
        text(0, " me"),
        text(1, "And"),
        signed(0, "sig 0"),
        text(1, " then"),
        other("reasoning.encrypted", "data", "one"),
        other("reasoning.encrypted", "data", "two"),
        other("reasoning.summary", "summary", "In "),
        other("reasoning.summary", "summary", "short"),
        signed(1, "sig 1"),
        text(1, "again"),
        detail(serde_json::json!({"type": "odd", "text": "a"})),
        detail(serde_json::json!({"type": "odd", "text": "a"})),
    ];
    let found = answer(&pieces.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let block = |index: u64, text: &str, signature: serde_json::Value| {
        serde_json::json!({"type": "reasoning.text", "text": text, "index": index,
            "format": "anthropic-claude-v1", "signature": signature})
    };
    let expected = serde_json::json!([
        block(0, "Let me", "sig 0".into()),
        block(1, "And then", "sig 1".into()),
        {"type": "reasoning.encrypted", "data": "one", "index": 0},
        {"type": "reasoning.encrypted", "data": "two", "index": 0},
        {"type": "reasoning.summary", "summary": "In short", "index": 0},
        block(1, "again", serde_json::Value::Null),
        {"type": "odd", "text": "a"},
        {"type": "odd", "text": "a"},
    ]);
    assert_eq!(native_item(&found, "openai-chat")["reasoning_details"], expected);
}

#[tokio::test]
async fn null_in_place_of_arguments_is_an_empty_object() {
    let found = answer(&[
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":null}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":null}}]}"#,
        r#"{"tool_calls":[{"index":1,"function":{"arguments":"{\"x\":1}"}}]}"#,
        r#"{"tool_calls":[{"index":2,"id":"c","function":{"name":"h","arguments":""}}]}"#,
    ])
    .await;
    assert_eq!(calls(&found), [("a", "f", "{}"), ("b", "g", r#"{"x":1}"#), ("c", "h", "")]);
}
