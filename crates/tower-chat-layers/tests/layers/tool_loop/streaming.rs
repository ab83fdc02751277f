//! Tests which updates of a streamed answer the tool loop forwards immediately, which it delays,
//! and how answers end.

use std::pin::Pin;

use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message, Tools,
    error::TruncatedStream, layer::ToolLoopLayer, tool::ToolOutput,
};

use super::script::*;

type Update = Result<ChatUpdate, BoxError>;

/// Returns the response of a tool loop, and the sender of the stream that its model client returns.
async fn fed(tool_loop: ToolLoopLayer) -> (mpsc::UnboundedSender<Update>, ChatResponse) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = std::sync::Arc::new(std::sync::Mutex::new(Some(receiver)));
    let model = service_fn(move |_: ChatRequest| {
        let mut receiver = receiver.lock().unwrap().take().expect("one call");
        let updates = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
        std::future::ready(Ok::<_, BoxError>(ChatResponse::stream(updates)))
    });
    let request = ChatRequest::user("hi").streamed();
    let response = tool_loop.layer(model).oneshot(request).await.unwrap();
    (sender, response)
}

fn next(response: &mut ChatResponse) -> Option<ChatUpdate> {
    Pin::new(response).next().now_or_never().map(|update| update.unwrap().unwrap())
}

#[tokio::test]
async fn a_tool_loop_forwards_updates_as_soon_as_they_arrive() {
    let (sender, mut response) = fed(over(echo())).await;
    assert_eq!(next(&mut response), None);
    for text in ["hel", "lo"] {
        sender.send(Ok(ChatUpdate::TextDelta(text.to_owned()))).unwrap();
        assert_eq!(next(&mut response), Some(ChatUpdate::TextDelta(text.to_owned())));
        assert_eq!(next(&mut response), None);
    }
    sender.send(Ok(ChatUpdate::Finish(Finish::stop().into()))).unwrap();
    let answer = response.collect().await.unwrap();
    assert_eq!(answer.text(), "hello");
}

#[tokio::test]
async fn calls_of_tools_without_consent_pass_live_and_those_that_may_wait_are_held() {
    for (needs_approval, is_live) in [(false, true), (true, false)] {
        let mut tool = definition("t");
        tool.needs_approval = needs_approval;
        let (sender, mut response) =
            fed(ToolLoopLayer::new(Tools::new().with(Log::default().tool(tool)))).await;
        sender.send(Ok(ChatUpdate::TextDelta("a".to_owned()))).unwrap();
        assert!(next(&mut response).is_some(), "updates before the first call are not delayed");
        let call = calls([("t", "")]);
        sender.send(Ok(ChatUpdate::Message(call.into()))).unwrap();
        sender.send(Ok(ChatUpdate::TextDelta("b".to_owned()))).unwrap();
        assert_eq!(next(&mut response).is_some(), is_live);
        assert_eq!(next(&mut response).is_some(), is_live);
    }
}

