//! Tests that a run returns the answer of the model although the store fails.

use tower_chat::{
    ConversationKey, HistoryStore, Message, PersistenceError, PersistenceMode,
    message::MessageId,
    policy::{ConflictPolicy, StoreFailure},
    run::RunId,
    store::{Revision, ServiceIdChange, StoreError, author::Write},
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

fn failing_call(model: &ScriptedModel, store: &Store, mode: PersistenceMode) -> Client {
    let policy = policy().on_store_failure(StoreFailure::FailCall);
    stack(model.clone(), store, mode, policy, tools(&ToolLog::default()))
}

#[tokio::test]
async fn under_the_policy_continue_a_failed_write_is_submitted_in_order_with_the_next_write() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let (store, model, client) =
                case.begin([Step::text("hello"), Step::text("there")]).await;
            store.fail_next_append(disk_full());
            let logged = logged();
            let answer = send(&client, case.ask("hi")).await.unwrap();
            assert_eq!(answer.text(), "hello");
            let saved = answer.finish.saved.unwrap();
            assert_eq!(
                (saved.messages, saved.unsaved),
                (0, 2),
                "the answer reports the unsaved messages"
            );
            assert_eq!(logged.lines("its outbox keeps 2 messages"), 1);
            assert_eq!(stored(&store).await, [""; 0]);

            let answer = send(&client, case.ask("where?")).await.unwrap();
            let all = ["user hi", "assistant hello", "user where?", "assistant there"];
            assert_eq!(
                sent_texts(&model, 1),
                all[..3],
                "a load returns the messages in the outbox too"
            );
            assert_eq!(stored(&store).await, all);
            let saved = answer.finish.saved.unwrap();
            assert_eq!((saved.messages, saved.unsaved), (2, 0));
            assert!(store.handle().unsaved(&key()).is_empty());
        })
        .await;
}

#[tokio::test]
async fn a_failure_in_the_middle_of_a_run_is_made_good_by_its_next_call() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "per-run mode writes once, and in journaled mode a failed write fails the call",
        )
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            store.fail_next_append(disk_full());
            let answer = send(&case.agent(&model, &store), case.ask("where?")).await.unwrap();
            let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
            assert_eq!(stored(&store).await, all);
            let saved = answer.finish.saved.unwrap();
            assert_eq!((saved.messages, saved.unsaved), (4, 0));
        })
        .await;
}

#[tokio::test]
async fn writes_wait_in_order_in_the_outbox_while_the_store_fails() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let (store, _, client) = case.begin(["a", "b", "c"].map(Step::text)).await;
            store.fail_every_append(disk_full);
            for text in ["1", "2"] {
                send(&client, case.ask(text)).await.unwrap();
            }
            assert_eq!(store.handle().unsaved(&key()).len(), 2);
            store.heal();
            send(&client, case.ask("3")).await.unwrap();
            let all = ["user 1", "assistant a", "user 2", "assistant b", "user 3", "assistant c"];
            assert_eq!(stored(&store).await, all);
        })
        .await;
}

#[tokio::test]
async fn a_full_outbox_fails_the_call_with_the_answer_and_keeps_what_it_holds() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let store = case.store().await;
            fill_outbox(&store, 3);
            let model = ScriptedModel::new([Step::text("hello"), Step::text("there")]);
            let client = case.agent(&model, &store);
            store.fail_every_append(disk_full);
            send(&client, case.ask("hi")).await.unwrap();
            let error = refused(send(&client, case.ask("where?")).await);
            assert_eq!(error.answer().unwrap().text(), "there");
            let PersistenceError::NotStored(not_stored) = error else { panic!("{error:?}") };
            assert_eq!(shorts(&not_stored.unsaved), ["user where?", "assistant there"]);
            let waiting = store.handle().unsaved(&key());
            assert_eq!(waiting.len(), 1, "a write that the outbox has accepted remains");
            assert_eq!(shorts(waiting[0].messages()), ["user hi", "assistant hello"]);
        })
        .await;
}

