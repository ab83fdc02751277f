//! Tests approved calls in every mode. A run claims each call before its tool runs, and stores the
//! outcome before the model receives it. No tool runs twice.

use tower_chat::{
    Answer, ChatRequest, HistoryStore, Message, Part, PersistenceError, PersistenceMode, Role,
    ToolResult,
    error::Retryability,
    layer::ToolLoopLayer,
    recovery::{
        JournalPolicy, OnDisconnect, OnOpenRun, RunEnd, UnknownAnswer, UnknownCalls, close,
        open_run,
    },
    store::{InvocationQuery, StoreError, ToolCallQueries},
    tool::{ApprovalRequest, ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

fn requests(answer: &Answer) -> Vec<ApprovalRequest> {
    answer.approval_requests().cloned().collect()
}

fn approving(request: &ApprovalRequest, streamed: bool) -> ChatRequest {
    request_with([Message::new(Role::User, vec![request.approve().into()])], streamed)
}

/// Returns a tool `pay` that needs approval, and waits at `gate` after it has logged the call.
fn paying(tool_log: &ToolLog, gate: &Gate) -> tower_chat::Tools {
    let (tool_log, gate) = (tool_log.clone(), gate.clone());
    tower_chat::Tools::new().with(tool_fn(definition("pay").needs_approval(), move |context| {
        let (tool_log, gate) = (tool_log.clone(), gate.clone());
        let answer = format!("payed {}", label_of(&context));
        async move {
            tool_log.note("pay");
            gate.pass().await;
            Ok::<_, tower_chat::BoxError>(ToolOutput::from(answer))
        }
    }))
}

async fn waiting(setup: &Setup, streamed: bool) -> ApprovalRequest {
    let model = ScriptedModel::new([calls([("pay", "c1")])]);
    let client = setup.stack(&model, tools(&ToolLog::default()));
    let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
    assert_eq!(pending(&setup.store).await, ["c1"]);
    asked[0].clone()
}

async fn pending(store: &Store) -> Vec<String> {
    store.inner().flush().await.unwrap();
    let head = store.inner().head(&key()).await.unwrap();
    let all = head.pending_approvals.iter().flatten();
    all.map(|request| request.call.id.clone().unwrap()).collect()
}

/// Returns the stored row of the payment: its status, whether its tool was started, and its result.
async fn row(store: &Store) -> (ToolStatus, bool, Option<String>) {
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let call = found.into_iter().find(|(_, call)| call.call_id == "c1").unwrap().1;
    (call.status, call.started_at.is_some(), call.result.map(|result| result.text()))
}

const PAID: [&str; 5] =
    ["user buy", "assistant pay#c1?", "user yes", "tool c1=payed c1", "assistant done"];

#[tokio::test]
async fn a_claim_is_durable_before_its_tool_runs_and_an_outcome_before_the_next_service_call() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, streamed).await;
        let second_call = Gate::closed();
        let model = ScriptedModel::new([Step::text("done").waits(&second_call)]);
        let client = setup.stack(&model, paying(&tool_log, &gate));
        let looking = async {
            gate.reached(1).await;
            assert_eq!(row(&store).await, (ToolStatus::PendingApproval, true, None));
            gate.open();
            second_call.reached(1).await;
            let known = (ToolStatus::PendingApproval, true, Some("payed c1".into()));
            assert_eq!(row(&store).await, known);
            second_call.open();
        };
        let (answer, ()) = tokio::join!(send(&client, approving(&asked, streamed)), looking);
        answer.unwrap();
        assert_eq!(row(&store).await, (ToolStatus::Ok, true, Some("payed c1".into())));
        assert_eq!(pending(&store).await, [""; 0]);
        assert_eq!(stored(&store).await, PAID);
    }
}

