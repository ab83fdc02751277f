//! Tests which work stops when a response or the future of a call is dropped.

use std::{
    pin::{Pin, pin},
    sync::Arc,
};

use futures_util::{FutureExt, StreamExt, future::poll_immediate};
use tower_chat::{ChatRequest, Message, Tool, ToolContext, tool_fn};

use super::script::*;

/// Returns a tool that never completes. While the future of a call exists, it owns a clone of
/// `held`.
fn hanging(held: Arc<()>) -> impl Tool {
    tool_fn(definition("hang"), move |_: ToolContext| {
        let held = held.clone();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok("")
        }
    })
}

#[tokio::test]
async fn dropping_the_future_of_a_whole_answer_cancels_running_tools() {
    for concurrent in [false, true] {
        let held = Arc::new(());
        let tool_loop = over(hanging(held.clone())).concurrent(concurrent);
        let idle = Arc::strong_count(&held);
        let script = Script::new([calls([("hang", ""), ("hang", "")])]);
        {
            let mut future = pin!(ask(&tool_loop, &script, ChatRequest::user("hi")));
            assert!(poll_immediate(&mut future).await.is_none());
            assert!(Arc::strong_count(&held) > idle, "a tool runs");
        }
        assert_eq!(Arc::strong_count(&held), idle);
    }
}

#[tokio::test]
async fn dropping_a_streamed_answer_cancels_running_tools() {
    let held = Arc::new(());
    let tool_loop = over(hanging(held.clone()));
    let idle = Arc::strong_count(&held);
    let script = Script::new([calls([("hang", "")])]);
    let request = ChatRequest::user("hi").streamed();
    let mut response = respond(&tool_loop, &script, request).await.unwrap();
    assert!(Pin::new(&mut response).next().await.is_some(), "the call");
    assert!(Pin::new(&mut response).next().now_or_never().is_none());
    assert!(Arc::strong_count(&held) > idle, "a tool runs");
    drop(response);
    assert_eq!(Arc::strong_count(&held), idle);
}

#[tokio::test]
async fn other_tasks_run_before_and_after_very_many_messages_are_taken() {
    for (messages, yields) in [(100, 0), (1000, 2)] {
        let mut request = ChatRequest::user("0");
        let more = (1..messages).map(|number| Arc::new(Message::user(format!("{number}"))));
        more.for_each(|message| request.push(message));
        for request in both(&request) {
            let script = Script::new(["done"]);
            let tool_loop = over(echo());
            let mut future = pin!(ask(&tool_loop, &script, request));
            for _ in 0..yields {
                assert!(poll_immediate(&mut future).await.is_none());
                assert_eq!(
                    script.calls(),
                    0,
                    "the model is not called if the caller drops the call now"
                );
            }
            assert!(
                poll_immediate(&mut future).await.is_some(),
                "the call completes without another wait"
            );
            assert_eq!(script.texts(0).len(), messages);
        }
    }
}
