//! Tests of Ollama's native streams, in the form that its documentation describes, because there
//! are no recordings of such streams.

use serde_json::json;
use tower_chat_core::{ChatRequest, FinishReason, Message, Part, ToolResult};
use tower_chat_providers::ProviderError;

use crate::{
    client::Provider,
    client::ask,
    server::{Reply, Server},
    wires::errors::whole_and_streamed,
};

pub(crate) const STREAM: &str = concat!(
    r#"{"model":"m","created_at":"t0","message":{"role":"assistant","content":"","#,
    r#""thinking":"Hm, "},"done":false}"#,
    "\n",
    r#"{"model":"m","created_at":"t1","message":{"role":"assistant","content":"","#,
    r#""thinking":"weather."},"done":false}"#,
    "\n",
    r#"{"model":"m","created_at":"t2","message":{"role":"assistant","content":"Grüße"},"done":false}"#,
    "\n",
    r#"{"model":"m","created_at":"t3","message":{"role":"assistant","content":"","tool_calls":["#,
    r#"{"function":{"index":0,"name":"f","arguments":{"x": 1.0}}},"#,
    r#"{"id":"call_2","function":{"name":"g","arguments":{}}}]},"done":false}"#,
    "\n",
    r#"{"model":"m","created_at":"t4","message":{"role":"assistant","content":""},"done":true,"#,
    r#""done_reason":"stop","prompt_eval_count":7,"eval_count":5}"#,
    "\n",
);

#[tokio::test]
async fn a_streamed_answer_is_one_message_and_is_sent_again_as_it_was_received() {
    let answer = r#"{"message":{"role":"assistant","content":"ok"},"done":true}"#;
    let server = Server::start([Reply::stream(STREAM), Reply::json(200, answer)]).await;
    let mut model = server.client(Provider::Ollama).build();
    let [_, request] = whole_and_streamed("m");
    let answer = ask(&mut model, request).await.unwrap();
    assert_eq!((answer.text().as_str(), answer.finish.usage.output_tokens), ("Grüße", 5));
    assert_eq!(answer.finish.reason, Some(FinishReason::ToolCalls));
    let message = &answer.messages[0];
    let Part::Reasoning(reasoning) = &message.parts[0] else { panic!("{message:?}") };
    assert_eq!(reasoning.text, "Hm, weather.");
    let calls: Vec<_> = message.calls().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("f", r#"{"x": 1.0}"#), ("g", "{}")]);

    let mut first = ToolResult::new("", "one");
    first.call_id = None;
    let results = Message::tool_results([first, ToolResult::new("call_2", "two")]);
    let history = vec![Message::user("hi"), (**message).clone(), results];
    ask(&mut model, ChatRequest::new(history)).await.unwrap();
    let sent = &server.received()[1].body;
    let expected = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Grüße", "thinking": "Hm, weather.", "tool_calls": [
            {"function": {"index": 0, "name": "f", "arguments": {"x": 1.0}}},
            {"id": "call_2", "function": {"name": "g", "arguments": {}}},
        ]},
        {"role": "tool", "content": "one", "tool_name": "f"},
        {"role": "tool", "content": "two", "tool_name": "g", "tool_call_id": "call_2"},
    ]);
    assert_eq!(sent["messages"], expected);
    assert_eq!(sent["stream"], false);
    assert!(!server.received()[1].head.contains("api-key"));
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_fails_the_call() {
    let begun = STREAM.lines().next().unwrap();
    let stream = format!("{begun}\n{{\"error\":\"model runner has stopped\"}}\n");
    let server = Server::start([Reply::stream(stream)]).await;
    let [_, request] = whole_and_streamed("m");
    let error = ask(&mut server.client(Provider::Ollama).build(), request).await.unwrap_err();
    let error = error.downcast::<ProviderError>().unwrap();
    assert!(error.to_string().ends_with(": model runner has stopped"), "{error}");
    assert!(error.is_retryable());
}
