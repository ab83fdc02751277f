//! Tests services that begin to store the history during a run, or stop storing it. If the answer
//! that reports the change fails the run, no service call and no tool follows. The results of tools
//! are not lost.

use serde_json::Value;
use tower::Layer;
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatResponse, Finish, Message, PersistenceError,
    PersistenceMode, Role, ToolCall, ToolResult, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::{ConflictPolicy, UnansweredInputs},
    store::{InvocationQuery, ToolCallQueries},
    tool::{ToolOutput, ToolStatus, pending_results},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

const MODES: [PersistenceMode; 3] = [PerRun, PerServiceCall, PersistenceMode::Journaled];

const LENIENT: [ConflictPolicy; 2] = [ConflictPolicy::StopRecording, ConflictPolicy::Record];

fn finish(service_id: Option<&str>) -> Finish {
    service_id.map_or_else(Finish::stop, |id| Finish::stop().with_service_id(id))
}

/// Returns a step with one call of `look`. Each round has another argument and another id.
fn round(number: u32, service_id: Option<&str>) -> Step {
    let call = ToolCall::new(format!("c{number}"), "look", format!("{{\"at\":{number}}}"));
    Step::answer([Message::tool_calls([call])], finish(service_id))
}

fn text(text: &str, service_id: Option<&str>) -> Step {
    Step::answer([Message::assistant(text)], finish(service_id))
}

fn looking(tool_log: &ToolLog) -> Tools {
    let tool_log = tool_log.clone();
    Tools::new().with(tool_fn(definition("look"), move |call| {
        let at = serde_json::from_str::<Value>(call.arguments()).unwrap()["at"].clone();
        tool_log.note(&format!("look {at}"));
        async move { Ok(ToolOutput::from(format!("seen at {at}"))) }
    }))
}

struct Case {
    store: Store,
    model: ScriptedModel,
    tool_log: ToolLog,
    client: Client,
}

/// The layers between `PerRunPersistence` and the model client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    LoopAndPersister,
    Loop,
    ForeignLoopAndPersister,
}

impl Case {
    fn new<const N: usize>(
        mode: PersistenceMode,
        below: Below,
        conflict: ConflictPolicy,
        steps: [Step; N],
    ) -> Self {
        let (store, model, tool_log) = (store(), ScriptedModel::new(steps), ToolLog::default());
        let above = PerRunPersistence::new(store.clone()).mode(mode);
        let above = above.policy(policy().on_conflict(conflict));
        let persister = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = match below {
            Below::LoopAndPersister => {
                boxed(above.layer(ToolLoopLayer::new(looking(&tool_log)).layer(persister)))
            }
            Below::Loop => {
                boxed(above.layer(ToolLoopLayer::new(looking(&tool_log)).layer(model.clone())))
            }
            Below::ForeignLoopAndPersister => {
                boxed(above.layer(foreign_loop(boxed(persister), &tool_log)))
            }
        };
        Self { store, model, tool_log, client }
    }

    async fn statuses(&self) -> Vec<(String, ToolStatus, Option<String>)> {
        let query = InvocationQuery::of(&key());
        let found = self.store.inner().invocations(&query).await.unwrap().found;
        let row = |call: tower_chat::tool::ToolInvocation| {
            (call.arguments, call.status, call.result.map(|result| result.text()))
        };
        found.into_iter().map(|(_, call)| row(call)).collect()
    }
}

/// Returns the tool loop of an application.
fn foreign_loop(below: Client, tool_log: &ToolLog) -> Client {
    let tool_log = tool_log.clone();
    boxed(tower::service_fn(move |request: ChatRequest| {
        let (below, tool_log) = (below.clone(), tool_log.clone());
        async move {
            let mut next = request.clone();
            let mut added = Vec::new();
            loop {
                let answer = send(&below, next.clone()).await?;
                added.extend(answer.messages.iter().cloned());
                let calls: Vec<ToolCall> =
                    answer.messages.iter().flat_map(|message| message.calls().cloned()).collect();
                if calls.is_empty() {
                    return Ok::<_, BoxError>(ChatResponse::from(Answer::new(
                        added,
                        answer.finish,
                    )));
                }
                let results = calls.iter().map(|call| {
                    tool_log.note(&format!("foreign {}", call.arguments));
                    ToolResult::new(call.id.clone().unwrap(), format!("of {}", call.arguments))
                });
                let results: std::sync::Arc<_> = Message::tool_results(results).into();
                added.push(results.clone());
                if answer.finish.history_owner.is_some() {
                    next.set_messages([Message::clone(&results)], 0);
                } else {
                    answer.messages.iter().for_each(|message| next.push(message.clone()));
                    next.push(results);
                }
                next.history_owner = answer.finish.history_owner;
            }
        }
    }))
}

