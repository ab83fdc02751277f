//! Tests of layers in the middle of a stack whose requests and responses have JSON bodies.

use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ConversationKey, Finish, HistoryStore,
    MemoryStore, Message, PersistenceMode, Role, ToolCall, ToolDefinition, Tools,
    adapt::{AdaptLayer, ExposeLayer},
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    store::Journal,
    tool_fn,
};
use tower_chat_wire::{
    body::{BodyError, BodyWire},
    codec::{JsonClient, JsonServer, JsonTypes, RefusedAnswer},
};

const WIRES: [BodyWire; 4] =
    [BodyWire::OpenAiChat, BodyWire::OpenAiResponses, BodyWire::Anthropic, BodyWire::Gemini];

type ReceivedRequests = Arc<Mutex<Vec<Request<Value>>>>;

/// An extension that the application adds to its requests.
#[derive(Debug, Clone, PartialEq)]
struct Trace(u8);

/// Returns a client of the application, which records its requests. Its model calls a tool until
/// the request contains a result.
fn client(
    wire: BodyWire,
    received: &ReceivedRequests,
) -> impl Service<Request<Value>, Response = Response<Value>, Error = BoxError, Future: Send>
+ Clone
+ Send
+ 'static {
    let received = received.clone();
    service_fn(move |request: Request<Value>| {
        let read = wire.parse_request(request.body().clone()).unwrap();
        let message = match read.messages().last().unwrap().role {
            Role::Tool => Message::assistant("found it"),
            _ => Message::tool_calls([ToolCall::new("call_1", "look", "{}")]),
        };
        received.lock().unwrap().push(request);
        let answer = wire.render_answer(&message, &Finish::stop());
        async move { Ok(Response::new(answer)) }
    })
}

fn question(wire: BodyWire, text: &str) -> Request<Value> {
    let mut request = ChatRequest::user(text);
    Arc::make_mut(&mut request.options).temperature = Some(0.5);
    let mut body = wire.render_request(&request).unwrap();
    body["unknown"] = json!({"kept": [1, 2]});
    let mut request = Request::new(body);
    request.extensions_mut().insert(Trace(7));
    request
}

