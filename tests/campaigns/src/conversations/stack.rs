//! The stack of a run: the layers, the model client and the tools. A `Turn` identifies the run.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{task::yield_now, time::timeout};
use tower::{Layer, ServiceExt};
use tower_chat::{
    BoxError, ChatRequest, ChatUpdate, HistoryStore, Message, Part, PersistencePolicy, Role,
    ToolCall, ToolDefinition, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::{ConcurrentRuns, StoreFailure},
    recovery::JournalPolicy,
    run::{Conversation, RunId},
    telemetry::TracedStore,
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{Rng, ScriptedModel, Step};

use super::{
    inspection::check_valid,
    plan::{Plan, Turn, key, text, token_of},
    turn::TurnEvent,
};

/// The maximum number of service calls of a request. No correct request needs as many, even if it
/// first resumes an open run (an interrupted journaled run).
const MAX_SERVICE_CALLS: usize = 40;

/// The duration of the leases of journaled runs. No other process may take over the run of a killed
/// process before its lease ends.
const LEASE: Duration = Duration::from_secs(1);

pub(crate) const PLANNED: &str = "planned failure";

/// Receives the events of runs.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<dyn Fn(Turn, Result<TurnEvent, String>) + Send + Sync>);

impl Reporter {
    /// Creates a reporter. The function receives each event of a run, and the description of each
    /// fault.
    pub(crate) fn new(
        report: impl Fn(Turn, Result<TurnEvent, String>) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(report))
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) turn: Turn,
    pub(crate) run: RunId,
    /// The seed of the random choices of this attempt.
    pub(crate) seed: u64,
    /// Whether the caller may drop the response, and the model may fail.
    pub(crate) is_unstable: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The caller received the answer whose text contains this token.
    Answered {
        token: String,
    },
    Failed {
        error: String,
    },
    /// The caller dropped the response.
    Dropped,
}

#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) seed: u64,
    pub(crate) prefix: Arc<str>,
    pub(crate) tokens: Arc<AtomicU64>,
    pub(crate) reporter: Reporter,
}

impl Stack {
    pub(crate) fn new(seed: u64, prefix: &str, reporter: Reporter) -> Self {
        Self { seed, prefix: prefix.into(), tokens: Arc::default(), reporter }
    }

    fn next_token(&self) -> String {
        format!("{}n{}", self.prefix, self.tokens.fetch_add(1, Ordering::Relaxed))
    }

    fn report(&self, turn: Turn, event: TurnEvent) {
        (self.reporter.0)(turn, Ok(event));
    }

    fn report_fault(&self, turn: Turn, what: String) {
        (self.reporter.0)(turn, Err(what));
    }

    /// Sends the request of a job. If the job is unstable, the response may be dropped early: its
    /// task is aborted, or its future is dropped after some polls.
    pub(crate) async fn send(&self, store: impl HistoryStore + Clone, job: &Job) -> Outcome {
        let mut rng = Rng::of(job.seed, 0);
        let leaves = job.is_unstable && rng.one_in(4);
        let is_aborted = leaves && rng.one_in(2);
        let patience = Duration::from_micros(rng.below(30_000) as u64);
        let polls = if leaves { rng.below(30) } else { usize::MAX };
        let (stack, job) = (self.clone(), job.clone());
        let answered = async move { stack.answer(store, &job).await };
        let mut task = tokio::spawn(async move {
            if is_aborted { Some(answered.await) } else { poll_at_most(answered, polls).await }
        });
        let in_time = match is_aborted {
            true => timeout(patience, &mut task).await.ok(),
            false => None,
        };
        let outcome = match in_time {
            Some(outcome) => outcome,
            None => {
                if is_aborted {
                    task.abort();
                }
                // An aborted task continues until its next await.
                task.await
            }
        };
        match outcome {
            Ok(None) => Outcome::Dropped,
            Ok(Some(Ok(token))) => Outcome::Answered { token },
            Ok(Some(Err(error))) => Outcome::Failed { error: chain(&*error) },
            Err(error) if error.is_cancelled() => Outcome::Dropped,
            Err(error) => Outcome::Failed { error: error.to_string() },
        }
    }

