//! A scripted model, and short constructors for requests, messages and tools.

use std::{
    collections::VecDeque,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use futures_util::stream;
use serde_json::json;
use tower::{Layer, Service, ServiceExt};
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message, Part, Tool, ToolCall,
    ToolContext, ToolDefinition, ToolResult, Tools,
    layer::ToolLoopLayer,
    request::{HistoryOwner, Usage},
    tool::{FnTool, ToolOutput},
    tool_fn,
};

/// The model's reply to one service call.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) messages: Vec<Message>,
    pub(crate) finish: Finish,
    pub(crate) error: Option<&'static str>,
    pub(crate) cut_off: bool,
}

impl From<Message> for Reply {
    fn from(message: Message) -> Self {
        vec![message].into()
    }
}

impl From<Vec<Message>> for Reply {
    fn from(messages: Vec<Message>) -> Self {
        let finish = Finish::stop().with_usage(Usage::new(10, 1));
        Self { messages, finish, error: None, cut_off: false }
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Message::assistant(text).into()
    }
}

impl Reply {
    pub(crate) fn error(message: &'static str) -> Self {
        Self { error: Some(message), ..Self::from(Vec::new()) }
    }

    /// Makes the reply fail. A streamed reply fails after its messages, and a whole reply fails
    /// without messages.
    pub(crate) fn failing_with(mut self, message: &'static str) -> Self {
        self.error = Some(message);
        self
    }

    pub(crate) fn cut_off(mut self) -> Self {
        self.cut_off = true;
        self
    }

    pub(crate) fn local_history(mut self) -> Self {
        self.finish.history_owner = Some(HistoryOwner::Local);
        self
    }

    pub(crate) fn service_id(mut self, id: &str) -> Self {
        self.finish = self.finish.with_service_id(id);
        self
    }
}

/// A model that returns one reply for each service call and records the requests.
///
/// The script panics if it is called before `poll_ready` has returned ready.
#[derive(Debug, Default)]
pub(crate) struct Script {
    shared: Arc<Mutex<Shared>>,
    is_ready: bool,
}

#[derive(Debug, Default)]
struct Shared {
    replies: VecDeque<Reply>,
    requests: Vec<ChatRequest>,
}

impl Script {
    pub(crate) fn new<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let script = Self::default();
        script.shared.lock().unwrap().replies = replies.into_iter().map(Into::into).collect();
        script
    }

    pub(crate) fn requests(&self) -> Vec<ChatRequest> {
        self.shared.lock().unwrap().requests.clone()
    }

    pub(crate) fn texts(&self, call: usize) -> Vec<String> {
        texts(self.requests()[call].messages().iter())
    }

    pub(crate) fn calls(&self) -> usize {
        self.requests().len()
    }
}

impl Clone for Script {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), is_ready: false }
    }
}

impl Service<ChatRequest> for Script {
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = Ready<Result<ChatResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        assert!(
            std::mem::take(&mut self.is_ready),
            "the service was called before `poll_ready` returned ready"
        );
        let mut shared = self.shared.lock().unwrap();
        let streamed = request.options.stream;
        shared.requests.push(request);
        let Some(reply) = shared.replies.pop_front() else {
            return ready(Err("the script has no more replies".into()));
        };
        ready(reply.respond(streamed))
    }
}

impl Reply {
    fn respond(self, streamed: bool) -> Result<ChatResponse, BoxError> {
        if !streamed {
            return match self.error {
                Some(error) => Err(error.into()),
                None => Ok(ChatResponse::whole(self.messages, self.finish)),
            };
        }
        if let (Some(error), true) = (self.error, self.messages.is_empty()) {
            return Err(error.into());
        }
        let mut updates: Vec<Result<ChatUpdate, BoxError>> = Vec::new();
        for message in self.messages {
            if !message.text().is_empty() {
                updates.push(Ok(ChatUpdate::TextDelta(message.text())));
            }
            updates.push(Ok(ChatUpdate::Message(message.into())));
        }
        match self.error {
            Some(error) => updates.push(Err(error.into())),
            None if self.cut_off => {}
            None => updates.push(Ok(ChatUpdate::Finish(self.finish.into()))),
        }
        Ok(ChatResponse::forward(stream::iter(updates)))
    }
}

/// Sends a request to a tool loop over the script, and returns the answer.
pub(crate) async fn ask(
    tool_loop: &ToolLoopLayer,
    script: &Script,
    request: ChatRequest,
) -> Result<Answer, BoxError> {
    respond(tool_loop, script, request).await?.collect().await
}

pub(crate) async fn respond(
    tool_loop: &ToolLoopLayer,
    script: &Script,
    request: ChatRequest,
) -> Result<ChatResponse, BoxError> {
    let mut service = tool_loop.layer(script.clone());
    service.ready().await?.call(request).await
}

pub(crate) fn both(request: &ChatRequest) -> [ChatRequest; 2] {
    [request.clone(), request.clone().streamed()]
}

pub(crate) fn definition(name: &str) -> ToolDefinition {
    ToolDefinition::new(name, "", json!({"type": "object"}))
}

pub(crate) fn echo() -> impl Tool {
    tool_fn(definition("echo"), |context| async move { Ok(context.arguments().to_owned()) })
}

pub(crate) fn constant(name: &str, output: ToolOutput) -> impl Tool + use<> {
    tool_fn(definition(name), move |_| {
        let output = output.clone();
        async move { Ok(output) }
    })
}

/// Returns a tool that always fails. The model must not receive the text of the error.
pub(crate) fn failing(name: &str) -> impl Tool + use<> {
    tool_fn(definition(name), |context: ToolContext| async move {
        Err::<ToolOutput, BoxError>(format!("secret of {}", context.call_id()).into())
    })
}

/// A log of executed calls, and tools that write to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn tool(
        &self,
        definition: ToolDefinition,
    ) -> FnTool<impl Fn(ToolContext) -> std::future::Ready<Result<String, BoxError>> + use<>> {
        let log = self.clone();
        tool_fn(definition, move |context: ToolContext| {
            log.add(context.arguments());
            std::future::ready(Ok(format!("ran {}", context.arguments())))
        })
    }

    pub(crate) fn add(&self, entry: &str) {
        self.0.lock().unwrap().push(entry.to_owned());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Returns a message with one call for each pair of tool and arguments, with ids `c0`, `c1`, ...
pub(crate) fn calls<const N: usize>(calls: [(&str, &str); N]) -> Message {
    Message::tool_calls(
        calls
            .into_iter()
            .enumerate()
            .map(|(index, (name, arguments))| ToolCall::new(format!("c{index}"), name, arguments)),
    )
}

pub(crate) fn over(tool: impl Tool) -> ToolLoopLayer {
    ToolLoopLayer::new(Tools::new().with(tool))
}

/// Returns one string for each message: texts unchanged, calls as `name(arguments)`, results as
/// `=result`, and error results as `!result`.
pub(crate) fn texts<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Vec<String> {
    messages.into_iter().map(|message| summary(message)).collect()
}

fn summary(message: &Message) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => text.text.clone(),
        Part::ToolCall(call) => format!("{}({})", call.name, call.arguments),
        Part::ToolResult(result) => {
            format!("{}{}", if result.is_error { "!" } else { "=" }, result.text())
        }
        Part::ApprovalRequest(request) => format!("?{}", request.call.name),
        other => format!("{other:?}"),
    };
    message.parts.iter().map(part).collect::<Vec<_>>().join(" ")
}

pub(crate) fn results(answer: &Answer) -> Vec<ToolResult> {
    answer.messages.iter().flat_map(|message| message.results()).cloned().collect()
}
