//! Tests the adapters for stacks with other types of requests and responses.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_core::future::BoxFuture;
use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore, MemoryStore,
    Message, PersistenceMode, Role, ToolCall, ToolDefinition, Tools,
    adapt::{AdaptLayer, ClientCodec, ExposeLayer, ServerCodec},
    error::SentinelAtClient,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    request::HistoryOwner,
    run::Run,
    tool_fn,
};

/// The request type of the wrapped client.
#[derive(Debug, Clone, PartialEq)]
struct Prompt {
    user: String,
    lines: Vec<String>,
    /// Whether the request is part of a run. Other request types could store the [`Run`] itself as
    /// an extension.
    has_run: bool,
}

struct Lines;

impl ClientCodec for Lines {
    type Request = Prompt;
    type Response = String;

    fn encode(&self, request: ChatRequest) -> Result<Prompt, BoxError> {
        let line = |message: &Message| match message.role {
            Role::Tool => message.results().map(|result| result.text()).collect(),
            _ => message.text(),
        };
        let lines: Vec<String> = request.messages().iter().map(|message| line(message)).collect();
        if lines.iter().any(|line| line == "unsayable") {
            return Err("their type cannot say it".into());
        }
        let has_run = request.extensions.get::<Run>().is_some();
        Ok(Prompt { user: String::new(), lines, has_run })
    }

    fn decode(&self, text: String) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        let message = match text.strip_prefix("call ") {
            Some(tool) => Message::tool_calls([ToolCall::new("c1", tool, "{}")]),
            None => Message::assistant(text),
        };
        Box::pin(std::future::ready(Ok(ChatResponse::whole([message], Finish::stop()))))
    }
}

impl ServerCodec for Lines {
    type Request = Prompt;
    type Response = String;

    fn decode(&self, prompt: Prompt) -> Result<ChatRequest, BoxError> {
        let line = prompt.lines.last().ok_or("an empty prompt")?;
        Ok(ChatRequest::user(line).in_conversation(ConversationKey::new("theirs", prompt.user)))
    }

    fn encode(&self, response: ChatResponse) -> BoxFuture<'static, Result<String, BoxError>> {
        Box::pin(async move { Ok(response.collect().await?.text()) })
    }
}

fn prompt(line: &str) -> Prompt {
    Prompt { user: "alice".to_owned(), lines: vec![line.to_owned()], has_run: false }
}

/// Returns the wrapped client. It records its requests, and calls a tool in its first answer.
fn client(
    asked: &Arc<Mutex<Vec<Prompt>>>,
) -> impl Service<Prompt, Response = String, Error = BoxError, Future: Send> + Clone + Send + 'static
{
    let asked = asked.clone();
    service_fn(move |prompt: Prompt| {
        let answer = match prompt.lines.last().map(String::as_str) {
            Some("looked") => "found it".to_owned(),
            _ => "call look".to_owned(),
        };
        asked.lock().unwrap().push(prompt);
        async move { Ok::<_, BoxError>(answer) }
    })
}

#[tokio::test]
async fn layers_between_foreign_layers_and_a_foreign_client_add_tools_and_a_history() {
    for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
        let asked: Arc<Mutex<Vec<Prompt>>> = Arc::default();
        let store = MemoryStore::new();
        let look = ToolDefinition::new("look", "Looks.", json!({"type": "object"}));
        let tools = Tools::new().with(tool_fn(look, |_| async { Ok("looked") }));
        let mut theirs = ServiceBuilder::new()
            .concurrency_limit(1)
            .layer(ExposeLayer::new(Lines))
            .layer(PerRunPersistence::new(store.clone()).mode(mode))
            .layer(ToolLoopLayer::new(tools))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .layer(AdaptLayer::new(Lines))
            .concurrency_limit(1)
            .service(client(&asked));
        for line in ["one", "two"] {
            let answer = theirs.ready().await.unwrap().call(prompt(line)).await.unwrap();
            assert_eq!(answer, "found it");
        }
        let last = asked.lock().unwrap().last().unwrap().clone();
        assert_eq!(last.lines, ["one", "", "looked", "found it", "two", "", "looked"], "{mode:?}");
        assert!(last.has_run, "the codec receives the extensions");
        let key = ConversationKey::new("theirs", "alice");
        assert_eq!(store.load(&key).await.unwrap().messages.len(), 8);
    }
}

#[tokio::test]
async fn the_sentinel_never_reaches_an_adapted_client() {
    let asked = Arc::default();
    let mut model = ServiceBuilder::new().layer(AdaptLayer::new(Lines)).service(client(&asked));
    let mut request = ChatRequest::user("hi");
    request.history_owner = Some(HistoryOwner::Local);
    let error = model.ready().await.unwrap().call(request).await.unwrap_err();
    assert!(error.is::<SentinelAtClient>());
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_request_that_cannot_be_converted_fails_before_any_service_is_called() {
    let asked: Arc<Mutex<Vec<Prompt>>> = Arc::default();
    let mut model = ServiceBuilder::new().layer(AdaptLayer::new(Lines)).service(client(&asked));
    let request = ChatRequest::user("unsayable");
    assert!(model.ready().await.unwrap().call(request).await.is_err());
    assert!(asked.lock().unwrap().is_empty());

    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let stack = service_fn(move |_: ChatRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err::<ChatResponse, BoxError>("never called".into()) }
    });
    let mut theirs = ServiceBuilder::new().layer(ExposeLayer::new(Lines)).service(stack);
    let empty = Prompt { lines: Vec::new(), ..prompt("x") };
    assert!(theirs.ready().await.unwrap().call(empty).await.is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn errors_of_an_adapted_client_are_returned_unchanged() {
    let theirs = service_fn(|_: Prompt| async { Err::<String, BoxError>("overloaded".into()) });
    let stack = ServiceBuilder::new().layer(AdaptLayer::new(Lines)).service(theirs);
    let mut theirs = ServiceBuilder::new().layer(ExposeLayer::new(Lines)).service(stack);
    let error = theirs.ready().await.unwrap().call(prompt("hi")).await.unwrap_err();
    assert_eq!(error.to_string(), "overloaded");
}
