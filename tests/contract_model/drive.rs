//! Executes a case, and compares the conversation with the plain model of the contract (the module
//! `model`) after each attempt to send the request of a run.

mod branches;
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
    Answer, BoxError, ChatRequest, ChatResponse, ConversationKey, HistoryStore, MemoryStore,
    Message, Part, PersistenceError, PersistenceMode, PersistencePolicy, Role, ToolResult,
    error::ToolLoopError,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    replay::{ReplayPolicy, Window, effective_call_ids},
    run::Conversation,
    store::{InvocationQuery, Maintenance, ToolCallQueries},
    tool::{ApprovalRequest, CallPosition, pending_results},
};

use crate::contract_model::{
    approvals::{self, ApprovalInput, Extent},
    case::{Attempt, Case, Input, ResultInput, Step},
    media::{self, Medium},
    model::{End, Expected, Model, RunInput},
    observe,
    planted::{self, Fault, Loads, Process},
    script, summaries as scripted_summaries,
    tools::token_in,
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

    fn input(&self, run: usize, step: &Step) -> RunInput {
        match &step.input {
            Input::Text => None,
            Input::Approvals(input) => self.approvals(run, input),
            Input::Results(input) => self.results(input),
        }
        .unwrap_or(RunInput::Text)
    }

    fn approvals(&self, run: usize, input: &ApprovalInput) -> Option<RunInput> {
        let tokens: Vec<String> = match input.extent {
            Extent::Again => self.model.decided(),
            Extent::Whole | Extent::Partial => {
                let waiting = self.model.waiting().into_iter();
                let chosen = waiting.skip(input.skipped).take(input.batches).flatten();
                chosen.map(|call| call.token).collect()
            }
        };
        let answer = |(index, token): (usize, String)| {
            let decision = input.decision(run, index, &token);
            (token, decision)
        };
        let mut answers: Vec<_> = tokens.into_iter().enumerate().map(answer).collect();
        if input.extent == Extent::Partial {
            answers.pop();
        }
        if input.reversed {
            answers.reverse();
        }
        (!answers.is_empty()).then_some(RunInput::Approvals { answers, has_text: input.has_text })
    }

    fn results(&self, input: &ResultInput) -> Option<RunInput> {
        let tokens = match input.from_record {
            true => self.model.pending_results(),
            false => {
                let returned = self.model.returned().into_iter();
                returned.skip(input.skipped).take(input.calls).collect()
            }
        };
        let (has_text, from_record) = (input.has_text, input.from_record);
        (!tokens.is_empty()).then_some(RunInput::Results { tokens, has_text, from_record })
    }

    fn text(&self, run: usize) -> Message {
        script::input(self.case, run).into_message()
    }

    async fn messages(&self, run: usize, input: &RunInput) -> Result<Vec<Message>, String> {
        let text = || self.text(run);
        Ok(match input {
            RunInput::Text => vec![text()],
            RunInput::Again(message) => vec![message.clone().into_message()],
            RunInput::Approvals { answers, has_text } => {
                let mut message = text();
                let text = std::mem::take(&mut message.parts);
                for (token, decision) in answers {
                    let request = self.requests.get(token);
                    let request = request.ok_or_else(|| {
                        format!("no caller received an approval request for {token}")
                    })?;
                    let response = decision.response(request, token);
                    message.parts.push(Part::ApprovalResponse(response));
                }
                message.parts.extend(text.into_iter().filter(|_| *has_text));
                vec![message]
            }
            RunInput::Results { tokens, has_text, from_record } => {
                let results = if *from_record {
                    let found = pending_results(&self.store, &self.key).await;
                    let found = found.map_err(|it| it.to_string())?;
                    found.ok_or("pending_results finds none")?
                } else {
                    let results: Option<Vec<_>> =
                        tokens.iter().map(|token| self.late_result(token)).collect();
                    Message::tool_results(results.ok_or("no caller received one of the calls")?)
                };
                let mut messages = vec![results];
                messages.extend(has_text.then(text));
                messages
            }
        })
    }

    /// Creates a result of a call in an earlier run. The result refers to the call by id if the id
    /// is unique, and otherwise by position.
    fn late_result(&self, token: &str) -> Option<ToolResult> {
        let (id, position) = self.calls.get(token)?;
        let mut result = ToolResult::new(&**id, format!("late {token}"));
        result.content.extend(media::of_caller(self.case, token).map(Medium::part));
        let is_distinct = id.strip_prefix("id_") == Some(token);
        Some(if is_distinct { result } else { result.answering(*position) })
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

    fn compare_attempt(
        &mut self,
        expected: &Expected,
        answer: Option<Result<Answer, BoxError>>,
    ) -> Result<(), String> {
        let seen = self.world.take_seen();
        compare_requests("the request for a summary", seen.summarized, &expected.summarized)?;
        let calls = seen.shown.len();
        for (call, shown) in seen.shown.into_iter().enumerate() {
            let shown = shown.map_err(|it| format!("service call {call}: {it}"))?;
            let Some(expected) = expected.shown.get(call) else {
                return Err(format!("service call {call} is made, and shows {shown:#?}"));
            };
            match self.windowed {
                Some(_) => self.shown.push(shown.join("\n")),
                None => same(&format!("service call {call} shows"), &shown, expected)?,
            }
        }
        if let Some(missing) = expected.shown.get(calls) {
            let answer = match &answer {
                Some(Ok(answer)) => {
                    let messages = answer.messages.iter().map(|message| &**message);
                    format!("{:#?}", observe::texts(messages, &self.tokens))
                }
                other => format!("{other:?}"),
            };
            return Err(format!(
                "service call {calls} is missing; it should show {missing:#?}; the attempt ends with {answer}"
            ));
        }
        same("the tools that run", &seen.ran, &expected.ran)?;
        let end = match answer {
            None => End::Dropped,
            Some(Ok(answer)) => {
                self.note(answer.messages.iter());
                let messages = answer.messages.iter().map(|message| &**message);
                End::Answer(observe::texts(messages, &self.tokens))
            }
            Some(Err(error)) => end_of(&error)?,
        };
        match (&end, &expected.end) {
            (End::Answer(answer), Some(End::Answer(expected))) => {
                same("the answer", answer, expected)
            }
            (end, Some(expected)) if end == expected => Ok(()),
            (end, expected) => Err(format!("it ends with {end:#?}, not with {expected:#?}")),
        }
    }

    /// Records the calls and approval requests of messages. Later inputs can answer them.
    fn note<'m>(&mut self, messages: impl Iterator<Item = &'m Arc<Message>>) {
        for message in messages {
            let ids = effective_call_ids(message);
            let calls = (0..).zip(message.asked_calls()).zip(ids);
            for ((index, call), id) in calls {
                let token = token_in(&call.arguments).unwrap_or_default();
                let position = message.id.map(|message| CallPosition { message, index });
                if let Some(position) = position {
                    // `compare_store` calls this function again, and replaces this position by the
                    // position in the store. The two differ if a hook has removed an earlier call
                    // of the message.
                    self.calls.insert(token.to_owned(), (id, position));
                }
            }
            for part in &message.parts {
                if let Part::ApprovalRequest(request) = part {
                    let token = token_in(&request.call.arguments).unwrap_or_default();
                    self.requests.insert(token.to_owned(), request.clone());
                    self.tokens.insert(request.id.clone(), token.to_owned());
                }
            }
        }
    }

    async fn compare_store(&mut self) -> Result<(), String> {
        let history = self.store.load(&self.key).await.map_err(|it| it.to_string())?;
        // If the request first resumed another run, the caller has not received the answer of that
        // run. Its calls are therefore read from the store.
        self.note(history.messages.iter());
        self.compare_stored(&self.key, &self.model).await
    }

    /// Compares a stored conversation with the model.
    async fn compare_stored(&self, key: &ConversationKey, model: &Model<'_>) -> Result<(), String> {
        let history = self.store.load(key).await.map_err(|it| it.to_string())?;
        let messages = history.messages.iter().map(|message| &**message);
        same("the store", &observe::texts(messages, &self.tokens), &model.stored())?;
        self.compare_summaries(key, &history, model).await?;
        let rows = self.store.invocations(&InvocationQuery::of(key)).await;
        let rows = rows.map_err(|it| it.to_string())?;
        if let Some(unreadable) = rows.unreadable.first() {
            return Err(unreadable.to_string());
        }
        let is_known = |row: &String| token_in(row).is_some_and(|token| model.is_known(token));
        let mut rows: Vec<String> = rows.found.iter().map(|(_, row)| observe::row(row)).collect();
        rows.retain(|row| !is_known(row));
        let mut expected = model.record();
        expected.retain(|row| !is_known(row));
        same("the record", &rows, &expected)
    }
}

