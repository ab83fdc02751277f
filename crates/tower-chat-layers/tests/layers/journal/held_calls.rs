//! Tests approved calls in the modes in which a run has no lease for its conversation. The run
//! claims each call with a lease while the tool runs.

use std::{pin::Pin, time::Duration};

use tower_chat::{
    Answer, BoxError, ChatRequest, HistoryStore, Message, PersistenceError, Role, Tools,
    error::ToolLoopError,
    policy::ConcurrentRuns,
    recovery::JournalPolicy,
    store::{InvocationQuery, ToolCallQueries},
    tool::{ApprovalRequest, ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

const LEASE: u64 = 15;
const MODES: [tower_chat::PersistenceMode; 2] = [PerRun, PerServiceCall];

/// Returns a tool `pay` that needs approval, and waits at `gate` after it has logged the call.
fn paying(tool_log: &ToolLog, gate: &Gate) -> Tools {
    let (tool_log, gate) = (tool_log.clone(), gate.clone());
    Tools::new().with(tool_fn(definition("pay").needs_approval(), move |context| {
        let (tool_log, gate) = (tool_log.clone(), gate.clone());
        let answer = format!("payed {}", label_of(&context));
        tool_log.note("pay");
        async move {
            gate.pass().await;
            Ok::<_, BoxError>(ToolOutput::from(answer))
        }
    }))
}

fn approving(request: &ApprovalRequest, streamed: bool) -> ChatRequest {
    request_with([Message::new(Role::User, vec![request.approve().into()])], streamed)
}

async fn waiting(setup: &Setup, streamed: bool) -> ApprovalRequest {
    let model = ScriptedModel::new([calls([("pay", "c1")])]);
    let client = setup.stack(&model, tools(&ToolLog::default()));
    let answer = send(&client, ask("buy", streamed)).await.unwrap();
    answer.approval_requests().next().unwrap().clone()
}

/// Returns the stored row of the payment: its status, whether a run has claimed it with a lease,
/// and its result.
async fn row(store: &Store) -> (ToolStatus, bool, Option<String>) {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let call = found.into_iter().next().unwrap().1;
    (call.status, call.held_until.is_some(), call.result.map(|result| result.text()))
}

fn is_held(outcome: Result<Answer, BoxError>) -> bool {
    let error = outcome.expect_err("another run has claimed the call");
    matches!(error.downcast_ref(), Some(ToolLoopError::ApprovalHeld { .. }))
}

#[tokio::test]
async fn a_call_of_a_dead_process_is_held_up_to_the_end_of_its_lease() {
    for (streamed, mode) in cases!(BOTH_WAYS, MODES) {
        let (store, clock, tool_log) = (store(), TestClock::default(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode).clock(&clock);
        let asked = waiting(&setup, streamed).await;
        let gate = Gate::closed();
        let elsewhere = setup.elsewhere().stack(&ScriptedModel::new([]), paying(&tool_log, &gate));
        let request = approving(&asked, streamed);
        let mut dead = Box::pin(async move { send(&elsewhere, request).await });
        tokio::select! {
            biased;
            answer = &mut dead => panic!("not interrupted: {answer:?}"),
            () = gate.reached(1) => {}
        }
        // Dropping the future would write to the store, which a process that dies cannot do.
        std::mem::forget(dead);
        let model = ScriptedModel::new([Step::text("done")]);
        let client = setup.stack(&model, paying(&tool_log, &gate));
        clock.advance(LEASE - 1);
        assert!(is_held(send(&client, approving(&asked, streamed)).await));
        assert_eq!(model.requests().len(), 0);
        clock.advance(1);
        assert_eq!(send(&client, approving(&asked, streamed)).await.unwrap().text(), "done");
        assert!(sent_texts(&model, 0).last().unwrap().contains("may or may not"), "{mode:?}");
        assert_eq!(row(&store).await.0, ToolStatus::Interrupted);
        assert_eq!(tool_log.names(), ["pay"]);
    }
}

#[tokio::test]
async fn the_claim_of_a_call_is_released_when_its_caller_disconnects() {
    for (streamed, mode) in cases!(BOTH_WAYS, MODES) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let elsewhere = setup.elsewhere().stack(&model, paying(&tool_log, &gate));
        drop_when(&elsewhere, approving(&asked, streamed), gate.reached(1)).await;
        assert_eq!(row(&store).await, (ToolStatus::PendingApproval, false, None), "{mode:?}");
        let client = setup.stack(&model, paying(&tool_log, &gate));
        send(&client, approving(&asked, streamed)).await.unwrap();
        assert_eq!(row(&store).await.0, ToolStatus::Interrupted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_stays_claimed_while_its_tool_runs_even_if_other_runs_write() {
    for (streamed, mode, other_writes) in cases!(BOTH_WAYS, MODES, [false, true]) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let clock = TestClock::default();
        clock.follow_tokio();
        let setup = Setup::new(&store).mode(mode).clock(&clock);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("one")]);
        let elsewhere = setup.elsewhere().stack(&model, paying(&tool_log, &gate));
        let request = approving(&asked, streamed);
        let first: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(async move { send(&elsewhere, request).await });
        let first = tokio::spawn(first);
        gate.reached(1).await;
        let model = ScriptedModel::new([Step::text("meanwhile"), Step::text("two")]);
        let client = setup.stack(&model, paying(&tool_log, &gate));
        if other_writes {
            send(&client, ask("how long will it take?", streamed)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(4 * LEASE)).await;
        assert!(is_held(send(&client, approving(&asked, streamed)).await), "{mode:?}");
        assert_eq!(row(&store).await, (ToolStatus::PendingApproval, true, None));
        gate.open();
        let first = first.await.unwrap();
        let (_, is_held, result) = row(&store).await;
        assert_eq!((is_held, result.as_deref()), (false, Some("payed c1")), "{mode:?}");
        match other_writes {
            true => assert!(matches!(refused(first), PersistenceError::NotStored(_))),
            false => assert_eq!(first.unwrap().text(), "one"),
        }
        assert_eq!(tool_log.names(), ["pay"]);
    }
}

type Waiting = tokio::task::JoinHandle<Result<Answer, BoxError>>;

fn send_in_background(client: &Client, request: ChatRequest) -> Waiting {
    let client = client.clone();
    tokio::spawn(async move { send(&client, request).await })
}

#[tokio::test(start_paused = true)]
async fn a_queued_approval_waits_until_the_other_run_is_stored() {
    for (streamed, mode) in cases!(BOTH_WAYS, [PerRun, PerServiceCall, JOURNALED]) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let clock = TestClock::default();
        clock.follow_tokio();
        let queueing = policy().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 1 });
        let setup = Setup::new(&store).mode(mode).clock(&clock).policy(queueing);
        let asked = waiting(&setup, streamed).await;
        let answering = Gate::closed();
        let model = ScriptedModel::new([Step::text("one").waits(&answering)]);
        let elsewhere = setup.elsewhere().stack(&model, paying(&tool_log, &gate));
        let first = send_in_background(&elsewhere, approving(&asked, streamed));
        gate.reached(1).await;
        let model = ScriptedModel::new([Step::text("two")]);
        let client = setup.stack(&model, paying(&tool_log, &gate));
        let second = send_in_background(&client, approving(&asked, streamed));
        // This time is longer than a lease. The first process renews its lease.
        tokio::time::sleep(Duration::from_secs(2 * LEASE)).await;
        assert!(!second.is_finished(), "{mode:?}: the tool runs");
        gate.open();
        answering.reached(1).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!second.is_finished(), "{mode:?}: the first run waits for its model");
        answering.open();
        assert_eq!(first.await.unwrap().unwrap().text(), "one");
        let error = second.await.unwrap().unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::ApprovalAnswered { .. })), "{error:?}");
        assert_eq!((model.requests().len(), tool_log.names()), (0, vec!["pay".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_approval_waits_no_longer_than_its_limit() {
    for (streamed, mode) in cases!(BOTH_WAYS, MODES) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let clock = TestClock::default();
        clock.follow_tokio();
        let journal = JournalPolicy::default().with_max_lease_wait(Duration::from_secs(3));
        let queueing = policy().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 1 });
        let queueing = queueing.with_journal(journal);
        let setup = Setup::new(&store).mode(mode).clock(&clock).policy(queueing);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("one")]);
        let elsewhere = setup.elsewhere().stack(&model, paying(&tool_log, &gate));
        let first = send_in_background(&elsewhere, approving(&asked, streamed));
        gate.reached(1).await;
        let (model, began) = (ScriptedModel::new([]), tokio::time::Instant::now());
        let client = setup.stack(&model, paying(&tool_log, &gate));
        assert!(is_held(send(&client, approving(&asked, streamed)).await), "{mode:?}");
        assert_eq!(began.elapsed().as_secs(), 3);
        gate.open();
        assert_eq!(first.await.unwrap().unwrap().text(), "one");
    }
}
