//! Tests per-run mode: a run loads the history once, and stores its messages at its end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tower::{Layer, ServiceExt, buffer::BufferLayer};
use tower_chat::{
    ChatRequest, ConversationKey, Finish, HistoryStore, Message, Part, PersistenceError, Role,
    ToolResult, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::{MessageId, Messages},
    replay::DanglingCalls,
    request::Usage,
    run::RunId,
    store::{Revision, author::Write},
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

#[tokio::test]
async fn a_run_is_loaded_once_and_appended_once_at_its_end() {
    Cases::all()
        .with_all_ids()
        .modes([PerRun], "the other modes write before the end of the run")
        .check(async |case| {
            let (store, counts) = (case.store().await, Arc::new(Mutex::new(Vec::new())));
            let model = ScriptedModel::new([
                Step::text("hello"),
                noting(&store, &counts, case.calls([("look", "c1")])),
                noting(&store, &counts, Step::text("there")),
            ]);
            let client = case.agent(&model, &store);
            send(&client, case.ask("hi")).await.unwrap();
            let (heads, loads, appends) = (store.heads(), store.loads(), store.appends());
            send(&client, case.ask("where?")).await.unwrap();

            assert_eq!(*counts.lock().unwrap(), [2, 2], "nothing is stored before the end");
            assert_eq!(store.appends() - appends, 1);
            assert_eq!((store.heads() - heads, store.loads() - loads), (1, 1));
            let all = [
                "user hi",
                "assistant hello",
                "user where?",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant there",
            ];
            assert_eq!(stored(&store).await, all);
            assert_eq!(sent_texts(&model, 1), all[..3]);
            assert_eq!(sent_texts(&model, 2), all[..5]);
        })
        .await;
}

/// Whether `PerServiceCallPersistence` is below the tool loop, and whether the loop can detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Nothing,
    Found,
    Hidden,
}

/// Wraps a client in a buffer, which hides the client from the layers above: it polls the readiness
/// of `below` in a separate task.
fn hidden(below: Client) -> Client {
    boxed(BufferLayer::<ChatRequest>::new(4).layer(below))
}

#[tokio::test]
async fn a_layer_above_the_tool_loop_can_change_the_question() {
    Cases::all()
        .modes([PerRun, PerServiceCall], "the input of a journaled run is stored before the change")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello"), Step::text("there")]);
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            let looped = ToolLoopLayer::new(Tools::new()).layer(below);
            let changed = looped.map_request(|mut request: ChatRequest| {
                let mut messages: Vec<_> = request.messages().iter().cloned().collect();
                for message in messages.iter_mut().filter(|message| message.role == Role::User) {
                    if !message.text().starts_with("now") {
                        Arc::make_mut(message).parts.insert(0, Part::text("now:"));
                    }
                }
                let history_len = request.history_len();
                request.set_messages(messages.into_iter().collect::<Messages>(), history_len);
                request
            });
            let client =
                boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(changed));
            for question in ["hi", "where?"] {
                send(&client, case.ask(question)).await.unwrap();
            }
            let sent: Vec<_> = (0..2).map(|call| sent_texts(&model, call).pop()).collect();
            let expected = ["user now: hi", "user now: where?"];
            assert_eq!(sent, expected.map(|text| Some(text.to_owned())));
        })
        .await;
}