#[tokio::test]
async fn an_id_in_the_first_answer_stops_the_run_before_its_tools_and_the_next_call() {
    for (streamed, mode, below) in cases!(
        BOTH_WAYS,
        MODES,
        [Below::LoopAndPersister, Below::Loop, Below::ForeignLoopAndPersister]
    ) {
        if below == Below::Loop && mode != PerRun {
            continue;
        }
        let steps = [round(1, Some("s1")), text("there", None)];
        let case = Case::new(mode, below, ConflictPolicy::Fail, steps);
        let logged = logged();
        let error = refused(send(&case.client, ask("where?", streamed)).await);
        let what = format!("{streamed} {mode:?} {below:?}");
        let PersistenceError::ServiceKeepsHistory { service_id, .. } = &error else {
            panic!("{what}: {error:?}")
        };
        assert_eq!(&**service_id, "s1");
        assert_eq!(shorts(&error.answer().unwrap().messages), ["assistant look#c1"]);
        assert_eq!(case.model.requests().len(), 1, "{what}");
        assert_eq!(case.tool_log.names(), [""; 0], "{what}");
        assert_eq!(stored(&case.store).await, [""; 0], "{what}");
        assert_eq!(logged.lines("stores this conversation itself"), 1, "{what}");
    }
}

#[tokio::test]
async fn an_id_in_a_middle_answer_stops_the_run_there_and_loses_no_result() {
    for (streamed, mode) in cases!(BOTH_WAYS, MODES) {
        let steps = [round(1, None), round(2, Some("s1")), text("there", None)];
        let case = Case::new(mode, Below::LoopAndPersister, ConflictPolicy::Fail, steps);
        let error = refused(send(&case.client, ask("where?", streamed)).await);
        let what = format!("{streamed} {mode:?}");
        let is_kept = matches!(error, PersistenceError::ServiceKeepsHistory { .. });
        assert!(is_kept, "{what}: {error:?}");
        assert_eq!(case.model.requests().len(), 2, "{what}");
        assert_eq!(case.tool_log.names(), ["look 1"], "{what}");
        let answer = shorts(&error.answer().unwrap().messages);
        let first = ["user where?", "assistant look#c1"];
        match mode {
            PerRun => {
                assert_eq!(stored(&case.store).await, [""; 0], "{what}");
                let all = ["assistant look#c1", "tool c1=seen at 1", "assistant look#c2"];
                assert_eq!(answer, all, "{what}");
            }
            PerServiceCall => {
                assert_eq!(stored(&case.store).await, first, "{what}");
                assert_eq!(answer, ["assistant look#c2"], "{what}");
                let row = ("{\"at\":1}".into(), ToolStatus::Ok, Some("seen at 1".into()));
                assert_eq!(case.statuses().await, [row], "{what}");
                let pending = pending_results(&case.store, &key()).await.unwrap();
                assert_eq!(short(&pending.unwrap()), "tool c1=seen at 1", "{what}");
            }
            _ => assert_eq!(answer, ["assistant look#c2"], "{what}"),
        }
        assert_eq!(service_id(&case.store).await, None, "{what}");
    }
}

