//! A model whose answers depend only on the requests, tools that log their executions, and the
//! messages of an uninterrupted run. A run that is interrupted and resumed must have the same
//! messages.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use tower::Layer;
use tower_chat::{
    ChatRequest, HistoryStore, Message, PersistenceMode, PersistencePolicy, Role, ToolCall,
    ToolContext, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    run::Clock,
    store::{Journal, author::OpenRunContent},
    tool::ToolOutput,
    tool_fn,
    validate::validate_request,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

pub(crate) const JOURNALED: PersistenceMode = PersistenceMode::Journaled;
pub(crate) const ALL_MODES: [PersistenceMode; 3] = [PerRun, PerServiceCall, JOURNALED];

/// The messages of the complete run, which has two rounds. The first round has two calls.
pub(crate) const WHOLE_RUN: [&str; 6] = [
    "user trip",
    "assistant book#c1 seat#c2",
    "tool c1=book c1 c2=seat c2",
    "assistant book#c3",
    "tool c3=book c3",
    "assistant booked",
];
pub(crate) const SERVICE_CALLS: usize = 3;
pub(crate) const TOOL_CALLS: usize = 3;

pub(crate) const SHOWN: [usize; SERVICE_CALLS] = [1, 3, 5];

/// Returns the model's answer to a request. It depends on the number of results after the last user
/// message.
pub(crate) fn reply(request: &ChatRequest) -> Message {
    let shown: Vec<_> = request.messages().iter().cloned().collect();
    let last = shown.iter().rposition(|message| message.role == Role::User).unwrap_or(0);
    let results: usize = shown[last..].iter().map(|message| message.results().count()).sum();
    let call = |name: &str, id: &str| ToolCall::new(id, name, labelled(id));
    if !short(&shown[last]).starts_with("user trip") {
        return Message::assistant("hello");
    }
    match results {
        0 => Message::tool_calls([call("book", "c1"), call("seat", "c2")]),
        2 => Message::tool_calls([call("book", "c3")]),
        3 => Message::assistant("booked"),
        other => panic!("{other} results: {:?}", shorts(shown.iter())),
    }
}

/// Returns a step that answers with [`reply`], and checks that the request is valid for every
/// provider.
pub(crate) fn by_request() -> Step {
    Step::respond(|request| {
        validate_request(request).unwrap();
        Step::message(reply(request))
    })
}

pub(crate) fn booking_model() -> ScriptedModel {
    ScriptedModel::new((0..40).map(|_| by_request()))
}

/// Returns a model that uses these steps from the service call `first` on, counted from 0, and
/// [`by_request`] before and after them.
pub(crate) fn booking_model_with(
    first: usize,
    steps: impl IntoIterator<Item = Step>,
) -> ScriptedModel {
    let before = (0..first).map(|_| by_request());
    ScriptedModel::new(before.chain(steps).chain((0..40).map(|_| by_request())))
}

#[derive(Debug, Clone, Default)]
pub(crate) struct BookingTools {
    ran: Arc<Mutex<Vec<(String, String)>>>,
    /// For each call id, a gate at which the tool waits before its execution is logged.
    before: HashMap<&'static str, Gate>,
    /// For each call id, a gate at which the tool waits after its execution was logged.
    after: HashMap<&'static str, Gate>,
    safe_to_retry: bool,
}

impl BookingTools {
    /// Creates tools that are safe to retry.
    pub(crate) fn safe() -> Self {
        Self { safe_to_retry: true, ..Self::default() }
    }

    pub(crate) fn with_gate_after(mut self, call: &'static str, gate: &Gate) -> Self {
        self.after.insert(call, gate.clone());
        self
    }

    pub(crate) fn with_gate_before(mut self, call: &'static str, gate: &Gate) -> Self {
        self.before.insert(call, gate.clone());
        self
    }

    /// Returns the tools of a restarted process: without gates, and with the same log.
    pub(crate) fn reopened(&self) -> Self {
        Self {
            ran: self.ran.clone(),
            before: HashMap::new(),
            after: HashMap::new(),
            safe_to_retry: self.safe_to_retry,
        }
    }

    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().iter().map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn times(&self, call: &str) -> usize {
        self.ran().iter().filter(|id| *id == call).count()
    }

    /// Returns the idempotency keys of each call, in the order of its executions.
    pub(crate) fn keys(&self) -> HashMap<String, Vec<String>> {
        let mut keys: HashMap<String, Vec<String>> = HashMap::new();
        for (id, key) in self.ran.lock().unwrap().iter() {
            keys.entry(id.clone()).or_default().push(key.clone());
        }
        keys
    }

    async fn call(self, name: &'static str, context: ToolContext) -> ToolOutput {
        let id = label_of(&context);
        if let Some(gate) = self.before.get(&*id) {
            gate.pass().await;
        }
        self.ran.lock().unwrap().push((id.clone(), context.idempotency_key()));
        if let Some(gate) = self.after.get(&*id) {
            gate.pass().await;
        }
        ToolOutput::from(format!("{name} {id}"))
    }

    pub(crate) fn tools(&self) -> Tools {
        ["book", "seat"].into_iter().fold(Tools::new(), |tools, name| {
            let booking_tools = self.clone();
            let mut definition = definition(name);
            definition.safe_to_retry = self.safe_to_retry;
            tools.with(tool_fn(definition, move |context| {
                let booking_tools = booking_tools.clone();
                async move { Ok(booking_tools.call(name, context).await) }
            }))
        })
    }
}

#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) store: Store,
    pub(crate) policy: PersistencePolicy,
    pub(crate) clock: Clock,
    pub(crate) mode: PersistenceMode,
    pub(crate) concurrent: bool,
}

