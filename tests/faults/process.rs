//! A simulated process: a stack over a store, and callers that may disconnect.

use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use futures_util::future::poll_fn;
use tokio::{task::yield_now, time::timeout};
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, HistoryStore, Message, Part,
    PersistenceMode, PersistencePolicy,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::StoreFailure,
    recovery::{JournalPolicy, OnOpenRun, UnknownAnswer, UnknownCalls},
    run::{Clock, Conversation},
    tool::ApprovalRequest,
};
use tower_chat_testkit::FaultyStore;

use crate::faults::{
    branches,
    case::{Caller, Case},
    other_arguments, pictures,
    script::{Input, input_text},
    scripted_model::{Model, Readers, tools},
    summarized,
    trace::{Event, Outcome, label},
    world::World,
};

pub(crate) type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// A timeout that is longer than any operation that does not hang.
const LONG_TIMEOUT: Duration = Duration::from_secs(20);

/// A simulated process. A fault can end it, after which it makes no further changes.
pub(crate) struct Process<S> {
    pub(crate) store: FaultyStore<S>,
    pub(crate) client: Client,
    pub(crate) world: World,
}

pub(crate) fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

impl<S: HistoryStore + Clone> Process<S> {
    pub(crate) fn new(inner: S, readers: Readers, world: &World, case: &Case) -> Self {
        Self::with(inner, readers, world, case, OnOpenRun::Recover)
    }

    /// Creates a process whose clock is one hour fast. By this clock, the leases of other processes
    /// have expired.
    pub(crate) fn ahead(inner: S, readers: Readers, world: &World, case: &Case) -> Self {
        let clock = world.clock_ahead(Duration::from_secs(3_600));
        Self::at(clock, inner, readers, world, case, OnOpenRun::Recover)
    }

    pub(crate) fn with(
        inner: S,
        readers: Readers,
        world: &World,
        case: &Case,
        on_open_run: OnOpenRun,
    ) -> Self {
        Self::at(world.clock(), inner, readers, world, case, on_open_run)
    }

    fn at(
        clock: Clock,
        inner: S,
        readers: Readers,
        world: &World,
        case: &Case,
        on_open_run: OnOpenRun,
    ) -> Self {
        let store = FaultyStore::with_injector(inner, world.clone());
        let model = Model {
            world: world.clone(),
            script: Arc::new(case.runs.iter().cloned().chain([branches::script()]).collect()),
            readers: readers.clone(),
            summarizes: case.summarizes,
            compacts: case.compacts.then_some(case.seed),
            pictures: case.pictures,
        };
        let tool_loop = ToolLoopLayer::new(tools(world, &readers))
            .concurrent(case.concurrent)
            .unlimited_failing_rounds()
            .include_error_details(true);
        let unknown = match case.run_again {
            true => UnknownCalls::ask(|_| UnknownAnswer::RunAgain),
            false => UnknownCalls::Answer,
        };
        let journal = JournalPolicy::default().on_open_run(on_open_run).with_unknown_calls(unknown);
        let failure = if case.fail_call { StoreFailure::FailCall } else { StoreFailure::Continue };
        let mut policy =
            PersistencePolicy::default().with_journal(journal).on_store_failure(failure);
        if let Some(pictures) = case.pictures {
            policy = pictures.with_policy(policy);
        }
        if case.summarizes {
            policy = policy.with_summarize(summarized::policy(world));
        }
        let below = PerServiceCallPersistence::new(store.clone()).layer(model);
        let above =
            PerRunPersistence::new(store.clone()).mode(case.mode).policy(policy).clock(clock);
        let client = BoxCloneSyncService::new(above.layer(tool_loop.layer(below)));
        Self { store, client, world: world.clone() }
    }

    /// Sends the request of a run, and returns the outcome for the caller.
    pub(crate) async fn send(&self, run: usize, request: RunRequest, caller: Caller) -> Outcome {
        let RunRequest { request, answers, changed } = request;
        self.world.note(Event::Began { run, answers, changed });
        let client = self.client.clone();
        let world = self.world.clone();
        let waiting = waits(client, request, world.clone(), caller);
        let outcome = match caller {
            Caller::Patient | Caller::Drops(_) => waiting.await,
            Caller::Aborts(turns) => {
                let task = tokio::spawn(waiting);
                for _ in 0..turns {
                    if task.is_finished() {
                        break;
                    }
                    yield_now().await;
                }
                task.abort();
                match task.await {
                    Ok(outcome) => outcome,
                    Err(error) if error.is_cancelled() => Outcome::Gone,
                    Err(error) => Outcome::Error(format!("panicked: {error}")),
                }
            }
        };
        let outcome = if self.world.is_dead() { Outcome::Killed } else { outcome };
        self.world.note(Event::Ended { run, outcome: outcome.clone() });
        outcome
    }
}

