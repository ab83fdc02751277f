//! Tests that hooks and truncation change messages before they are staged.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_chat::{
    BoxError, Finish, Message, Part, ToolCall, Tools,
    recovery::{JournalPolicy, UnknownAnswer, UnknownCalls},
    replay::Truncation,
    store::{Directory, InvocationQuery, ToolCallQueries},
    tool::{Retention, StoredCall, ToolOutput, ToolStatus, persist_with},
    tool_fn,
    validate::validate_request,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

/// Returns three tools: the hook of `pin` redacts its result, the hook of `whisper` forgets the
/// call, and `wait` waits at `gate`.
fn discreet(tool_log: &ToolLog, gate: &Gate) -> Tools {
    let (note, whispers, gate) = (tool_log.clone(), tool_log.clone(), gate.clone());
    let pin = tool_fn(definition("pin"), move |_| {
        note.note("pin");
        async { Ok::<_, BoxError>(ToolOutput::from("swordfish")) }
    });
    let whisper = tool_fn(definition("whisper"), move |_| {
        whispers.note("whisper");
        async { Ok::<_, BoxError>(ToolOutput::from("psst")) }
    });
    let wait = tool_fn(definition("wait"), move |_| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, BoxError>(ToolOutput::from("waited"))
        }
    });
    let pin = persist_with(pin, |call| {
        call.redact_result("****");
        Ok(Retention::Keep)
    });
    let whisper = persist_with(whisper, |_| Ok(Retention::Forget));
    Tools::new().with(pin).with(whisper).with(wait)
}

fn given(store: &Store) -> String {
    let writes = store.writes();
    writes.iter().map(|write| format!("{:?} {:?}", write.messages(), write.tools())).collect()
}

