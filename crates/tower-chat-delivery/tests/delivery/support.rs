//! A stack of `DetachedRunsLayer` and a pipeline with a scripted model.

use tokio::runtime::{Builder, Runtime};
use tower::{Layer, Service, ServiceExt};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, HistoryStore,
    MemoryStore, PersistenceMode, ToolDefinition, Tools, tool_fn,
};
use tower_chat_delivery::{
    DetachedRuns, DetachedRunsLayer, MemoryUpdateLog, RunEnd, RunEvent, RunKey, RunReader,
    UpdateLog, UpdateLogOptions, UpdatePosition, contract::ManualClock,
};
use tower_chat_testkit::{ScriptedModel, Step};

/// The stack of one simulated process.
pub(crate) struct Server {
    pub(crate) runs: DetachedRunsLayer,
    pub(crate) model: ScriptedModel,
    stack: DetachedRuns<ChatPipeline>,
}

impl Server {
    pub(crate) fn new(
        steps: impl IntoIterator<Item = Step>,
        runs: DetachedRunsLayer,
        store: impl HistoryStore,
        mode: PersistenceMode,
    ) -> Self {
        Self::over(ScriptedModel::new(steps), runs, store, mode)
    }

    /// Creates a server whose model may be shared with other servers.
    pub(crate) fn over(
        model: ScriptedModel,
        runs: DetachedRunsLayer,
        store: impl HistoryStore,
        mode: PersistenceMode,
    ) -> Self {
        let lookup = ToolDefinition::new("lookup", "Looks up.", serde_json::json!({}));
        let pipeline = ChatPipeline::builder(model.clone())
            .tools(Tools::new().with(tool_fn(lookup, |_| async { Ok("Rain.") })))
            .history(store)
            .persistence(mode)
            .build()
            .unwrap();
        Self { stack: runs.layer(pipeline), runs, model }
    }

    pub(crate) fn simple(steps: impl IntoIterator<Item = Step>) -> Self {
        let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
        Self::new(steps, runs, MemoryStore::new(), PersistenceMode::PerServiceCall)
    }

    pub(crate) fn stack(&self) -> DetachedRuns<ChatPipeline> {
        self.stack.clone()
    }

    pub(crate) async fn call(&self, request: ChatRequest) -> Result<ChatResponse, BoxError> {
        self.stack.clone().ready().await?.call(request).await
    }

    pub(crate) async fn attach(&self, run: &RunKey, after: UpdatePosition) -> RunReader {
        self.runs.attach(run, after).await.unwrap()
    }

    /// Returns all events of a run after a position, up to and including its end.
    pub(crate) async fn events(&self, run: &RunKey, after: UpdatePosition) -> Vec<RunEvent> {
        rest(self.attach(run, after).await).await
    }
}

/// Creates the runtime of a process. When the runtime is dropped, the process dies.
pub(crate) fn process() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Returns a request for a streamed response in a conversation, and the key of its run.
pub(crate) fn request() -> (ChatRequest, RunKey) {
    let key = ConversationKey::new("alice", "wardrobe");
    let request = ChatRequest::user("What should I wear?").in_conversation(key).streamed();
    let run = request.conversation().map(RunKey::from).unwrap();
    (request, run)
}

/// Creates a log in memory, and the clock of the log, which the test advances.
pub(crate) fn timed_log() -> (MemoryUpdateLog, ManualClock) {
    let clock = ManualClock::new();
    let options = UpdateLogOptions::default().with_clock(clock.clock());
    (MemoryUpdateLog::with_options(options), clock)
}

pub(crate) async fn rest(mut reader: RunReader) -> Vec<RunEvent> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().await {
        events.push(event.unwrap());
    }
    events
}

/// Returns a short text for each event: `text`, `message: text`, `finish`, `restarted n` or the
/// end.
pub(crate) fn sketch(events: &[RunEvent]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event {
            RunEvent::Update { update, .. } => sketch_of(update),
            RunEvent::Restarted { attempt, .. } => format!("restarted {attempt}"),
            RunEvent::Ended(RunEnd::Completed) => "completed".to_owned(),
            RunEvent::Ended(RunEnd::Interrupted) => "interrupted".to_owned(),
            RunEvent::Ended(RunEnd::Truncated) => "truncated".to_owned(),
            RunEvent::Ended(RunEnd::Failed { message }) => format!("failed: {message}"),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn sketch_of(update: &ChatUpdate) -> String {
    match update {
        ChatUpdate::TextDelta(text) => text.clone(),
        ChatUpdate::ToolCallDelta(call) => format!("call {}", call.arguments),
        ChatUpdate::Message(message) => {
            let calls: String = message.calls().map(|call| call.name.clone()).collect();
            let results: String = message.results().map(|result| result.text()).collect();
            format!("message: {}{calls}{results}", message.text())
        }
        ChatUpdate::Finish(_) => "finish".to_owned(),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn stored(store: &MemoryStore, run: &RunKey) -> Vec<String> {
    let history = store.load(&run.conversation).await.unwrap();
    history.messages.iter().map(|message| message.text()).collect()
}

pub(crate) async fn positions(log: &dyn UpdateLog, run: &RunKey) -> Vec<UpdatePosition> {
    let page = log.read(run, UpdatePosition::START, 10_000).await.unwrap();
    page.updates.iter().map(|update| update.position).collect()
}

/// Returns the deltas of a streamed answer as updates, without the complete message.
pub(crate) fn deltas(texts: &[&str]) -> Vec<ChatUpdate> {
    let texts = texts.iter().map(|text| ChatUpdate::TextDelta((*text).to_owned()));
    texts.chain([ChatUpdate::Finish(tower_chat::Finish::stop().into())]).collect()
}
