//! Branches of the conversation. After an attempt at the run with faults, or during the attempt, a
//! caller forks the conversation, edits a question or asks a question again. The operation itself
//! may fail, lose its acknowledgement, or be cut off. The parent then is as it was, and the branch
//! is complete or does not exist. The same operation without faults creates a branch, which accepts
//! a run.

use std::{fmt::Write as _, sync::Arc};

use tokio::task::yield_now;
use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, Message, Part,
    PersistenceMode::PerServiceCall,
    Role, ToolCall, ToolResult,
    error::BranchError,
    message::MessageId,
    recovery::OnOpenRun,
    replay::{DanglingCalls, Replay},
    run::{Conversation, RunId},
    store::{Directory, Fork, Head, History, Journal, Maintenance, Parent, Revision, StoreError},
};
use tower_chat_testkit::{FaultyStore, Rng};

use crate::faults::{
    case::Caller,
    model,
    process::{RunRequest, key, polled},
    rules::require,
    scenario::{Scenario, turns},
    script::{Input, RunScript, input_text},
    scripted_model::is_valid,
    trace::{Event, Outcome, label},
    trace_index::TraceIndex,
    world::FaultPlan,
};

/// The creation of a branch in a case.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Branching {
    operation: Operation,
    /// Selects the message before whose turn the branch ends.
    choice: u64,
    /// Whether the branch is created during the first attempt at the run with faults, instead of
    /// after the attempt.
    pub(crate) during: bool,
    /// The faults of the operation. An operation during an attempt has the faults of the attempt.
    pub(crate) fault_plan: FaultPlan,
    /// The number of polls after which the caller drops the operation.
    max_polls: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Fork,
    Edit,
    Regenerate,
}

/// The number of steps of an operation that fails after the fork.
const STEPS: usize = 8;

impl Branching {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let operation = [Operation::Fork, Operation::Edit, Operation::Regenerate][rng.below(3)];
        let mut branching = Self {
            operation,
            choice: rng.next(),
            during: rng.one_in(3),
            fault_plan: FaultPlan::default(),
            max_polls: u32::MAX,
        };
        let step = 1 + rng.below(STEPS) as u64;
        match rng.below(4) {
            0 => {}
            1 => branching.fault_plan.kill_at = Some(step),
            2 => branching.max_polls = u32::try_from(1 + rng.below(STEPS)).expect("small"),
            // Operations of the store begin at steps with an odd number.
            _ => branching.fault_plan.faults = vec![(step | 1, rng.next())],
        }
        branching.fault_plan.delays = rng.next() | 1;
        branching
    }

    pub(crate) fn simpler(&self) -> Vec<Self> {
        let plain = [
            Self { operation: Operation::Fork, ..self.clone() },
            Self { during: false, ..self.clone() },
            Self { fault_plan: FaultPlan::default(), ..self.clone() },
            Self { max_polls: u32::MAX, ..self.clone() },
        ];
        plain.into_iter().filter(|plain| plain != self).collect()
    }

    /// Selects a message of the parent. Returns `None` if the parent has no messages.
    fn target(&self, parent: &History) -> Option<Target> {
        let mut rng = Rng::of(self.choice, 0);
        let all: Vec<(u64, MessageId)> =
            parent.numbered().filter_map(|(at, message)| Some((at, message.id?))).collect();
        let questions: Vec<_> = parent
            .numbered()
            .filter(|(_, message)| is_question(message))
            .filter_map(|(at, message)| Some((at, message.id?)))
            .collect();
        let among = match self.operation {
            Operation::Edit if !questions.is_empty() && !rng.one_in(4) => &questions,
            Operation::Fork | Operation::Edit | Operation::Regenerate => &all,
        };
        let (number, id) = *among.get(rng.below(among.len().max(1)))?;
        let is_last = self.operation != Operation::Edit && rng.one_in(4);
        Some(Target { operation: self.operation, message: (!is_last).then_some((number, id)) })
    }
}

/// An operation at a message of the parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    operation: Operation,
    /// The message; `None` for all messages (`fork_at`) or the last turn (`regenerate`).
    message: Option<(u64, MessageId)>,
}