#[tokio::test]
async fn values_that_a_hook_hides_are_never_staged_and_the_run_continues_without_them() {
    for concurrent in [false, true] {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).concurrent(concurrent);
        let model = ScriptedModel::new([
            calls([("pin", "c1"), ("whisper", "c2"), ("wait", "c3")]),
            Step::text("done"),
        ]);
        let request = ask("go", false);
        let client = setup.stack(&model, discreet(&tool_log, &gate));
        drop_when(&client, request.clone(), async {
            gate.reached(1).await;
            while calls_known(&store).await != ["c1 Done", "c3 Unknown"] {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(staged(&store).await[1], "assistant pin#c1 wait#c3");
        gate.open();
        send(&setup.stack(&model, discreet(&tool_log, &gate)), request).await.unwrap();
        let all = given(&store);
        assert!(!all.contains("swordfish") && !all.contains("psst"), "{all}");
        assert_eq!(tool_log.names(), ["pin", "whisper"], "no call runs again");
        let history = stored(&store).await;
        assert!(history[2].starts_with("tool c1=**** c3!"), "{history:?}");
        assert!(store.inner().list("alice", None, 9).await.unwrap().len() == 1);
    }
}

#[tokio::test]
async fn an_outcome_that_a_hook_forgets_causes_no_write() {
    let cases = Cases::all().modes([Journaled], "no other mode writes between service calls");
    cases
        .check(async |case| {
            let store = case.store().await;
            let [at_the_tool, at_the_model] = [(), ()].map(|()| Arc::new(AtomicUsize::new(0)));
            let note = |count: &Arc<AtomicUsize>| {
                let (store, count) = (store.clone(), count.clone());
                move || count.store(store.appends(), Ordering::SeqCst)
            };
            let (in_tool, in_model) = (note(&at_the_tool), note(&at_the_model));
            let whisper = tool_fn(definition("whisper"), move |_| {
                in_tool();
                async { Ok::<_, BoxError>(ToolOutput::from("psst")) }
            });
            let tools = Tools::new().with(persist_with(whisper, |_| Ok(Retention::Forget)));
            let last = Step::respond(move |_| {
                in_model();
                Step::text("done")
            });
            let model = ScriptedModel::new([calls([("whisper", "c1")]), last]);
            let client = Setup::new(&store).stack(&model, tools);
            send(&client, case.ask("go")).await.unwrap();
            let counts = [at_the_tool, at_the_model].map(|count| count.load(Ordering::SeqCst));
            assert_eq!(counts[0], counts[1]);
            assert!(counts[0] > 0, "the input is staged before the answer");
        })
        .await;
}

/// Returns the tools `whisper` and `wait`, which waits at `gate`. No call of `whisper` is stored:
/// its hook forgets the call, fails or panics.
fn secretive(tool_log: &ToolLog, gate: &Gate, hook: fn(&mut StoredCall<'_>) -> Hooked) -> Tools {
    let (whispers, gate) = (tool_log.clone(), gate.clone());
    let whisper = tool_fn(definition("whisper"), move |_| {
        let (tool_log, gate) = (whispers.clone(), gate.clone());
        async move {
            tool_log.note("whisper");
            gate.pass().await;
            Ok::<_, BoxError>(ToolOutput::from("psst"))
        }
    });
    Tools::new().with(persist_with(whisper, hook))
}

type Hooked = Result<Retention, BoxError>;

/// Returns a response with these texts, and with a call of `whisper` after the first one.
fn whispering(texts: &[&str]) -> Step {
    let call: Part = ToolCall::new("c1", "whisper", "{}").into();
    let mut messages: Vec<Message> = texts.iter().map(|text| Message::assistant(*text)).collect();
    match messages.first_mut() {
        Some(first) => first.parts.push(call),
        None => messages.push(Message::tool_calls([ToolCall::new("c1", "whisper", "{}")])),
    }
    Step::answer(messages, Finish::stop())
}

/// The texts of a response with a call: none, one before the call, or one before and one after it.
const BESIDE: [&[&str]; 3] = [&[], &["Let me check."], &["Let me check.", "One moment."]];

fn asked_again(step: Step) -> Step {
    Step::respond(|request| {
        validate_request(request).unwrap();
        step
    })
}

#[tokio::test]
async fn a_round_without_stored_calls_is_not_a_final_answer_after_a_failed_service_call() {
    let hooks: [fn(&mut StoredCall<'_>) -> Hooked; 3] =
        [|_| Ok(Retention::Forget), |_| Err("no policy".into()), |_| panic!("no policy")];
    for (hook, (texts, streamed), mode) in
        cases!(hooks, BESIDE.iter().zip([false, true, false]), [PerServiceCall, JOURNALED])
    {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        gate.open();
        let setup = Setup::new(&store).mode(mode);
        let model = ScriptedModel::new([
            whispering(texts),
            Step::error("overloaded"),
            asked_again(Step::text("done")),
        ]);
        let client = setup.stack(&model, secretive(&tool_log, &gate, hook));
        let request = ask("go", streamed);
        send(&client, request.clone()).await.unwrap_err();
        let answer = send(&client, request.clone()).await.unwrap();
        let case_name = (mode, texts);
        assert_eq!(answer.messages.last().unwrap().text(), "done", "{case_name:?}");
        assert_eq!(sent_texts(&model, 2), ["user go"], "{case_name:?}");
        let again = send(&client, request).await.unwrap();
        assert_eq!(again.messages.last().unwrap().text(), "done", "{case_name:?}");
        assert_eq!(model.requests().len(), 3, "the answer contains the whole run: {case_name:?}");
    }
}

#[tokio::test]
async fn a_round_without_stored_calls_is_not_a_final_answer_after_a_drop() {
    for (mode, texts) in cases!([PerServiceCall, JOURNALED], BESIDE) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).mode(mode);
        let model = ScriptedModel::new([
            whispering(texts),
            asked_again(calls([("whisper", "c2")])),
            asked_again(Step::text("done")),
        ]);
        let tools = || secretive(&tool_log, &gate, |_| Ok(Retention::Forget));
        let request = ask("go", false);
        let client = setup.stack(&model, tools());
        drop_when(&client, request.clone(), gate.reached(1)).await;
        let client = setup.elsewhere().stack(&model, tools());
        drop_when(&client, request.clone(), gate.reached(2)).await;
        let client = setup.elsewhere().stack(&model, tools());
        let answer = send(&client, request).await.unwrap();
        let case_name = (mode, texts);
        assert_eq!(answer.messages.last().unwrap().text(), "done", "{case_name:?}");
        assert_eq!(
            (sent_texts(&model, 1), sent_texts(&model, 2)),
            (vec!["user go".into()], vec!["user go".into()])
        );
        assert_eq!(model.requests().len(), 3, "{case_name:?}");
    }
}

#[tokio::test]
async fn a_call_whose_arguments_were_redacted_is_not_run_by_another_attempt() {
    // If the call of `whisper` was started, its outcome is unknown.
    for (is_started, unknown) in cases!(
        [false, true],
        [UnknownCalls::Answer, UnknownCalls::ask(|_| UnknownAnswer::RunAgain)]
    ) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let journal = JournalPolicy::default().with_unknown_calls(unknown);
        let setup = Setup::new(&store).policy(policy().with_journal(journal));
        let tools = || {
            let (tool_log, gate) = (tool_log.clone(), gate.clone());
            let tool = move |name: &'static str, waits: bool| {
                let (tool_log, gate) = (tool_log.clone(), gate.clone());
                let mut definition = definition(name);
                definition.safe_to_retry = true;
                tool_fn(definition, move |context| {
                    let (tool_log, gate) = (tool_log.clone(), gate.clone());
                    async move {
                        tool_log.note(&format!("{name} {}", context.arguments()));
                        if waits {
                            gate.pass().await;
                        }
                        Ok::<_, BoxError>(ToolOutput::from("done"))
                    }
                })
            };
            let pay = persist_with(tool("pay", is_started), |call| {
                call.redact_arguments(r#"{"card":"****"}"#);
                Ok(Retention::Keep)
            });
            let same = persist_with(tool("same", false), |call| {
                let arguments = call.call().arguments.clone();
                call.redact_arguments(arguments);
                Ok(Retention::Keep)
            });
            let whisper = persist_with(tool("whisper", false), |_| Ok(Retention::Forget));
            Tools::new().with(tool("wait", !is_started)).with(pay).with(same).with(whisper)
        };
        let call = |name: &str, id: &str| ToolCall::new(id, name, r#"{"card":"4111"}"#);
        let asking = Message::tool_calls([
            call("whisper", "c0"),
            call("wait", "c1"),
            call("pay", "c2"),
            call("same", "c3"),
        ]);
        let model = ScriptedModel::new([Step::message(asking), Step::text("sorry")]);
        let request = ask("go", false);
        drop_when(&setup.stack(&model, tools()), request.clone(), gate.reached(1)).await;
        gate.open();
        let first = tool_log.names();
        assert_eq!(first.iter().any(|name| name.starts_with("pay")), is_started);
        send(&setup.elsewhere().stack(&model, tools()), request).await.unwrap();
        let second = &tool_log.names()[first.len()..];
        assert!(!second.iter().any(|name| name.contains("pay")), "{second:?}");
        assert_eq!(second.last().unwrap(), r#"same {"card":"4111"}"#);
        let results = sent_texts(&model, 1)[2].clone();
        let expected = if is_started { "may or may not" } else { "its arguments were not stored" };
        assert!(results.contains("c1=done c2!") && results.contains(expected), "{results}");
        assert!(results.ends_with("c3=done"), "{results}");
        let rows = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
        assert_eq!(rows[1].1.status, ToolStatus::Interrupted);
        assert_eq!(rows[1].1.arguments, r#"{"card":"****"}"#);
    }
}

#[tokio::test]
async fn an_outcome_that_is_to_be_forgotten_is_forgotten_by_every_attempt() {
    let cases = Cases::all().modes([Journaled], "no other mode runs a call again");
    cases
        .check(async |case| {
            let (store, gate) = (case.store().await, Gate::closed());
            let mut safe = definition("pay");
            safe.safe_to_retry = true;
            let paid = gate.clone();
            let pay = tool_fn(safe, move |_| {
                let gate = paid.clone();
                async move {
                    gate.pass().await;
                    Ok::<_, BoxError>(ToolOutput::from("card xqz"))
                }
            });
            let pay = persist_with(pay, |call| {
                Ok(if call.result().is_some() { Retention::Forget } else { Retention::Keep })
            });
            let (setup, tools) = (Setup::new(&store), Tools::new().with(pay));
            let model = ScriptedModel::new([
                calls([("pay", "c1")]),
                Step::text("paid"),
                Step::text("nothing else"),
            ]);
            let request = case.ask("go");
            let client = setup.stack(&model, tools);
            drop_when(&client, request.clone(), gate.reached(1)).await;
            gate.open();
            assert_eq!(send(&client, request).await.unwrap().text(), "paid");
            assert_eq!(sent_texts(&model, 1)[2], "tool c1=card xqz");
            send(&client, case.ask("and now?")).await.unwrap();
            assert_eq!(sent_texts(&model, 2), ["user go", "assistant paid", "user and now?"]);
            assert!(!given(&store).contains("xqz"));
        })
        .await;
}

#[tokio::test]
async fn a_long_result_is_staged_truncated_and_the_run_under_way_sees_all_of_it() {
    let (store, gate) = (store(), Gate::closed());
    let setup = Setup::new(&store).policy(policy().with_truncation(Truncation::to(200)));
    let model = ScriptedModel::new([calls([("long", "c1")]), Step::text("done").waits(&gate)]);
    let long = || {
        Tools::new().with(tool_fn(definition("long"), |_| async {
            Ok::<_, BoxError>(ToolOutput::from("x".repeat(10_000)))
        }))
    };
    let client = setup.stack(&model, long());
    let looking = async {
        model.called(2).await;
        let content = open(&store).await.unwrap();
        let text = format!("{:?}", content.tools);
        assert!(text.len() < 2_000, "{}", text.len());
        gate.open();
    };
    let (answer, ()) = tokio::join!(send(&client, ask("go", false)), looking);
    answer.unwrap();
    assert!(sent_texts(&model, 1)[2].len() > 10_000);
    assert!(stored(&store).await[2].len() < 300);
}

#[tokio::test]
async fn a_tool_that_nests_a_run_is_resumed_with_it() {
    use tower_chat::{ChatRequest, ConversationKey, tool::NestedInAncestor};
    let store = store();
    let setup = Setup::new(&store);
    let sub_key = || ConversationKey::new("alice", "support/sub");
    let model = ScriptedModel::new([
        calls([("delegate", "c1")]),
        Step::text("nested"),
        Step::error("overloaded"),
        Step::text("done"),
    ]);
    let inner = setup.stack(&model, Tools::new());
    let seen_by_tool = store.clone();
    let delegate = tool_fn(definition("delegate"), move |context| {
        let (inner, store) = (inner.clone(), seen_by_tool.clone());
        async move {
            let error = send(&inner, context.nest(ask("sub", false))).await.unwrap_err();
            assert!(error.downcast_ref::<NestedInAncestor>().is_some(), "{error:?}");
            let request = ChatRequest::user("sub").in_conversation(sub_key());
            let answer = send(&inner, context.nest(request)).await?;
            assert_eq!(staged(&store).await.len(), 2, "the outer run is still open");
            Ok::<_, BoxError>(ToolOutput::from(answer.text()))
        }
    });
    let client = setup.stack(&model, Tools::new().with(delegate));
    let request = ask("go", false);
    send(&client, request.clone()).await.unwrap_err();
    assert_eq!(stored_of(&store, &sub_key()).await, ["user sub", "assistant nested"]);
    assert_eq!(stored(&store).await, [""; 0]);
    send(&client, request).await.unwrap();
    let all = ["user go", "assistant delegate#c1", "tool c1=nested", "assistant done"];
    assert_eq!(stored(&store).await, all);
    assert_eq!(
        stored_of(&store, &sub_key()).await.len(),
        2,
        "the nested run is not executed again"
    );
}

#[tokio::test]
async fn a_call_keeps_its_idempotency_key_beside_one_that_is_forgotten() {
    let (store, gate, keys) = (store(), Gate::closed(), ToolLog::default());
    let setup = Setup::new(&store);
    let tools = |gate: &Gate| {
        let (gate, keys) = (gate.clone(), keys.clone());
        let whisper = tool_fn(definition("whisper"), |_| async {
            Ok::<_, BoxError>(ToolOutput::from("psst"))
        });
        let mut retried = definition("wait");
        retried.safe_to_retry = true;
        let wait = tool_fn(retried, move |context| {
            keys.note(&context.idempotency_key());
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, BoxError>(ToolOutput::from("waited"))
            }
        });
        Tools::new().with(persist_with(whisper, |_| Ok(Retention::Forget))).with(wait)
    };
    let model =
        ScriptedModel::new([calls([("whisper", "c1"), ("wait", "c2")]), Step::text("done")]);
    let request = ask("go", false);
    let client = setup.stack(&model, tools(&gate));
    drop_when(&client, request.clone(), gate.reached(1)).await;
    gate.open();
    send(&setup.stack(&model, tools(&gate)), request).await.unwrap();
    let keys = keys.names();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}