#[tokio::test]
async fn an_id_that_a_later_answer_does_not_name_is_missing_in_every_mode() {
    for (streamed, mode, below) in cases!(
        BOTH_WAYS,
        MODES,
        [Below::LoopAndPersister, Below::Loop, Below::ForeignLoopAndPersister]
    ) {
        if below == Below::Loop && mode != PerRun {
            continue;
        }
        for conflict in LENIENT {
            let steps = [round(1, Some("s1")), round(2, None), text("there", None)];
            let case = Case::new(mode, below, conflict, steps);
            let error = refused(send(&case.client, ask("where?", streamed)).await);
            let what = format!("{streamed} {mode:?} {below:?} {conflict:?}");
            let PersistenceError::ServiceIdMissing { service_id, .. } = &error else {
                panic!("{what}: {error:?}")
            };
            assert_eq!(&**service_id, "s1");
            assert_eq!(case.model.requests().len(), 2, "{what}");
            assert_eq!(case.tool_log.names().len(), 1, "{what}");
            if mode == PerRun {
                assert_eq!(stored(&case.store).await, [""; 0], "{what}");
            }
            if mode == PerServiceCall && conflict == ConflictPolicy::Record && below != Below::Loop
            {
                let [(arguments, status, result)] = &case.statuses().await[..] else {
                    panic!("{what}")
                };
                assert_eq!((&**arguments, *status), ("{\"at\":1}", ToolStatus::Ok));
                let expected = match below {
                    Below::ForeignLoopAndPersister => "of {\"at\":1}",
                    _ => "seen at 1",
                };
                assert_eq!(result.as_deref(), Some(expected), "{what}");
            }
        }
    }
}

fn two_calls(ids: [Option<&str>; 2]) -> Step {
    let calls = [10, 20].into_iter().zip(ids).map(|(at, id)| {
        let mut call = ToolCall::new("", "look", format!("{{\"at\":{at}}}"));
        call.id = id.map(ToOwned::to_owned);
        call
    });
    Step::answer([Message::tool_calls(calls)], Finish::stop())
}

#[tokio::test]
async fn results_of_a_refused_call_are_recorded_for_their_own_calls_whatever_the_ids() {
    let ids = [[Some("a"), Some("b")], [Some("c"), Some("c")], [None, None], [Some(""), Some("")]];
    for (streamed, has_run, ids) in cases!(BOTH_WAYS, [true, false], ids) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([two_calls(ids), text("there", Some("s1"))]);
        let persister = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let looping = ToolLoopLayer::new(looking(&tool_log)).layer(persister);
        let above = PerRunPersistence::new(store.clone()).mode(PerServiceCall);
        let client = if has_run { boxed(above.layer(looping)) } else { boxed(looping) };
        let error = refused(send(&client, ask("where?", streamed)).await);
        let what = format!("{streamed} {has_run} {ids:?}");
        assert!(matches!(error, PersistenceError::ServiceKeepsHistory { .. }), "{what}");
        let query = InvocationQuery::of(&key());
        let found = store.inner().invocations(&query).await.unwrap().found;
        let rows: Vec<_> = found
            .into_iter()
            .map(|(_, call)| {
                if has_run {
                    assert!(call.started_at.is_some() && call.finished_at.is_some());
                }
                (call.arguments, call.status, call.result.unwrap().text())
            })
            .collect();
        let row = |at: u32| (format!("{{\"at\":{at}}}"), ToolStatus::Ok, format!("seen at {at}"));
        assert_eq!(rows, [row(10), row(20)], "{what}");
        let pending = pending_results(&store, &key()).await.unwrap().unwrap();
        let texts: Vec<_> = pending.results().map(|result| result.text()).collect();
        assert_eq!(texts, ["seen at 10", "seen at 20"], "{what}");
    }
}

