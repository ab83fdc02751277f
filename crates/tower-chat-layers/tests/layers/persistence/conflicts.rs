//! Tests services that store the history, and runs that write to one conversation at the same time.

use std::sync::Arc;

use tower_chat::{
    ChatRequest, Finish, HistoryStore, Message, PersistenceError, PersistenceMode,
    message::MessageId,
    policy::{ConflictPolicy, StoreFailure},
    request::HistoryOwner,
    run::RunId,
    store::{
        Revision,
        author::{Slot, Write},
    },
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

const STOP: ConflictPolicy = ConflictPolicy::StopRecording;
const RECORD: ConflictPolicy = ConflictPolicy::Record;

fn with_conflict(
    model: &ScriptedModel,
    store: &Store,
    mode: PersistenceMode,
    conflict: ConflictPolicy,
) -> Client {
    let policy = policy().on_conflict(conflict);
    stack(model.clone(), store, mode, policy, tools(&ToolLog::default()))
}

fn sent_id(model: &ScriptedModel, call: usize) -> Option<String> {
    let id = model.requests()[call].history_owner.clone()?;
    id.service_id().map(ToString::to_string)
}

#[tokio::test]
async fn every_conflict_policy_has_its_effect_in_every_mode() {
    every_case(async |case| {
        for conflict in [ConflictPolicy::Fail, STOP, RECORD] {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello"), kept("there", "s1")]);
            let client = with_conflict(&model, &store, case.mode, conflict);
            send(&client, case.ask("hi")).await.unwrap();
            let logged = logged();
            let result = send(&client, case.ask("where?")).await;
            assert_eq!(logged.lines("stores this conversation itself"), 1);
            let old = ["user hi", "assistant hello"];
            if conflict == ConflictPolicy::Fail {
                let error = refused(result);
                let PersistenceError::ServiceKeepsHistory { service_id, .. } = &error else {
                    panic!("{error:?}")
                };
                assert_eq!(&**service_id, "s1");
                assert_eq!(error.answer().unwrap().text(), "there");
                let head = store.inner().head(&key()).await.unwrap();
                assert_eq!(head.service_id, None);
                assert_eq!(stored(&store).await, old);
            } else {
                let answer = result.unwrap();
                let id = HistoryOwner::Service("s1".into());
                assert_eq!(answer.finish.history_owner, Some(id));
                assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
                let all = [old[0], old[1], "user where?", "assistant there"];
                // In journaled mode, the input was staged before the service returned its id. The
                // whole run is therefore stored.
                let kept = if conflict == STOP && !case.is(Journaled) { 2 } else { 4 };
                assert_eq!(stored(&store).await, all[..kept], "{conflict:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn by_default_a_conflict_fails_the_run() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([kept("hello", "s1")]);
        let error = refused(send(&case.agent(&model, &store), case.ask("hi")).await);
        assert!(matches!(error, PersistenceError::ServiceKeepsHistory { .. }));
    })
    .await;
}

#[tokio::test]
async fn with_a_service_id_no_history_is_loaded_and_only_what_is_new_is_sent() {
    every_case(async |case| {
        for conflict in [STOP, RECORD] {
            let store = case.store().await;
            let model = ScriptedModel::new([
                Step::text("hello"),
                kept("there", "s1"),
                kept_call("s1"),
                kept("done", "s2"),
                kept("bye", "s3"),
            ]);
            let client = with_conflict(&model, &store, case.mode, conflict);
            send(&client, case.ask("hi")).await.unwrap();
            send(&client, case.ask("where?")).await.unwrap();
            let loads = store.loads();
            let answer = send(&client, case.ask("more")).await.unwrap();
            assert_eq!(store.loads(), loads, "the history is not loaded");
            assert_eq!(sent_texts(&model, 2), ["user more"]);
            assert_eq!(sent_texts(&model, 3), ["tool c1=looked c1"]);
            assert_eq!(sent_id(&model, 2).as_deref(), Some("s1"));
            assert_eq!(sent_id(&model, 3).as_deref(), Some("s1"));
            assert_eq!(
                shorts(&answer.messages),
                ["assistant look#c1", "tool c1=looked c1", "assistant done"]
            );
            send(&client, case.ask("ok")).await.unwrap();
            assert_eq!(sent_id(&model, 4).as_deref(), Some("s2"), "the newest id is used");
            // In journaled mode, the input of the second run was staged before the service returned
            // its first id. The run is therefore stored.
            let recorded = if case.is(Journaled) { 4 } else { 2 };
            let expected = if conflict == STOP { recorded } else { 10 };
            assert_eq!(stored(&store).await.len(), expected, "{case} {conflict:?}");
            assert_eq!(service_id(&store).await.as_deref(), Some("s3"));
        }
    })
    .await;
}

#[tokio::test]
async fn messages_that_are_not_recorded_have_ids_of_their_own_all_the_same() {
    every_case(async |case| {
        for conflict in [STOP, RECORD] {
            let store = case.store().await;
            let model = ScriptedModel::new([kept_call("s1"), kept("there", "s1")]);
            let client = with_conflict(&model, &store, case.mode, conflict);
            let answer = send(&client, case.ask("where?")).await.unwrap();
            let positions: Vec<_> =
                answer.messages.iter().map(|message| message.id.unwrap().index).collect();
            assert_eq!(positions, [1, 2, 3], "{case} {conflict:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_of_which_nothing_is_recorded_writes_nothing() {
    Cases::all()
        .modes(
            [PerRun, PerServiceCall],
            "journaled mode stages the input before the service returns an id",
        )
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([kept("one", "s1"), kept("two", "s1")]);
            let client = with_conflict(&model, &store, case.mode, STOP);
            send(&client, case.ask("first")).await.unwrap();
            let before = store.appends();
            assert_eq!(send(&client, case.ask("second")).await.unwrap().text(), "two");
            assert_eq!(store.appends(), before);
        })
        .await;
}

#[tokio::test]
async fn an_id_is_stored_after_every_call_and_outlives_the_failure_of_the_next() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "the other modes store the id with the end of the run, as the test below shows",
        )
        .check(async |case| {
            for conflict in [STOP, RECORD] {
                for fails in
                    [|| Step::error("overloaded"), || Step::text("half").fails_after(1, "reset")]
                {
                    let store = case.store().await;
                    let model = ScriptedModel::new([kept_call("s1"), fails()]);
                    let client = with_conflict(&model, &store, case.mode, conflict);
                    send(&client, case.ask("hi")).await.unwrap_err();
                    assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
                }
            }
        })
        .await;
}

#[tokio::test]
async fn a_failed_run_in_per_run_or_journaled_mode_does_not_change_the_service_id() {
    Cases::all()
        .modes([PerRun, Journaled], "the test above shows that the other mode stores the id")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([
                kept("hello", "s1"),
                kept_call("s2"),
                Step::error("overloaded"),
            ]);
            let client = with_conflict(&model, &store, case.mode, STOP);
            send(&client, case.ask("hi")).await.unwrap();
            send(&client, case.ask("where?")).await.unwrap_err();
            assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
        })
        .await;
}

#[tokio::test]
async fn an_id_that_the_caller_names_is_no_conflict_and_is_remembered() {
    every_case(async |case| {
        let (store, model, client) = case.begin([kept("hello", "s1"), kept("there", "s1")]).await;
        send(&client, case.ask("hi").with_service_id("s1")).await.unwrap();
        assert_eq!(sent_id(&model, 0).as_deref(), Some("s1"));
        assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
        send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(sent_id(&model, 1).as_deref(), Some("s1"));
    })
    .await;
}

#[tokio::test]
async fn another_id_than_the_remembered_one_is_an_error_before_the_model_is_paid() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([kept("hello", "s1"), kept("same", "s1")]);
        let client = with_conflict(&model, &store, case.mode, STOP);
        send(&client, case.ask("hi")).await.unwrap();
        let other = case.ask("where?").with_service_id("s9");
        let error = refused(send(&client, other).await);
        let PersistenceError::ServiceIdMismatch { remembered, requested, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((&*remembered, &*requested), ("s1", "s9"));
        assert_eq!(model.requests().len(), 1);
        send(&client, case.ask("where?").with_service_id("s1")).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_missing_id_where_one_is_expected_is_an_error_with_the_answer() {
    every_case(async |case| {
        for conflict in [STOP, RECORD] {
            let store = case.store().await;
            let model = ScriptedModel::new([kept("hello", "s1"), Step::text("there")]);
            let client = with_conflict(&model, &store, case.mode, conflict);
            send(&client, case.ask("hi")).await.unwrap();
            let before = stored(&store).await;
            let error = refused(send(&client, case.ask("where?")).await);
            assert!(matches!(error, PersistenceError::ServiceIdMissing { .. }), "{error:?}");
            assert_eq!(error.answer().unwrap().text(), "there");
            assert_eq!(stored(&store).await, before);
            assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
        }
    })
    .await;
}

#[tokio::test]
async fn a_conflict_in_a_later_call_keeps_the_earlier_ones() {
    every_case(async |case| {
        let (store, _, client) =
            case.begin([case.calls([("look", "c1")]), kept("there", "s1")]).await;
        refused(send(&client, case.ask("hi")).await);
        let all = ["user hi", "assistant look#c1", "tool c1=looked c1"];
        let kept = match case.mode {
            PerRun => 0,
            PerServiceCall => 2, // Only the record contains the result.
            _ => 3,
        };
        assert_eq!(durable(&store).await, all[..kept]);
        assert_eq!(service_id(&store).await, None);
    })
    .await;
}

fn background(text: &str, streamed: bool) -> ChatRequest {
    let mut request = ask(text, streamed);
    Arc::make_mut(&mut request.options).background = true;
    request
}

fn continued(token: &str, streamed: bool) -> ChatRequest {
    let mut request = request_with([], streamed);
    Arc::make_mut(&mut request.options).continuation = Some(token.to_owned());
    request
}

#[tokio::test]
async fn background_answers_are_stored_once_at_the_end_of_the_run_in_every_mode() {
    every_case(async |case| {
        let (store, model, client) = case
            .begin([Step::text("hello"), case.calls([("look", "c1")]), Step::text("there")])
            .await;
        send(&client, case.ask("hi")).await.unwrap();
        let (loads, appends) = (store.loads(), store.appends());
        send(&client, background("where?", case.streamed)).await.unwrap();
        assert_eq!(sent_texts(&model, 1), ["user where?"], "the request contains no history");
        assert!(model.requests().iter().all(|request| request.history_owner.is_none()));
        // The run reads the history once to find out whether a run with its id is stored.
        assert_eq!((store.loads() - loads, store.appends() - appends), (1, 1));
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        assert_eq!(stored(&store).await[2..], all);
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_continues_by_token_is_stored_once() {
    every_case(async |case| {
        let store = case.store().await;
        let mut finish = Finish::default();
        finish.continuation = Some("t1".into());
        let model = ScriptedModel::new([
            Step::answer([], finish),
            case.calls([("look", "c1")]),
            Step::text("there"),
        ]);
        let client = case.agent(&model, &store);
        let started = send(&client, background("where?", case.streamed)).await.unwrap();
        assert_eq!(started.finish.continuation.as_deref(), Some("t1"));
        assert_eq!(stored(&store).await, ["user where?"]);
        send(&client, continued("t1", case.streamed)).await.unwrap();
        assert_eq!(sent_texts(&model, 1), [""; 0]);
        assert_eq!(model.requests()[1].options.continuation.as_deref(), Some("t1"));
        assert_eq!(model.requests()[2].options.continuation, None);
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(store.appends(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_request_with_a_continuation_token_needs_a_conversation_and_allows_no_messages() {
    every_case(async |case| {
        let (store, model) = (case.store().await, ScriptedModel::new([]));
        let client = case.agent(&model, &store);
        let mut request = continued("t1", false);
        request.push(Message::user("hi"));
        let error = refused(send(&client, request).await);
        let PersistenceError::MessagesWithContinuation { messages: 1 } = error else {
            panic!("{error:?}")
        };
        let mut request = ChatRequest::default();
        Arc::make_mut(&mut request.options).continuation = Some("t1".into());
        let error = refused(send(&client, request).await);
        assert!(matches!(error, PersistenceError::NoConversation { .. }));
    })
    .await;
}

#[tokio::test]
async fn two_runs_at_once_conflict_and_the_error_carries_the_answer() {
    Cases::all()
        .modes(
            [PerRun, PerServiceCall],
            "a journaled run has a lease for the conversation, as `journal::leases` shows",
        )
        .check(async |case| {
            for failure in [StoreFailure::Continue, StoreFailure::FailCall] {
                let (store, gate) = (case.store().await, Gate::closed());
                let slow = ScriptedModel::new([Step::text("slow").waits(&gate)]);
                let policy = policy().on_store_failure(failure);
                let client = case.stack(slow.clone(), &store, policy, tools(&ToolLog::default()));
                let first = tokio::spawn(async move { send(&client, case.ask("1")).await });
                slow.called(1).await;
                let fast = ScriptedModel::new([Step::text("fast")]);
                let elsewhere = agent(&fast, &store.in_another_process(), case.mode);
                send(&elsewhere, case.ask("2")).await.unwrap();
                gate.open();
                let error = refused(first.await.unwrap());
                let PersistenceError::NotStored(not_stored) = &error else { panic!("{error:?}") };
                assert!(not_stored.conflict().is_some(), "{not_stored:?}");
                assert_eq!(shorts(&not_stored.unsaved), ["user 1", "assistant slow"]);
                assert_eq!(error.answer().unwrap().text(), "slow");
                assert!(!error.is_retryable());
                assert_eq!(stored(&store).await, ["user 2", "assistant fast"]);
                assert!(
                    store.handle().unsaved(&key()).is_empty(),
                    "the write is not submitted again"
                );
            }
        })
        .await;
}

#[tokio::test]
async fn a_conflict_returns_the_writes_of_the_outbox_that_can_no_longer_be_stored() {
    Cases::all()
        .modes([PerRun, PerServiceCall], "a journaled run whose write fails remains open")
        .check(async |case| {
            let (store, _, client) = case.begin(["waits", "there", "fine"].map(Step::text)).await;
            store.fail_next_append(disk_full());
            send(&client, case.ask("1")).await.unwrap();
            let id = MessageId { run: RunId::new(), index: 0 };
            let other = Write::new(key(), id, Revision::ABSENT, [Message::user("other").into()]);
            store.inner().append(Slot::unbounded(), vec![other]).await.unwrap();

            let error = refused(send(&client, case.ask("2")).await);
            let PersistenceError::NotStored(not_stored) = &error else { panic!("{error:?}") };
            assert!(not_stored.conflict().is_some());
            let lost = ["user 1", "assistant waits", "user 2", "assistant there"];
            assert_eq!(shorts(&not_stored.unsaved), lost);
            send(&client, case.ask("3")).await.unwrap();
            assert_eq!(stored(&store).await, ["user other", "user 3", "assistant fine"]);
        })
        .await;
}

#[tokio::test]
async fn a_run_of_a_deleted_conversation_conflicts_with_the_conversation_created_again() {
    every_case(async |case| {
        let (store, gate) = (case.store().await, Gate::closed());
        let model = ScriptedModel::new([
            Step::text("hello"),
            Step::text("late").waits(&gate),
            Step::text("anew"),
        ]);
        let client = case.agent(&model, &store);
        send(&client, case.ask("hi")).await.unwrap();
        let late = tokio::spawn({
            let client = client.clone();
            async move { send(&client, case.ask("1")).await }
        });
        model.called(2).await;
        assert!(store.inner().delete(&key()).await.unwrap());
        let elsewhere = agent(&model, &store.in_another_process(), case.mode);
        send(&elsewhere, case.ask("2")).await.unwrap();
        gate.open();
        let error = refused(late.await.unwrap());
        assert!(matches!(&error, PersistenceError::NotStored(e) if e.conflict().is_some()));
        assert_eq!(stored(&store).await, ["user 2", "assistant anew"]);
    })
    .await;
}

#[tokio::test]
async fn a_request_sent_again_to_a_service_that_keeps_the_history_is_asked_and_recorded_again() {
    every_case(async |case| {
        for conflict in [STOP, RECORD] {
            let store = case.store().await;
            let model = ScriptedModel::new([kept("hello", "s1"), kept("hello again", "s1")]);
            let policy = policy().on_conflict(conflict);
            let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
            let request = case.ask("hi");
            send(&client, request.clone()).await.unwrap();
            assert_eq!(send(&client, request).await.unwrap().text(), "hello again");
            assert_eq!(
                sent_texts(&model, 1),
                ["user hi"],
                "the service stores the earlier messages"
            );
            let both = ["user hi", "assistant hello", "user hi", "assistant hello again"];
            let recorded: &[&str] = match (conflict == STOP, case.is(Journaled)) {
                (true, false) => &[],
                (true, true) => &both[..2],
                (false, _) => &both,
            };
            assert_eq!(stored(&store).await, recorded);
        }
    })
    .await;
}