#[tokio::test]
async fn a_run_is_the_same_wherever_its_persister_is_and_whether_it_is_found() {
    Cases::all()
        .modes([PerRun], "the other modes need a persister that is found or declared")
        .check(async |case| {
            // The messages of the first service call, by the length of the input. They must be the
            // same in every stack.
            let mut expected = HashMap::new();
            let answered =
                [Message::tool_results([ToolResult::new("c1", "blue")]), Message::user("where?")];
            for (input, persister, hides_loop, is_declared) in cases!(
                [&answered[..], &answered[1..]],
                [Below::Nothing, Below::Found, Below::Hidden],
                [false, true],
                [false, true]
            ) {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let look = case.calls([("look", "c2")]);
                let steps = [Step::text("hello"), case.calls([("ask", "c1")]), look];
                let model = ScriptedModel::new(steps.into_iter().chain([Step::text("there")]));
                send(&case.agent(&model, &store), case.ask("hi")).await.unwrap();
                send(&case.agent(&model, &store), case.ask("go")).await.unwrap();
                let before = stored(&store).await;
                let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
                let below = match persister {
                    Below::Nothing => boxed(model.clone()),
                    Below::Found => boxed(below),
                    Below::Hidden => hidden(boxed(below)),
                };
                let tool_loop =
                    ToolLoopLayer::new(tools(&tool_log)).assume_persister_below(is_declared);
                let looped = boxed(tool_loop.layer(below));
                let looped = if hides_loop { hidden(looped) } else { looped };
                let client = boxed(PerRunPersistence::new(store.clone()).layer(looped));
                let mut request = case.ask("");
                request.set_new_messages(input.to_vec());
                send(&client, request).await.unwrap();

                let which = (persister, hides_loop, is_declared);
                let mut all = before.clone();
                let input_texts: Vec<_> = input.iter().cloned().map(Arc::new).collect();
                all.extend(shorts(&input_texts));
                let first_call = all.len();
                all.extend(
                    ["assistant look#c2", "tool c2=looked c2", "assistant there"].map(Into::into),
                );
                assert_eq!(stored(&store).await, all, "{which:?}");
                assert_eq!(model.requests().len(), 4, "{which:?}");
                assert_eq!(tool_log.names(), ["look"], "{which:?}");
                let sent = sent_texts(&model, 2);
                let expected = expected.entry(input.len()).or_insert_with(|| sent.clone());
                assert_eq!(sent, *expected, "{which:?}");
                if input.len() == 2 {
                    assert_eq!(sent, all[..first_call], "{which:?}");
                }
                let later = sent_texts(&model, 3);
                assert_eq!(later[..sent.len()], sent, "{which:?}");
                assert_eq!(later[sent.len()..], all[first_call..first_call + 2], "{which:?}");
            }
        })
        .await;
}

#[tokio::test]
async fn a_new_conversation_needs_no_load() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::text("hello")]);
        send(&case.agent(&model, &store), case.ask("hi")).await.unwrap();
        assert_eq!((store.heads(), store.loads()), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn the_answer_carries_every_message_with_its_stored_id_and_what_was_saved() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
        let request = case.ask("where?");
        let run = request.conversation().unwrap().run;
        let answer = send(&case.agent(&model, &store), request).await.unwrap();
        assert_eq!(
            shorts(&answer.messages),
            ["assistant look#c1", "tool c1=looked c1", "assistant there"]
        );
        let ids: Vec<_> = answer.messages.iter().map(|message| message.id.unwrap()).collect();
        assert_eq!(ids, [1, 2, 3].map(|index| MessageId { run, index }));
        let history = store.inner().load(&key()).await.unwrap();
        let of_answer = history.messages.iter_from(1);
        assert!(of_answer.zip(&answer.messages).all(|(stored, given)| stored == given));
        let saved = answer.finish.saved.unwrap();
        assert_eq!((saved.messages, saved.unsaved), (4, 0));
    })
    .await;
}

#[tokio::test]
async fn usage_reason_and_metadata_pass_through_unchanged() {
    every_case(async |case| {
        let mut finish = Finish::stop().with_usage(Usage::new(7, 3));
        finish.model = Some("m-1".into());
        finish.metadata.insert("trace".into(), "t".into());
        let answered = Step::answer([Message::assistant("hello")], finish.clone());
        let model = ScriptedModel::new([answered]);
        let answer = send(&case.agent(&model, &case.store().await), case.ask("hi")).await.unwrap();
        let mut given = answer.finish;
        assert!(given.saved.take().is_some());
        assert_eq!(*given, finish);
    })
    .await;
}

