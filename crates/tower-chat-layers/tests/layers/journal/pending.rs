//! Tests calls that wait for approval and whose tools have `persist` hooks. A hook may replace the
//! stored arguments, or forget the call. A call with replaced arguments runs only if its tool
//! accepts them.

use tower_chat::{
    BoxError, ChatRequest, ChatUpdate, HistoryStore, Message, Part, PersistenceError,
    PersistenceMode, Role, ToolCall, ToolContext, Tools,
    error::ToolLoopError,
    layer::ToolLoopLayer,
    recovery::{JournalPolicy, OnRefusal, UnknownAnswer, UnknownCalls},
    store::{InvocationQuery, ToolCallQueries},
    tool::{ApprovalRequest, Retention, StoredCall, ToolOutput, ToolStatus, persist_with},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

type Hook = fn(&mut StoredCall<'_>) -> Result<Retention, BoxError>;

const KEEP: Hook = |_| Ok(Retention::Keep);
const REDACT: Hook = |call| {
    call.redact_arguments(r#"{"iban":"[redacted]","amount":0}"#);
    Ok(Retention::Keep)
};
const DROPPING: [(&str, Hook); 3] = [
    ("forgets", |_| Ok(Retention::Forget)),
    ("fails", |_| Err("no policy".into())),
    ("panics", |_| panic!("no policy")),
];

/// Returns the tools `pay` and `transfer`, which need approval, and `look`. Each logs its arguments
/// and returns them.
fn hooked(tool_log: &ToolLog, pay: Hook, look: Hook, accepts: bool) -> Tools {
    let tool = |name: &'static str, hook: Hook| {
        let tool_log = tool_log.clone();
        let mut definition = definition(name);
        definition.needs_approval = name != "look";
        definition.accepts_stored_arguments = accepts;
        let run = move |context: ToolContext| {
            tool_log.note(&format!("{name} {}", context.arguments()));
            let answer = format!("{name} did {}", context.arguments());
            async move { Ok::<_, BoxError>(ToolOutput::from(answer)) }
        };
        persist_with(tool_fn(definition, run), hook)
    };
    Tools::new().with(tool("pay", pay)).with(tool("transfer", KEEP)).with(tool("look", look))
}

fn asking<const N: usize>(calls: [(&str, &str, &str); N]) -> Step {
    let calls = calls.map(|(name, id, arguments)| ToolCall::new(id, name, arguments));
    Step::message(Message::tool_calls(calls))
}

const PAYMENT: &str = r#"{"iban":"DE99","amount":50}"#;

fn replying(parts: impl IntoIterator<Item = Part>, streamed: bool) -> ChatRequest {
    request_with([Message::new(Role::User, parts.into_iter().collect())], streamed)
}

async fn pending(store: &Store) -> Vec<String> {
    store.inner().flush().await.unwrap();
    let head = store.inner().head(&key()).await.unwrap();
    let all = head.pending_approvals.iter().flatten();
    all.map(|request| request.call.name.clone()).collect()
}

/// Returns the name, the status and the result of each stored call.
async fn rows(store: &Store) -> Vec<(String, ToolStatus, Option<String>)> {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let row = found.into_iter().map(|(_, call)| call);
    row.map(|call| (call.name, call.status, call.result.map(|it| it.text()))).collect()
}

#[tokio::test]
async fn a_run_fails_before_its_pending_call_is_offered_if_a_hook_drops_the_call() {
    for (streamed, mode, (how, hook)) in cases!(BOTH_WAYS, ALL_MODES, DROPPING) {
        for sibling in [false, true] {
            let case = (streamed, mode, how, sibling);
            let (store, tool_log) = (store(), ToolLog::default());
            let tools = match sibling {
                true => hooked(&tool_log, KEEP, hook, false),
                false => hooked(&tool_log, hook, KEEP, false),
            };
            let batch = [("look", "c1", "{\"at\":1}"), ("pay", "c2", PAYMENT)];
            let model = ScriptedModel::new([asking(batch)]);
            let client = Setup::new(&store).mode(mode).stack(&model, tools);
            let mut offered = 0;
            let error = match head(&client, ask("buy", streamed)).await {
                Err(error) => error,
                Ok(mut response) => loop {
                    match response.next().await.expect("an error") {
                        Ok(ChatUpdate::Message(_)) => offered += 1,
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                },
            };
            assert_eq!(offered, 0, "{case:?}");
            let error = *error.downcast::<PersistenceError>().unwrap();
            let text = error.to_string();
            let PersistenceError::PendingCallNotKept { tool, call_id, answer, .. } = error else {
                panic!("{error:?} {case:?}")
            };
            let expected = if sibling { ("look", "c1") } else { ("pay", "c2") };
            assert_eq!((&*tool, &*call_id), expected, "{case:?}");
            assert!(text.contains(&format!("{tool:?}")), "{text}");
            assert_eq!(
                answer.tool_calls().count(),
                2,
                "the error contains the answer of the model"
            );
            assert_eq!(answer.approval_requests().count(), 0, "{case:?}");
            assert_eq!((tool_log.names().len(), model.requests().len()), (0, 1), "{case:?}");
            let kept =
                if mode == PersistenceMode::PerServiceCall { &["user buy"][..] } else { &[] };
            assert_eq!(stored(&store).await, kept, "{case:?}");
            assert_eq!(rows(&store).await, [], "{case:?}");
            assert_eq!(pending(&store).await, [""; 0], "{case:?}");
            let open = if mode == JOURNALED { vec!["user buy"] } else { Vec::new() };
            assert_eq!(staged(&store).await, open, "{case:?}");
        }
    }
}

#[tokio::test]
async fn messages_before_a_pending_call_that_a_hook_drops_are_stored_as_after_a_failed_call() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let tools = hooked(&tool_log, DROPPING[0].1, KEEP, false);
        let model = ScriptedModel::new([
            asking([("look", "c1", "{\"at\":1}")]),
            asking([("pay", "c2", PAYMENT)]),
            Step::text("as you like"),
        ]);
        let client = Setup::new(&store).mode(mode).stack(&model, tools);
        let request = ask("buy", streamed);
        let error = refused(send(&client, request.clone()).await);
        assert!(matches!(error, PersistenceError::PendingCallNotKept { .. }), "{error:?}");
        let result = "tool c1=look did {\"at\":1}";
        let round = ["user buy", "assistant look#c1", result];
        let (expected, open) = match mode {
            PersistenceMode::PerServiceCall => (&round[..], &[][..]),
            PersistenceMode::Journaled => (&[][..], &round[..]),
            _ => (&[][..], &[][..]),
        };
        assert_eq!(stored(&store).await, expected);
        if mode == JOURNALED {
            // The result is stored only with its call until the next service call is answered.
            assert_eq!(staged(&store).await, open[..2]);
        }
        if mode == PerRun {
            continue;
        }
        send(&client, request).await.unwrap();
        assert_eq!(sent_texts(&model, 2), round);
        assert_eq!(tool_log.names(), ["look {\"at\":1}"]);
    }
}

#[tokio::test]
async fn a_changed_argument_never_runs_and_the_model_receives_an_error() {
    for (streamed, mode, again) in cases!(BOTH_WAYS, ALL_MODES, ["same", "anew", "elsewhere"]) {
        // If the tool loop refuses an approval, the staged messages of the run are discarded,
        // whatever the policy for refused runs is.
        for journal in
            [JournalPolicy::default(), JournalPolicy::default().on_refusal(OnRefusal::LeaveOpen)]
        {
            let (store, tool_log) = (store(), ToolLog::default());
            let setup = Setup::new(&store).mode(mode).policy(policy().with_journal(journal));
            let batch = [("transfer", "c1", "{\"to\":1}"), ("pay", "c2", PAYMENT)];
            let model = ScriptedModel::new([asking(batch), Step::text("done")]);
            let tools = || hooked(&tool_log, REDACT, KEEP, false);
            let client = setup.stack(&model, tools());
            let answer = send(&client, ask("buy", streamed)).await.unwrap();
            let asked: Vec<ApprovalRequest> = answer.approval_requests().cloned().collect();
            let yes = || asked.iter().map(|request| request.approve().into());
            let request = replying(yes(), streamed);
            let error = send(&client, request.clone()).await.unwrap_err();
            let text = error.to_string();
            let Some(ToolLoopError::ArgumentsNotKept { calls, .. }) = error.downcast_ref() else {
                panic!("{error:?}")
            };
            let named: Vec<_> = calls.iter().map(|it| (&*it.tool, &*it.call_id)).collect();
            assert_eq!(named, [("pay", "c2")]);
            assert!(text.contains("pay") && text.contains("c2"), "{text}");
            assert_eq!(model.requests().len(), 1, "the model is not called");
            assert_eq!(stored(&store).await.len(), 2);
            assert!(open(&store).await.is_none(), "no run remains open");
            assert_eq!(tool_log.names(), [""; 0], "no call of the batch has run");
            assert!(rows(&store).await[1].2.as_ref().unwrap().contains("not run"));

            let request = if again == "anew" { replying(yes(), streamed) } else { request };
            let setup = if again == "elsewhere" { setup.elsewhere() } else { setup };
            send(&setup.stack(&model, tools()), request).await.unwrap();
            assert_eq!(tool_log.names(), ["transfer {\"to\":1}"]);
            let shown = sent_texts(&model, 1);
            assert_eq!(shown[1], "assistant transfer#c1 pay#c2");
            assert!(shown[2].starts_with("tool c1=transfer did {\"to\":1} c2!"), "{shown:?}");
            assert!(shown[2].contains("arguments were not stored"), "{shown:?}");
            assert_eq!(pending(&store).await, [""; 0]);
            let all = rows(&store).await;
            let statuses: Vec<_> = all.iter().map(|(_, status, _)| *status).collect();
            assert_eq!(statuses, [ToolStatus::Ok, ToolStatus::RejectedArguments]);
        }
    }
}

#[tokio::test]
async fn a_call_with_changed_arguments_may_still_be_rejected() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([asking([("pay", "c2", PAYMENT)]), Step::text("fine")]);
        let tools = hooked(&tool_log, REDACT, KEEP, false);
        let client = Setup::new(&store).mode(mode).stack(&model, tools);
        let answer = send(&client, ask("buy", streamed)).await.unwrap();
        let asked = answer.approval_requests().next().unwrap().clone();
        let no = replying([asked.reject("too dear").into()], streamed);
        send(&client, no).await.unwrap();
        assert_eq!(tool_log.names(), [""; 0]);
        assert!(sent_texts(&model, 1)[2].contains("too dear"));
        assert_eq!(rows(&store).await[0].1, ToolStatus::RejectedByApproval);
    }
}

