//! Tests a service that has lost the history of a conversation.

use tower::Layer;
use tower_chat::{
    BoxError, ChatRequest, Message, PersistenceError, Role, ToolResult,
    error::HistoryLost,
    layer::{PerServiceCallPersistence, ToolLoopLayer},
    policy::{ConflictPolicy, LostHistory},
    request::HistoryOwner,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

const RECORD: ConflictPolicy = ConflictPolicy::Record;
const STOP: ConflictPolicy = ConflictPolicy::StopRecording;

#[derive(Debug, thiserror::Error)]
#[error("previous response not found")]
struct NotFound(#[source] HistoryLost);

fn not_found() -> Step {
    Step::error(BoxError::from(NotFound(HistoryLost)))
}

fn client(
    case: Case,
    model: &ScriptedModel,
    store: &Store,
    conflict: ConflictPolicy,
    lost: LostHistory,
) -> Client {
    let policy = policy().on_conflict(conflict).on_lost_history(lost);
    case.stack(model.clone(), store, policy, tools(&ToolLog::default()))
}

fn sent_id(request: &ChatRequest) -> Option<&str> {
    request.history_owner.as_ref()?.service_id().map(|id| &**id)
}

#[tokio::test]
async fn if_the_service_has_lost_its_history_the_stored_messages_are_sent_and_a_new_id_adopted() {
    every_case(async |case| {
        let store = case.store().await;
        let steps = [kept("hello", "s1"), not_found(), kept("there", "s2"), kept("yes", "s2")];
        let model = ScriptedModel::new(steps);
        let client = client(case, &model, &store, RECORD, LostHistory::default());
        send(&client, case.ask("hi")).await.unwrap();
        let answer = send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(answer.text(), "there");
        assert_eq!(answer.finish.history_owner, Some(HistoryOwner::Service("s2".into())));
        assert_eq!(sent_id(&model.requests()[1]), Some("s1"));
        assert_eq!(sent_id(&model.requests()[2]), None);
        assert_eq!(sent_texts(&model, 2), ["user hi", "assistant hello", "user where?"]);
        assert_eq!(service_id(&store).await.as_deref(), Some("s2"));
        send(&client, case.ask("sure?")).await.unwrap();
        assert_eq!(
            (sent_id(&model.requests()[3]), sent_texts(&model, 3)),
            (Some("s2"), vec!["user sure?".to_owned()])
        );
        let all = [
            "user hi",
            "assistant hello",
            "user where?",
            "assistant there",
            "user sure?",
            "assistant yes",
        ];
        assert_eq!(stored(&store).await, all);
    })
    .await;
}

#[tokio::test]
async fn a_service_that_no_longer_stores_the_history_leaves_the_history_to_the_store() {
    every_case(async |case| {
        let store = case.store().await;
        let steps = [
            kept("hello", "s1"),
            not_found(),
            case.calls([("look", "c1")]),
            Step::text("there"),
            Step::text("yes"),
        ];
        let model = ScriptedModel::new(steps);
        let client = client(case, &model, &store, RECORD, LostHistory::default());
        send(&client, case.ask("hi")).await.unwrap();
        send(&client, case.ask("where?")).await.unwrap();
        let run =
            ["user hi", "assistant hello", "user where?", "assistant look#c1", "tool c1=looked c1"];
        assert_eq!(sent_texts(&model, 3), run);
        assert_eq!(service_id(&store).await, None);
        send(&client, case.ask("sure?")).await.unwrap();
        assert_eq!(sent_texts(&model, 4).len(), 7, "requests contain the stored history again");
    })
    .await;
}

#[tokio::test]
async fn a_lost_service_history_is_an_error_if_nothing_is_recorded_or_the_policy_is_fail() {
    every_case(async |case| {
        for (conflict, lost) in [
            (STOP, LostHistory::SendRecord),
            (RECORD, LostHistory::Fail),
            (STOP, LostHistory::Fail),
        ] {
            let store = case.store().await;
            let model = ScriptedModel::new([kept("hello", "s1"), not_found()]);
            let client = client(case, &model, &store, conflict, lost);
            send(&client, case.ask("hi")).await.unwrap();
            let error = refused(send(&client, case.ask("where?")).await);
            let PersistenceError::ServiceHistoryLost { service_id, is_recorded, .. } = &error
            else {
                panic!("{error:?}")
            };
            assert_eq!((&**service_id, *is_recorded), ("s1", conflict == RECORD), "{conflict:?}");
            assert!(error.to_string().contains("no longer has the history"), "{error}");
            assert_eq!(model.requests().len(), 2, "the model is not called again");
        }
    })
    .await;
}

#[tokio::test]
async fn a_lost_history_is_an_error_if_only_the_request_names_the_service_id() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([not_found()]);
        let client = client(case, &model, &store, RECORD, LostHistory::default());
        let request = case.request_with([Message::user("hi")]).with_service_id("s1");
        let error = refused(send(&client, request).await);
        assert!(matches!(error, PersistenceError::ServiceHistoryLost { is_recorded: false, .. }));
    })
    .await;
}

#[tokio::test]
async fn the_input_of_a_failed_run_is_a_record_that_can_replace_the_lost_history() {
    let cases = Cases::all().modes([PerServiceCall], "the other modes store no failed input here");
    cases
        .check(async |case| {
            let store = case.store().await;
            let steps = [Step::error("overloaded"), not_found(), kept("hello", "s2")];
            let model = ScriptedModel::new(steps);
            let client = client(case, &model, &store, RECORD, LostHistory::default());
            let ask = |text| case.request_with([Message::user(text)]).with_service_id("s1");
            send(&client, ask("hi")).await.unwrap_err();
            send(&client, ask("where?")).await.unwrap();
            assert_eq!(sent_texts(&model, 2), ["user hi", "user where?"]);
            assert_eq!(sent_id(&model.requests()[2]), None);
            assert_eq!(stored(&store).await, ["user hi", "user where?", "assistant hello"]);
        })
        .await;
}