#[tokio::test]
async fn usage_is_that_of_all_service_calls() {
    every_case(async |case| {
        let asked = Step::answer(
            [case.call_message([("look", "c1")])],
            Finish::stop().with_usage(Usage::new(10, 1)),
        );
        let model = ScriptedModel::new([asked, costly("there", 20, 2)]);
        let answer = send(&case.agent(&model, &case.store().await), case.ask("hi")).await.unwrap();
        assert_eq!(answer.finish.usage, Usage::new(30, 3));
    })
    .await;
}

#[tokio::test]
async fn a_run_that_fails_leaves_the_store_as_it_was() {
    Cases::all()
        .modes([PerRun], "the other modes store answered service calls")
        .check(async |case| {
            for failing in [
                Step::error("overloaded"),
                Step::text("half").fails_after(1, "reset"),
                Step::text("half").cut_off_after(1),
            ] {
                let (store, model, client) = case
                    .begin([
                        Step::text("hello"),
                        case.calls([("look", "c1")]),
                        failing,
                        Step::text("again"),
                    ])
                    .await;
                send(&client, case.ask("hi")).await.unwrap();
                let (before, appends) =
                    (store.inner().head(&key()).await.unwrap(), store.appends());
                send(&client, case.ask("where?")).await.unwrap_err();
                assert_eq!(store.inner().head(&key()).await.unwrap(), before);
                assert_eq!(store.appends(), appends);
                assert!(store.handle().unsaved_conversations().is_empty());

                send(&client, case.ask("and now?")).await.unwrap();
                assert_eq!(sent_texts(&model, 3), ["user hi", "assistant hello", "user and now?"]);
            }
        })
        .await;
}

#[tokio::test]
async fn trailing_results_are_trimmed_and_earlier_rounds_kept() {
    every_id(async |case| {
        for keep in [false, true] {
            let store = case.store().await;
            let model = ScriptedModel::new([
                case.calls([("look", "c1")]),
                case.calls([("stop", "c2"), ("look", "c3")]),
            ]);
            let policy = policy().with_trailing_results(keep);
            let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
            let answer = send(&client, case.ask("go")).await.unwrap();
            let all = [
                "user go",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant stop#c2 look#c3",
                "tool c2=stopped c2",
            ];
            assert_eq!(shorts(&answer.messages), all[1..], "the caller receives the results");
            // In per-service-call mode, the results are already stored with their calls when the
            // run ends.
            let kept = if keep && !case.is(PerServiceCall) { 5 } else { 4 };
            assert_eq!(stored(&store).await, all[..kept]);
            assert_eq!(answer.finish.saved.unwrap().messages, kept);
        }
    })
    .await;
}

#[tokio::test]
async fn every_mode_stores_the_same_of_a_terminated_run_and_replays_it_validly() {
    every_id(async |case| {
        let (store, model, client) = case
            .begin([
                case.calls([("look", "c1")]),
                case.calls([("stop", "c2")]),
                Step::text("what?"),
            ])
            .await;
        send(&client, case.ask("go")).await.unwrap();
        let first_run = ["user go", "assistant look#c1", "tool c1=looked c1", "assistant stop#c2"];
        assert_eq!(stored(&store).await, first_run);
        send(&client, case.ask("hm")).await.unwrap();
        assert_eq!(
            sent_texts(&model, 2),
            ["user go", "assistant look#c1", "tool c1=looked c1", "user hm"],
            "the model does not receive the dangling call"
        );
    })
    .await;
}

#[tokio::test]
async fn trailing_results_are_trimmed_although_a_text_follows_their_call() {
    every_case(async |case| {
        let store = case.store().await;
        let asking = [case.call_message([("stop", "c1")]), Message::assistant("one moment")];
        let model = ScriptedModel::new([Step::answer(asking, Finish::stop())]);
        send(&case.agent(&model, &store), case.ask("go")).await.unwrap();
        let all = ["user go", "assistant stop#c1", "assistant one moment"];
        assert_eq!(stored(&store).await, all);
    })
    .await;
}