impl Setup {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            store: store.clone(),
            policy: policy(),
            clock: Clock::default(),
            mode: JOURNALED,
            concurrent: false,
        }
    }

    pub(crate) fn concurrent(mut self, concurrent: bool) -> Self {
        self.concurrent = concurrent;
        self
    }

    pub(crate) fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.policy = policy;
        self
    }

    pub(crate) fn clock(mut self, clock: &TestClock) -> Self {
        self.clock = clock.clock();
        self
    }

    pub(crate) fn mode(mut self, mode: PersistenceMode) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn elsewhere(&self) -> Self {
        Self { store: self.store.in_another_process(), ..self.clone() }
    }

    pub(crate) fn stack(&self, model: &ScriptedModel, tools: Tools) -> Client {
        self.looped(model, ToolLoopLayer::new(tools))
    }

    pub(crate) fn looped(&self, model: &ScriptedModel, tool_loop: ToolLoopLayer) -> Client {
        let below = PerServiceCallPersistence::new(self.store.clone()).layer(model.clone());
        let above = PerRunPersistence::new(self.store.clone()).mode(self.mode);
        let above = above.policy(self.policy.clone()).clock(self.clock.clone());
        boxed(above.layer(tool_loop.concurrent(self.concurrent).layer(below)))
    }
}

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn clock(&self) -> Clock {
        let clock = self.clone();
        Clock::new(move || clock.now())
    }

    pub(crate) fn now(&self) -> SystemTime {
        let seconds = self.0.load(std::sync::atomic::Ordering::SeqCst);
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    /// Makes the clock advance with tokio's paused clock.
    pub(crate) fn follow_tokio(&self) {
        let clock = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                clock.advance(1);
            }
        });
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, std::sync::atomic::Ordering::SeqCst);
    }
}

pub(crate) async fn open(store: &Store) -> Option<OpenRunContent> {
    store.inner().flush().await.unwrap();
    store.inner().open_run(&key()).await.unwrap()
}

pub(crate) async fn staged(store: &Store) -> Vec<String> {
    open(store).await.map(|content| shorts(&content.messages)).unwrap_or_default()
}

/// Returns the id and the state of each staged call, such as `c1 Unknown`.
pub(crate) async fn calls_known(store: &Store) -> Vec<String> {
    let report = tower_chat::recovery::open_run(store.inner(), &key()).await.unwrap();
    let calls = report.map(|report| report.calls).unwrap_or_default();
    calls.iter().map(|call| format!("{} {:?}", call.call_id, call.state)).collect()
}

/// Polls a run until `reached` completes, then drops the run.
pub(crate) async fn drop_when(
    client: &Client,
    request: ChatRequest,
    reached: impl Future<Output = ()>,
) {
    tokio::select! {
        biased;
        answer = send(client, request) => panic!("not interrupted: {answer:?}"),
        () = reached => {}
    }
}

pub(crate) fn all_seen(model: &ScriptedModel) -> Vec<Vec<String>> {
    (0..model.requests().len()).map(|call| sent_texts(model, call)).collect()
}

/// Returns what [`all_seen`] returns for an uninterrupted run.
pub(crate) fn undisturbed() -> Vec<Vec<String>> {
    SHOWN
        .iter()
        .map(|shown| WHOLE_RUN[..*shown].iter().map(|it| (*it).to_owned()).collect())
        .collect()
}
