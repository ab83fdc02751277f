//! Tests the behaviour of the endpoint that the tests with OpenAI's packages do not cover.

use std::{sync::Mutex, time::Duration};

use crate::support::{serve, sketch, stack};
use axum::{Router, body::Body, response::Response, routing};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::{ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore, Message, Part,
    PersistenceMode, ToolCall, ToolDefinition, Tools,
    error::{ContentRefused, ToolLoopError},
    message::{ContentKind, Reasoning},
    store::{Directory, Keep, Maintenance},
    tool_fn,
};
use tower_chat_http::{CONVERSATION_HEADER, ChatEndpoint, ErrorResponse, RequestLimits};
use tower_chat_providers::{OpenAiChat, ProviderError};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

/// An error of the model client: the service limits the rate of requests.
#[derive(Debug, thiserror::Error)]
#[error("slow down")]
struct Limited;

struct Fixture {
    model: ScriptedModel,
    store: MemoryStore,
    endpoint: ChatEndpoint,
}

impl Fixture {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let model = ScriptedModel::new(steps);
        let store = MemoryStore::new();
        let endpoint = ChatEndpoint::new(
            stack(model.clone(), store.clone(), PersistenceMode::PerServiceCall),
            store.clone(),
        );
        Self { model, store, endpoint: endpoint.in_one_scope("alice") }
    }

    async fn post(&self, body: Value) -> Response {
        post(&self.endpoint, body).await
    }

    async fn stored(&self, id: &str) -> Vec<Value> {
        let key = ConversationKey::new("alice", id);
        sketch(&self.store.load(&key).await.unwrap().messages)
    }
}

async fn post(endpoint: &ChatEndpoint, body: Value) -> Response {
    let request = Request::post("/v1/chat/completions").body(Body::from(body.to_string()));
    endpoint.clone().into_router().oneshot(request.unwrap()).await.unwrap()
}

fn ask(text: &str) -> Value {
    json!({"model": "m", "conversation": "c", "messages": [{"role": "user", "content": text}]})
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

async fn text_of(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.into()).unwrap()
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&text_of(response).await).unwrap()
}

/// Returns the data of all events of a stream.
async fn events_of(response: Response) -> Vec<String> {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = text_of(response).await;
    text.split_terminator("\n\n").map(|event| event["data: ".len()..].to_owned()).collect()
}

#[tokio::test]
async fn a_streamed_answer_has_the_content_of_a_whole_answer() {
    let script = || {
        let mut order = Message::assistant("One moment.");
        order.parts.push(Part::ToolCall(ToolCall::new("s1", "order_status", "{}")));
        let mut last = Message::new(tower_chat::Role::Assistant, Vec::new());
        last.parts.push(Part::Reasoning(Reasoning::new("Hm.")));
        last.parts.push(Part::text("Tell me the weather."));
        last.parts.push(Part::ToolCall(ToolCall::without_id("weather", "{}")));
        [Step::message(order), Step::message(last)]
    };
    let mut body = ask("Where is my order?");
    body["tools"] = json!([{"type": "function", "function": {"name": "weather"}}]);
    body["stream_options"] = json!({"include_usage": true});
    let whole = json_of(Fixture::new(script()).post(body.clone()).await).await;
    let whole = &whole["choices"][0];
    assert_eq!(whole["message"]["content"], "One moment.\n\nTell me the weather.");
    assert_eq!(whole["message"]["reasoning_content"], "Hm.");
    assert_eq!(whole["message"]["tool_calls"].as_array().unwrap().len(), 1, "{whole}");
    assert!(!whole["message"]["tool_calls"][0]["id"].as_str().unwrap().is_empty());
    assert_eq!(whole["finish_reason"], "tool_calls");

    for in_pieces in [true, false] {
        let steps = script().map(|step| if in_pieces { step.streamed() } else { step.whole() });
        let events = events_of(Fixture::new(steps).post(streamed(body.clone())).await).await;
        let (done, chunks) = events.split_last().unwrap();
        assert_eq!(done, "[DONE]");
        let chunks: Vec<Value> =
            chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
        let deltas: Vec<&Value> =
            chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
        let added_up = |field: &str| -> String {
            deltas.iter().filter_map(|delta| delta[field].as_str()).collect()
        };
        assert_eq!(added_up("content"), whole["message"]["content"].as_str().unwrap());
        assert_eq!(added_up("reasoning_content"), "Hm.");
        let calls: Vec<&Value> =
            deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            (&calls[0]["index"], &calls[0]["function"]["name"]),
            (&json!(0), &json!("weather"))
        );
        let reasons: Vec<&str> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str())
            .collect();
        assert_eq!(reasons, ["tool_calls"]);
        assert!(chunks.last().unwrap()["usage"].is_object(), "{chunks:?}");
    }
}