/// Fills the outbox (the writes that failed and are submitted again) with messages of another
/// conversation, except for `room` messages.
fn fill_outbox(store: &Store, room: usize) {
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = (room..10_000).map(|_| Message::user("x").into());
    let other = ConversationKey::new("bob", "support");
    let write = Write::new(other, id, Revision::ABSENT, messages);
    store.handle().keep_unsaved(&[write]).unwrap();
}

#[tokio::test]
async fn fail_call_fails_with_the_answer_and_what_was_not_stored() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([costly("hello", 7, 3)]);
            store.fail_next_append(disk_full());
            let error =
                refused(send(&failing_call(&model, &store, case.mode), case.ask("hi")).await);
            assert!(error.is_retryable());
            let answer = error.answer().expect("the error contains the answer").clone();
            assert_eq!(answer.text(), "hello");
            assert_eq!(answer.finish.usage.input_tokens, 7);
            assert_eq!(answer.finish.history_owner, None, "the answer contains no sentinel");
            let PersistenceError::NotStored(not_stored) = error else { panic!("{error:?}") };
            assert_eq!(shorts(&not_stored.unsaved), ["user hi", "assistant hello"]);
            assert_eq!(not_stored.key, key());
            assert!(matches!(not_stored.source, StoreError::Backend { .. }));
            assert_eq!(stored(&store).await, [""; 0]);
            assert!(store.handle().unsaved_conversations().is_empty());
        })
        .await;
}

#[tokio::test]
async fn queued_messages_of_a_call_that_the_store_refused_are_queued_again() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::text("hello"), Step::text("there")]);
        let client = failing_call(&model, &store, case.mode);
        let mut request = case.ask("hi");
        request.run_handle().queue(Message::user("quick"));
        store.fail_next_append(disk_full());
        refused(send(&client, request.clone()).await);
        send(&client, request).await.unwrap();
        // In journaled mode, the input is written before the model is called. The first attempt
        // therefore fails without a service call.
        let answer = if case.is(Journaled) { "assistant hello" } else { "assistant there" };
        assert_eq!(stored(&store).await, ["user hi", "user quick", answer]);
    })
    .await;
}

#[tokio::test]
async fn loads_that_fail_fail_the_call_before_the_model_is_paid() {
    every_case(async |case| {
        let (store, model, client) = case.begin([Step::text("hello"), Step::text("there")]).await;
        send(&client, case.ask("hi")).await.unwrap();
        for fail in [Store::fail_next_head as fn(&Store, StoreError), Store::fail_next_load] {
            fail(&store, disk_full());
            let error = refused(send(&client, case.ask("where?")).await);
            assert!(matches!(error, PersistenceError::NotLoaded { .. }), "{error:?}");
            assert!(error.is_retryable());
            assert_eq!(model.requests().len(), 1);
        }
        send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(stored(&store).await.len(), 4);
    })
    .await;
}

#[tokio::test]
async fn the_policy_for_store_failures_applies_to_a_failed_reservation() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            store.fail_next_reserve(disk_full());
            let error =
                refused(send(&failing_call(&model, &store, case.mode), case.ask("hi")).await);
            assert!(matches!(error, PersistenceError::NotStored(_)), "{error:?}");
            assert_eq!(model.requests().len(), 0, "the run fails before the model is called");
            assert_eq!(stored(&store).await, [""; 0]);

            store.fail_next_reserve(disk_full());
            let answer = send(&case.agent(&model, &store), case.ask("hi")).await.unwrap();
            assert_eq!(
                (answer.text().as_str(), answer.finish.saved.unwrap().unsaved),
                ("hello", 2)
            );
            assert_eq!(store.handle().unsaved(&key()).len(), 1);
        })
        .await;
}