#[tokio::test]
async fn results_that_the_caller_gives_stay_with_the_call_they_answer() {
    every_id(async |case| {
        let (store, model, client) =
            case.begin([case.calls([("ask", "c1")]), Step::text("thanks")]).await;
        let answer = send(&client, case.ask("go")).await.unwrap();
        assert_eq!(answer.tool_calls().count(), 1, "a declared tool's call is returned");
        let result = Message::tool_results([case.result("c1", "blue")]);
        send(&client, case.request_with([result])).await.unwrap();
        let all = ["user go", "assistant ask#c1", "tool c1=blue", "assistant thanks"];
        assert_eq!(sent_texts(&model, 1), all[..3]);
        assert_eq!(stored(&store).await, all);
    })
    .await;
}

#[tokio::test]
async fn system_messages_are_stored_and_instructions_are_not() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("hello")]);
        let request = case.request_with([Message::system("be kind"), Message::user("hi")]);
        let request = request.with_instructions("be brief");
        send(&case.agent(&model, &store), request).await.unwrap();
        let run = ["system be kind", "user hi", "assistant look#c1", "tool c1=looked c1"];
        let sent: Vec<_> =
            model.requests().iter().map(|it| it.options.instructions.clone()).collect();
        assert_eq!(sent, [Some("be brief".to_owned()), Some("be brief".to_owned())]);
        assert_eq!(sent_texts(&model, 1), run);
        assert_eq!(stored(&store).await, [&run[..], &["assistant hello"]].concat());
    })
    .await;
}

#[tokio::test]
async fn messages_prepended_by_a_layer_above_are_sent_with_each_call_and_never_stored() {
    every_id(async |case| {
        let (store, model, client) = case
            .begin([Step::text("hello"), case.calls([("look", "c1")]), Step::text("there")])
            .await;
        send(&client, case.ask("hi")).await.unwrap();
        let mut request = case.ask("where?");
        request.prepend(&Message::system("today is Monday").into());
        send(&client, request).await.unwrap();
        let start = ["system today is Monday", "user hi", "assistant hello", "user where?"];
        assert_eq!(sent_texts(&model, 1), start);
        assert_eq!(sent_texts(&model, 2)[..4], start);
        assert_eq!(stored(&store).await[..3], ["user hi", "assistant hello", "user where?"]);
    })
    .await;
}

#[tokio::test]
async fn later_changes_of_the_request_by_the_caller_have_no_effect_on_the_run() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::text("hello")]);
        let mut request = case.ask("hi");
        let response = head(&case.agent(&model, &store), request.clone()).await.unwrap();
        request.push(Message::user("more"));
        let answer = response.collect().await.unwrap();
        drop(answer);
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        assert_eq!(shorts(request.messages().iter()), ["user hi", "user more"]);
        assert!(
            request.messages().get(0).unwrap().id.is_none(),
            "the request of the caller is unchanged"
        );
    })
    .await;
}

#[tokio::test]
async fn stored_messages_that_the_caller_sends_again_are_not_stored_again() {
    every_case(async |case| {
        let (store, model, client) = case.begin([Step::text("hello"), Step::text("there")]).await;
        send(&client, case.ask("hi")).await.unwrap();
        let mut request = ChatRequest::new(store.inner().load(&key()).await.unwrap().messages)
            .in_conversation(key());
        request.push(Message::user("where?"));
        send(&client, case.way(request)).await.unwrap();
        let all = ["user hi", "assistant hello", "user where?", "assistant there"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 1), all[..3]);
    })
    .await;
}