#[tokio::test]
async fn a_client_answers_a_call_without_an_id_under_the_id_that_the_endpoint_generated() {
    let call = Message::tool_calls([ToolCall::without_id("weather", "{}")]);
    let fixture = Fixture::new([Step::message(call), Step::text("It rains.")]);
    let mut body = ask("Weather?");
    body["tools"] = json!([{"type": "function", "function": {"name": "weather"}}]);
    let answer = json_of(fixture.post(body.clone()).await).await;
    let message = &answer["choices"][0]["message"];
    let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"],
        "content": "rain"});
    body["messages"] = json!([body["messages"][0], message, result]);
    let answer = json_of(fixture.post(body).await).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "It rains.");
    assert_eq!(fixture.stored("c").await.len(), 4);
}

#[tokio::test]
async fn calls_that_wait_for_approval_are_listed_separately_from_the_calls_of_the_client() {
    let pay = ToolDefinition::new("pay", "Pays.", json!({"type": "object"})).needs_approval();
    let tools = Tools::new().with(tool_fn(pay, |_| async { Ok("paid") }));
    let call = Message::tool_calls([ToolCall::new("p1", "pay", r#"{"sum": 5}"#)]);
    let store = MemoryStore::new();
    let stack = ChatPipeline::builder(ScriptedModel::new([Step::message(call)])).tools(tools);
    let stack = stack.history(store.clone()).build().unwrap();
    let endpoint = ChatEndpoint::new(stack, store).in_one_scope("alice");
    let answer = json_of(post(&endpoint, ask("Pay.")).await).await;
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["tool_calls"]),
        (&json!("stop"), &json!(null))
    );
    let waiting = &choice["approval_requests"][0];
    assert_eq!((&waiting["name"], &waiting["arguments"]), (&json!("pay"), &json!(r#"{"sum": 5}"#)));
}

#[tokio::test]
async fn a_request_without_a_conversation_creates_one_and_receives_its_id() {
    let fixture = Fixture::new([Step::text("1"), Step::text("2")]);
    let mut body = ask("one");
    body.as_object_mut().unwrap().remove("conversation");
    let response = fixture.post(body).await;
    let id = response.headers()[CONVERSATION_HEADER].to_str().unwrap().to_owned();
    let mut body = ask("two");
    body["conversation"] = json!(id);
    assert_eq!(fixture.post(body).await.status(), StatusCode::OK);
    assert_eq!(fixture.stored(&id).await.len(), 4);
}

#[tokio::test]
async fn a_request_without_a_scope_is_refused_and_does_not_reach_the_model() {
    let store = MemoryStore::new();
    let model = ScriptedModel::new([]);
    let endpoint = ChatEndpoint::new(
        stack(model.clone(), store.clone(), PersistenceMode::PerServiceCall),
        store,
    );
    let response = post(&endpoint, ask("hi")).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn an_invalid_body_is_a_bad_request_and_does_not_reach_the_model() {
    let fixture = Fixture::new([]);
    let message = json!([{"role": "user", "content": "hi"}]);
    for body in [
        json!([]),
        json!({"messages": "hi"}),
        json!({"messages": [{"role": "nobody", "content": "hi"}]}),
        json!({"messages": message, "conversation": 7}),
        json!({"messages": message, "n": 2}),
        json!({"messages": []}),
    ] {
        let response = fixture.post(body.clone()).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
        let answer = json_of(response).await;
        assert_eq!(answer["error"]["type"], "invalid_request_error", "{answer}");
        assert!(answer["error"]["message"].is_string());
    }
    assert!(fixture.model.requests().is_empty());
}

#[tokio::test]
async fn the_host_maps_an_error_of_the_model_client_to_a_response() {
    let limited = || [Step::error(Limited)];
    let response = Fixture::new(limited()).post(ask("hi")).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(!text_of(response).await.contains("slow down"), "details stay inside");
    for is_streamed in [false, true] {
        let fixture = Fixture::new(limited());
        let endpoint = fixture.endpoint.clone().with_upstream(|error| {
            let error = error.downcast_ref::<Limited>()?;
            let refusal = ErrorResponse::upstream(429, error.to_string());
            Some(refusal.with_retry_after(Duration::from_millis(1_500)))
        });
        let body = if is_streamed { streamed(ask("hi")) } else { ask("hi") };
        let response = post(&endpoint, body).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "2");
        let answer = json_of(response).await;
        assert_eq!(answer["error"]["message"], "slow down");
        assert_eq!(answer["error"]["type"], "rate_limit_error");
        let stored = fixture.stored("c").await;
        assert_eq!(stored.len(), 1, "the question: {stored:?}");
        fixture.model.push(Step::text("Hello."));
        let response = post(&endpoint, ask("hi")).await;
        assert_eq!(response.status(), StatusCode::OK, "a client that sends it again is answered");
        assert_eq!(fixture.stored("c").await.len(), 2);
    }
}

#[tokio::test]
async fn the_host_maps_a_refusal_of_content_to_a_response() {
    #[derive(Debug, thiserror::Error)]
    #[error("unreadable")]
    struct Unreadable(#[source] ContentRefused);
    let refused = || ContentRefused::by("openai").naming(ContentKind::Text);
    let fixture = Fixture::new([Step::error(Unreadable(refused()))]);
    let endpoint = fixture.endpoint.clone().with_upstream(|error| {
        let error = error.downcast_ref::<Unreadable>()?;
        Some(ErrorResponse::upstream(400, error.to_string()))
    });
    let response = post(&endpoint, ask("hi")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(json_of(response).await["error"]["message"], "unreadable");
}

#[tokio::test]
async fn errors_of_missing_results_and_changed_arguments_have_a_client_error_status() {
    let missing = || ToolLoopError::ResultsMissing { calls: Vec::new(), conversation: None };
    let changed = || ToolLoopError::ArgumentsNotKept { calls: Vec::new(), conversation: None };
    let cases: [(&dyn Fn() -> ToolLoopError, _, _); 2] = [
        (&missing, StatusCode::BAD_REQUEST, Value::Null),
        (&changed, StatusCode::UNPROCESSABLE_ENTITY, json!("arguments_not_kept")),
    ];
    for (error, status, code) in cases {
        let response = Fixture::new([Step::error(error())]).post(ask("hi")).await;
        assert_eq!(response.status(), status);
        let answer = json_of(response).await;
        assert_eq!(answer["error"]["code"], code);
        assert_eq!(answer["error"]["message"], error().to_string());
    }
}

#[tokio::test]
async fn a_rate_limit_of_openai_is_sent_to_the_client_with_the_time_to_wait() {
    let limit = || async {
        let body = r#"{"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}"#;
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")], body)
    };
    let upstream = Router::new().route("/v1/chat/completions", routing::post(limit));
    let upstream = crate::support::listen(upstream).await;
    let model = OpenAiChat::compatible(&format!("{upstream}/v1")).unwrap();
    let store = MemoryStore::new();
    let stack = ChatPipeline::builder(model).history(store.clone()).build().unwrap();
    let endpoint = ChatEndpoint::new(stack, store).in_one_scope("alice").with_upstream(|error| {
        let error = error.downcast_ref::<ProviderError>()?;
        let refusal = ErrorResponse::upstream(error.status()?, error.to_string());
        Some(refusal.with_retry_after(error.retry_after()?).with_code(error.code()?))
    });
    let response = post(&endpoint, ask("hi")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(json_of(response).await["error"]["code"], "rate_limit_exceeded");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_an_error_in_the_form_of_openai() {
    let fixture = Fixture::new([]);
    let response = fixture.post(ask(&"x".repeat(3 << 20))).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let error = json_of(response).await;
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert_eq!(error["error"]["code"], "limit_exceeded");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("2097152") && message.contains("max_body_bytes"), "{message}");
}

#[tokio::test]
async fn a_body_that_is_nested_too_deeply_is_refused_with_an_error_in_the_form_of_openai() {
    let fixture = Fixture::new([]);
    let mut body = ask("hi");
    body["metadata"] = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let response = fixture.post(body).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let error = json_of(response).await;
    assert_eq!(error["error"]["code"], "limit_exceeded");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("120") && message.contains("max_depth"), "{message}");
}

#[tokio::test]
async fn an_error_in_a_stream_is_sent_as_the_last_event() {
    for step in [
        Step::text("It rains in").streamed().fails_after(1, Limited),
        Step::text("It rains in").streamed().cut_off_after(1),
    ] {
        let events = events_of(Fixture::new([step]).post(streamed(ask("hi"))).await).await;
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        assert_eq!(last["error"]["code"], "upstream_error", "{events:?}");
        assert!(!events.iter().any(|event| event == "[DONE]"));
    }
}

#[tokio::test]
async fn a_request_during_a_run_of_the_conversation_is_a_conflict_that_may_be_retried() {
    let gate = Gate::closed();
    let steps = [Step::text("1").waits(&gate), Step::text("2")];
    let fixture = Fixture::new(steps);
    let endpoint = fixture.endpoint.clone();
    let first = tokio::spawn(async move { post(&endpoint, ask("one")).await });
    fixture.model.called(1).await;
    let refused = fixture.post(ask("two")).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert!(refused.headers().get("x-should-retry").is_none());
    assert_eq!(json_of(refused).await["error"]["code"], "conversation_conflict");
    gate.open();
    assert_eq!(first.await.unwrap().status(), StatusCode::OK);
    assert_eq!(fixture.post(ask("two")).await.status(), StatusCode::OK);
    assert_eq!(fixture.stored("c").await.len(), 4);
}

#[tokio::test]
async fn a_repeated_request_continues_the_run_that_failed_after_a_tool_call() {
    let order = Message::tool_calls([ToolCall::new("s1", "order_status", "{}")]);
    let fixture = Fixture::new([Step::message(order), Step::error(Limited), Step::text("Here.")]);
    assert_eq!(fixture.post(ask("Order?")).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(fixture.stored("c").await.len(), 3, "the tool has run");
    let answer = json_of(fixture.post(ask("Order?")).await).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Here.");
    let roles: Vec<Value> =
        fixture.stored("c").await.iter().map(|message| message[0].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[tokio::test]
async fn extensions_of_the_http_request_are_passed_to_the_stack() {
    #[derive(Clone)]
    struct Tenant(&'static str);

    let fixture = Fixture::new([Step::text("1")]);
    let request = Request::post("/v1/chat/completions").extension(Tenant("t7"));
    let request = request.body(Body::from(ask("hi").to_string())).unwrap();
    let response = fixture.endpoint.clone().into_router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let asked = fixture.model.requests();
    assert_eq!(asked[0].extensions.get::<Tenant>().unwrap().0, "t7");
}

#[tokio::test]
async fn a_run_is_dropped_when_its_client_disconnects() {
    for body in [ask("hi"), streamed(ask("hi"))] {
        let (dropped, was_dropped) = oneshot::channel::<()>();
        let (called, was_called) = oneshot::channel::<()>();
        let guards = std::sync::Arc::new(Mutex::new(Some((called, dropped))));
        let model = service_fn(move |_: ChatRequest| {
            let guards = guards.lock().unwrap().take();
            async move {
                let (called, _dropped) = guards.unwrap();
                called.send(()).unwrap();
                std::future::pending::<()>().await;
                Err::<_, BoxError>("never".into())
            }
        });
        let store = MemoryStore::new();
        let stack = ChatPipeline::builder(model).history(store.clone()).build().unwrap();
        let endpoint = ChatEndpoint::new(stack, store).in_one_scope("alice");
        let address = crate::support::listen(endpoint.into_router()).await;
        let client = reqwest::Client::new();
        let request = client.post(format!("{address}/v1/chat/completions")).body(body.to_string());
        let request = tokio::spawn(request.send());
        was_called.await.unwrap();
        request.abort();
        // The sender is dropped with the future of the model client.
        assert!(was_dropped.await.is_err());
    }
}

#[tokio::test]
async fn a_response_of_a_served_endpoint_names_the_conversation_in_a_header() {
    let served = serve([Step::text("1")], MemoryStore::new(), PersistenceMode::PerRun).await;
    let client = reqwest::Client::new();
    let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "hi"}]});
    let request = client.post(served.url("/v1/chat/completions")).body(body.to_string());
    let request = request.header(CONVERSATION_HEADER, "mine");
    let response = request.bearer_auth("key-of-alice").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()[CONVERSATION_HEADER], "mine");
    assert_eq!(served.model.remaining(), 0);
}

/// Sends a completion request with these headers.
async fn post_with(endpoint: &ChatEndpoint, headers: &[(&str, &str)], body: &Value) -> Response {
    let mut request = Request::post("/v1/chat/completions");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_string())).unwrap();
    endpoint.clone().into_router().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_header_that_is_sent_twice_is_refused_and_nothing_is_stored() {
    const RETRIES: &str = "x-stainless-retry-count";
    let name = CONVERSATION_HEADER;
    for (headers, refused) in [
        (vec![(name, "first"), (name, "second")], name),
        (vec![(name, "same"), (name, "same")], name),
        (vec![(name, ""), (name, "behind an empty one")], name),
        (vec![(name, "c"), (RETRIES, "0"), (RETRIES, "1")], RETRIES),
    ] {
        for is_streamed in [false, true] {
            let fixture = Fixture::new([Step::text("never asked for")]);
            let mut body = ask("Which one?");
            body.as_object_mut().unwrap().remove("conversation");
            let body = if is_streamed { streamed(body) } else { body };
            let response = post_with(&fixture.endpoint, &headers, &body).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{headers:?}");
            let error = json_of(response).await;
            assert_eq!(error["error"]["code"], "repeated_header", "{error}");
            assert!(error["error"]["message"].as_str().unwrap().contains(refused), "{error}");
            assert_eq!(fixture.model.requests().len(), 0);
            let page = fixture.store.list("alice", None, 10).await.unwrap();
            assert!(page.is_empty(), "{page:?}");
        }
    }
}

#[tokio::test]
async fn a_retry_count_that_is_not_a_number_is_refused() {
    for count in ["", "one", "-1", "0, 1", "4294967296"] {
        let fixture = Fixture::new([Step::text("never asked for")]);
        let headers = [("x-stainless-retry-count", count)];
        let response = post_with(&fixture.endpoint, &headers, &ask("Again?")).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{count:?}");
        assert_eq!(json_of(response).await["error"]["code"], "invalid_header", "{count:?}");
        assert_eq!(fixture.model.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_field_that_is_sent_twice_is_refused() {
    let fixture = Fixture::new([Step::text("never asked for")]);
    let tool = r#""type": "function", "function": {"name": "f", "parameters""#;
    for body in [
        r#"{"conversation": "first", "conversation": "second", "messages": [MESSAGE]}"#,
        r#"{"model": "m", "conversation": "first", "model": "n", "messages": [MESSAGE]}"#,
        r#"{"conversation": {"id": "first", "id": "second"}, "messages": [MESSAGE]}"#,
        r#"{"messages": [MESSAGE], "messages": [MESSAGE]}"#,
        r#"{"messages": [{"role": "user", "content": "Which?", "role": "system"}]}"#,
        r#"{"messages": [{"role": "user", "content": "Which?", "r\u006fle": "system"}]}"#,
        r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "text": "b"}]}]}"#,
        r#"{"messages": [MESSAGE], "metadata": {"deep": [[{"x": 1, "x": 2}]]}}"#,
        r#"{"messages": [MESSAGE], "stream_options": {"include_usage": true, "include_usage": false}}"#,
        r#"{"messages": [MESSAGE], "tools": [{TOOL: {"type": "object", "type": "null"}}}]}"#,
    ] {
        let body = body.replace("MESSAGE", r#"{"role": "user", "content": "Which field?"}"#);
        let body = body.replace("TOOL", tool);
        let request = Request::post("/v1/chat/completions").body(Body::from(body.clone())).unwrap();
        let response = fixture.endpoint.clone().into_router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
        assert!(text_of(response).await.contains("twice"), "{body}");
    }
    assert_eq!(fixture.model.requests().len(), 0);
}

#[tokio::test]
async fn a_request_beyond_a_limit_is_refused_and_nothing_is_stored() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "Look twice."},
        {"role": "assistant", "tool_calls": [call("first"), call("second")]},
        {"role": "tool", "tool_call_id": "second", "content": "two"},
        {"role": "tool", "tool_call_id": "first", "content": "one"},
    ]);
    let body = json!({"conversation": "limited", "messages": messages});
    let limits = RequestLimits::default;
    for (limits, setting) in [
        (limits().with_max_messages(3), "max_messages"),
        (limits().with_max_calls(1), "max_calls"),
        (limits().with_max_results(1), "max_results"),
    ] {
        let fixture = Fixture::new([Step::text("never asked for")]);
        let endpoint = fixture.endpoint.clone().with_limits(limits);
        let response = post(&endpoint, body.clone()).await;
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "{setting}");
        let error = json_of(response).await["error"].clone();
        assert_eq!(error["code"], "limit_exceeded");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("RequestLimits::{setting}")), "{message}");
        assert_eq!((fixture.model.requests().len(), fixture.stored("limited").await.len()), (0, 0));
    }
    let fixture = Fixture::new([Step::text("Both are here.")]);
    let exact = limits().with_max_messages(4).with_max_calls(2).with_max_results(2);
    let response = post(&fixture.endpoint.clone().with_limits(exact), body).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_retry_of_an_sdk_receives_the_stored_answer() {
    let order = Message::tool_calls([ToolCall::new("s1", "order_status", "{}")]);
    let fixture = Fixture::new([Step::message(order), Step::text("Here.")]);
    let first = json_of(fixture.post(ask("Order?")).await).await;
    for body in [ask("Order?"), streamed(ask("Order?"))] {
        let request = Request::post("/v1/chat/completions").header("x-stainless-retry-count", "1");
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = fixture.endpoint.clone().into_router().oneshot(request).await.unwrap();
        if body["stream"] == true {
            let events = events_of(response).await;
            assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
            assert!(events.iter().any(|event| event.contains("Here.")), "{events:?}");
        } else {
            let again = json_of(response).await;
            assert_eq!((&again["id"], &again["choices"]), (&first["id"], &first["choices"]));
        }
    }
    assert_eq!(fixture.model.requests().len(), 2);
    assert_eq!(fixture.stored("c").await.len(), 4);
}