#[tokio::test]
async fn a_closed_store_keeps_no_answer_from_its_caller() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            store.inner().close().await.unwrap();
            let answer = send(&case.agent(&model, &store), case.ask("hi")).await.unwrap();
            assert_eq!(
                (answer.text().as_str(), answer.finish.saved.unwrap().unsaved),
                ("hello", 2)
            );
        })
        .await;
}

#[tokio::test]
async fn a_write_that_was_stored_but_reported_as_failed_is_stored_once() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let (store, model, client) = case
                .begin([case.calls([("look", "c1")]), Step::text("there"), Step::text("bye")])
                .await;
            store.fail_next_append_after_storing(disk_full());
            store.fail_next_append_after_storing(disk_full());
            send(&client, case.ask("where?")).await.unwrap();
            send(&client, case.ask("ok")).await.unwrap();
            let all = [
                "user where?",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant there",
                "user ok",
                "assistant bye",
            ];
            assert_eq!(sent_texts(&model, 2), all[..5], "a load does not return the message twice");
            assert_eq!(stored(&store).await, all);
        })
        .await;
}

#[tokio::test]
async fn a_failed_write_is_handled_although_the_caller_has_disconnected() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "per-run mode writes once, and in journaled mode a failed write fails the call",
        )
        .check(async |case| {
            for (failure, model_hangs) in [
                (StoreFailure::Continue, true),
                (StoreFailure::Continue, false),
                (StoreFailure::FailCall, true),
                (StoreFailure::FailCall, false),
            ] {
                let store = case.store().await;
                let step = if model_hangs { Step::hang() } else { Step::text("hello") };
                let model = ScriptedModel::new([step]);
                let policy = policy().on_store_failure(failure);
                let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
                store.fail_next_append(disk_full());
                let logged = logged();
                if !model_hangs {
                    store.hold_appends();
                }
                tokio::select! {
                    biased;
                    answer = send(&client, case.ask("hi")) => panic!("{answer:?}"),
                    () = async {
                        if model_hangs { model.called(1).await } else { store.holding(1).await }
                    } => {}
                }
                store.release_appends();
                settle().await;
                let messages = if model_hangs { 1 } else { 2 };
                let waiting: usize =
                    store.handle().unsaved(&key()).iter().map(|write| write.messages().len()).sum();
                match failure {
                    StoreFailure::Continue => {
                        assert_eq!(
                            waiting, messages,
                            "the outbox contains the messages for the next write"
                        );
                        assert_eq!(logged.lines("its outbox keeps"), 1);
                    }
                    _ => {
                        assert_eq!(waiting, 0);
                        assert_eq!(
                            logged.lines("ERROR"),
                            1,
                            "the failure is logged, because no caller receives it"
                        );
                    }
                }
            }
        })
        .await;
}

#[test]
fn a_runtime_that_shuts_down_during_a_write_leaves_what_is_open_in_the_outbox() {
    for (failure, mode) in cases!([StoreFailure::Continue, StoreFailure::FailCall], BOTH_MODES) {
        let store = store();
        let model = ScriptedModel::new([Step::text("hello")]);
        let policy = policy().on_store_failure(failure);
        let client = stack(model, &store, mode, policy, tools(&ToolLog::default()));
        store.hold_appends();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.spawn(async move { send(&client, ask("hi", false)).await });
        runtime.block_on(store.holding(1));
        drop(runtime);
        let waiting = store.handle().unsaved(&key());
        assert_eq!(waiting.len(), usize::from(failure == StoreFailure::Continue));

        store.release_appends();
        let model = ScriptedModel::new([Step::text("there")]);
        let client = agent(&model, &store, mode);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            send(&client, ask("where?", false)).await.unwrap();
            let all = ["user hi", "assistant hello", "user where?", "assistant there"];
            assert_eq!(stored(&store).await, all);
        });
    }
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn results_of_a_failed_call_that_cannot_be_stored_wait_or_are_logged() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "per-run mode writes once, and in journaled mode a failed write fails the call",
        )
        .check(async |case| {
            for failure in [StoreFailure::Continue, StoreFailure::FailCall] {
                let store = case.store().await;
                let model = ScriptedModel::new([
                    case.calls([("look", "c1")]),
                    Step::respond({
                        let store = store.clone();
                        move |_| {
                            store.fail_next_append(disk_full());
                            Step::error("overloaded")
                        }
                    }),
                ]);
                let policy = policy().on_store_failure(failure);
                let client = case.stack(model, &store, policy, tools(&ToolLog::default()));
                let logged = logged();
                let error = send(&client, case.ask("where?")).await.unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "overloaded",
                    "the caller receives the error of the service"
                );
                match failure {
                    StoreFailure::Continue => assert_eq!(store.handle().unsaved(&key()).len(), 1),
                    _ => assert_eq!(logged.lines("the inputs of a failed service call"), 1),
                }
            }
        })
        .await;
}