/// The outcome of an operation that succeeded.
#[derive(Debug)]
pub(crate) enum Made {
    Fork(Fork),
    Request(ChatRequest),
}

impl Target {
    async fn branch<S: HistoryStore>(
        self,
        store: &FaultyStore<S>,
        edited: Message,
        to: ConversationKey,
    ) -> Result<Made, BranchError> {
        let id = self.message.map(|(_, id)| id);
        match (self.operation, id) {
            (Operation::Edit, Some(id)) => {
                ChatRequest::edit(store, &key(), id, edited, to).await.map(Made::Request)
            }
            (Operation::Edit | Operation::Regenerate, _) => {
                ChatRequest::regenerate(store, &key(), id, to).await.map(Made::Request)
            }
            (Operation::Fork, _) => {
                let before = self.message.map(|(number, _)| number);
                Ok(Made::Fork(store.fork_at(&key(), before, &to).await?))
            }
        }
    }

    /// Returns the sequence number of the message before which the branch ends.
    fn before(self, parent: &History) -> u64 {
        let end = parent.skipped() + parent.messages.len() as u64 + 1;
        match (self.message, self.operation) {
            (Some((number, _)), _) => number,
            (None, Operation::Fork) => end,
            (None, Operation::Edit | Operation::Regenerate) => end - 1,
        }
    }

    /// Checks the outcome of an operation without faults.
    fn check(
        self,
        outcome: &Result<Made, BranchError>,
        edited: &Message,
        parent: &History,
    ) -> Result<(), String> {
        let before = self.before(parent);
        let position = boundary(parent, before);
        let wrong = || format!("{self:?} at {position} returned {outcome:?}");
        let first = parent.message(position + 1);
        let is_of_other = |message: &Message| {
            is_question(message)
                && message.id.map(|id| id.run) != first.and_then(|first| first.id).map(|id| id.run)
        };
        let mut turn = parent.numbered().filter(|(at, _)| (position + 1..=before).contains(at));
        let is_joined = turn.any(|(_, message)| is_of_other(message));
        let question = first
            .filter(|first| is_question(first))
            .filter(|_| self.operation != Operation::Edit || before == position + 1);
        let right = match outcome {
            Ok(Made::Fork(fork)) => fork.position == position && fork.revision != Revision::ABSENT,
            Ok(Made::Request(request)) => {
                let question = match self.operation {
                    Operation::Edit => question.map(|_| label(edited)),
                    Operation::Fork | Operation::Regenerate => {
                        question.map(|question| label(question))
                    }
                };
                let sent = request.messages().iter().map(|message| label(message));
                !is_joined && sent.map(Some).eq([question])
            }
            Err(BranchError::JoinedTurns { position: at, .. }) => is_joined && *at == position,
            Err(BranchError::NoQuestion { .. }) => !is_joined && question.is_none(),
            Err(_) => false,
        };
        require(right, wrong)
    }
}

/// Returns whether a message is the input of a run, and decides about no approval.
fn is_question(message: &Message) -> bool {
    let is_input = |part: &Part| matches!(part, Part::Text(_) | Part::Media(_));
    message.role == Role::User && message.parts.iter().all(is_input)
}

/// Returns the largest position before the message `before` at which a branch can end: no run has
/// messages on both sides, and no call before the position has its result after the position.
fn boundary(parent: &History, before: u64) -> u64 {
    let divides = |position: u64| {
        let (copied, later): (Vec<_>, Vec<_>) =
            parent.numbered().partition(|(at, _)| *at <= position);
        let run = |message: &Message| message.id.map(|id| id.run);
        copied.iter().any(|(_, copied)| {
            later.iter().any(|(_, later)| run(copied) == run(later) || answers(later, copied))
        })
    };
    let mut position = before.saturating_sub(1);
    while position > parent.skipped() && divides(position) {
        position -= 1;
    }
    position
}

/// Returns whether a message has the result of a call in an earlier message.
fn answers(message: &Message, earlier: &Message) -> bool {
    earlier.parts.iter().any(|part| {
        let call = match part {
            Part::ToolCall(call) => call,
            Part::ApprovalRequest(request) => &request.call,
            _ => return false,
        };
        message.results().any(|result| result.call_id == call.id)
    })
}