#[tokio::test]
async fn a_payment_whose_run_then_fails_is_not_made_again() {
    for (streamed, mode, again) in
        cases!(BOTH_WAYS, ALL_MODES, ["same", "anew", "elsewhere", "report"])
    {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::error("overloaded"), Step::text("done")]);
        let client = setup.stack(&model, tools(&tool_log));
        let request = approving(&asked, streamed);
        send(&client, request.clone()).await.unwrap_err();
        let case_name = (mode, again, streamed);
        if mode != PerServiceCall {
            assert_eq!(pending(&store).await, ["c1"], "{case_name:?}");
        }
        let request = match again {
            "anew" if mode == PerRun => approving(&asked, streamed),
            "report" if mode == JOURNALED => {
                let resume = open_run(&store, &key()).await.unwrap().unwrap().resume();
                if streamed { resume.streamed() } else { resume }
            }
            _ => request,
        };
        let setup = if again == "elsewhere" { setup.elsewhere() } else { setup };
        let client = setup.stack(&model, tools(&tool_log));
        send(&client, request).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"], "{case_name:?}");
        assert_eq!(stored(&store).await, PAID, "{case_name:?}");
        assert_eq!(sent_texts(&model, 1), ["user buy", "assistant pay#c1", "tool c1=payed c1"]);
        assert_eq!(row(&store).await.0, ToolStatus::Ok, "{case_name:?}");
        assert_eq!(pending(&store).await, [""; 0], "{case_name:?}");
    }
}

#[tokio::test]
async fn a_resumed_run_records_the_outcome_of_each_approved_call() {
    for (streamed, mode) in cases!(BOTH_WAYS, [PerServiceCall, JOURNALED]) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let again = UnknownCalls::ask(|_| UnknownAnswer::RunAgain);
        let journal = JournalPolicy::default().with_unknown_calls(again);
        let setup = Setup::new(&store).mode(mode).policy(policy().with_journal(journal));
        let asking = calls([("look", "c1"), ("wait", "c2"), ("pay", "c3")]);
        let model = ScriptedModel::new([asking, Step::text("done")]);
        let client = setup.stack(&model, tools_with_gate(&tool_log, &gate));
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        let answers = [asked[0].approve(), asked[1].approve(), asked[2].reject("too dear")];
        let answers = answers.map(Part::from).to_vec();
        let request = request_with([Message::new(Role::User, answers)], streamed);
        drop_when(&client, request.clone(), gate.reached(1)).await;
        gate.open();
        let client = setup.elsewhere().stack(&model, tools_with_gate(&tool_log, &gate));
        let answer = send(&client, request).await.unwrap();
        let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
        let rows: Vec<_> = found
            .iter()
            .map(|(_, call)| (&*call.call_id, call.status, call.finished_at.is_some()))
            .collect();
        let all = [
            ("c1", ToolStatus::Ok, true),
            ("c2", ToolStatus::Ok, true),
            ("c3", ToolStatus::RejectedByApproval, false),
        ];
        assert_eq!(rows, all);
        let history = store.inner().load(&key()).await.unwrap().messages;
        let ids: Vec<_> = history.iter().skip(2).map(|message| message.id.unwrap()).collect();
        let given: Vec<_> = answer.messages.iter().map(|message| message.id.unwrap()).collect();
        assert_eq!(given, ids[ids.len() - given.len()..]);
    }
}

#[tokio::test]
async fn approved_calls_of_a_resumed_run_stay_charged_to_its_budget() {
    let cuts = [None, Some("the call"), Some("the round")];
    for (streamed, mode, is_cut_off_in) in cases!(BOTH_WAYS, ALL_MODES, cuts) {
        if is_cut_off_in == Some("the round") && mode != JOURNALED {
            // In the other modes, the resumed run makes the service call of the round again.
            continue;
        }
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, streamed).await;
        let request = approving(&asked, streamed);
        let rounds = [calls([("wait", "c2")]), calls([("look", "c3")]), Step::text("done")];
        let failing = (is_cut_off_in == Some("the call")).then(|| Step::error("overloaded"));
        let model = ScriptedModel::new(failing.into_iter().chain(rounds));
        let stack = |setup: &Setup| {
            let tools = tools_with_gate(&tool_log, &gate);
            setup.looped(&model, ToolLoopLayer::new(tools).max_calls(Some(2)))
        };
        match is_cut_off_in {
            None => gate.open(),
            Some("the call") => {
                send(&stack(&setup), request.clone()).await.unwrap_err();
                gate.open();
            }
            Some(_) => drop_when(&stack(&setup), request.clone(), gate.reached(1)).await,
        }
        send(&stack(&setup.elsewhere()), request).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
        let look = &found.iter().find(|(_, call)| call.call_id == "c3").unwrap().1;
        assert_eq!(look.status, ToolStatus::SkippedBudget, "{mode:?} {is_cut_off_in:?}");
    }
}

