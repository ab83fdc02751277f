//! Tests that a scripted model client follows its script, and refuses the same calls as a real
//! model client.

use std::{future::poll_fn, task::Poll};

use futures_util::{FutureExt, StreamExt};
use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, FinishReason, HistoryOwner, Message,
    Part, Reasoning, Role, SentinelAtClient, ToolCall, ToolResult, TruncatedStream,
};
use tower_chat_testkit::{Gate, ScriptError, ScriptedModel, Step};
use tower_service::Service;

async fn call(model: &ScriptedModel, request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let mut model = model.clone();
    poll_fn(|cx| model.poll_ready(cx)).await?;
    model.call(request).await
}

async fn ask(model: &ScriptedModel) -> Result<ChatResponse, BoxError> {
    call(model, ChatRequest::user("hi")).await
}

fn everything() -> Message {
    Message::new(
        Role::Assistant,
        vec![
            Reasoning::new("hm").into(),
            Part::text("d\u{e9}j\u{e0} vu \u{1F600}"),
            ToolCall::new("c1", "f", "{\"a\":1}").into(),
            ToolCall::without_id("g", "").into(),
        ],
    )
}

#[tokio::test]
async fn each_call_takes_the_next_step_and_is_recorded() {
    let model = ScriptedModel::new([Step::text("one"), Step::error("overloaded")]);
    model.push(Step::answer([everything()], Finish::new(FinishReason::ToolCalls)));
    assert_eq!(ask(&model).await.unwrap().collect().await.unwrap().text(), "one");
    assert_eq!(ask(&model).await.unwrap_err().to_string(), "overloaded");
    let answer = call(&model, ChatRequest::user("last")).await.unwrap().collect().await.unwrap();
    assert_eq!(*answer.messages[0], everything());
    assert_eq!(*answer.finish, Finish::new(FinishReason::ToolCalls));
    assert_eq!(model.remaining(), 0);
    let requests = model.requests();
    let texts: Vec<_> = requests.iter().map(|r| r.messages().last().unwrap().text()).collect();
    assert_eq!(texts, ["hi", "hi", "last"]);
}

#[tokio::test]
async fn a_call_beyond_the_script_is_a_typed_error() {
    let model = ScriptedModel::new([]);
    let error = ask(&model).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&ScriptError::Exhausted { call: 1 }));
}

#[tokio::test]
async fn the_request_decides_whether_the_answer_is_streamed_unless_the_step_does() {
    let steps = || [Step::text("a"), Step::text("a").streamed(), Step::text("a").whole()];
    for (request, expected) in [
        (ChatRequest::user("hi"), [true, false, true]),
        (ChatRequest::user("hi").streamed(), [false, false, true]),
    ] {
        let model = ScriptedModel::new(steps());
        for is_whole in expected {
            let response = call(&model, request.clone()).await.unwrap();
            assert_eq!(response.try_into_answer().is_ok(), is_whole);
        }
    }
}

#[tokio::test]
async fn deltas_add_up_to_the_message_that_follows_them() {
    let results = Message::tool_results([ToolResult::new("c1", "1")]);
    let answer = || Step::answer([everything(), results.clone()], Finish::stop()).streamed();
    let model = ScriptedModel::new([answer(), answer()]);
    let whole = ask(&model).await.unwrap().collect().await.unwrap();
    assert_eq!(*whole.messages[0], everything());
    assert_eq!(*whole.messages[1], results);
    let updates: Vec<_> = ask(&model).await.unwrap().map(Result::unwrap).collect::<Vec<_>>().await;
    assert!(matches!(updates[0], ChatUpdate::ReasoningDelta(_)));
    let is_message = |update: &ChatUpdate| matches!(update, ChatUpdate::Message(_));
    let deltas = updates.iter().position(is_message).unwrap();
    assert!(deltas > 6, "{updates:?}");
    let deltas =
        updates[..deltas].iter().cloned().chain([ChatUpdate::Finish(Finish::stop().into())]);
    let model = ScriptedModel::new([Step::updates(deltas)]);
    let assembled = ask(&model).await.unwrap().collect().await.unwrap();
    assert_eq!(*assembled.messages[0], everything());
}