#[tokio::test]
async fn errors_name_the_conversation_and_have_their_cause() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
    let store = case.store().await;
    let model = ScriptedModel::new([Step::text("hello")]);
    store.fail_next_append(disk_full());
    let error = refused(send(&failing_call(&model, &store, case.mode), case.ask("hi")).await);
    let expected =
        "the store refused a write to conversation alice/support; 2 messages were not stored";
    assert_eq!(error.to_string(), expected);
    let source = std::error::Error::source(&error).expect("a cause");
    assert!(source.downcast_ref::<StoreError>().is_some(), "{source:?}");
    store.fail_next_head(disk_full());
    let request = case.request_with([Message::user("hi")]);
    let error = refused(send(&failing_call(&model, &store, case.mode), request).await);
    assert!(error.to_string().contains("alice/support"));
    assert!(std::error::Error::source(&error).is_some());
    })
    .await;
}

#[tokio::test]
async fn a_write_that_is_submitted_again_waits_once() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let script = [
                case.calls([("look", "c1")]),
                case.calls([("look", "c2")]),
                Step::text("there"),
                Step::text("bye"),
            ];
            let (store, _, client) = case.begin(script).await;
            store.fail_every_append(disk_full);
            let all = [
                "user where?",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant look#c2",
                "tool c2=looked c2",
                "assistant there",
                "user and now?",
                "assistant bye",
            ];
            for (text, messages) in [("where?", 6), ("and now?", 8)] {
                let answer = send(&client, case.ask(text)).await.unwrap();
                assert_eq!(answer.finish.saved.unwrap().unsaved, messages);
                let waiting = store.handle().unsaved(&key());
                let waiting = waiting.iter().flat_map(|write| write.messages().iter());
                assert_eq!(shorts(waiting), all[..messages]);
            }
        })
        .await;
}

#[tokio::test]
async fn each_service_id_that_could_not_be_stored_waits() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "per-run mode writes once, and in journaled mode a failed write fails the call",
        )
        .check(async |case| {
            let conflict = ConflictPolicy::StopRecording;
            let policy = policy().on_conflict(conflict);
            let store = case.store().await;
            let model =
                ScriptedModel::new([kept_call("s1"), kept("there", "s2"), kept("bye", "s3")]);
            let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
            store.fail_every_append(disk_full);
            send(&client, case.ask("where?")).await.unwrap();
            // Both writes contain only a service id, and expect the same revision.
            let waiting = store.handle().unsaved(&key());
            let ids: Vec<_> = waiting.iter().map(|write| write.service_id().cloned()).collect();
            let set = |id: &str| Some(ServiceIdChange::Set(id.into()));
            assert_eq!(ids, [set("s1"), set("s2")]);
            store.heal();
            send(&client, case.ask("and now?")).await.unwrap();
            let named = |call: usize| model.requests()[call].service_id().unwrap().cloned();
            assert_eq!([named(1), named(2)], [Some("s1".into()), Some("s2".into())]);
            assert_eq!(service_id(&store).await.as_deref(), Some("s3"));
        })
        .await;
}