/// Checks that a branch contains exactly the messages of its parent up to the largest possible
/// position.
fn check_copied(branch: &History, parent: &History, before: u64) -> Result<(), String> {
    let position = boundary(parent, before);
    let copied = parent.numbered().filter(|(at, _)| *at <= position).map(|(_, message)| message);
    let (copied, found) = (in_full(copied), in_full(branch.messages.iter()));
    require(found == copied, || {
        format!("the branch up to {position} contains\n{found}instead of\n{copied}")
    })
}

/// Checks that a branch that was created during a run contains the first messages of its parent. If
/// the branch contains a run in part, the messages of this run were visible before its end.
fn check_begun_during(
    branch: &History,
    parent: &History,
    visible_in_part: Option<RunId>,
) -> Result<(), String> {
    let position = branch.messages.len();
    let (copied, found) =
        (in_full(parent.messages.iter().take(position)), in_full(branch.messages.iter()));
    require(found == copied, || format!("the branch contains\n{found}instead of\n{copied}"))?;
    let run = |message: &Arc<Message>| message.id.map(|id| id.run);
    let later: Vec<_> = parent.messages.iter().skip(position).map(run).collect();
    let mut divided = branch.messages.iter().map(run).filter(|run| later.contains(run));
    require(divided.all(|run| run == visible_in_part), || {
        format!("a run has messages on both sides of {position} in\n{}", in_full(&parent.messages))
    })
}

fn in_full<'m>(messages: impl IntoIterator<Item = &'m Arc<Message>>) -> String {
    messages.into_iter().fold(String::new(), |mut lines, message| {
        writeln!(lines, "  {message:?}").expect("a string accepts every write");
        lines
    })
}

/// Returns the script of the run in a branch.
pub(crate) fn script() -> RunScript {
    RunScript { input: Input::Text, rounds: vec![vec!["look", "again"]] }
}

fn branch_key(number: usize) -> ConversationKey {
    ConversationKey::new("alice", format!("branch {number}"))
}

/// The outcome of an operation: `None` if the operation was cut off.
type Attempted = Option<Result<Made, BranchError>>;