#[tokio::test]
async fn a_run_that_was_cut_off_before_the_payment_makes_it_when_it_is_resumed() {
    for (streamed, by_report) in cases!(BOTH_WAYS, [false, true]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let client = setup.stack(&model, tools(&tool_log));
        let request = approving(&asked, streamed);
        // The first write (the input) succeeds, and the second write (the claim) fails.
        store.let_appends_through(1);
        store.fail_next_append(disk_full());
        send(&client, request.clone()).await.unwrap_err();
        assert_eq!(tool_log.names(), [""; 0]);
        let request = if by_report {
            open_run(&store, &key()).await.unwrap().unwrap().resume()
        } else {
            request
        };
        send(&client, request).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        assert_eq!(stored(&store).await, PAID);
        assert_eq!(pending(&store).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_payment_of_unknown_outcome_follows_the_policy_for_unknown_calls() {
    for (streamed, mode, safe) in cases!(BOTH_WAYS, ALL_MODES, [false, true]) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let client = setup.stack(&model, paying(&tool_log, &gate));
        let request = approving(&asked, streamed);
        drop_when(&client, request.clone(), gate.reached(1)).await;
        assert_eq!(row(&store).await, (ToolStatus::PendingApproval, true, None));
        let mut definition = definition("pay").needs_approval();
        definition.safe_to_retry = safe;
        let again = tool_log.clone();
        let tools = tower_chat::Tools::new().with(tool_fn(definition, move |context| {
            again.note("pay");
            let answer = format!("payed {}", label_of(&context));
            async { Ok::<_, tower_chat::BoxError>(ToolOutput::from(answer)) }
        }));
        let client = setup.elsewhere().stack(&model, tools);
        send(&client, request).await.unwrap();
        assert_eq!(tool_log.names().len(), 1 + usize::from(safe));
        let history = stored(&store).await;
        match safe {
            true => assert_eq!(history, PAID, "{mode:?}"),
            false => assert!(history[3].contains("may or may not"), "{history:?}"),
        }
        let status = if safe { ToolStatus::Ok } else { ToolStatus::Interrupted };
        assert_eq!(row(&store).await.0, status);
        assert_eq!(pending(&store).await, [""; 0]);
    }
}

/// The run has received an answer in its first attempt. Its second attempt also contains a decision
/// about another call, whose tool only the caller can run now.
#[tokio::test]
async fn a_further_decision_for_a_run_that_has_an_answer_is_refused_and_changes_nothing() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store);
        let asked = waiting(&setup, streamed).await;
        let fee = definition("fee").needs_approval();
        let never = tool_fn(fee.clone(), |_| async {
            Ok::<_, tower_chat::BoxError>(ToolOutput::from("never"))
        });
        let model = ScriptedModel::new([calls([("fee", "c2")])]);
        let client = setup.stack(&model, tools(&tool_log).with(never));
        let further = requests(&send(&client, ask("and the fee", streamed)).await.unwrap());

        let model = ScriptedModel::new([calls([("look", "c3")]), Step::error("overloaded")]);
        let client = setup.stack(&model, tools(&tool_log).declare(fee));
        let mut request = approving(&asked, streamed);
        send(&client, request.clone()).await.unwrap_err();
        let before = durable(&store).await;
        assert_eq!(before.last().unwrap(), "tool c3=looked c3");
        request.push(Message::new(Role::User, vec![further[0].approve().into()]));
        let error = send(&client, request).await.unwrap_err();
        let found = error.downcast_ref::<PersistenceError>();
        assert!(matches!(found, Some(PersistenceError::RunIdReused { .. })), "{error:?}");
        assert_eq!(durable(&store).await, before);
        assert!(open(&store).await.is_some());
    }
}

