//! Tests that the tool loop waits for the readiness of the inner service before each service call,
//! and holds no permit of a concurrency limit while its tools run.

use std::{sync::Arc, time::Duration};

use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, buffer::Buffer};
use tower_chat::{
    Answer, ChatRequest, ChatResponse, Message, Part, Role, ToolContext, Tools,
    layer::ToolLoopLayer,
    message::Messages,
    tool::{ApprovalRequest, ToolOutput},
    tool_fn,
};

use super::script::*;

/// Fails a test that would otherwise wait forever.
async fn within_reason<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), future).await.expect("a deadlock")
}

async fn answer<S>(tool_loop: &ToolLoopLayer, inner: S, request: ChatRequest) -> Answer
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    within_reason(async {
        let response = tool_loop.layer(inner).oneshot(request).await.unwrap();
        response.collect().await.unwrap()
    })
    .await
}

/// Returns a tool that calls the inner service of the tool loop.
fn asking<S>(service: S) -> impl tower_chat::Tool
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    tool_fn(definition("ask").needs_approval(), move |context: ToolContext| {
        let service = service.clone();
        async move {
            let nested = context.nest(ChatRequest::user("nested"));
            let response = service.oneshot(nested).await.map_err(Into::into)?;
            Ok(ToolOutput::from(response.collect().await?.text()))
        }
    })
}

#[tokio::test]
async fn a_tool_loop_completes_above_a_concurrency_limit_of_one() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        let limited = ServiceBuilder::new().concurrency_limit(1).service(script);
        assert_eq!(answer(&over(echo()), limited, request).await.text(), "done");
    }
}

#[tokio::test]
async fn a_tool_loop_completes_above_a_buffer_of_one_and_a_concurrency_limit_of_one() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        let limited = ServiceBuilder::new().concurrency_limit(1).service(script);
        let buffered = Buffer::new(limited, 1);
        assert_eq!(answer(&over(echo()), buffered, request).await.text(), "done");
    }
}

#[tokio::test]
async fn a_tool_may_call_the_same_service_at_a_limit_of_one() {
    for request in both(&ChatRequest::user("hi")) {
        let script = Script::new([
            calls([("ask", "")]),
            Message::assistant("inner"),
            Message::assistant("done"),
        ]);
        let limited = ServiceBuilder::new().concurrency_limit(1).service(script);
        let nested = limited.clone();
        let tool = tool_fn(definition("ask"), move |_| {
            let nested = nested.clone();
            async move {
                let response = nested.oneshot(ChatRequest::user("nested")).await?;
                Ok(ToolOutput::from(response.collect().await?.text()))
            }
        });
        let answer = answer(&over(tool), limited, request).await;
        assert_eq!(texts(&answer.messages), ["ask()", "=inner", "done"]);
    }
}

#[tokio::test]
async fn an_approved_tool_may_call_the_same_service_before_the_first_service_call() {
    let script = Script::new([
        calls([("ask", "")]),
        Message::assistant("inner"),
        Message::assistant("done"),
    ]);
    let limited = ServiceBuilder::new().concurrency_limit(1).service(script);
    let tool_loop = ToolLoopLayer::new(Tools::new().with(asking(limited.clone())));
    let asked = answer(&tool_loop, limited.clone(), ChatRequest::user("hi")).await;
    let responses: Vec<Part> =
        asked.approval_requests().map(ApprovalRequest::approve).map(Part::from).collect();
    let mut messages: Vec<Arc<Message>> = vec![Message::user("hi").into()];
    messages.extend(asked.messages);
    messages.push(Message::new(Role::User, responses).into());
    let request = ChatRequest::new(messages.into_iter().collect::<Messages>());
    let answer = answer(&tool_loop, limited, request).await;
    assert_eq!(texts(&answer.messages), ["=inner", "done"]);
}

#[tokio::test]
async fn a_call_uses_the_service_that_has_reported_readiness() {
    // The script panics if it is called before `poll_ready` has returned ready. A clone of a ready
    // script is not ready.
    let script = Script::new(["a", "b"]);
    let mut service = over(echo()).layer(script.clone());
    for text in ["a", "b"] {
        let response = service.ready().await.unwrap().call(ChatRequest::user("hi")).await.unwrap();
        assert_eq!(response.collect().await.unwrap().text(), text);
    }
}