/// Returns a stack without `PerRunPersistence`: `PerServiceCallPersistence`, with or without the
/// tool loop of this crate above it.
fn alone(
    has_loop: bool,
    model: &ScriptedModel,
    store: &Store,
    conflict: ConflictPolicy,
    lost: LostHistory,
) -> Client {
    let policy = policy().on_conflict(conflict).on_lost_history(lost);
    let below = PerServiceCallPersistence::new(store.clone()).policy(policy).layer(model.clone());
    match has_loop {
        true => boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(below)),
        false => boxed(below),
    }
}

/// Returns a request with these messages but without a run id, as the tool loop of an application
/// sends it.
fn sent_by_loop(streamed: bool, messages: &[Message]) -> ChatRequest {
    let request = ChatRequest::new(messages.to_vec()).in_conversation(key());
    if streamed { request.streamed() } else { request }
}

#[tokio::test]
async fn a_persister_alone_sends_the_record_below_a_loop_of_the_application() {
    for streamed in BOTH_WAYS {
        let store = store();
        let steps = [
            kept("hello", "s1"),
            not_found(),
            kept_call("s2"),
            kept("there", "s2"),
            not_found(),
            Step::text("yes"),
        ];
        let model = ScriptedModel::new(steps);
        let client = alone(false, &model, &store, RECORD, LostHistory::default());
        let mut list = vec![Message::user("hi")];
        for (next, text) in [
            (Message::user("where?"), "hello"),
            (Message::tool_results([ToolResult::new("c1", "looked c1")]), ""),
            (Message::user("sure?"), "there"),
            (Message::user("really?"), "yes"),
        ] {
            let new = list.iter().rposition(|message| message.role == Role::Assistant);
            let from = new.map_or(0, |answer| answer + 1);
            let answer = send(&client, sent_by_loop(streamed, &list[from..])).await.unwrap();
            assert_eq!(answer.text(), text, "{streamed}");
            list.extend(answer.messages.iter().map(|message| Message::clone(message)));
            list.push(next);
        }
        let ids: Vec<_> =
            model.requests().iter().map(|it| sent_id(it).map(str::to_owned)).collect();
        let ids: Vec<_> = ids.iter().map(Option::as_deref).collect();
        assert_eq!(ids, [None, Some("s1"), None, Some("s2"), Some("s2"), None]);
        assert_eq!(sent_texts(&model, 2), ["user hi", "assistant hello", "user where?"]);
        let all = [
            "user hi",
            "assistant hello",
            "user where?",
            "assistant look#c1",
            "tool c1=looked c1",
            "assistant there",
            "user sure?",
        ];
        assert_eq!(sent_texts(&model, 5), all);
        assert_eq!(stored(&store).await, [&all[..], &["assistant yes"]].concat());
        assert_eq!(service_id(&store).await, None);
    }
}

#[tokio::test]
async fn a_persister_alone_sends_the_record_below_the_tool_loop_of_this_crate() {
    for streamed in BOTH_WAYS {
        let store = store();
        let steps = [kept("hello", "s1"), not_found(), kept_call("s2"), kept("there", "s2")];
        let model = ScriptedModel::new(steps);
        let client = alone(true, &model, &store, RECORD, LostHistory::default());
        send(&client, sent_by_loop(streamed, &[Message::user("hi")])).await.unwrap();
        let answer =
            send(&client, sent_by_loop(streamed, &[Message::user("where?")])).await.unwrap();
        assert_eq!(answer.text(), "there");
        assert_eq!(sent_texts(&model, 2), ["user hi", "assistant hello", "user where?"]);
        assert_eq!(sent_texts(&model, 3), ["tool c1=looked c1"]);
        let all = [
            "user hi",
            "assistant hello",
            "user where?",
            "assistant look#c1",
            "tool c1=looked c1",
            "assistant there",
        ];
        assert_eq!(stored(&store).await, all);
        assert_eq!(service_id(&store).await.as_deref(), Some("s2"));
    }
}

#[tokio::test]
async fn an_error_of_a_persister_alone_says_that_nothing_is_recorded() {
    for (has_loop, streamed) in
        BOTH_WAYS.into_iter().flat_map(|has_loop| BOTH_WAYS.map(|streamed| (has_loop, streamed)))
    {
        for (conflict, lost) in [
            (STOP, LostHistory::SendRecord),
            (RECORD, LostHistory::Fail),
            (STOP, LostHistory::Fail),
        ] {
            let store = store();
            let model = ScriptedModel::new([kept("hello", "s1"), not_found()]);
            let client = alone(has_loop, &model, &store, conflict, lost);
            send(&client, sent_by_loop(streamed, &[Message::user("hi")])).await.unwrap();
            let next = sent_by_loop(streamed, &[Message::user("where?")]);
            let error = refused(send(&client, next).await);
            let PersistenceError::ServiceHistoryLost { service_id, is_recorded, .. } = &error
            else {
                panic!("{error:?}")
            };
            assert_eq!((&**service_id, *is_recorded), ("s1", conflict == RECORD), "{conflict:?}");
            assert_eq!(model.requests().len(), 2, "the model is not called again");
        }
    }
}
