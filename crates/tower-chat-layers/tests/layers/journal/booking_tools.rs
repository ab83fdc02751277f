//! A model that answers by what it is shown, so that a run comes out the same however often it is
//! interrupted, and what an undisturbed run looks like.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use tower::Layer;
use tower_chat::{
    ChatRequest, Clock, Message, PerRunPersistence, PerServiceCallPersistence, PersistenceMode,
    PersistencePolicy, Role, ToolCall, ToolLoop, Tools,
    store::{HistoryStore, author::OpenRunContent},
    tool::{ToolContext, ToolOutput, tool_fn},
    validate::validate_request,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

pub(crate) const JOURNALED: PersistenceMode = PersistenceMode::Journaled;
pub(crate) const ALL_MODES: [PersistenceMode; 3] = [PerRun, PerServiceCall, JOURNALED];

/// What the whole run comes to: two rounds, the first with two calls.
pub(crate) const WHOLE_RUN: [&str; 6] = [
    "user trip",
    "assistant book#c1 seat#c2",
    "tool c1=book c1 c2=seat c2",
    "assistant book#c3",
    "tool c3=book c3",
    "assistant booked",
];
/// Its service calls and tool calls.
pub(crate) const SERVICE_CALLS: usize = 3;
pub(crate) const TOOL_CALLS: usize = 3;

/// How many messages stand before the answer to each of its service calls.
pub(crate) const SHOWN: [usize; SERVICE_CALLS] = [1, 3, 5];

/// What the model answers to a request, by the results it has seen since the last question.
pub(crate) fn reply(request: &ChatRequest) -> Message {
    let shown: Vec<_> = request.messages.iter().cloned().collect();
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

/// One step that answers by the request, which must be valid for every provider.
pub(crate) fn by_request() -> Step {
    Step::respond(|request| {
        validate_request(request).unwrap();
        Step::message(reply(request))
    })
}

pub(crate) fn booking_model() -> ScriptedModel {
    ScriptedModel::new((0..40).map(|_| by_request()))
}

/// A model whose calls from `first` on, counted from 0, are these; then it answers again.
pub(crate) fn booking_model_with(
    first: usize,
    steps: impl IntoIterator<Item = Step>,
) -> ScriptedModel {
    let before = (0..first).map(|_| by_request());
    ScriptedModel::new(before.chain(steps).chain((0..40).map(|_| by_request())))
}

/// Counts how often each call's tool ran, and what it was given to know a repetition by.
#[derive(Debug, Clone, Default)]
pub(crate) struct BookingTools {
    ran: Arc<Mutex<Vec<(String, String)>>>,
    /// Calls wait here before anything is done, by call id.
    before: HashMap<&'static str, Gate>,
    /// And here, when the tool has done its work.
    after: HashMap<&'static str, Gate>,
    safe_to_retry: bool,
}

impl BookingTools {
    /// One whose tools may run twice.
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

    /// The same books, without gates: the desk after a restart.
    pub(crate) fn reopened(&self) -> Self {
        Self {
            ran: self.ran.clone(),
            before: HashMap::new(),
            after: HashMap::new(),
            safe_to_retry: self.safe_to_retry,
        }
    }

    /// The ids of the calls that have run, each time.
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().iter().map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn times(&self, call: &str) -> usize {
        self.ran().iter().filter(|id| *id == call).count()
    }

    /// The idempotency keys of each call, in the order in which it ran.
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

    /// `book` and `seat`.
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

/// How a stack is set up.
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

    /// The same in another process.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { store: self.store.in_another_process(), ..self.clone() }
    }

    pub(crate) fn stack(&self, model: &ScriptedModel, tools: Tools) -> Client {
        self.looped(model, ToolLoop::new(tools))
    }

    pub(crate) fn looped(&self, model: &ScriptedModel, tool_loop: ToolLoop) -> Client {
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

    /// From now on it goes with tokio's clock, which a test has paused.
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

/// What is staged, in short.
pub(crate) async fn staged(store: &Store) -> Vec<String> {
    open(store).await.map(|content| shorts(&content.messages)).unwrap_or_default()
}

/// What is known of the staged calls: `c1 unknown`.
pub(crate) async fn calls_known(store: &Store) -> Vec<String> {
    let report = tower_chat::recovery::open_run(store.inner(), &key()).await.unwrap();
    let calls = report.map(|report| report.calls).unwrap_or_default();
    calls.iter().map(|call| format!("{} {:?}", call.call_id, call.state)).collect()
}

/// Runs until `reached` and drops the rest.
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

/// What the model client was shown in each call.
pub(crate) fn all_seen(model: &ScriptedModel) -> Vec<Vec<String>> {
    (0..model.requests().len()).map(|call| seen(model, call)).collect()
}

/// What an undisturbed run shows the model client, call by call.
pub(crate) fn undisturbed() -> Vec<Vec<String>> {
    SHOWN
        .iter()
        .map(|shown| WHOLE_RUN[..*shown].iter().map(|it| (*it).to_owned()).collect())
        .collect()
}