impl<S: HistoryStore + Clone> Scenario<'_, S> {
    /// Creates a branch after an attempt at a run.
    pub(crate) async fn branch(
        &mut self,
        branching: &Branching,
        open: &impl AsyncFn() -> S,
    ) -> Result<(), String> {
        let parent = self.history(&key()).await;
        let Some(target) = branching.target(&parent) else { return Ok(()) };
        let before = self.content_of_parent().await;
        self.world.begin(branching.fault_plan.clone());
        let attempted = target.branch(&self.process.store, self.edited(), branch_key(1));
        let attempted = polled(attempted, branching.max_polls, self.world).await;
        self.end_branching(open).await;
        let exists = self.check_attempted(attempted.as_ref()).await?;
        if exists {
            let branch = self.history(&branch_key(1)).await;
            check_copied(&branch, &parent, target.before(&parent))?;
        }
        self.branch_again(target, exists, attempted).await?;
        let after = self.content_of_parent().await;
        require(after == before, || format!("the parent was {before}, and is {after}"))
    }

    /// Creates a branch during an attempt at a run.
    pub(crate) async fn branch_during(&self, branching: &Branching) -> Attempted {
        for _ in 0..branching.choice % 60 {
            yield_now().await;
        }
        let operation = async {
            let parent = self.process.store.load(&key()).await?;
            let Some(target) = branching.target(&parent) else { return Ok(None) };
            target.branch(&self.process.store, self.edited(), branch_key(1)).await.map(Some)
        };
        polled(operation, branching.max_polls, self.world).await?.transpose()
    }

    /// Checks the branch that was created during the attempt. Then creates another branch.
    pub(crate) async fn branch_after(
        &mut self,
        branching: &Branching,
        attempted: Attempted,
    ) -> Result<(), String> {
        let parent = self.history(&key()).await;
        let exists = self.check_attempted(attempted.as_ref()).await?;
        if exists {
            let visible_in_part = self.world.run_id(self.case.faulty_run);
            let visible_in_part = (self.case.mode == PerServiceCall).then_some(visible_in_part);
            let branch = self.history(&branch_key(1)).await;
            check_begun_during(&branch, &parent, visible_in_part)?;
        }
        let Some(target) = branching.target(&parent) else { return Ok(()) };
        self.branch_again(target, exists, attempted).await
    }

    /// Checks whether the branch exists, by the outcome of the operation. Returns whether the branch
    /// exists.
    async fn check_attempted(
        &self,
        attempted: Option<&Result<Made, BranchError>>,
    ) -> Result<bool, String> {
        let head = self.readers.store.head(&branch_key(1)).await.expect("no fault is injected");
        let exists = head.revision != Revision::ABSENT;
        let may_be = match attempted {
            Some(Ok(_)) => exists,
            Some(Err(BranchError::Store(_))) | None => true,
            Some(Err(_)) => !exists,
        };
        let is_acknowledged = matches!(attempted, Some(Ok(_)));
        self.world.note(Event::Branched { exists, is_acknowledged });
        require(may_be, || format!("{attempted:?} was returned; the branch exists: {exists}"))?;
        Ok(exists)
    }

    /// Repeats the operation without faults. If its branch exists, the operation fails, and creates
    /// a branch with another key. Then sends a run to the branch.
    async fn branch_again(
        &mut self,
        target: Target,
        exists: bool,
        attempted: Attempted,
    ) -> Result<(), String> {
        let parent = self.history(&key()).await;
        let edited = self.edited();
        let mut branch = branch_key(1);
        let mut again = target.branch(&self.process.store, edited.clone(), branch.clone()).await;
        if exists {
            let is_refused = matches!(&again, Err(BranchError::Store(StoreError::Exists { .. })));
            require(is_refused, || format!("the branch exists, and {again:?} was returned"))?;
            branch = branch_key(2);
            again = target.branch(&self.process.store, edited.clone(), branch.clone()).await;
        }
        target.check(&again, &edited, &parent)?;
        let begun = self.history(&branch).await;
        let Ok(made) = again else {
            return require(begun.head.revision == Revision::ABSENT, || {
                format!("{again:?} was returned, and the branch exists")
            });
        };
        let before = target.before(&parent);
        check_copied(&begun, &parent, before)?;
        let summary = self.readers.store.summary(&branch).await.expect("no fault is injected");
        let from = summary.and_then(|summary| summary.parent);
        let right = Parent::new(key(), boundary(&parent, before));
        require(from.as_ref() == Some(&right), || format!("{from:?} instead of {right:?}"))?;
        // The operation with faults may have succeeded. The caller then sends its request.
        let made = match attempted {
            Some(Ok(made)) => {
                branch = branch_key(1);
                made
            }
            _ => made,
        };
        self.run_in(branch, made).await
    }

    /// Executes a run in a branch without faults.
    async fn run_in(&self, branch: ConversationKey, made: Made) -> Result<(), String> {
        let run = self.case.runs.len();
        if let Made::Request(request) = &made {
            let of = request.conversation().map(|conversation| &conversation.key);
            require(of == Some(&branch), || format!("the request is for {of:?}"))?;
        }
        let is_edited = |request: &ChatRequest| {
            request.messages().iter().any(|message| label(message) == label(&self.edited()))
        };
        // The scripted model recognises a run by the text of its input. The request of `regenerate`
        // has the text of another run, so the test replaces it.
        let request = match made {
            Made::Request(request) if is_edited(&request) => request,
            Made::Request(_) | Made::Fork(_) => ChatRequest::new(self.edited()),
        };
        let conversation = Conversation { key: branch.clone(), run: self.world.run_id(run) };
        let request = request.in_run(conversation);
        let request = if self.case.streamed { request.streamed() } else { request };
        let request = RunRequest { request, answers: Vec::new(), changed: Vec::new() };
        let begun = self.history(&branch).await;
        let outcome = self.process.send(run, request, Caller::Patient).await;
        self.complete_delayed().await?;
        require(matches!(outcome, Outcome::Answer { unsaved: 0, .. }), || {
            format!("the run in the branch ended with {outcome:?}")
        })?;
        let history = self.history(&branch).await;
        let copied = begun.messages.len();
        require(in_full(history.messages.iter().take(copied)) == in_full(&begun.messages), || {
            format!("the run has changed the copied messages to\n{}", in_full(&history.messages))
        })?;
        let trace = self.world.trace();
        let index = TraceIndex::of(&trace);
        let expected = model::history(self.case.mode, &index, run + 1)?.pop();
        let seen = turns(self.world, history.messages.iter().skip(copied))?;
        require(seen.iter().eq(&expected), || {
            format!("the branch contains {seen:?} instead of {expected:?}")
        })?;
        require(history.head.pending_approvals.iter().flatten().next().is_none(), || {
            "a call in the branch waits for approval".to_owned()
        })?;
        let mut replay = Replay::new(DanglingCalls::Drop);
        replay.push_from(&history.messages, 0);
        is_valid(&replay.view()).map_err(|invalid| format!("the branch is invalid: {invalid}"))?;
        self.check(false).await
    }

    async fn end_branching(&mut self, open: &impl AsyncFn() -> S) {
        if self.world.is_dead() {
            self.restart(open, OnOpenRun::Recover).await;
        }
        self.world.begin(FaultPlan::default());
    }

    fn edited(&self) -> Message {
        Message::user(input_text(self.case.runs.len()))
    }

    async fn history(&self, key: &ConversationKey) -> History {
        self.readers.store.load(key).await.expect("no fault is injected")
    }

    /// Returns the messages, the state and the open run of the parent.
    async fn content_of_parent(&self) -> String {
        let store = &self.readers.store;
        let history = self.history(&key()).await;
        let open = store.open_run(&key()).await.expect("no fault is injected");
        format!("{:?}\n{}{open:?}", history.head, in_full(&history.messages))
    }
}

