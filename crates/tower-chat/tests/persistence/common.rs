//! Stacks, requests and short names for what they store.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    PerRunPersistence, PerServiceCallPersistence, PersistenceError, PersistenceMode,
    PersistencePolicy, ToolLoop, Tools,
    core::{
        Answer, BoxError, ChatRequest, ChatResponse, ConversationKey, Finish, MemoryStore, Message,
        Part, ToolCall, ToolDefinition, Usage,
        store::{HistoryStore, StoreError},
    },
    tool::{ToolOutput, tool_fn},
};
use tower_chat_testkit::{FaultyStore, Gate, ScriptedLeaf, Step};

pub(crate) use tower_chat::PersistenceMode::{PerRun, PerServiceCall};

pub(crate) const BOTH_MODES: [PersistenceMode; 2] = [PerRun, PerServiceCall];
/// Whole and streamed.
pub(crate) const BOTH_WAYS: [bool; 2] = [false, true];

pub(crate) type Store = FaultyStore<MemoryStore>;
pub(crate) type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// What the model is told of a call whose run was interrupted.
pub(crate) const INTERRUPTED: &str =
    "The call was interrupted. It may or may not have taken effect; its result is unknown.";

pub(crate) fn store() -> Store {
    FaultyStore::new(MemoryStore::new()).shared_by_processes()
}

pub(crate) fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

pub(crate) fn policy() -> PersistencePolicy {
    PersistencePolicy::default()
}

pub(crate) fn disk_full() -> StoreError {
    StoreError::backend("write", true, "disk full")
}

/// A request of a run of its own.
pub(crate) fn ask(text: &str, streamed: bool) -> ChatRequest {
    ask_with([Message::user(text)], streamed)
}

pub(crate) fn ask_with<const N: usize>(messages: [Message; N], streamed: bool) -> ChatRequest {
    let request = ChatRequest::new(messages).in_conversation(key());
    if streamed { request.streamed() } else { request }
}

pub(crate) fn boxed<S>(service: S) -> Client
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    BoxCloneSyncService::new(service.map_err(Into::into))
}

/// The stack of the design: run, tool loop, service call, client.
pub(crate) fn stack<S>(
    client: S,
    store: &Store,
    mode: PersistenceMode,
    policy: PersistencePolicy,
    tools: Tools,
) -> Client
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    let below = PerServiceCallPersistence::new(store.clone()).layer(client);
    let above = PerRunPersistence::new(store.clone()).mode(mode).policy(policy);
    boxed(above.layer(ToolLoop::new(tools).layer(below)))
}

/// The same with default policy, and the tools that these tests use.
pub(crate) fn agent(leaf: &ScriptedLeaf, store: &Store, mode: PersistenceMode) -> Client {
    stack(leaf.clone(), store, mode, policy(), tools(&Ran::default()))
}

pub(crate) async fn head(client: &Client, request: ChatRequest) -> Result<ChatResponse, BoxError> {
    client.clone().ready().await?.call(request).await
}

pub(crate) async fn send(client: &Client, request: ChatRequest) -> Result<Answer, BoxError> {
    head(client, request).await?.collect().await
}

/// The persistence error that a call failed with.
pub(crate) fn refused(result: Result<Answer, BoxError>) -> PersistenceError {
    let error = result.expect_err("the call is refused");
    match error.downcast::<PersistenceError>() {
        Ok(error) => *error,
        Err(error) => panic!("not a persistence error: {error:?}"),
    }
}

/// The names of the calls that tools were run for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran(Arc<Mutex<Vec<String>>>);

impl Ran {
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn note(&self, name: &str) {
        self.0.lock().unwrap().push(name.to_owned());
    }
}

pub(crate) fn definition(name: &str) -> ToolDefinition {
    ToolDefinition::new(name, name, json!({"type": "object"}))
}

/// `look` answers, `stop` answers and ends the run, `pay` needs consent, `ask` is run by nobody
/// here, `fail` fails.
pub(crate) fn tools(ran: &Ran) -> Tools {
    let run = |name: &'static str, ran: Ran| {
        move |_| {
            ran.note(name);
            async move { Ok(ToolOutput::from(format!("{name}ed"))) }
        }
    };
    let stop = ran.clone();
    Tools::new()
        .with(tool_fn(definition("look"), run("look", ran.clone())))
        .with(tool_fn(definition("pay").needs_approval(), run("pay", ran.clone())))
        .with(tool_fn(definition("stop"), move |_| {
            stop.note("stop");
            async { Ok(ToolOutput::from("stopped").terminate()) }
        }))
        .with(tool_fn(definition("fail"), |_| async { Err::<ToolOutput, _>("broken".into()) }))
        .declare(definition("ask"))
}