#[tokio::test]
async fn layers_alone_add_tools_and_a_history_to_a_client_of_any_wire() {
    for wire in WIRES {
        let received = ReceivedRequests::default();
        let store = MemoryStore::new();
        let key = ConversationKey::new("theirs", "c");
        let look = ToolDefinition::new("look", "Looks.", json!({"type": "object"}));
        let tools = Tools::new().with(tool_fn(look, |_| async { Ok("looked") }));
        let keyed = key.clone();
        let server = JsonServer::new(wire).keyed_by(move |_| Some(keyed.clone()));
        let persistence = PerRunPersistence::new(store.clone());
        let mut theirs = ServiceBuilder::new()
            .layer(ExposeLayer::new(server))
            .layer(persistence.mode(PersistenceMode::PerServiceCall))
            .layer(ToolLoopLayer::new(tools))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .layer(AdaptLayer::new(JsonClient::new(wire, "http://localhost/chat")))
            .service(client(wire, &received));
        for text in ["one", "two"] {
            let answer = theirs.ready().await.unwrap().call(question(wire, text)).await.unwrap();
            let whole = answer.extensions().get::<Answer>().unwrap();
            assert_eq!((whole.messages.len(), whole.text().as_str()), (3, "found it"), "{wire:?}");
            let answer = wire.parse_answer(&answer.into_body().to_string()).unwrap();
            assert_eq!((answer.messages.len(), answer.text().as_str()), (1, "found it"));
            assert_eq!(answer.tool_calls().count(), 0, "{wire:?}");
        }
        assert_eq!(store.load(&key).await.unwrap().messages.len(), 8, "{wire:?}");

        let received = received.lock().unwrap();
        let last = received.last().unwrap();
        assert_eq!(last.extensions().get::<Trace>(), Some(&Trace(7)), "{wire:?}");
        assert_eq!((last.method().as_str(), last.uri().path()), ("POST", "/chat"));
        assert_eq!(last.body()["unknown"], json!({"kept": [1, 2]}), "{wire:?}");
        let read = wire.parse_request(last.body().clone()).unwrap();
        assert_eq!(read.options.temperature, Some(0.5), "{wire:?}");
        assert_eq!(read.options.tools.len(), 1, "{wire:?}");
        let roles: Vec<Role> = read.messages().iter().map(|message| message.role).collect();
        let turn = [Role::User, Role::Assistant, Role::Tool];
        assert_eq!(roles, [&turn[..], &[Role::Assistant], &turn].concat(), "{wire:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_an_error_with_the_status_and_retry_time_of_the_response() {
    let theirs = service_fn(|_: Request<Value>| async {
        let response = Response::builder().status(429).header("retry-after", "3");
        Ok::<_, BoxError>(response.body(json!({"error": "slow down"})).unwrap())
    });
    let codec = JsonClient::new(BodyWire::OpenAiChat, "/v1/chat/completions");
    let model = ServiceBuilder::new().layer(AdaptLayer::new(codec)).service(theirs);
    let error = model.oneshot(ChatRequest::user("hi")).await.unwrap_err();
    let error = error.downcast_ref::<RefusedAnswer>().unwrap();
    assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((error.retry_after.unwrap().as_secs(), error.is_retryable()), (3, true));
}

#[tokio::test]
async fn the_model_of_a_request_is_inserted_into_the_address() {
    let theirs = service_fn(|request: Request<Value>| async move {
        let part = json!({"text": request.uri().path()});
        let content = json!({"role": "model", "parts": [part]});
        Ok::<_, BoxError>(Response::new(json!({"candidates": [{"content": content}]})))
    });
    let codec = JsonClient::new(BodyWire::Gemini, "/v1/models/{model}:generateContent");
    let model = ServiceBuilder::new().layer(AdaptLayer::new(codec)).service(theirs);
    let mut request = ChatRequest::user("hi");
    let error = model.clone().oneshot(request.clone()).await.unwrap_err();
    assert!(error.is::<BodyError>(), "{error}");
    Arc::make_mut(&mut request.options).model = Some("flash".to_owned());
    let answer = model.oneshot(request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.text(), "/v1/models/flash:generateContent");
}

#[tokio::test]
async fn a_client_that_cannot_stream_is_not_asked_for_a_stream() {
    let received = ReceivedRequests::default();
    let codec = JsonClient::new(BodyWire::OpenAiChat, "/");
    let client = client(BodyWire::OpenAiChat, &received);
    let model = ServiceBuilder::new().layer(AdaptLayer::new(codec)).service(client);
    let response = model.oneshot(ChatRequest::user("hi").streamed()).await.unwrap();
    assert_eq!(response.collect().await.unwrap().tool_calls().count(), 1);
    assert_eq!(received.lock().unwrap()[0].body().get("stream"), None);
}

/// The application's own request type: a list of messages, and the extensions in a field that serde
/// skips.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
struct Chat {
    messages: Vec<Value>,
    #[serde(skip)]
    extensions: http::Extensions,
}

/// Returns the application's own tool loop with this request type. The loop sends the whole list of
/// messages in each request.
fn own_loop(
    below: impl Service<Chat, Response = Value, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static,
) -> impl Service<Chat, Response = Value, Error = BoxError, Future: Send> + Clone + Send + Sync + 'static
{
    service_fn(move |chat: Chat| {
        let below = below.clone();
        async move {
            let mut list = chat.messages;
            loop {
                let (messages, extensions) = (list.clone(), chat.extensions.clone());
                let reply = below.clone().oneshot(Chat { messages, extensions }).await?;
                let message = reply["choices"][0]["message"].clone();
                let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
                if calls.is_empty() {
                    return Ok::<_, BoxError>(reply);
                }
                list.push(message);
                list.extend(calls.iter().map(
                    |call| json!({"role": "tool", "tool_call_id": call["id"], "content": "seen"}),
                ));
            }
        }
    })
}

#[tokio::test]
async fn a_client_with_its_own_types_passes_the_run_on_in_every_mode() {
    for mode in
        [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
    {
        let client = service_fn(|chat: Chat| async move {
            let is_told = chat.messages.last().is_some_and(|last| last["role"] == "tool");
            let function = json!({"name": "look", "arguments": "{}"});
            let call = json!({"id": "call_1", "type": "function", "function": function});
            let message = match is_told {
                true => json!({"role": "assistant", "content": chat.messages.len().to_string()}),
                false => json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            };
            Ok::<_, BoxError>(json!({"choices": [{"index": 0, "message": message}]}))
        });
        let types: JsonTypes<Chat, Value> =
            JsonTypes::new(BodyWire::OpenAiChat).carrying(|chat: &mut Chat| &mut chat.extensions);
        let store = MemoryStore::new();
        let below = ServiceBuilder::new()
            .layer(ExposeLayer::new(types.clone()))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .layer(AdaptLayer::new(types.clone()))
            .service(client);
        let looping = ServiceBuilder::new().layer(AdaptLayer::new(types)).service(own_loop(below));
        let mut agent = ChatPipeline::builder(looping)
            .use_client_as_is(true)
            .history(store.clone())
            .persistence(mode)
            .build()
            .unwrap();
        let key = ConversationKey::new("alice", "chat");
        for expected in ["3", "7"] {
            let request = ChatRequest::user("look").in_conversation(key.clone());
            let answer = agent.ready().await.unwrap().call(request).await.unwrap();
            assert_eq!(answer.collect().await.unwrap().text(), expected, "{mode:?}");
        }
        let stored = store.load(&key).await.unwrap().messages;
        let roles: Vec<Role> = stored.iter().map(|message| message.role).collect();
        let turn = [Role::User, Role::Assistant, Role::Tool, Role::Assistant];
        assert_eq!(roles, turn.repeat(2), "{mode:?}");
        assert!(store.open_run(&key).await.unwrap().is_none(), "{mode:?}");
    }
}