/// Creates a history with a message of each of these runs.
fn history(runs: &[u8]) -> History {
    let numbered = runs.iter().enumerate().map(|(index, run)| {
        let mut message = Message::user(format!("message {index}"));
        let index = u32::try_from(index).expect("small");
        message.id = Some(MessageId { run: RunId::from_bytes([*run; 16]), index });
        Arc::new(message)
    });
    let sequence = runs.len() as u64;
    let head = Head::new(Revision { incarnation: u64::from(sequence > 0), sequence });
    History::new(head, numbered.collect())
}

/// Returns the history with other messages.
fn with(history: &History, change: impl FnOnce(&mut Vec<Arc<Message>>)) -> History {
    let mut messages: Vec<_> = history.messages.iter().cloned().collect();
    change(&mut messages);
    History::new(history.head.clone(), messages.into_iter().collect())
}

#[test]
fn a_branch_that_is_incomplete_or_divides_a_turn_is_found() {
    let parent = history(&[1, 1, 2, 2, 3]);
    let whole = history(&[1, 1]);
    check_copied(&whole, &parent, 4).unwrap();
    for wrong in [
        history(&[]),
        history(&[1]),
        history(&[1, 1, 2]),
        history(&[1, 1, 2, 2]),
        with(&whole, |messages| messages.swap(0, 1)),
        with(&whole, |messages| messages[0] = Message::user("another text").into()),
    ] {
        check_copied(&wrong, &parent, 4).unwrap_err();
    }

    // The third run has the result of a call in the second run.
    let parent = with(&parent, |messages| {
        let call = ToolCall::new("c1", "look", "{}");
        Arc::make_mut(&mut messages[3]).parts.push(Part::ToolCall(call));
        let result = Part::ToolResult(ToolResult::new("c1", "found"));
        Arc::make_mut(&mut messages[4]).parts.push(result);
    });
    assert_eq!([6, 5, 4, 3, 2].map(|before| boundary(&parent, before)), [5, 2, 2, 2, 0]);

    let parts = history(&[1, 1, 2]);
    check_begun_during(&parts, &parent, Some(RunId::from_bytes([2; 16]))).unwrap();
    check_begun_during(&parts, &parent, None).unwrap_err();
    check_begun_during(&history(&[1, 2]), &parent, None).unwrap_err();
}
