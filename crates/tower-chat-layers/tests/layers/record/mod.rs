//! Tests the record of tool calls: the rows that runs add to it, and what the hooks of tools change
//! in them.

mod changing_tools;
mod ended_rounds;
mod failed_runs;
mod hooks;
mod late_results;
mod replaying;
mod rows;
mod source_numbers;
mod without_per_run;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use tower::{Service, ServiceExt};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore,
    Message, PersistenceMode, ToolCall, ToolDefinition,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    run::Clock,
    store::CallSelection,
    tool::ToolInvocation,
};
use tower_chat_testkit::{FaultyStore, ScriptedModel, Step};

use crate::case::{Case, Cases, every_case};

const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];
/// The two values of a parameter `streamed`.
const BOTH_WAYS: [bool; 2] = [false, true];

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

fn definition(name: &str) -> ToolDefinition {
    ToolDefinition::new(name, name, serde_json::json!({"type": "object"}))
}

fn calls<const N: usize>(calls: [(&str, &str); N]) -> Step {
    Step::message(Message::tool_calls(
        calls.map(|(name, id)| ToolCall::new(id, name, r#"{"secret": 7}"#)),
    ))
}

fn ticking() -> Clock {
    let seconds = Arc::new(AtomicU64::new(0));
    Clock::new(move || at(seconds.fetch_add(1, Ordering::Relaxed)))
}

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second)
}

#[derive(Clone)]
struct Again;

impl<Res, E> tower::retry::Policy<ChatRequest, Res, E> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut ChatRequest, result: &mut Result<Res, E>) -> Option<Self::Future> {
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &ChatRequest) -> Option<ChatRequest> {
        Some(request.clone())
    }
}

fn memory() -> crate::common::Store {
    FaultyStore::new(crate::common::memory())
}

struct Agent {
    store: crate::common::Store,
    streamed: bool,
    model: ScriptedModel,
    client: tower::util::BoxCloneSyncService<ChatRequest, tower_chat::ChatResponse, BoxError>,
}

impl Agent {
    async fn of(case: Case, tool_loop: ToolLoopLayer, script: Vec<Step>) -> Self {
        let agent = Self::in_store(case.store().await, case.mode, tool_loop, script);
        Self { streamed: case.streamed, ..agent }
    }

    /// Creates an agent over a memory store, with requests that are not streamed.
    fn new(mode: PersistenceMode, tool_loop: ToolLoopLayer, script: Vec<Step>) -> Self {
        Self::in_store(memory(), mode, tool_loop, script)
    }

    fn in_store(
        store: crate::common::Store,
        mode: PersistenceMode,
        tool_loop: ToolLoopLayer,
        script: Vec<Step>,
    ) -> Self {
        let model = ScriptedModel::new(script);
        let client = tower::ServiceBuilder::new()
            .layer(PerRunPersistence::new(store.clone()).mode(mode).clock(ticking()))
            .layer(tool_loop)
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(model.clone());
        Self {
            store,
            streamed: false,
            model,
            client: tower::util::BoxCloneSyncService::new(client),
        }
    }

    fn without_per_run(tool_loop: ToolLoopLayer, script: Vec<Step>) -> Self {
        let store = memory();
        let model = ScriptedModel::new(script);
        let client = tower::ServiceBuilder::new()
            .layer(tool_loop)
            .layer(PerServiceCallPersistence::new(store.clone()).clock(ticking()))
            .service(model.clone());
        Self {
            store,
            streamed: false,
            model,
            client: tower::util::BoxCloneSyncService::new(client),
        }
    }

    /// Creates an agent with a retry layer between the tool loop and `PerServiceCallPersistence`.
    /// `above` adds `PerRunPersistence`.
    fn retrying(above: bool, tool_loop: ToolLoopLayer, script: Vec<Step>) -> Self {
        let store = memory();
        let model = ScriptedModel::new(script);
        let mode = PersistenceMode::PerServiceCall;
        let above = above.then(|| PerRunPersistence::new(store.clone()).mode(mode));
        let client = tower::ServiceBuilder::new()
            .option_layer(above)
            .map_err(BoxError::from)
            .layer(tool_loop)
            .layer(tower::retry::RetryLayer::new(Again))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(model.clone());
        Self {
            store,
            streamed: false,
            model,
            client: tower::util::BoxCloneSyncService::new(client),
        }
    }

    async fn send(&self, request: ChatRequest) -> Result<Answer, BoxError> {
        let request = request.in_conversation(key());
        self.client.clone().ready().await?.call(request).await?.collect().await
    }

    async fn ask(&self, text: &str) -> Result<Answer, BoxError> {
        self.send_as(self.streamed, ChatRequest::user(text)).await
    }

    async fn send_as(&self, streamed: bool, request: ChatRequest) -> Result<Answer, BoxError> {
        self.send(if streamed { request.streamed() } else { request }).await
    }

    /// Sends a request that already has its conversation and run.
    async fn send_again(&self, streamed: bool, request: &ChatRequest) -> Result<Answer, BoxError> {
        let request = request.clone();
        let request = if streamed { request.streamed() } else { request };
        self.client.clone().ready().await?.call(request).await?.collect().await
    }

    async fn record(&self) -> Vec<ToolInvocation> {
        record(&self.store).await
    }

    async fn stored(&self) -> Vec<Arc<Message>> {
        self.store.load(&key()).await.unwrap().messages.iter().cloned().collect()
    }
}

async fn record(store: &impl HistoryStore) -> Vec<ToolInvocation> {
    let invocations = store.calls(&key(), &CallSelection::All).await.unwrap();
    assert_eq!(invocations.unreadable, []);
    invocations.found.into_iter().map(|(_, invocation)| invocation).collect()
}

fn short(record: &[ToolInvocation]) -> Vec<String> {
    let row = |call: &ToolInvocation| {
        let result = call.result.as_ref().map_or("-".to_owned(), |result| result.text());
        format!("{} {} {result}", call.name, call.status)
    };
    record.iter().map(row).collect()
}

fn every_way() -> impl Iterator<Item = (PersistenceMode, bool)> + Clone {
    MODES.into_iter().flat_map(|mode| BOTH_WAYS.map(|streamed| (mode, streamed)))
}

#[tokio::test]
async fn a_pipeline_without_a_tool_loop_records_calls_as_returned() {
    let store = MemoryStore::new();
    let mut client = ChatPipeline::builder(ScriptedModel::new([calls([("look", "c1")])]))
        .without_tool_loop()
        .history(store.clone())
        .build()
        .unwrap();
    let request = ChatRequest::user("hi").in_conversation(key());
    client.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(short(&record(&store).await), ["look returned -"]);
}