#[tokio::test]
async fn a_callers_result_for_a_payment_without_a_decision_is_recorded_the_same_in_every_mode() {
    every_case(async |case| {
        for (is_error, fails) in cases!([true, false], [true, false]) {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let setup = Setup::new(&store).mode(case.mode);
            waiting(&setup, case.streamed).await;
            let failing = fails.then(|| Step::error("overloaded"));
            let model = ScriptedModel::new(failing.into_iter().chain([Step::text("done")]));
            let client = setup.stack(&model, tools(&tool_log));
            let mut result = ToolResult::new("c1", "paid by hand");
            result.is_error = is_error;
            let request = case.request_with([Message::tool_results([result])]);
            if fails {
                send(&client, request.clone()).await.unwrap_err();
            }
            send(&client, request).await.unwrap();
            let status = if is_error { ToolStatus::Error } else { ToolStatus::Ok };
            let about = format!("is error {is_error}, fails {fails}");
            assert_eq!(row(&store).await, (status, false, Some("paid by hand".into())), "{about}");
        }
    })
    .await;
}

#[tokio::test]
async fn two_processes_that_approve_the_same_payment_concurrently_make_it_once() {
    for (first, second) in cases!(ALL_MODES, ALL_MODES) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).mode(first);
        let asked = waiting(&setup, false).await;
        let model = ScriptedModel::new([Step::text("done"), Step::text("done too")]);
        let one = setup.stack(&model, paying(&tool_log, &gate));
        let other = setup.elsewhere().mode(second);
        // The other process reads the conversation before the first process claims the payment.
        let claim = Gate::closed();
        store.hold_next_reserve(&claim);
        let other = other.stack(&model, paying(&tool_log, &gate));
        let late = approving(&asked, false);
        let late = tokio::spawn(async move { send(&other, late).await });
        claim.reached(1).await;
        let early = approving(&asked, false);
        let early = tokio::spawn(async move { send(&one, early).await });
        gate.reached(1).await;
        claim.open();
        let error = refused(late.await.unwrap());
        let PersistenceError::NotStored(not_stored) = &error else { panic!("{error:?}") };
        let is_typed =
            matches!(not_stored.source, StoreError::Claimed { .. } | StoreError::Conflict(_));
        assert!(is_typed, "{error:?}");
        gate.open();
        let early = early.await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        if second == JOURNALED && first != JOURNALED {
            // The other process has opened a journaled run. The next write of the first process
            // therefore fails with a conflict.
            let PersistenceError::NotStored(not_stored) = refused(early) else { panic!() };
            assert!(not_stored.conflict().unwrap().open_run.is_some());
            assert_eq!(row(&store).await.0, ToolStatus::PendingApproval);
            continue;
        }
        early.unwrap();
        assert_eq!(stored(&store).await, PAID);
    }
}

#[tokio::test]
async fn a_rejected_payment_is_recorded_as_rejected() {
    for mode in ALL_MODES {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, false).await;
        let model = ScriptedModel::new([Step::text("fine")]);
        let no =
            request_with([Message::new(Role::User, vec![asked.reject("too dear").into()])], false);
        send(&setup.stack(&model, tools(&tool_log)), no).await.unwrap();
        let (status, begun, _) = row(&store).await;
        assert_eq!((status, begun), (ToolStatus::RejectedByApproval, false), "{mode:?}");
        assert_eq!(pending(&store).await, [""; 0]);
        assert_eq!(tool_log.names(), [""; 0]);
    }
}