#[tokio::test]
async fn a_stream_contains_one_finish_and_results_after_their_calls() {
    let script = Script::new([
        Reply::from(vec![Message::assistant("look"), calls([("echo", "1")])]),
        "done".into(),
    ]);
    let request = ChatRequest::user("hi").streamed();
    let response = respond(&over(echo()), &script, request).await.unwrap();
    let updates: Vec<ChatUpdate> = response.map(Result::unwrap).collect().await;
    let kinds: Vec<String> = updates
        .iter()
        .map(|update| match update {
            ChatUpdate::TextDelta(text) => format!("+{text}"),
            ChatUpdate::Message(message) => texts([message]).remove(0),
            ChatUpdate::Finish(_) => "end".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["+look", "look", "echo(1)", "=1", "+done", "done", "end"]);
}

#[tokio::test]
async fn a_message_with_calls_is_given_before_its_tools_run() {
    let log = Log::default();
    let script = Script::new([calls([("log", "1")]), Message::assistant("done")]);
    let request = ChatRequest::user("hi").streamed();
    let mut response = respond(&over(log.tool(definition("log"))), &script, request).await.unwrap();
    assert!(matches!(next(&mut response), Some(ChatUpdate::Message(_))));
    assert!(log.take().is_empty());
    assert!(matches!(next(&mut response), Some(ChatUpdate::Message(_))));
    assert_eq!((log.take().len(), script.calls()), (1, 1));
}

#[tokio::test]
async fn an_error_before_the_first_head_is_the_futures_error() {
    let script = Script::new([Reply::error("down")]);
    let request = ChatRequest::user("hi").streamed();
    let error = respond(&over(echo()), &script, request).await.unwrap_err();
    assert_eq!(error.to_string(), "down");
}

#[tokio::test]
async fn an_error_inside_ends_the_stream_with_it() {
    let first = Reply::from(calls([("echo", "1")]));
    for broken in [Reply::error("down"), Reply::from("half").failing_with("down")] {
        let script = Script::new([first.clone(), broken]);
        let request = ChatRequest::user("hi").streamed();
        let response = respond(&over(echo()), &script, request).await.unwrap();
        let updates: Vec<Update> = StreamExt::collect(response).await;
        let (last, before) = updates.split_last().unwrap();
        assert_eq!(last.as_ref().unwrap_err().to_string(), "down");
        assert!(before.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn a_stream_ends_after_an_error() {
    let waiting = definition("wait").needs_approval();
    let tools = Tools::new().with(echo()).with(failing("bad")).with(Log::default().tool(waiting));
    let tool_loop = ToolLoopLayer::new(tools).max_failing_rounds(0);
    for broken in [
        // The call is not forwarded, because another call of the answer could need approval.
        Reply::from(calls([("echo", "1")])).failing_with("down"),
        Reply::from(calls([("bad", "1"), ("echo", "2")])),
    ] {
        let script = Script::new([broken]);
        let request = ChatRequest::user("hi").streamed();
        let response = respond(&tool_loop, &script, request).await.unwrap();
        let updates: Vec<Update> = StreamExt::collect(response).await;
        let first_error = updates.iter().position(Result::is_err);
        assert_eq!(first_error, Some(updates.len() - 1), "{updates:?}");
    }
}

#[tokio::test]
async fn a_stream_without_an_end_is_an_error_and_its_calls_are_not_run() {
    let log = Log::default();
    let script = Script::new([Reply::from(calls([("log", "1")])).cut_off()]);
    let request = ChatRequest::user("hi").streamed();
    let error = ask(&over(log.tool(definition("log"))), &script, request).await.unwrap_err();
    assert!(error.is::<TruncatedStream>());
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn a_model_that_answers_whole_although_a_stream_was_asked_for_is_understood() {
    let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
    let model = script.clone();
    let whole = service_fn(move |mut request: ChatRequest| {
        std::sync::Arc::make_mut(&mut request.options).stream = false;
        model.clone().oneshot(request)
    });
    let request = ChatRequest::user("hi").streamed();
    let response = over(echo()).layer(whole).oneshot(request).await.unwrap();
    assert_eq!(texts(&response.collect().await.unwrap().messages), ["echo(1)", "=1", "done"]);
}

#[tokio::test]
async fn a_model_that_streams_although_a_whole_answer_was_asked_for_is_understood() {
    let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
    let model = script.clone();
    let streaming =
        service_fn(move |request: ChatRequest| model.clone().oneshot(request.streamed()));
    let response = over(echo()).layer(streaming).oneshot(ChatRequest::user("hi")).await.unwrap();
    let answer = response.try_into_answer().unwrap();
    assert_eq!(texts(&answer.messages), ["echo(1)", "=1", "done"]);
}

#[tokio::test]
async fn a_final_whole_answer_is_returned_whole_although_a_stream_was_requested() {
    let script = Script::new(["done"]);
    let model = script.clone();
    let whole = service_fn(move |mut request: ChatRequest| {
        std::sync::Arc::make_mut(&mut request.options).stream = false;
        model.clone().oneshot(request)
    });
    let tool_loop = over(constant("t", ToolOutput::from("")));
    let request = ChatRequest::user("hi").streamed();
    let response = tool_loop.layer(whole).oneshot(request).await.unwrap();
    assert!(response.try_into_answer().is_ok());
}