#[tokio::test]
async fn a_stream_fails_ends_or_hangs_after_the_configured_number_of_deltas() {
    let text = || Step::text("abcd");
    let model = ScriptedModel::new([
        text().fails_after(1, "boom"),
        text().cut_off_after(2),
        text().hangs_after(1),
        text().hangs_after(99),
        text().cut_off_after(0),
    ]);
    let mut response = ask(&model).await.unwrap();
    assert_eq!(response.next().await.unwrap().unwrap(), ChatUpdate::TextDelta("ab".to_owned()));
    assert_eq!(response.next().await.unwrap().unwrap_err().to_string(), "boom");
    assert!(response.next().await.is_none());

    let error = ask(&model).await.unwrap().collect().await.unwrap_err();
    assert_eq!(error.downcast_ref::<TruncatedStream>().unwrap().text, "abcd");

    let mut response = ask(&model).await.unwrap();
    response.next().await.unwrap().unwrap();
    assert!(response.next().now_or_never().is_none());

    let mut response = ask(&model).await.unwrap();
    for _ in 0..4 {
        response.next().await.unwrap().unwrap();
    }

    let error = ask(&model).await.unwrap().collect().await.unwrap_err();
    assert_eq!(error.downcast_ref::<TruncatedStream>().unwrap().text, "");
}

#[tokio::test]
async fn a_closed_gate_delays_an_answer_at_its_start_or_within_its_stream() {
    let (head, middle) = (Gate::closed(), Gate::closed());
    let model =
        ScriptedModel::new([Step::text("abcd").streamed().waits(&head).waits_after(1, &middle)]);
    let answer = tokio::spawn({
        let model = model.clone();
        async move { ask(&model).await?.collect().await }
    });
    model.called(1).await;
    head.reached(1).await;
    assert!(middle.reached(1).now_or_never().is_none());
    head.open();
    middle.reached(1).await;
    assert!(!answer.is_finished());
    middle.open();
    assert_eq!(answer.await.unwrap().unwrap().text(), "abcd");
}

#[tokio::test]
async fn a_call_that_hangs_never_answers() {
    let model = ScriptedModel::new([Step::hang()]);
    assert!(ask(&model).now_or_never().is_none());
    model.called(1).await;
    assert_eq!(model.remaining(), 0);
}

#[tokio::test]
async fn a_step_can_depend_on_the_request() {
    let count = |request: &ChatRequest| Step::text(request.messages().len().to_string());
    let model = ScriptedModel::new([
        Step::respond(count),
        Step::respond(|_| Step::respond(|_| Step::error("no"))),
        Step::respond(count).fails_after(0, "boom"),
        Step::respond(|_| Step::text("x").whole()).streamed(),
    ]);
    let request = ChatRequest::new([Message::user("a"), Message::user("b")]);
    let answer = call(&model, request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.text(), "2");
    assert_eq!(ask(&model).await.unwrap_err().to_string(), "no");
    assert_eq!(ask(&model).await.unwrap().collect().await.unwrap_err().to_string(), "boom");
    assert!(ask(&model).await.unwrap().try_into_answer().is_ok());
}

#[tokio::test]
async fn a_request_with_the_sentinel_is_refused_and_takes_no_step() {
    let model = ScriptedModel::new([Step::text("a")]);
    let mut request = ChatRequest::user("hi");
    request.history_owner = Some(HistoryOwner::Local);
    let error = call(&model, request).await.unwrap_err();
    assert!(error.is::<SentinelAtClient>());
    assert_eq!((model.remaining(), model.requests().len()), (1, 1));
}

#[tokio::test]
async fn a_call_of_a_clone_that_is_not_ready_is_refused() {
    let mut ready = ScriptedModel::new([Step::text("a"), Step::text("b")]);
    poll_fn(|cx| ready.poll_ready(cx)).await.unwrap();
    let error = ready.clone().call(ChatRequest::user("hi")).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&ScriptError::NotReady { call: 1 }));
    ready.call(ChatRequest::user("hi")).await.unwrap();
    let error = ready.call(ChatRequest::user("hi")).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&ScriptError::NotReady { call: 3 }));
    assert_eq!(ready.remaining(), 1);
    let polled = poll_fn(|cx| Poll::Ready(ready.poll_ready(cx))).await;
    assert!(polled.is_ready());
}