/// Executes a run that approves or rejects a payment, executes a further tool call, and then fails.
/// Returns the model client and the request of the run.
async fn cut_off_after_the_payment(
    setup: &Setup,
    tool_log: &ToolLog,
    no: bool,
) -> (ScriptedModel, ChatRequest) {
    let asked = waiting(setup, false).await;
    let model = ScriptedModel::new([
        calls([("look", "c2")]),
        Step::error("overloaded"),
        Step::text("done"),
    ]);
    let reply = if no { asked.reject("too dear") } else { asked.approve() };
    let request = request_with([Message::new(Role::User, vec![Part::from(reply)])], false);
    send(&setup.stack(&model, tools(tool_log)), request.clone()).await.unwrap_err();
    assert_eq!(pending(&setup.store).await, ["c1"], "readers see no message of the open run");
    (model, request)
}

#[tokio::test]
async fn a_payment_whose_result_is_staged_is_settled_by_the_process_that_commits_it() {
    for (no, end) in cases!([false, true], ["same", "elsewhere", "commit"]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store);
        let (model, request) = cut_off_after_the_payment(&setup, &tool_log, no).await;
        match end {
            "same" => drop(send(&setup.stack(&model, tools(&tool_log)), request).await.unwrap()),
            "elsewhere" => {
                let client = setup.elsewhere().stack(&model, tools(&tool_log));
                send(&client, request).await.unwrap();
            }
            _ => assert!(close(&store, &key(), RunEnd::Commit).await.unwrap()),
        }
        let status = if no { ToolStatus::RejectedByApproval } else { ToolStatus::Ok };
        let (found, begun, result) = row(&store).await;
        assert_eq!((found, begun), (status, !no));
        assert!(result.is_some());
        assert_eq!(pending(&store).await, [""; 0]);
        assert_eq!(tool_log.names().iter().filter(|name| *name == "pay").count(), usize::from(!no));
    }
}

#[tokio::test]
async fn a_payment_of_unknown_outcome_is_interrupted_where_its_run_is_committed() {
    for streamed in BOTH_WAYS {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("never said")]);
        let client = setup.stack(&model, paying(&tool_log, &gate));
        drop_when(&client, approving(&asked, streamed), gate.reached(1)).await;
        assert_eq!(row(&store).await, (ToolStatus::PendingApproval, true, None));
        assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
        let (status, begun, result) = row(&store).await;
        assert_eq!((status, begun), (ToolStatus::Interrupted, true));
        assert_eq!(result.as_deref(), Some(INTERRUPTED));
        assert_eq!(pending(&store).await, [""; 0]);
        let history = stored(&store).await;
        assert_eq!(history[..3], PAID[..3]);
        assert_eq!((history.len(), tool_log.names().len()), (4, 1), "{history:?}");
    }
}

#[tokio::test]
async fn a_dropped_run_with_an_approved_payment_is_committed_by_the_next_run() {
    Cases::all()
        .modes([Journaled], "only a journaled run remains open after a dropped response")
        .check(async |case| {
            let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
            let journal = JournalPolicy::default()
                .on_disconnect(OnDisconnect::Commit)
                .on_open_run(OnOpenRun::Commit);
            let setup = Setup::new(&store).policy(policy().with_journal(journal));
            let asked = waiting(&setup, case.streamed).await;
            let model = ScriptedModel::new([Step::text("hello")]);
            let client = setup.stack(&model, paying(&tool_log, &gate));
            drop_when(&client, approving(&asked, case.streamed), gate.reached(1)).await;
            assert!(
                open(&store).await.is_some(),
                "the run remains open, because the row of the payment was not read"
            );
            send(&client, case.ask("and then?")).await.unwrap();
            let (status, begun, result) = row(&store).await;
            assert_eq!((status, begun), (ToolStatus::Interrupted, true));
            assert_eq!(result.as_deref(), Some(INTERRUPTED));
            let history = stored(&store).await;
            assert_eq!(history[..3], PAID[..3]);
            assert_eq!(history[4..], ["user and then?", "assistant hello"]);
            assert_eq!(
                (history.len(), tool_log.names()),
                (6, vec!["pay".to_owned()]),
                "{history:?}"
            );
        })
        .await;
}

