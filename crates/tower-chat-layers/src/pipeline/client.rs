//! The services that a pipeline can call.

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

/// A service that a [`ChatPipeline`](super::ChatPipeline) can call: a model client, or a stack over
/// a model client.
///
/// Every service that satisfies the bounds implements this trait. The pipeline clones the service
/// for each run, and threads share the pipeline. A boxed service must therefore be a
/// `tower::util::BoxCloneSyncService`, because a `BoxService` cannot be cloned and a
/// `BoxCloneService` cannot be shared.
///
/// ```
/// use tower::{service_fn, util::BoxCloneSyncService};
/// use tower_chat::{BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, Message};
///
/// let client = BoxCloneSyncService::new(service_fn(|_: ChatRequest| async {
///     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("Gladly.")], Finish::stop()))
/// }));
/// let pipeline = ChatPipeline::builder(client).build();
/// # pipeline.unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the client of a `ChatPipeline`",
    label = "not a `Service<ChatRequest>`, or not `Clone + Send + Sync + 'static`",
    note = "a boxed service has to be a `tower::util::BoxCloneSyncService`",
    note = "a `tower::retry::Retry` is a service only if its policy accepts the error of the inner service: the \
            `RetryPolicy` of `providers::retry` accepts errors that implement `RetryableError`, as `BoxError` does: \
            convert other errors with `map_err(BoxError::from)`",
    note = "a service of your own is `Clone`, all its fields are `Send + Sync`, its `Response` is \
            `ChatResponse`, its `Error` becomes a `BoxError`, and its `Future` is `Send`"
)]
pub trait ModelClient:
    Service<ChatRequest, Response = ChatResponse, Error: Into<BoxError>, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

// With this attribute, the compiler prints the message of `on_unimplemented` instead of the first
// bound that is not satisfied.
#[diagnostic::do_not_recommend]
impl<S> ModelClient for S where
    S: Service<ChatRequest, Response = ChatResponse, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}