#[tokio::test]
async fn a_call_with_changed_arguments_runs_with_those_of_its_decision() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([asking([("pay", "c2", PAYMENT)]), Step::text("done")]);
        let tools = hooked(&tool_log, REDACT, KEEP, false);
        let setup = Setup::new(&store).mode(mode);
        let client = setup.stack(&model, tools.clone());
        let answer = send(&client, ask("buy", streamed)).await.unwrap();
        let asked = answer.approval_requests().next().unwrap().clone();
        let yes = replying([asked.approve_with(PAYMENT).into()], streamed);
        send(&setup.elsewhere().stack(&model, tools), yes).await.unwrap();
        assert_eq!(tool_log.names(), [format!("pay {PAYMENT}")]);
        assert_eq!(rows(&store).await[0].1, ToolStatus::Ok);
    }
}

#[tokio::test]
async fn a_tool_that_accepts_what_its_hook_stores_runs_with_it() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([asking([("pay", "c2", PAYMENT)]), Step::text("done")]);
        let tools = hooked(&tool_log, REDACT, KEEP, true);
        let setup = Setup::new(&store).mode(mode);
        let client = setup.stack(&model, tools.clone());
        let answer = send(&client, ask("buy", streamed)).await.unwrap();
        let asked = answer.approval_requests().next().unwrap().clone();
        let yes = replying([asked.approve().into()], streamed);
        send(&setup.elsewhere().stack(&model, tools), yes).await.unwrap();
        assert_eq!(tool_log.names(), ["pay {\"iban\":\"[redacted]\",\"amount\":0}"]);
        assert_eq!(rows(&store).await[0].1, ToolStatus::Ok);
    }
}