#[tokio::test]
async fn an_approved_payment_that_never_began_waits_again_where_its_run_is_committed() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store);
        let asked = waiting(&setup, streamed).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let client = setup.stack(&model, tools(&tool_log));
        // The first write (the decision) succeeds, and the second write (the claim) fails.
        store.let_appends_through(1);
        store.fail_next_append(disk_full());
        send(&client, approving(&asked, streamed)).await.unwrap_err();
        assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
        assert_eq!(row(&store).await, (ToolStatus::PendingApproval, false, None));
        assert_eq!(stored(&store).await, PAID[..3]);
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(pending(&store).await, ["c1"]);
        send(&client, approving(&asked, streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        assert_eq!(stored(&store).await[3..], ["user yes", PAID[3], PAID[4]]);
        assert_eq!(row(&store).await.0, ToolStatus::Ok);
    }
}

/// The run is interrupted after the first payment, before the tool of the second one starts.
#[tokio::test]
async fn a_batch_of_which_a_payment_never_began_waits_again_where_its_run_is_committed() {
    for (streamed, rejects) in cases!(BOTH_WAYS, [false, true]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store);
        let calls = [("pay", "c1"), ("pay", "c2"), ("pay", "c3")];
        let model = ScriptedModel::new([crate::common::calls(calls), Step::text("done")]);
        let client = setup.stack(&model, tools(&tool_log));
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        let decided = |last: &ApprovalRequest| {
            let last = if rejects { last.reject("too dear") } else { last.approve() };
            let parts = [asked[0].approve(), asked[1].approve(), last].map(Part::from).to_vec();
            request_with([Message::new(Role::User, parts)], streamed)
        };
        // Three writes succeed: the decision, the claim of the first call, and its outcome. The
        // claim of the second call fails.
        store.let_appends_through(3);
        store.fail_next_append(disk_full());
        send(&client, decided(&asked[2])).await.unwrap_err();
        assert_eq!(tool_log.names(), ["pay"]);
        assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
        assert_eq!(pending(&store).await, ["c1", "c2", "c3"]);
        send(&client, decided(&asked[2])).await.unwrap();
        assert_eq!(tool_log.names().len(), if rejects { 2 } else { 3 });
        let last = stored(&store).await;
        let results = last.iter().rev().nth(1).unwrap();
        assert!(results.starts_with("tool c1=payed c1 c2=payed c2 c3"), "{last:?}");
        assert_eq!(pending(&store).await, [""; 0]);
    }
}

/// After the payment, the service refuses the request permanently. The run ends without an answer.
#[tokio::test]
async fn a_payment_of_a_permanently_refused_run_is_sent_to_the_model_in_the_next_run() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store);
        let asked = waiting(&setup, streamed).await;
        let refused = Step::error(Retryability::of_status(400));
        let model = ScriptedModel::new([refused, Step::text("done")]);
        let client = setup.stack(&model, tools(&tool_log));
        send(&client, approving(&asked, streamed)).await.unwrap_err();
        assert!(open(&store).await.is_none());
        assert_eq!(stored(&store).await, PAID[..4]);
        assert_eq!(row(&store).await.0, ToolStatus::Ok);
        send(&client, ask("and then?", streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        let shown = model.requests().pop().unwrap();
        let results: Vec<_> = shown.messages().iter().flat_map(|it| it.results()).collect();
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].call_id.as_deref(), Some("c1"));
    }
}

