//! Tests of stacks and model clients with async-openai's request and answer types.

use std::sync::{Arc, Mutex};

use async_openai::types::chat::{
    ChatCompletionResponseStream, CreateChatCompletionRequest, CreateChatCompletionResponse,
    CreateChatCompletionStreamResponse,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatUpdate, ConversationKey, HistoryStore, MemoryStore, PersistenceMode,
    ToolDefinition, Tools,
    adapt::{AdaptLayer, ExposeLayer},
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    tool_fn,
};
use tower_chat_providers::{
    ProviderError, ProviderErrorKind as Kind,
    adapt::{ChatTypes, UnknownFields},
};

type ReceivedRequests = Arc<Mutex<Vec<Value>>>;

/// Records a request in async-openai's type, and returns an answer that calls a tool until the
/// request contains a result.
async fn answer(
    received: ReceivedRequests,
    request: CreateChatCompletionRequest,
) -> Result<Value, BoxError> {
    let request = serde_json::to_value(request)?;
    let message = match request["messages"].as_array().unwrap().last().unwrap()["role"].as_str() {
        Some("tool") => json!({"role": "assistant", "content": "found it"}),
        _ => {
            let function = json!({"name": "look", "arguments": "{ }"});
            let call = json!({"id": "call_1", "type": "function", "function": function});
            json!({"role": "assistant", "tool_calls": [call]})
        }
    };
    received.lock().unwrap().push(request);
    Ok(json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 5, "model": "theirs",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }))
}

fn typed_request(text: &str) -> CreateChatCompletionRequest {
    let function = json!({"name": "mine", "parameters": {"type": "object"}, "strict": true});
    serde_json::from_value(json!({
        "model": "gpt-4o", "temperature": 0.5, "seed": 7, "safety_identifier": "alice",
        "max_completion_tokens": 50, "response_format": {"type": "text"},
        "tools": [{"type": "function", "function": function}], "tool_choice": "auto",
        "messages": [{"role": "user", "content": text}],
    }))
    .unwrap()
}