#[tokio::test]
async fn a_client_may_add_an_answer_with_the_text_of_a_stored_answer() {
    let fixture = Fixture::new([Step::text("fine"), Step::text("still fine")]);
    fixture.post(ask("How are you?")).await;
    let mut body = ask("");
    body["messages"] = json!([
        {"role": "user", "content": "How are you?"},
        {"role": "assistant", "content": "fine"},
        {"role": "user", "content": "And the others?"},
        {"role": "assistant", "content": "fine"},
        {"role": "user", "content": "Really?"},
    ]);
    let response = fixture.post(body).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(fixture.stored("c").await.len(), 6);
}

#[tokio::test]
async fn a_transcript_that_begins_with_pruned_messages_is_recognised_by_its_end() {
    let fixture = Fixture::new(["a1", "a2", "a3", "a4"].map(Step::text));
    let body =
        |messages: &[Value]| json!({"model": "m", "conversation": "c", "messages": messages});
    let mut sent = Vec::new();
    for turn in 1..=3 {
        sent.push(json!({"role": "user", "content": format!("q{turn}")}));
        assert_eq!(fixture.post(body(&sent)).await.status(), StatusCode::OK);
        sent.push(json!({"role": "assistant", "content": format!("a{turn}")}));
    }
    let key = ConversationKey::new("alice", "c");
    assert_eq!(fixture.store.prune(&key, Keep::Messages(4)).await.unwrap().messages, 2);
    sent.push(json!({"role": "user", "content": "q4"}));
    let mut edited = sent.clone();
    edited[3]["content"] = json!("edited");
    let refused = fixture.post(body(&edited)).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(json_of(refused).await["error"]["code"], "conversation_diverged");
    let answered = json_of(fixture.post(body(&sent)).await).await;
    assert_eq!(answered["choices"][0]["message"]["content"], "a4");
    let texts = |messages: &tower_chat::message::Messages| -> Vec<String> {
        messages.iter().map(|message| message.text()).collect()
    };
    let all = ["q2", "a2", "q3", "a3", "q4", "a4"];
    assert_eq!(texts(&fixture.store.load(&key).await.unwrap().messages), all);
    let requests = fixture.model.requests();
    assert_eq!(requests.len(), 4);
    assert_eq!(texts(requests[3].messages()), all[..5]);
}
