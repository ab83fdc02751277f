//! Functions that the tests share: they create stacks and requests, and format stored messages in a
//! short form.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, Once},
};

use serde_json::json;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    MemoryStore, Message, PersistenceError, PersistenceMode, PersistencePolicy, ToolCall,
    ToolContext, ToolDefinition, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::UnansweredInputs,
    request::Usage,
    store::{Journal, StoreError, author::RecordedResult},
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_sqlite::{Durability, SqliteStore};
use tower_chat_testkit::{FaultyStore, Gate, ScriptedModel, Step};

pub(crate) use crate::case::{
    Backend, Case, Cases, MODES, every_case, every_id, label, labelled, shorts, shorts_after,
};
pub(crate) use tower_chat::PersistenceMode::{Journaled, PerRun, PerServiceCall};

pub(crate) const BOTH_MODES: [PersistenceMode; 2] = [PerRun, PerServiceCall];
/// The two values of a parameter `streamed`.
pub(crate) const BOTH_WAYS: [bool; 2] = [false, true];

pub(crate) type Store = FaultyStore<Arc<dyn HistoryStore>>;
pub(crate) type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// The result that the model receives for a call whose run was interrupted.
pub(crate) const INTERRUPTED: &str =
    "The call was interrupted. It may or may not have taken effect; its result is unknown.";

pub(crate) fn memory() -> Arc<dyn HistoryStore> {
    Arc::new(MemoryStore::new())
}

pub(crate) fn store() -> Store {
    FaultyStore::new(memory()).shared_by_processes()
}

/// Opens a store in a new file. The file is deleted when the last clone of the store is dropped.
async fn sqlite_store() -> Store {
    /// A file with the tables of a store and without conversations. Each store copies it, because
    /// creating the tables takes as long as a whole scenario.
    static EMPTY: tokio::sync::OnceCell<Vec<u8>> = tokio::sync::OnceCell::const_new();
    let options = SqliteStore::options().with_durability(Durability::Normal);
    let make_empty = async || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chat.db");
        options.clone().open(&file).await.unwrap().close().await.unwrap();
        std::fs::read(file).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chat.db");
    std::fs::write(&file, EMPTY.get_or_init(make_empty).await).unwrap();
    let store: Arc<dyn HistoryStore> = Arc::new(options.open(file).await.unwrap());
    FaultyStore::new(store).keeping(folder).shared_by_processes()
}

impl Case {
    pub(crate) async fn store(self) -> Store {
        match self.backend {
            Backend::Memory => store(),
            Backend::Sqlite => sqlite_store().await,
        }
    }

    /// Returns a request with a new run.
    pub(crate) fn ask(self, text: &str) -> ChatRequest {
        ask(text, self.streamed)
    }

    pub(crate) fn request_with<const N: usize>(self, messages: [Message; N]) -> ChatRequest {
        request_with(messages, self.streamed)
    }

    /// Returns the standard stack: `PerRunPersistence`, the tool loop, `PerServiceCallPersistence`,
    /// and the client.
    pub(crate) fn stack<S>(
        self,
        client: S,
        store: &Store,
        policy: PersistencePolicy,
        tools: Tools,
    ) -> Client
    where
        S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        stack(client, store, self.mode, policy, tools)
    }

    /// Returns the standard stack with the default policy and the tools of these tests.
    pub(crate) fn agent(self, model: &ScriptedModel, store: &Store) -> Client {
        agent(model, store, self.mode)
    }

    /// Returns a store, a model client with this script, and the stack over both.
    pub(crate) async fn begin(
        self,
        script: impl IntoIterator<Item = Step>,
    ) -> (Store, ScriptedModel, Client) {
        let (store, _, model, client) = self.begin_with_log(script).await;
        (store, model, client)
    }

    pub(crate) async fn begin_with_log(
        self,
        script: impl IntoIterator<Item = Step>,
    ) -> (Store, ToolLog, ScriptedModel, Client) {
        let (store, tool_log, model) =
            (self.store().await, ToolLog::default(), ScriptedModel::new(script));
        let client = self.stack(model.clone(), &store, policy(), tools(&tool_log));
        (store, tool_log, model, client)
    }

    /// Returns a step that calls tools, each given as `(name, label)`.
    pub(crate) fn calls<const N: usize>(self, calls: [(&str, &str); N]) -> Step {
        Step::message(self.call_message(calls))
    }
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