#[tokio::test]
async fn layers_alone_add_tools_and_a_history_to_a_stack_of_async_openai() {
    let received = ReceivedRequests::default();
    let store = MemoryStore::new();
    let kept = received.clone();
    let client = service_fn(move |request| {
        let received = kept.clone();
        async move {
            let answer = answer(received, request).await?;
            Ok::<CreateChatCompletionResponse, BoxError>(serde_json::from_value(answer)?)
        }
    });
    let look = ToolDefinition::new("look", "Looks.", json!({"type": "object"}));
    let tools = Tools::new().with(tool_fn(look, |_| async { Ok("looked") }));
    let codec = ChatTypes::new("gpt-4o").keyed_by(|request: &CreateChatCompletionRequest| {
        Some(ConversationKey::new("theirs", request.safety_identifier.clone()?))
    });
    let persistence = PerRunPersistence::new(store.clone());
    let mut theirs = ServiceBuilder::new()
        .layer(ExposeLayer::new(codec.clone()))
        .layer(persistence.mode(PersistenceMode::PerServiceCall))
        .layer(ToolLoopLayer::new(tools))
        .layer(PerServiceCallPersistence::new(store.clone()))
        .layer(AdaptLayer::new(codec))
        .service(client);
    for text in ["one", "two"] {
        let answer = theirs.ready().await.unwrap().call(typed_request(text)).await.unwrap();
        assert_eq!(answer.choices[0].message.content.as_deref(), Some("found it"));
        assert!(answer.choices[0].message.tool_calls.is_none());
        assert_eq!((answer.id.as_str(), answer.created), ("chatcmpl-1", 5));
        assert_eq!(answer.usage.unwrap().total_tokens, 10, "the usage of both service calls");
    }
    let key = ConversationKey::new("theirs", "alice");
    assert_eq!(store.load(&key).await.unwrap().messages.len(), 8);

    let received = received.lock().unwrap();
    let last = received.last().unwrap();
    let roles: Vec<&str> = last["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]);
    assert_eq!(last["messages"][1]["tool_calls"][0]["function"]["arguments"], "{ }");
    // Every option and every tool of the application's request is sent unchanged.
    let sent = serde_json::to_value(typed_request("two")).unwrap();
    for (name, value) in sent.as_object().unwrap() {
        match name.as_str() {
            "messages" => {}
            "tools" => assert_eq!(last["tools"][0], value[0]),
            name => assert_eq!(&last[name], value, "{name}"),
        }
    }
    assert_eq!(last["tools"][1]["function"]["name"], "look");
}

#[tokio::test]
async fn an_option_that_the_clients_request_type_lacks_is_refused_and_not_dropped() {
    let client = service_fn(|_: CreateChatCompletionRequest| async {
        Err::<CreateChatCompletionResponse, BoxError>("never asked".into())
    });
    let model = ServiceBuilder::new().layer(AdaptLayer::new(ChatTypes::new("m"))).service(client);
    let mut request = ChatRequest::user("hi");
    Arc::make_mut(&mut request.options).extra.insert("top_k".to_owned(), json!(3));
    let error = model.oneshot(request).await.unwrap_err();
    assert_eq!(error.downcast_ref::<UnknownFields>().unwrap().fields, ["top_k"]);
}

fn events(deltas: Vec<Value>) -> ChatCompletionResponseStream {
    let events = deltas.into_iter().map(|choice| {
        let event = json!({"id": "c", "object": "chat.completion.chunk", "created": 5, "model": "m",
            "choices": [choice]});
        let event: CreateChatCompletionStreamResponse = serde_json::from_value(event).unwrap();
        Ok(event)
    });
    Box::pin(stream::iter(events.collect::<Vec<_>>()))
}

#[tokio::test]
async fn the_events_of_a_streaming_client_become_updates() {
    let text = |end: Value| {
        vec![
            json!({"index": 0, "delta": {"role": "assistant", "content": "Hel"}}),
            json!({"index": 0, "delta": {"content": "lo"}, "finish_reason": end}),
        ]
    };
    let client = service_fn(move |request: CreateChatCompletionRequest| async move {
        assert_eq!(request.stream, Some(true));
        let is_cut = serde_json::to_value(&request.messages[0]).unwrap()["content"] == "cut";
        let end = if is_cut { Value::Null } else { json!("stop") };
        Ok::<_, BoxError>(events(text(end)))
    });
    let model = ServiceBuilder::new()
        .layer(AdaptLayer::new(ChatTypes::new("m").streamed()))
        .service(client);
    let response = model.clone().oneshot(ChatRequest::user("hi")).await.unwrap();
    let updates: Vec<ChatUpdate> = response.map(Result::unwrap).collect().await;
    assert_eq!(updates[..2], ["Hel", "lo"].map(|text| ChatUpdate::TextDelta(text.to_owned())));
    assert!(matches!(&updates[2], ChatUpdate::Message(message) if message.text() == "Hello"));
    assert!(matches!(updates[3], ChatUpdate::Finish(_)) && updates.len() == 4);

    let response = model.oneshot(ChatRequest::user("cut")).await.unwrap();
    let error = response.collect().await.unwrap_err();
    let cut = error.downcast_ref::<ProviderError>().unwrap();
    assert!(matches!(cut.kind(), Kind::Truncated { text, .. } if text == "Hello"), "{cut}");
}

#[tokio::test]
async fn layers_inside_a_streaming_stack_pass_the_stream_on() {
    let received: Arc<Mutex<Vec<usize>>> = Arc::default();
    let seen = received.clone();
    let client = service_fn(move |request: CreateChatCompletionRequest| {
        seen.lock().unwrap().push(request.messages.len());
        let text = json!({"role": "assistant", "content": "Hel"});
        let end = json!({"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"});
        let events = events(vec![json!({"index": 0, "delta": text}), end]);
        async move { Ok::<_, BoxError>(events) }
    });
    let store = MemoryStore::new();
    let codec = ChatTypes::new("m").keyed_by(|_| Some(ConversationKey::new("theirs", "c")));
    let mut theirs = ServiceBuilder::new()
        .layer(ExposeLayer::new(codec.clone().streamed()))
        .layer(PerRunPersistence::new(store.clone()))
        .layer(PerServiceCallPersistence::new(store))
        .layer(AdaptLayer::new(codec.streamed()))
        .service(client);
    for _turn in 0..2 {
        let events = theirs.ready().await.unwrap().call(typed_request("hi")).await.unwrap();
        let events: Vec<CreateChatCompletionStreamResponse> =
            events.map(Result::unwrap).collect().await;
        let choices = events.iter().flat_map(|event| &event.choices);
        let text: Vec<&str> =
            choices.clone().filter_map(|choice| choice.delta.content.as_deref()).collect();
        assert_eq!(text, ["", "Hel", "lo"]);
        assert_eq!(choices.filter(|choice| choice.finish_reason.is_some()).count(), 1);
        assert!(events.last().unwrap().usage.is_some());
    }
    assert_eq!(*received.lock().unwrap(), [1, 3]);
}

#[test]
fn the_async_openai_example_remembers_the_first_question() {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples");
    let example = built.join(format!("async_openai_stack{}", std::env::consts::EXE_SUFFIX));
    let output = std::process::Command::new(example).env_remove("OPENAI_API_KEY").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "Order 7 is on its way.\nYou asked: Where is order 7?\n");
}