async fn waits(client: Client, request: ChatRequest, world: World, caller: Caller) -> Outcome {
    let max_polls = match caller {
        Caller::Drops(polls) => polls,
        Caller::Patient | Caller::Aborts(_) => u32::MAX,
    };
    match polled(answer(client, request), max_polls, &world).await {
        None => Outcome::Gone,
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Outcome::Error(chain(&*error)),
    }
}

/// Polls a future until it completes. Returns `None` after `max_polls` polls, after a timeout, or if
/// the process dies.
pub(crate) async fn polled<F: Future>(
    future: F,
    max_polls: u32,
    world: &World,
) -> Option<F::Output> {
    let mut future = pin!(timeout(LONG_TIMEOUT, future));
    let mut polls = 0;
    poll_fn(|cx| {
        if polls >= max_polls {
            return Poll::Ready(None);
        }
        polls += 1;
        let polled = future.as_mut().poll(cx);
        if world.is_dead() || (polled.is_pending() && polls >= max_polls) {
            return Poll::Ready(None);
        }
        polled.map(Result::ok)
    })
    .await
}

async fn answer(mut client: Client, request: ChatRequest) -> Result<Outcome, BoxError> {
    let mut response = client.ready().await?.call(request).await?;
    let mut messages = Vec::new();
    while let Some(update) = response.next().await {
        match update? {
            ChatUpdate::Message(message) => messages.push(label(&message)),
            ChatUpdate::Finish(finish) => {
                let unsaved = finish.saved.map_or(0, |saved| saved.unsaved);
                return Ok(Outcome::Answer { labels: messages, unsaved });
            }
            _ => {}
        }
        // Lets the caller disconnect between two updates.
        yield_now().await;
    }
    Err("the answer was cut off".into())
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The request of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunRequest {
    pub(crate) request: ChatRequest,
    /// The numbers of the service calls whose tool calls the request approves or rejects.
    pub(crate) answers: Vec<u32>,
    /// The calls that the request approves with other arguments, each with these arguments.
    pub(crate) changed: Vec<(String, String)>,
}

/// Creates the request of a run, which decides about the pending calls.
pub(crate) fn request(
    world: &World,
    run: usize,
    input: Input,
    pending: &[ApprovalRequest],
    case: &Case,
) -> RunRequest {
    let mut message = Message::user(input_text(run));
    let (mut answers, mut changed) = (Vec::new(), Vec::new());
    for request in pending {
        let call = request.call.id.as_deref().unwrap_or_default();
        let answer = match input {
            Input::Text => continue,
            Input::Approve => match other_arguments::of_decision(case, run, call) {
                Some(arguments) => {
                    changed.push((call.to_owned(), arguments.clone()));
                    request.approve_with(arguments)
                }
                None => request.approve(),
            },
            Input::Refuse => request.reject("no"),
        };
        message.parts.push(Part::ApprovalResponse(answer));
        answers.push(serial_of(call));
    }
    answers.dedup();
    if case.pictures.is_some_and(|pictures| pictures.are_in(run)) {
        message.parts.push(pictures::of_run(run));
    }
    let conversation = Conversation { key: key(), run: world.run_id(run) };
    let request = ChatRequest::new(message).in_run(conversation);
    let request = if case.streamed { request.streamed() } else { request };
    RunRequest { request, answers, changed }
}

/// Returns the number of the service call that returned a tool call.
pub(crate) fn serial_of(call: &str) -> u32 {
    let serial = call.strip_prefix('s').and_then(|call| call.split_once('.'));
    serial.and_then(|(serial, _)| serial.parse().ok()).expect("an id of the script's")
}

/// Returns whether a part of a run may be visible in this mode.
pub(crate) fn shows_parts(mode: PersistenceMode) -> bool {
    mode == PersistenceMode::PerServiceCall
}
