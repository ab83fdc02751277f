//! Builds the whole stack with one builder.

mod builder;
mod client;
mod deadline;
mod error;

use std::{
    fmt,
    task::{Context, Poll},
};

use tower::util::BoxCloneSyncService;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

pub use self::{
    builder::ChatPipelineBuilder, client::ModelClient, deadline::DeadlineExceeded,
    error::BuildError,
};
use crate::ResponseFuture;

/// A client with its tool loop and its history, ready to be called.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower::{Service, ServiceExt, service_fn};
/// use tower_chat::{ChatPipeline, *};
/// let model = service_fn(|request: ChatRequest| async move {
///     let seen = request.messages.len();
///     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant(format!("{seen}"))], Finish::stop()))
/// });
/// let mut client = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
/// let key = ConversationKey::new("alice", "support");
/// for seen in ["1", "3"] {
///     let request = ChatRequest::user("hello").in_conversation(key.clone());
///     let answer = client.ready().await?.call(request).await?.collect().await?;
///     assert_eq!(answer.text(), seen);
/// }
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
///
/// A program with one pipeline and many tasks clones the pipeline. A clone is cheap, and shares the
/// tools and the store. [`ServiceExt::oneshot`](tower::ServiceExt::oneshot) waits until a clone is
/// ready and sends one request:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat::prelude::*;
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # let model = ScriptedModel::new([Step::text("hello")]);
/// let agent = ChatPipeline::builder(model).build()?;
///
/// let answer = agent.clone().oneshot(ChatRequest::user("hi")).await?.collect().await?;
/// assert_eq!(answer.text(), "hello");
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ChatPipeline(BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>);

impl ChatPipeline {
    /// Creates the builder of a pipeline over a client: a model client, or a model client below
    /// ordinary tower layers (retry, [`IdleTimeoutLayer`](crate::idle_timeout::IdleTimeoutLayer),
    /// cache).
    pub fn builder<S>(client: S) -> ChatPipelineBuilder<S>
    where
        S: ModelClient + Service<ChatRequest, Response = ChatResponse>,
    {
        ChatPipelineBuilder::new(client)
    }
}

impl Service<ChatRequest> for ChatPipeline {
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        ResponseFuture::from_boxed(self.0.call(request))
    }
}

impl fmt::Debug for ChatPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChatPipeline")
    }
}