/// The same, with a `wait` that comes to a gate and waits there.
pub(crate) fn tools_with_gate(ran: &Ran, gate: &Gate) -> Tools {
    let gate = gate.clone();
    tools(ran).with(tool_fn(definition("wait"), move |_| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok(ToolOutput::from("waited"))
        }
    }))
}

/// A step that calls tools: `(name, id)` each.
pub(crate) fn calls<const N: usize>(calls: [(&str, &str); N]) -> Step {
    Step::message(call_message(calls))
}

pub(crate) fn call_message<const N: usize>(calls: [(&str, &str); N]) -> Message {
    Message::tool_calls(calls.map(|(name, id)| ToolCall::new(id, name, "{}")))
}

/// A text that cost something.
pub(crate) fn costly(text: &str, input: u64, output: u64) -> Step {
    Step::answer([Message::assistant(text)], Finish::stop().with_usage(Usage::new(input, output)))
}

/// A text from a service that keeps the history under an id.
pub(crate) fn kept(text: &str, id: &str) -> Step {
    Step::answer([Message::assistant(text)], Finish::stop().with_service_id(id))
}

/// A call of `look` from a service that keeps the history under an id.
pub(crate) fn kept_call(id: &str) -> Step {
    Step::answer([call_message([("look", "c1")])], Finish::stop().with_service_id(id))
}

/// A message in short: `user hi`, `assistant look#c1`, `tool c1=looked`.
pub(crate) fn short(message: &Message) -> String {
    let role = format!("{:?}", message.role).to_lowercase();
    let parts = message.parts.iter().map(|part| match part {
        Part::Text(text) => text.text.clone(),
        Part::ToolCall(call) => format!("{}#{}", call.name, call.id.as_deref().unwrap_or("-")),
        Part::ToolResult(result) => {
            let mark = if result.is_error { "!" } else { "=" };
            format!("{}{mark}{}", result.call_id.as_deref().unwrap_or("-"), result.text())
        }
        Part::ApprovalRequest(request) => {
            format!("{}#{}?", request.call.name, request.call.id.as_deref().unwrap_or("-"))
        }
        Part::ApprovalResponse(response) if response.approved => "yes".to_owned(),
        Part::ApprovalResponse(_) => "no".to_owned(),
        other => format!("{other:?}"),
    });
    std::iter::once(role).chain(parts).collect::<Vec<_>>().join(" ")
}

pub(crate) fn shorts<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Vec<String> {
    messages.into_iter().map(|message| short(message)).collect()
}

/// Everything that is stored of the conversation.
pub(crate) async fn stored(store: &Store) -> Vec<String> {
    stored_of(store, &key()).await
}

pub(crate) async fn stored_of(store: &Store, key: &ConversationKey) -> Vec<String> {
    store.inner().flush().await.unwrap();
    shorts(store.inner().load(key).await.unwrap().messages.iter())
}

pub(crate) async fn service_id(store: &Store) -> Option<String> {
    let head = store.inner().head(&key()).await.unwrap();
    head.service_id.map(|id| id.to_string())
}

/// What the leaf was sent in one service call.
pub(crate) fn seen(leaf: &ScriptedLeaf, call: usize) -> Vec<String> {
    shorts(leaf.requests()[call].messages.iter())
}

/// How many messages the conversation has, in the eyes of whoever holds the store now.
pub(crate) fn count_now(store: &Store) -> usize {
    let history = futures_util::FutureExt::now_or_never(store.inner().load(&key()));
    history.unwrap().unwrap().messages.len()
}

/// A step that notes how many messages are stored when the leaf is called.
pub(crate) fn noting(store: &Store, counts: &Arc<Mutex<Vec<usize>>>, step: Step) -> Step {
    let (store, counts) = (store.clone(), counts.clone());
    Step::respond(move |_| {
        counts.lock().unwrap().push(count_now(&store));
        step
    })
}

/// Everything logged by this thread while it lives.
pub(crate) struct Logged {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

pub(crate) fn logged() -> Logged {
    #[derive(Clone)]
    struct Writer(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let text = Arc::new(Mutex::new(Vec::new()));
    let writer = Writer(text.clone());
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    Logged { text, _guard: tracing::subscriber::set_default(subscriber) }
}

impl Logged {
    pub(crate) fn lines(&self, what: &str) -> usize {
        let text = self.text.lock().unwrap();
        String::from_utf8_lossy(&text).lines().filter(|line| line.contains(what)).count()
    }
}