    async fn answer(
        &self,
        store: impl HistoryStore + Clone,
        job: &Job,
    ) -> Result<String, BoxError> {
        let mut rng = Rng::of(job.seed, 1);
        let store = TracedStore::new(store);
        let model = self.model(job);
        let tool_loop = ToolLoopLayer::new(self.tools(job))
            .concurrent(rng.one_in(2))
            .unlimited_failing_rounds()
            .include_error_details(true);
        let policy = PersistencePolicy::default()
            .with_journal(JournalPolicy::default().with_lease(LEASE))
            .with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 4 })
            .on_store_failure(StoreFailure::FailCall);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model);
        let above = PerRunPersistence::new(store).mode(Plan::of(self.seed, job.turn).mode);
        let client = above.policy(policy).layer(tool_loop.layer(below));
        let conversation = Conversation { key: key(job.turn.conversation), run: job.run };
        let request = ChatRequest::user(text(&job.turn.token())).in_run(conversation);
        let request = if rng.one_in(2) { request.streamed() } else { request };
        let mut response = client.oneshot(request).await?;
        let mut last = None;
        while let Some(update) = response.next().await {
            match update? {
                ChatUpdate::Message(message) if message.role == Role::Assistant => {
                    last = Some(message);
                }
                ChatUpdate::Finish(finish) => {
                    let unsaved = finish.saved.as_ref().map_or(0, |saved| saved.unsaved);
                    if unsaved > 0 {
                        return Err(format!("{unsaved} messages are not stored").into());
                    }
                }
                _ => {}
            }
            yield_now().await;
        }
        let text = last.map(|message| message.text()).unwrap_or_default();
        let token = token_of(&text)
            .ok_or_else(|| format!("the model did not give this answer: {text:?}"))?;
        Ok(token.to_owned())
    }

    fn model(&self, job: &Job) -> ScriptedModel {
        ScriptedModel::new((0..MAX_SERVICE_CALLS).map(|call| {
            let (stack, job) = (self.clone(), job.clone());
            Step::respond(move |request| stack.respond(request, &job, call))
        }))
    }

    fn respond(&self, request: &ChatRequest, job: &Job, call: usize) -> Step {
        let Some(turn) = last_turn(request) else {
            self.report_fault(job.turn, "the model was not sent the input".to_owned());
            return Step::error("the model was not sent the input");
        };
        if let Err(invalid) = check_valid(request.messages()) {
            self.report_fault(turn, format!("the model was sent an invalid history: {invalid}"));
        }
        let mut rng = Rng::of(job.seed, 2 + call as u64);
        self.report(turn, TurnEvent::Asked { shown: shown(request) });
        let token = self.next_token();
        let mut message = Message::assistant(text(&token));
        if job.is_unstable && rng.one_in(40) {
            return match rng.one_in(2) {
                true => Step::error(PLANNED),
                false => Step::message(message).fails_after(1, PLANNED),
            };
        }
        let round = next_round(request, turn);
        let calls = Plan::of(self.seed, turn).rounds.get(round).copied().unwrap_or(0);
        let ids: Vec<String> = (0..calls).map(|index| format!("{token}.{index}")).collect();
        for (index, id) in ids.iter().enumerate() {
            let tool = if index % 2 == 0 { "look" } else { "book" };
            let arguments = format!("[{},{},{round}]", turn.conversation, turn.number);
            message.parts.push(Part::ToolCall(ToolCall::new(id, tool, arguments)));
        }
        self.report(turn, TurnEvent::Answered { token, calls: ids });
        Step::message(message)
    }

    fn tools(&self, job: &Job) -> Tools {
        ["look", "book"].into_iter().fold(Tools::new(), |tools, name| {
            let definition = ToolDefinition::new(name, name, serde_json::json!({"type": "array"}));
            let definition = if name == "look" { definition.safe_to_retry() } else { definition };
            let (stack, seed, this) = (self.clone(), job.seed, job.turn);
            tools.with(tool_fn(definition, move |context| {
                let (stack, call) = (stack.clone(), context.call_id().to_owned());
                let of = context.call().parse_arguments::<(u32, u32, usize)>();
                async move {
                    let token = stack.next_token();
                    let mut rng =
                        Rng::of(seed, token.len() as u64 + stack.tokens.load(Ordering::Relaxed));
                    if rng.one_in(2) {
                        tokio::time::sleep(Duration::from_micros(rng.below(3_000) as u64)).await;
                    }
                    let turn =
                        of.map_or(this, |(conversation, number, _)| Turn { conversation, number });
                    stack.report(turn, TurnEvent::Ran { call, token: token.clone() });
                    match rng.one_in(12) {
                        true => Err(BoxError::from(format!("<{}>", text(&token)))),
                        false => Ok(ToolOutput::from(text(&token))),
                    }
                }
            }))
        })
    }
}

/// Returns the output of a future, or `None` if it is not ready after this many polls.
async fn poll_at_most<F: Future>(future: F, max_polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(move |cx| {
        if polls >= max_polls {
            return Poll::Ready(None);
        }
        polls += 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Returns the turn of the last input.
fn last_turn(request: &ChatRequest) -> Option<Turn> {
    let is_user = |message: &&Arc<Message>| message.role == Role::User;
    Turn::of_text(&request.messages().iter().rev().find(is_user)?.text())
}

/// Returns the tokens of the inputs and answers in a request.
fn shown(request: &ChatRequest) -> Vec<String> {
    let is_text = |message: &&Arc<Message>| matches!(message.role, Role::User | Role::Assistant);
    let texts = request.messages().iter().filter(is_text).map(|message| message.text());
    texts.filter_map(|text| token_of(&text).map(str::to_owned)).collect()
}

/// Returns the index of the next round of the run, which follows the last round in the request.
/// Each call has the index of its round in its arguments.
fn next_round(request: &ChatRequest, turn: Turn) -> usize {
    let calls = request.messages().iter().flat_map(|message| message.calls());
    let rounds = calls.filter_map(|call| {
        let (conversation, number, round): (u32, u32, usize) = call.parse_arguments().ok()?;
        (Turn { conversation, number } == turn).then_some(round + 1)
    });
    rounds.max().unwrap_or(0)
}

pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
