//! Tests an answer with more calls than the tool loop allows. No tool of the answer runs, nothing
//! of the answer is stored, and the conversation can continue.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt, StreamExt, stream};
use tower::{Layer, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish,
    error::ToolLoopError,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

const LIMIT: usize = 2;

fn limited(case: Case, model: &ScriptedModel, store: &Store, tool_log: &ToolLog) -> Client {
    let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
    let above = PerRunPersistence::new(store.clone()).mode(case.mode);
    let tool_loop = ToolLoopLayer::new(tools(tool_log)).max_calls_per_answer(Some(LIMIT));
    boxed(above.layer(tool_loop.layer(below)))
}

fn too_many(case: Case) -> Step {
    let messages =
        [case.call_message([("look", "c2"), ("look", "c3")]), case.call_message([("look", "c4")])];
    Step::answer(messages, Finish::stop())
}

#[tokio::test]
async fn an_answer_with_more_calls_than_allowed_is_refused_and_not_stored() {
    every_id(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let model = ScriptedModel::new([
            case.calls([("look", "c1")]),
            too_many(case),
            Step::text("on it goes"),
            Step::text("and on"),
        ]);
        let client = limited(case, &model, &store, &tool_log);
        let error = send(&client, case.ask("where?")).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
        let ToolLoopError::TooManyCalls { calls, limit, conversation } = error else {
            panic!("{error:?}")
        };
        assert_eq!((*calls, *limit, conversation), (3, LIMIT, &Some(key())));
        assert!(error.to_string().contains("ToolLoopLayer::max_calls_per_answer"), "{error}");
        assert!(!error.is_retryable());
        assert_eq!(tool_log.names(), ["look"]);
        let round = ["user where?", "assistant look#c1", "tool c1=looked c1"];
        let before: &[&str] = if case.is(PerServiceCall) { &round } else { &[] };
        assert_eq!(stored(&store).await, before);
        let answer = send(&client, case.ask("and now?")).await.unwrap();
        // In journaled mode, the next request first resumes the open run, which repeats its last
        // service call.
        assert_eq!(answer.finish.recovered.is_some(), case.is(Journaled));
        let before: &[&str] = match case.mode {
            PerRun => &[],
            PerServiceCall => &round,
            _ => &[round[0], round[1], round[2], "assistant on it goes"],
        };
        let last = model.requests().len() - 1;
        assert_eq!(sent_texts(&model, last), [before, &["user and now?"]].concat());
    })
    .await;
}

#[tokio::test]
async fn the_first_answer_of_a_persister_alone_is_limited_too() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let calls = [("look", "c1"), ("look", "c2"), ("look", "c3")];
        let model =
            ScriptedModel::new([Step::message(call_message(calls)), Step::text("on it goes")]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let tool_loop = ToolLoopLayer::new(tools(&tool_log)).max_calls_per_answer(Some(LIMIT));
        let client = boxed(tool_loop.layer(below));
        let error = send(&client, ask("where?", streamed)).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(ToolLoopError::TooManyCalls { .. })));
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(stored(&store).await, [""; 0]);
    }
}

#[tokio::test]
async fn an_answer_with_as_many_calls_as_allowed_is_run() {
    every_case(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let model =
            ScriptedModel::new([case.calls([("look", "c1"), ("look", "c2")]), Step::text("there")]);
        send(&limited(case, &model, &store, &tool_log), case.ask("where?")).await.unwrap();
        let all = [
            "user where?",
            "assistant look#c1 look#c2",
            "tool c1=looked c1 c2=looked c2",
            "assistant there",
        ];
        assert_eq!(stored(&store).await, all);
    })
    .await;
}

#[tokio::test]
async fn an_endless_answer_is_refused_at_the_first_call_over_the_limit() {
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let endless = service_fn(|_: ChatRequest| {
        let calls = stream::repeat_with(|| {
            let id = format!("c{}", SENT.fetch_add(1, Ordering::Relaxed));
            Ok::<_, BoxError>(ChatUpdate::Message(call_message([("look", &id)]).into()))
        });
        let calls = calls.then(|call| tokio::task::yield_now().map(|()| call));
        std::future::ready(Ok::<_, BoxError>(ChatResponse::stream(calls)))
    });
    for mode in [PerRun, PerServiceCall, Journaled] {
        let (store, tool_log) = (store(), ToolLog::default());
        SENT.store(0, Ordering::Relaxed);
        let below = PerServiceCallPersistence::new(store.clone()).layer(endless);
        let tool_loop = ToolLoopLayer::new(tools(&tool_log)).max_calls_per_answer(Some(LIMIT));
        let above = PerRunPersistence::new(store.clone()).mode(mode);
        let client = boxed(above.layer(tool_loop.layer(below)));
        let request = ChatRequest::user("where?").in_conversation(key()).streamed();
        let error = send(&client, request).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
        assert!(matches!(error, ToolLoopError::TooManyCalls { calls: 3, .. }), "{mode:?} {error}");
        assert!(tool_log.names().is_empty(), "{mode:?}");
        // One of the layers refuses the answer. Each layer below it may have read one more message.
        let max = if mode == PerRun { LIMIT + 3 } else { LIMIT + 2 };
        let sent = SENT.load(Ordering::Relaxed);
        assert!(sent <= max, "{mode:?} {sent}");
    }
}
