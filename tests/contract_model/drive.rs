//! Executes a case, and compares the conversation with the plain model of the contract (the module
//! `model`) after each attempt to send the request of a run.

mod branches;
mod compare;
mod input;
mod summaries;

use std::{
    cell::OnceCell,
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio::{runtime::Runtime, task::yield_now};
use tower::{Layer, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, HistoryStore, MemoryStore, Message,
    PersistenceMode, PersistencePolicy, Role,
    error::ToolLoopError,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    replay::{ReplayPolicy, Window},
    run::Conversation,
    store::Maintenance,
    tool::{ApprovalRequest, CallPosition},
};

use self::compare::same;
use crate::contract_model::{
    approvals,
    case::{Attempt, Case, Step},
    model::{End, Expected, Model},
    planted::{self, Fault, Loads, Process},
    script, summaries as scripted_summaries,
    world::{World, run_id},
};

type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

pub(crate) fn difference(case: &Case, fault: Option<Fault>) -> Option<String> {
    executed(Driver::new(case, fault, None)).err()
}

/// Executes a case twice, with a window of this number of turns: once with a store that loads all
/// messages, and once with `loads`. Returns the first difference between the messages that the model
/// client received, if any.
pub(crate) fn difference_of_loads(case: &Case, turns: usize, loads: Loads) -> Option<String> {
    // The model does not predict which summaries runs with a window make.
    let case = &Case { summarize: None, ..case.clone() };
    let shown = |loads| executed(Driver::new(case, None, Some(Windowed { turns, loads })));
    let compare = || same("the requests", &shown(loads)?, &shown(Loads::All)?);
    compare().err()
}

/// Executes a case. If the driver has a window, returns the messages that the model client received
/// in each service call, and otherwise an empty list.
///
/// # Errors
///
/// Returns the first difference between the conversation and the model.
fn executed(driver: Driver<'_>) -> Result<Vec<String>, String> {
    thread_local! {
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let drive = || {
        RUNTIME.with(|runtime| {
            let runtime = runtime.get_or_init(|| build().expect("a runtime"));
            let world = driver.world.clone();
            let driven = runtime.block_on(driver.drive());
            world.end();
            driven
        })
    };
    catch_unwind(AssertUnwindSafe(drive)).unwrap_or_else(|_| Err("a panic".to_owned()))
}

#[derive(Debug, Clone, Copy)]
struct Windowed {
    turns: usize,
    loads: Loads,
}

struct Driver<'a> {
    case: &'a Case,
    model: Model<'a>,
    world: World,
    store: MemoryStore,
    /// The conversation, or the branch of a conversation in which the case continues.
    key: ConversationKey,
    windowed: Option<Windowed>,
    /// The messages of each service call, if the stack has a window. The model of the contract does
    /// not predict them.
    shown: Vec<String>,
    client: Client,
    /// The received approval requests, by the tokens of their calls. The token of a call is unique
    /// in the conversation.
    requests: HashMap<String, ApprovalRequest>,
    tokens: HashMap<String, String>,
    /// The ids and positions of the received calls, by their tokens.
    calls: HashMap<String, (String, CallPosition)>,
}

fn client(case: &Case, world: &World, store: &MemoryStore, windowed: Option<Windowed>) -> Client {
    let loads = if case.loads_ranges { Loads::Ranges } else { Loads::All };
    let loads = windowed.map_or(loads, |windowed| windowed.loads);
    let store = Process::new(store.clone(), world.fault()).with_loads(loads);
    let window = windowed.map(|windowed| Window::turns(windowed.turns));
    let old_media = case.old_media.map(|kept| match world.fault() {
        Some(Fault::OldMediumSent) => kept.and_one_more().policy(),
        _ => kept.policy(),
    });
    let replay = ReplayPolicy::default().with_window(window).with_old_media(old_media);
    let mut policy = PersistencePolicy::default().with_replay(replay);
    if let Some(limit) = case.summarize {
        policy = policy.with_summarize(scripted_summaries::policy(limit, world.summarizer()));
    }
    let tool_loop = ToolLoopLayer::new(world.tools())
        .concurrent(case.concurrent)
        .unlimited_failing_rounds()
        .include_error_details(true);
    let tool_loop = match case.max_rounds {
        Some(max) => tool_loop.max_rounds(max).expect("it is not 0"),
        None => tool_loop,
    };
    let persister = PerServiceCallPersistence::new(store.clone());
    if case.has_run_layer {
        let stack = tool_loop.layer(persister.layer(world.model()));
        BoxCloneSyncService::new(PerRunPersistence::new(store).policy(policy).layer(stack))
    } else {
        let persister = if windowed.is_some() { persister } else { persister.policy(policy) };
        BoxCloneSyncService::new(tool_loop.layer(persister.layer(world.model())))
    }
}

impl<'a> Driver<'a> {
    fn new(case: &'a Case, fault: Option<Fault>, windowed: Option<Windowed>) -> Self {
        let world = World::new(case, fault);
        let store = MemoryStore::new();
        let client = client(case, &world, &store, windowed);
        Self {
            case,
            model: Model::new(case),
            world,
            store,
            key: ConversationKey::new("alice", "support"),
            windowed,
            shown: Vec::new(),
            client,
            requests: HashMap::new(),
            tokens: HashMap::new(),
            calls: HashMap::new(),
        }
    }

    async fn drive(mut self) -> Result<Vec<String>, String> {
        for (run, step) in self.case.steps.iter().enumerate() {
            let asked = match step.branch {
                Some(plan) => {
                    let branched = self.branch(run, plan, self.text(run)).await;
                    branched.map_err(|it| format!("{plan:?} before run {run}: {it}"))?
                }
                None => None,
            };
            let input = match &asked {
                Some(asked) => asked.input.clone(),
                None => self.input(run, step),
            };
            self.model.begin(run, input.clone(), step.tools);
            self.world.register(step.tools);
            let message = match asked {
                Some(asked) => asked.messages,
                None => self.messages(run, &input).await?,
            };
            for (number, attempt) in step.attempts.iter().enumerate() {
                if self.model.has_ended(run) && !self.case.repeats {
                    break;
                }
                self.attempt(run, &message, attempt)
                    .await
                    .map_err(|it| format!("run {run} ({input:?}), attempt {number}: {it}"))?;
                if step.reuses_id && self.model.has_input_of(run, attempt.mode) {
                    let reused = self.reuse_id(run, &message, attempt).await;
                    reused.map_err(|it| format!("the id of run {run} is used again: {it}"))?;
                }
                if let Some(change) = attempt.summary {
                    let changed = self.change_summaries(change).await;
                    changed.map_err(|it| format!("{change:?} after run {run}: {it}"))?;
                }
            }
            if step.forks {
                let copied = self.approve_in_copy(run, step).await;
                copied.map_err(|it| format!("a copy after run {run}: {it}"))?;
            }
        }
        Ok(self.shown)
    }

    async fn attempt(
        &mut self,
        run: usize,
        messages: &[Message],
        attempt: &Attempt,
    ) -> Result<(), String> {
        if attempt.restarts {
            self.client = client(self.case, &self.world, &self.store, self.windowed);
        }
        self.world.begin(attempt.cut);
        self.world.use_service(attempt.service);
        let expected = self.model.send(run, attempt);
        let mut request =
            ChatRequest::new(messages.iter().cloned().collect::<tower_chat::message::Messages>())
                .in_run(Conversation { key: self.key.clone(), run: run_id(run) })
                .with_extension(attempt.mode);
        if attempt.streamed {
            request = request.streamed();
        }
        let client = self.client.clone();
        let planted = match self.world.fault() {
            Some(Fault::PartialAnswer) => {
                planted::stored_part(&self.store, &self.key, run_id(run)).await
            }
            _ => None,
        };
        let answer = match planted {
            Some(answer) => Some(Ok(answer)),
            None => until_idle(async move { client.oneshot(request).await?.collect().await }).await,
        };
        self.compare_attempt(&expected, answer)?;
        self.compare_store().await
    }

    /// Sends a request with the id of a run and another input: a text, or the same decisions with
    /// other arguments.
    async fn reuse_id(
        &mut self,
        run: usize,
        messages: &[Message],
        attempt: &Attempt,
    ) -> Result<(), String> {
        self.world.begin(None);
        let other = approvals::with_changed_arguments(messages).unwrap_or_else(|| {
            vec![Message::user(format!("not {}", script::input(self.case, run).text))]
        });
        let mut request = ChatRequest::new(other)
            .in_run(Conversation { key: self.key.clone(), run: run_id(run) })
            .with_extension(attempt.mode);
        if attempt.streamed {
            request = request.streamed();
        }
        let client = self.client.clone();
        let answer =
            until_idle(async move { client.oneshot(request).await?.collect().await }).await;
        let expected = Expected { end: Some(End::RunIdReused), ..Expected::default() };
        self.compare_attempt(&expected, answer)?;
        self.compare_store().await
    }

    /// Copies the conversation, and approves the pending calls in the copy.
    async fn approve_in_copy(&mut self, run: usize, step: &Step) -> Result<(), String> {
        let waiting: Vec<String> =
            self.model.waiting().into_iter().flatten().map(|call| call.token).collect();
        let requests: Vec<_> =
            waiting.iter().filter_map(|token| self.requests.get(token)).collect();
        if requests.is_empty() {
            return Ok(());
        }
        let copy = ConversationKey::new("alice", format!("copy {run}"));
        let store = Process::new(self.store.clone(), self.world.fault());
        store.fork_at(&self.key, None, &copy).await.map_err(|it| it.to_string())?;
        let waiting = self.store.head(&copy).await.map_err(|it| it.to_string())?.pending_approvals;
        if !waiting.is_empty() {
            return Err(format!("{} batches wait for approval in the copy", waiting.len()));
        }
        let parts = requests.iter().map(|request| request.approve().into()).collect();
        let mode = step.attempts.first().map_or(PersistenceMode::PerRun, |attempt| attempt.mode);
        let request = ChatRequest::new(Message::new(Role::User, parts))
            .in_conversation(copy)
            .with_extension(mode);
        self.world.begin(None);
        let client = self.client.clone();
        let answer =
            until_idle(async move { client.oneshot(request).await?.collect().await }).await;
        same("the tools that run in the copy", &self.world.take_seen().ran, &[])?;
        match answer {
            Some(Err(error)) => match error.downcast_ref() {
                Some(ToolLoopError::ApprovalUnknown { .. }) => self.compare_store().await,
                _ => Err(format!("{error:?}")),
            },
            other => Err(format!("the approval is accepted: {other:?}")),
        }
    }
}

/// Polls a future until it is ready. Returns `None` if the future is pending and no task wakes it.
async fn until_idle<F: Future>(future: F) -> Option<F::Output> {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    loop {
        if !woken.0.swap(false, Ordering::AcqRel) {
            // Spawned tasks run now, and may wake the future.
            for _ in 0..3 {
                yield_now().await;
            }
            if !woken.0.swap(false, Ordering::AcqRel) {
                return None;
            }
        }
        let poll = Pin::as_mut(&mut future).poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(output) = poll {
            return Some(output);
        }
    }
}
