//! Builds the whole stack with one builder.

mod builder;
mod client;
mod deadline;
mod error;

use std::{
    fmt,
    task::{Context, Poll},
};

use tower::{ServiceExt, util::BoxCloneSyncService};
use tower_chat_core::{Answer, BoxError, ChatRequest, ChatResponse, ConversationKey};
use tower_service::Service;

pub use self::{
    builder::ChatPipelineBuilder, client::ModelClient, deadline::DeadlineExceeded,
    error::BuildError,
};
use crate::ResponseFuture;

/// The service that [`ChatPipelineBuilder`] builds: a client with a tool loop and a stored history.
///
/// [`ask`](Self::ask) sends a text of the user. As a `Service<ChatRequest>` the pipeline accepts every
/// request.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower::service_fn;
/// use tower_chat::prelude::*;
/// # use tower_chat::Finish;
/// let model = service_fn(|request: ChatRequest| async move {
///     let seen = request.messages().len();
///     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant(format!("{seen}"))], Finish::stop()))
/// });
/// let agent = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
/// let key = ConversationKey::new("alice", "support");
/// for seen in ["1", "3"] {
///     let answer = agent.ask(key.clone(), "hello").await?;
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
    /// Creates the builder of a pipeline. The client is a model client, or a stack of tower layers
    /// over a model client, such as a retry, an
    /// [`IdleTimeoutLayer`](crate::idle_timeout::IdleTimeoutLayer) or a cache.
    pub fn builder<S>(client: S) -> ChatPipelineBuilder<S>
    where
        S: ModelClient + Service<ChatRequest, Response = ChatResponse>,
    {
        ChatPipelineBuilder::new(client)
    }

    /// Sends a text of the user in a conversation, and returns the whole answer.
    ///
    /// Each call is a new run. To repeat a run after a failure, or to send options, media or the answer
    /// to an approval, create a [`ChatRequest`] and [call](Service::call) a clone of the pipeline.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tower_chat::prelude::*;
    /// # use tower_chat_testkit::{ScriptedModel, Step};
    /// # let model = ScriptedModel::new([Step::text("Take a coat.")]);
    /// let agent = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
    ///
    /// let key = ConversationKey::new("alice", "wardrobe");
    /// let answer = agent.ask(key, "What should I wear?").await?;
    /// assert_eq!(answer.text(), "Take a coat.");
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of the layers and of the client, such as
    /// [`PersistenceError`](crate::PersistenceError) and [`ToolLoopError`](crate::ToolLoopError).
    /// [`is_retryable`](crate::is_retryable) returns whether the same request may succeed if it is
    /// sent again.
    ///
    /// # Cancellation
    ///
    /// Dropping the future ends the run. The persistence mode defines which messages of a dropped
    /// run are stored.
    pub async fn ask(
        &self,
        key: ConversationKey,
        text: impl Into<String>,
    ) -> Result<Answer, BoxError> {
        let request = ChatRequest::user(text).in_conversation(key);
        self.clone().oneshot(request).await?.collect().await
    }

    /// Sends a text of the user in a conversation, like [`ask`](Self::ask), and returns the answer as a
    /// stream.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tower_chat::prelude::*;
    /// # use tower_chat_testkit::{ScriptedModel, Step};
    /// # let model = ScriptedModel::new([Step::text("Take a coat.")]);
    /// # let agent = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
    /// # let key = ConversationKey::new("alice", "wardrobe");
    /// let mut response = agent.ask_streamed(key, "What should I wear?").await?;
    /// let mut text = String::new();
    /// while let Some(update) = response.next().await {
    ///     if let ChatUpdate::TextDelta(delta) = update? {
    ///         text.push_str(&delta);
    ///     }
    /// }
    /// assert_eq!(text, "Take a coat.");
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ask`](Self::ask). An error after the beginning of the response is an
    /// item of the stream.
    ///
    /// # Cancellation
    ///
    /// Dropping the future or the response ends the run.
    pub async fn ask_streamed(
        &self,
        key: ConversationKey,
        text: impl Into<String>,
    ) -> Result<ChatResponse, BoxError> {
        let request = ChatRequest::user(text).in_conversation(key).streamed();
        self.clone().oneshot(request).await
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
        ResponseFuture::new(self.0.call(request))
    }
}

impl fmt::Debug for ChatPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChatPipeline")
    }
}
