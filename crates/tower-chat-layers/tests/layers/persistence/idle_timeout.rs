//! Tests that a service call fails if the model client stalls before or during its answer.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use tower::{Layer, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message,
    error::{IdleTimeoutExceeded, is_retryable},
    layer::IdleTimeoutLayer,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

const LIMIT: Duration = Duration::from_secs(30);

/// Returns a stack with an idle timeout. The model client streams these texts, and waits the given
/// number of seconds before each.
fn paced(texts: &'static [(&'static str, u64)]) -> Client {
    let answer = move |_: ChatRequest| async move {
        let texts = stream::iter(texts).then(|(text, seconds)| async move {
            sleep(Duration::from_secs(*seconds)).await;
            Ok::<_, BoxError>(ChatUpdate::TextDelta((*text).into()))
        });
        let finish = stream::iter([Ok(finish())]);
        Ok::<_, BoxError>(ChatResponse::stream(texts.chain(finish)))
    };
    boxed(IdleTimeoutLayer::new(LIMIT).layer(service_fn(answer)))
}

fn exceeded(error: &BoxError) -> (Duration, bool) {
    let error = error.downcast_ref::<IdleTimeoutExceeded>();
    let error = error.unwrap_or_else(|| panic!("another error: {error:?}"));
    (error.after, error.has_begun)
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_take_long_while_more_of_it_arrives() {
    let client = paced(&[("slow", 29), ("er", 30), (" and", 1), (" slower", 29)]);
    let begun = Instant::now();
    let answer = send(&client, ask("go", true)).await.unwrap();
    assert_eq!((answer.text(), begun.elapsed().as_secs()), ("slower and slower".into(), 89));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_ends_with_the_error_after_its_last_update() {
    let client = paced(&[("one", 5), (" two", 29), (" never", 31)]);
    let begun = Instant::now();
    let mut response = head(&client, ask("count", true)).await.unwrap();
    for expected in ["one", " two"] {
        let update = response.next().await.unwrap().unwrap();
        assert_eq!(update, ChatUpdate::TextDelta(expected.into()));
    }
    let error = response.next().await.unwrap().unwrap_err();
    assert_eq!((exceeded(&error), begun.elapsed().as_secs()), ((LIMIT, true), 64));
    assert_eq!(is_retryable(&*error), Some(true));
    assert_eq!(
        error.to_string(),
        "the answer of the model had no update for 30s, and the call was cancelled: send it again"
    );
    assert!(response.next().await.is_none(), "nothing follows the error");
}

#[tokio::test(start_paused = true)]
async fn the_idle_timeout_before_the_response_head_can_be_set_separately() {
    let wait = Duration::from_secs(600);
    for (layer, after) in [
        (IdleTimeoutLayer::new(LIMIT), LIMIT),
        (IdleTimeoutLayer::new(LIMIT).before_head(wait), wait),
    ] {
        let begun = Instant::now();
        let client = boxed(layer.layer(ScriptedModel::new([Step::hang()])));
        let error = head(&client, ask("anybody?", false)).await.unwrap_err();
        assert_eq!((exceeded(&error), begun.elapsed()), ((after, false), after));
        assert_eq!(is_retryable(&*error), Some(true));
    }
    let stalls = ScriptedModel::new([Step::text("well").hangs_after(1)]);
    let client = boxed(IdleTimeoutLayer::new(LIMIT).before_head(wait).layer(stalls));
    let error = send(&client, ask("well?", true)).await.unwrap_err();
    assert_eq!(exceeded(&error), (LIMIT, true));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_does_not_cause_an_idle_timeout() {
    let client = paced(&[("patience", 20), (" pays", 20)]);
    let mut response = head(&client, ask("read", true)).await.unwrap();
    let mut updates = Vec::new();
    while let Some(update) = response.next().await {
        updates.push(update.unwrap());
        sleep(10 * LIMIT).await;
    }
    assert!(matches!(updates.last(), Some(ChatUpdate::Finish(_))), "{updates:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stays_open_after_its_finish_does_not_time_out() {
    let answer = |_: ChatRequest| async {
        let updates = [ChatUpdate::Message(Message::assistant("done").into()), finish()];
        let updates = stream::iter(updates.map(Ok::<_, BoxError>)).chain(stream::pending());
        Ok::<_, BoxError>(ChatResponse::forward(updates))
    };
    let client = boxed(IdleTimeoutLayer::new(LIMIT).layer(service_fn(answer)));
    let mut response = head(&client, ask("done?", true)).await.unwrap();
    assert!(matches!(response.next().await, Some(Ok(ChatUpdate::Message(_)))));
    assert!(matches!(response.next().await, Some(Ok(ChatUpdate::Finish(_)))));
    assert!(response.next().await.is_none());
}

fn finish() -> ChatUpdate {
    ChatUpdate::Finish(Finish::stop().into())
}

#[tokio::test(start_paused = true)]
async fn a_stalled_answer_is_stored_as_a_call_that_failed_and_can_be_sent_again() {
    let before_head = || Step::hang();
    let mid_stream = || Step::text("never complete").hangs_after(1);
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            for (stalls, calls_before) in cases!([before_head as fn() -> Step, mid_stream], [0, 1])
            {
                let store = case.store().await;
                let failed = case.store().await;
                for (store, last) in [(&store, stalls()), (&failed, Step::error("down"))] {
                    let mut steps = vec![last, Step::text("there")];
                    if calls_before == 1 {
                        steps.insert(0, case.calls([("look", "c1")]));
                    }
                    let model = IdleTimeoutLayer::new(LIMIT).layer(ScriptedModel::new(steps));
                    let client = case.stack(model, store, policy(), tools(&ToolLog::default()));
                    let request = case.ask("where?");
                    send(&client, request.clone()).await.expect_err("the call fails");
                    let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
                    let kept = match (case.mode, calls_before) {
                        (PerRun, _) => 0,
                        (PerServiceCall | Journaled, 0) => 1,
                        _ => 3,
                    };
                    assert_eq!(durable(store).await, all[..kept], "{case}, {calls_before}");

                    let answer = send(&client, request).await.unwrap();
                    assert_eq!(answer.text(), "there", "{case}");
                }
                assert_eq!(stored(&store).await, stored(&failed).await, "{case}");
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_partial_text_of_a_stalled_stream_is_stored_if_the_policy_says_so() {
    Cases::all()
        .modes([PerServiceCall], "only this mode stores the text as a message")
        .streamed("only a stream has partial text")
        .with_a_stopped_clock()
        .check(async |case| {
            let store = case.store().await;
            let delta = ChatUpdate::TextDelta("A coat, and".into());
            let model = ScriptedModel::new([Step::updates([delta]).hangs_after(1)]);
            let model = IdleTimeoutLayer::new(LIMIT).layer(model);
            let policy = policy().with_partial_text(true);
            let client = case.stack(model, &store, policy, tools(&ToolLog::default()));
            let error = send(&client, case.ask("what to wear?")).await.unwrap_err();
            assert_eq!(exceeded(&error), (LIMIT, true));
            assert_eq!(stored(&store).await, ["user what to wear?", "assistant A coat, and"]);
        })
        .await;
}