#[tokio::test]
async fn results_of_a_refused_call_are_forgotten_where_the_policy_says_so() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([round(1, None), text("there", Some("s1"))]);
        let policy = policy().with_inputs_of_failed_call(UnansweredInputs::None);
        let client =
            stack(model.clone(), &store, PerServiceCall, policy, looking(&ToolLog::default()));
        refused(send(&client, ask("where?", streamed)).await);
        assert_eq!(pending_results(&store, &key()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_approved_call_whose_service_call_is_refused_does_not_run_again() {
    for (streamed, mode) in cases!(BOTH_WAYS, MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([
            calls([("pay", "p1")]),
            text("refused", Some("s1")),
            text("paid", None),
        ]);
        let client = stack(model.clone(), &store, mode, policy(), tools(&tool_log));
        let answer = send(&client, ask("buy", streamed)).await.unwrap();
        let request = answer.messages[0].approval_request(0).unwrap().clone();
        let yes = Message::new(Role::User, vec![request.approve().into()]);
        let approval = || request_with([yes.clone()], streamed);
        let refused = refused(send(&client, approval()).await);
        let is_kept = matches!(refused, PersistenceError::ServiceKeepsHistory { .. });
        assert!(is_kept, "{mode:?} {refused:?}");
        assert_eq!(tool_log.names(), ["pay"]);
        if mode != PersistenceMode::Journaled {
            let answer = send(&client, approval()).await.unwrap();
            assert_eq!(answer.text(), "paid");
            assert_eq!(tool_log.names(), ["pay"]);
            assert!(sent_texts(&model, 2).contains(&"tool p1=payed p1".to_owned()));
        }
    }
}

#[tokio::test]
async fn a_journaled_run_continues_with_its_results_once_the_conflict_is_put_right() {
    for (streamed, fixed) in cases!(BOTH_WAYS, LENIENT) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([
            round(1, None),
            text("refused", Some("s1")),
            text("there", Some("s1")),
        ]);
        let mode = PersistenceMode::Journaled;
        let client = stack(model.clone(), &store, mode, policy(), looking(&tool_log));
        let request = ask("where?", streamed);
        refused(send(&client, request.clone()).await);
        let policy = policy().on_conflict(fixed);
        let client = stack(model.clone(), &store, mode, policy, looking(&tool_log));
        assert_eq!(send(&client, request).await.unwrap().text(), "there");
        assert_eq!(tool_log.names(), ["look 1"]);
        assert_eq!(sent_texts(&model, 2).last().unwrap(), "tool c1=seen at 1");
    }
}

#[tokio::test]
async fn the_newest_service_id_of_a_run_is_stored() {
    for (streamed, mode, conflict) in cases!(BOTH_WAYS, MODES, LENIENT) {
        let steps = [round(1, Some("s1")), round(2, Some("s2")), text("there", Some("s3"))];
        let case = Case::new(mode, Below::LoopAndPersister, conflict, steps);
        let logged = logged();
        send(&case.client, ask("where?", streamed)).await.unwrap();
        let what = format!("{streamed} {mode:?} {conflict:?}");
        assert_eq!(service_id(&case.store).await.as_deref(), Some("s3"), "{what}");
        let all = [
            "user where?",
            "assistant look#c1",
            "tool c1=seen at 1",
            "assistant look#c2",
            "tool c2=seen at 2",
            "assistant there",
        ];
        // In journaled mode, the input was staged before the service reported that it stores the
        // history. The run is therefore recorded under both policies.
        let is_recorded = conflict == ConflictPolicy::Record || mode == PersistenceMode::Journaled;
        let recorded = if is_recorded { all.len() } else { 0 };
        assert_eq!(stored(&case.store).await, all[..recorded], "{what}");
        assert_eq!(logged.lines("stores this conversation itself"), 1, "{what}");
        assert_eq!(sent_texts(&case.model, 2), ["tool c2=seen at 2"], "{what}");
    }
}

#[tokio::test]
async fn above_a_foreign_loop_only_the_service_id_of_the_last_answer_is_detected() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([round(1, None), text("there", Some("s1"))]);
        let above = PerRunPersistence::new(store.clone());
        let client = boxed(above.layer(foreign_loop(boxed(model.clone()), &tool_log)));
        let error = refused(send(&client, ask("where?", streamed)).await);
        assert!(matches!(error, PersistenceError::ServiceKeepsHistory { .. }), "{error:?}");
        let all = ["assistant look#c1", "tool c1=of {\"at\":1}", "assistant there"];
        assert_eq!(shorts(&error.answer().unwrap().messages), all);
        assert_eq!(stored(&store).await, [""; 0]);
    }
}