#[tokio::test]
async fn a_payment_of_a_discarded_run_is_not_made_again_after_another_approval() {
    let (store, tool_log) = (store(), ToolLog::default());
    let setup = Setup::new(&store);
    let asked = waiting(&setup, false).await;
    let model = ScriptedModel::new([Step::error("overloaded"), Step::text("done")]);
    let client = setup.stack(&model, tools(&tool_log));
    send(&client, approving(&asked, false)).await.unwrap_err();
    assert!(close(&store, &key(), RunEnd::Discard).await.unwrap());
    assert_eq!(stored(&store).await, PAID[..2]);
    assert_eq!(pending(&store).await, ["c1"]);
    send(&client, approving(&asked, false)).await.unwrap();
    assert_eq!(tool_log.names(), ["pay"]);
    assert_eq!(stored(&store).await, PAID);
}

#[tokio::test]
async fn a_run_is_stored_although_the_outcome_of_its_approved_call_waits_in_the_outbox() {
    for mode in [PerRun, PerServiceCall] {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, false).await;
        let model = ScriptedModel::new([Step::text("done")]);
        // The first write (the claim) succeeds, and the second write (the outcome) fails.
        store.let_appends_through(1);
        store.fail_next_append(disk_full());
        send(&setup.stack(&model, tools(&tool_log)), approving(&asked, false)).await.unwrap();
        assert_eq!(stored(&store).await, PAID, "{mode:?}");
        assert_eq!(row(&store).await, (ToolStatus::Ok, true, Some("payed c1".into())));
    }
}

#[tokio::test]
async fn the_outcome_of_a_call_is_stored_even_if_its_first_write_and_the_next_claim_fail() {
    for mode in [PerRun, PerServiceCall] {
        // 1: the write of the first outcome fails. 2: the write of the second claim also fails.
        for failing in [1, 2] {
            let (store, tool_log) = (store(), ToolLog::default());
            let setup = Setup::new(&store).mode(mode);
            let model =
                ScriptedModel::new([calls([("pay", "c1"), ("pay", "c2")]), Step::text("done")]);
            let client = setup.stack(&model, tools(&tool_log));
            let asked = requests(&send(&client, ask("buy", false)).await.unwrap());
            let yes = asked.iter().map(|request| request.approve().into()).collect();
            let request = request_with([Message::new(Role::User, yes)], false);
            store.let_appends_through(1);
            (0..failing).for_each(|_| store.fail_next_append(disk_full()));
            let outcome = send(&client, request.clone()).await;
            if failing == 2 {
                assert!(matches!(refused(outcome), PersistenceError::NotStored(_)));
                assert_eq!(
                    tool_log.names(),
                    ["pay"],
                    "the second tool does not run, because its claim is not stored"
                );
                send(&client, request).await.unwrap();
            } else {
                outcome.unwrap();
            }
            assert_eq!(tool_log.names(), ["pay", "pay"], "{mode:?} {failing}");
            let (status, begun, result) = row(&store).await;
            assert_eq!((status, begun, result), (ToolStatus::Ok, true, Some("payed c1".into())));
            let all = stored(&store).await;
            assert_eq!(all[..3], ["user buy", "assistant pay#c1? pay#c2?", "user yes yes"]);
            // The results are in one message, or in a separate message for each attempt.
            let rest = all[3..].join(" ").replace("tool ", "");
            assert_eq!(rest, "c1=payed c1 c2=payed c2 assistant done", "{mode:?} {failing}");
        }
    }
}

#[tokio::test]
async fn an_approved_tool_does_not_run_if_its_claim_cannot_be_stored() {
    for mode in ALL_MODES {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = waiting(&setup, false).await;
        let model = ScriptedModel::new([Step::text("done")]);
        store.let_appends_through(usize::from(mode == PersistenceMode::Journaled));
        store.fail_next_append(disk_full());
        let outcome = send(&setup.stack(&model, tools(&tool_log)), approving(&asked, false)).await;
        assert!(matches!(refused(outcome), PersistenceError::NotStored(_)));
        assert_eq!((tool_log.names().len(), model.requests().len()), (0, 0), "{mode:?}");
    }
}