#[tokio::test]
async fn a_resumed_run_runs_a_changed_call_only_of_a_tool_that_accepts_it() {
    for (streamed, accepts) in cases!(BOTH_WAYS, [false, true]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let again = UnknownCalls::ask(|_| UnknownAnswer::RunAgain);
        let journal = JournalPolicy::default().with_unknown_calls(again);
        let setup = Setup::new(&store).policy(policy().with_journal(journal));
        let batch = [("look", "c1", "{\"at\":1}"), ("look", "c2", "{\"at\":2}")];
        let model = ScriptedModel::new([asking(batch), Step::text("done")]);
        let tools = hooked(&tool_log, KEEP, REDACT, accepts);
        let client = setup.looped(&model, ToolLoopLayer::new(tools.clone()));
        // Two writes succeed, including the answer with the start of the first call. The write with
        // the outcome fails.
        store.let_appends_through(2);
        store.fail_next_append(disk_full());
        let request = ask("go", streamed);
        send(&client, request.clone()).await.unwrap_err();
        assert_eq!(tool_log.names(), ["look {\"at\":1}"]);
        send(&setup.elsewhere().stack(&model, tools), request).await.unwrap();
        let redacted = "look {\"iban\":\"[redacted]\",\"amount\":0}";
        let expected: &[&str] = match accepts {
            true => &["look {\"at\":1}", redacted, redacted],
            false => &["look {\"at\":1}"],
        };
        assert_eq!(tool_log.names(), expected);
    }
}