/// Compares the messages of requests with those that the model expects.
fn compare_requests(
    what: &str,
    found: Vec<Result<Vec<String>, String>>,
    expected: &[Vec<String>],
) -> Result<(), String> {
    let texts: Result<Vec<String>, String> =
        found.into_iter().map(|request| Ok(request?.join("\n    "))).collect();
    let expected: Vec<String> = expected.iter().map(|request| request.join("\n    ")).collect();
    same(what, &texts.map_err(|it| format!("{what}: {it}"))?, &expected)
}

fn end_of(error: &BoxError) -> Result<End, String> {
    if let Some(ToolLoopError::ApprovalMissing { .. }) = error.downcast_ref() {
        return Ok(End::ApprovalMissing);
    }
    if let Some(ToolLoopError::ApprovalAnswered { .. }) = error.downcast_ref() {
        return Ok(End::ApprovalAnswered);
    }
    match error.downcast_ref() {
        Some(ToolLoopError::ResultsMissing { .. }) => return Ok(End::ResultsMissing),
        Some(ToolLoopError::ArgumentsNotKept { .. }) => return Ok(End::ArgumentsNotKept),
        _ => {}
    }
    match error.downcast_ref() {
        Some(PersistenceError::PendingCallNotKept { .. }) => return Ok(End::PendingCallNotKept),
        Some(PersistenceError::RunIdReused { .. }) => return Ok(End::RunIdReused),
        _ => {}
    }
    if error.to_string() == "overloaded" {
        return Ok(End::Failed);
    }
    Err(format!("it fails: {error:?}"))
}

fn same(what: &str, found: &[String], expected: &[String]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let mut text = format!("{what} (- the model's, + found)\n");
    let begin = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    found[..begin].iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    expected[begin..].iter().for_each(|line| text.push_str(&format!("  - {line}\n")));
    found[begin..].iter().for_each(|line| text.push_str(&format!("  + {line}\n")));
    Err(text)
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