#[tokio::test]
async fn a_dangling_call_fails_the_run_before_the_model_is_paid_if_the_policy_says_so() {
    every_id(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("ask", "c1")]), Step::text("thanks")]);
        let policy = policy().with_dangling_calls(DanglingCalls::Fail);
        let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
        send(&client, case.ask("go")).await.unwrap();
        let error = refused(send(&client, case.ask("well?")).await);
        assert!(matches!(error, PersistenceError::Dangling { .. }), "{case}: {error:?}");
        assert_eq!(model.requests().len(), 1);
        assert_eq!(stored(&store).await.len(), 2);

        let result = Message::tool_results([case.result("c1", "blue")]);
        send(&client, case.request_with([result])).await.unwrap();
        assert_eq!(stored(&store).await.len(), 4, "a call is not dangling if the input answers it");
    })
    .await;
}

#[tokio::test]
async fn calls_without_ids_of_their_own_get_the_same_one_in_every_replay() {
    every_id(async |case| {
        let (_, model, client) = case
            .begin([
                case.calls([("look", "a"), ("look", "b")]),
                Step::text("there"),
                Step::text("bye"),
            ])
            .await;
        send(&client, case.ask("go")).await.unwrap();
        send(&client, case.ask("ok")).await.unwrap();
        let batch = ["assistant look#a look#b", "tool a=looked a b=looked b"];
        let ids = [1, 2].map(|service_call| {
            let request = &model.requests()[service_call];
            assert_eq!(sent_texts(&model, service_call)[1..3], batch);
            let calls = request.messages().get(1).unwrap().calls();
            let results = request.messages().get(2).unwrap().results();
            let of_calls: Vec<_> = calls.map(|call| call.id.clone().unwrap()).collect();
            let of_results: Vec<_> =
                results.map(|result| result.call_id.clone().unwrap()).collect();
            assert_eq!(of_calls, of_results);
            assert_ne!(of_calls[0], of_calls[1]);
            of_calls
        });
        assert_eq!(ids[0], ids[1]);
    })
    .await;
}

#[tokio::test]
async fn a_conversation_does_not_contain_messages_of_other_conversations() {
    every_case(async |case| {
        let (store, model, client) =
            case.begin([Step::text("1"), Step::text("2"), Step::text("3")]).await;
        let other = ConversationKey::new("bob", "support");
        send(&client, case.ask("hi")).await.unwrap();
        send(&client, case.way(ChatRequest::user("ho").in_conversation(other.clone())))
            .await
            .unwrap();
        send(&client, case.ask("again")).await.unwrap();
        assert_eq!(sent_texts(&model, 1), ["user ho"]);
        assert_eq!(sent_texts(&model, 2), ["user hi", "assistant 1", "user again"]);
        assert_eq!(stored_of(&store, &other).await, ["user ho", "assistant 2"]);
    })
    .await;
}

#[tokio::test]
async fn a_history_that_was_written_without_the_layers_is_replayed() {
    every_case(async |case| {
        let store = case.store().await;
        let id = MessageId { run: RunId::new(), index: 0 };
        let messages = [Message::user("hi").into(), Message::assistant("hello").into()];
        let write = Write::new(key(), id, Revision::ABSENT, messages);
        store.inner().append(store.inner().reserve().await.unwrap(), vec![write]).await.unwrap();
        let model = ScriptedModel::new([Step::text("there")]);
        send(&case.agent(&model, &store), case.ask("where?")).await.unwrap();
        assert_eq!(sent_texts(&model, 0), ["user hi", "assistant hello", "user where?"]);
    })
    .await;
}

#[test]
fn the_debug_text_of_the_layer_has_its_mode_and_its_policy() {
    for mode in MODES {
        let layer = PerRunPersistence::new(memory()).mode(mode);
        let text = format!("{layer:?}");
        let begins = format!("PerRunPersistence {{ mode: {mode:?}, policy: PersistencePolicy {{");
        assert!(text.starts_with(&begins), "{text}");
    }
}