pub(crate) fn ask(text: &str, streamed: bool) -> ChatRequest {
    request_with([Message::user(text)], streamed)
}

pub(crate) fn request_with<const N: usize>(messages: [Message; N], streamed: bool) -> ChatRequest {
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

/// Returns the standard stack: `PerRunPersistence`, the tool loop, `PerServiceCallPersistence`, and
/// the client.
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
    boxed(above.layer(ToolLoopLayer::new(tools).layer(below)))
}

/// Returns the standard stack with the default policy and the tools of these tests.
pub(crate) fn agent(model: &ScriptedModel, store: &Store, mode: PersistenceMode) -> Client {
    stack(model.clone(), store, mode, policy(), tools(&ToolLog::default()))
}

pub(crate) async fn head(client: &Client, request: ChatRequest) -> Result<ChatResponse, BoxError> {
    client.clone().ready().await?.call(request).await
}

pub(crate) async fn send(client: &Client, request: ChatRequest) -> Result<Answer, BoxError> {
    head(client, request).await?.collect().await
}

/// Returns the persistence error with which a call failed.
pub(crate) fn refused(result: Result<Answer, BoxError>) -> PersistenceError {
    let error = result.expect_err("the call fails");
    match error.downcast::<PersistenceError>() {
        Ok(error) => *error,
        Err(error) => panic!("not a persistence error: {error:?}"),
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ToolLog(Arc<Mutex<Vec<String>>>);

impl ToolLog {
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

/// Returns the tools of these tests. Each result contains the label of its call.
///
/// - `look` returns a result.
/// - `stop` returns a result and ends the run.
/// - `pay` needs approval.
/// - `ask` is not executed: its calls are returned to the caller.
/// - `fail` fails.
pub(crate) fn tools(tool_log: &ToolLog) -> Tools {
    let run = |name: &'static str, tool_log: ToolLog| {
        move |context: ToolContext| {
            tool_log.note(name);
            let answer = format!("{name}ed {}", label_of(&context));
            async move { Ok(ToolOutput::from(answer)) }
        }
    };
    let stop = tool_log.clone();
    Tools::new()
        .with(tool_fn(definition("look"), run("look", tool_log.clone())))
        .with(tool_fn(definition("pay").needs_approval(), run("pay", tool_log.clone())))
        .with(tool_fn(definition("stop"), move |context: ToolContext| {
            stop.note("stop");
            let answer = format!("stopped {}", label_of(&context));
            async move { Ok(ToolOutput::from(answer).terminate()) }
        }))
        .with(tool_fn(definition("fail"), |_| async { Err::<ToolOutput, _>("broken".into()) }))
        .declare(definition("ask"))
}

pub(crate) fn label_of(context: &ToolContext) -> String {
    label(context.arguments()).unwrap_or_else(|| context.call_id().to_owned())
}

/// Returns the tools of these tests and a tool `wait`, which waits at `gate`.
pub(crate) fn tools_with_gate(tool_log: &ToolLog, gate: &Gate) -> Tools {
    let gate = gate.clone();
    tools(tool_log).with(tool_fn(definition("wait"), move |context: ToolContext| {
        let (gate, answer) = (gate.clone(), format!("waited {}", label_of(&context)));
        async move {
            gate.pass().await;
            Ok(ToolOutput::from(answer))
        }
    }))
}

/// Returns a step that calls tools, each given as `(name, id)`.
pub(crate) fn calls<const N: usize>(calls: [(&str, &str); N]) -> Step {
    Step::message(call_message(calls))
}

pub(crate) fn call_message<const N: usize>(calls: [(&str, &str); N]) -> Message {
    Message::tool_calls(calls.map(|(name, id)| ToolCall::new(id, name, labelled(id))))
}

/// Returns a step with a text and its usage.
pub(crate) fn costly(text: &str, input: u64, output: u64) -> Step {
    Step::answer([Message::assistant(text)], Finish::stop().with_usage(Usage::new(input, output)))
}

/// Returns a step in which the service stores the history under an id, and answers with a text.
pub(crate) fn kept(text: &str, id: &str) -> Step {
    Step::answer([Message::assistant(text)], Finish::stop().with_service_id(id))
}

/// Returns a step in which the service stores the history under an id, and the model calls `look`.
pub(crate) fn kept_call(id: &str) -> Step {
    Step::answer([call_message([("look", "c1")])], Finish::stop().with_service_id(id))
}

/// Returns the short form of one message, as if no message preceded it.
pub(crate) fn short(message: &Message) -> String {
    shorts([&Arc::new(message.clone())]).remove(0)
}

/// Returns all stored messages of the conversation.
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

/// Returns the short forms of the messages that the model client received in one service call.
pub(crate) fn sent_texts(model: &ScriptedModel, call: usize) -> Vec<String> {
    shorts(model.requests()[call].messages().iter())
}

/// Returns the number of messages in the store, read in another thread.
pub(crate) fn count_now(store: &Store) -> usize {
    let load = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(store.inner().load(&key())).unwrap().messages.len()
    };
    // This thread may run a tokio runtime, which must not block on another runtime.
    std::thread::scope(|scope| scope.spawn(load).join()).unwrap()
}

/// Returns a step that first records how many messages are stored when the model client is called.
pub(crate) fn noting(store: &Store, counts: &Arc<Mutex<Vec<usize>>>, step: Step) -> Step {
    let (store, counts) = (store.clone(), counts.clone());
    Step::respond(move |_| {
        counts.lock().unwrap().push(count_now(&store));
        step
    })
}

thread_local! {
    /// The buffer for the log of this thread.
    static LOG: RefCell<Option<Arc<Mutex<Vec<u8>>>>> = const { RefCell::new(None) };
}

/// The lines that this thread has logged since `logged` was called.
pub(crate) struct Logged {
    text: Arc<Mutex<Vec<u8>>>,
}

struct LogWriter;

impl std::io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.with_borrow(|log| {
            if let Some(log) = log {
                log.lock().unwrap().extend(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Starts to record the log of this thread. All tests share one subscriber: a thread without a
/// subscriber could disable an event for all threads, because tracing caches whether an event is
/// enabled.
pub(crate) fn logged() -> Logged {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        tracing_subscriber::fmt().with_ansi(false).with_writer(|| LogWriter).init();
    });
    let text = Arc::new(Mutex::new(Vec::new()));
    LOG.set(Some(text.clone()));
    Logged { text }
}

impl Drop for Logged {
    fn drop(&mut self) {
        LOG.set(None);
    }
}

impl Logged {
    pub(crate) fn lines_with(&self, parts: &[&str]) -> usize {
        let text = self.text.lock().unwrap();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }

    pub(crate) fn lines(&self, what: &str) -> usize {
        let text = self.text.lock().unwrap();
        String::from_utf8_lossy(&text).lines().filter(|line| line.contains(what)).count()
    }
}

/// Returns the policy for the inputs of a failed service call: to store the results of tools, or
/// nothing if `keep` is `false`.
pub(crate) fn results_if(keep: bool) -> UnansweredInputs {
    if keep { UnansweredInputs::Results } else { UnansweredInputs::None }
}

/// Polls a run until its model client has received this many service calls and no task makes
/// progress. Then drops the run.
pub(crate) async fn until_called(model: &ScriptedModel, calls: usize, run: impl Future) {
    let mut run = std::pin::pin!(run);
    while model.requests().len() < calls {
        assert!(futures_util::poll!(run.as_mut()).is_pending(), "the run hangs in its last call");
        tokio::task::yield_now().await;
    }
}

impl Case {
    pub(crate) fn way(self, request: ChatRequest) -> ChatRequest {
        if self.streamed { request.streamed() } else { request }
    }
}

/// Returns the stored messages of the conversation: the history, then the staged messages of an
/// open run, then the results that are stored only with their tool calls.
pub(crate) async fn durable(store: &Store) -> Vec<String> {
    store.inner().flush().await.unwrap();
    let history = store.inner().load(&key()).await.unwrap().messages;
    let open = store.inner().open_run(&key()).await.unwrap();
    let (mut staged, tools) = open.map(|open| (open.messages, open.tools)).unwrap_or_default();
    let apart = tools.into_iter().filter_map(|call| match call.result {
        RecordedResult::Apart(result) => Some(*result),
        _ => None,
    });
    let results = Message::tool_results(apart);
    if results.results().next().is_some() {
        staged.push(results.into());
    }
    shorts(history.iter().chain(&staged))
}
