//! The layer that checks requests.

use tower_layer::Layer;

use super::ValidateTranscript;

/// Refuses a request that every provider would refuse, before the paid service call.
///
/// The error is an [`InvalidRequest`](super::InvalidRequest). Valid requests are not changed. The
/// cost is linear in the number of messages, including the messages of the history.
///
/// The [module](super) describes the position in a stack.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_chat::{
///     BoxError, ChatRequest, ChatResponse, Finish, Message, ToolResult,
///     validate::{InvalidRequest, ValidateTranscriptLayer},
/// };
/// let model = service_fn(|_: ChatRequest| async {
///     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("hi")], Finish::stop()))
/// });
/// let mut client = ServiceBuilder::new().layer(ValidateTranscriptLayer::new()).service(model);
///
/// let orphan = Message::tool_results([ToolResult::new("c1", "42")]);
/// let error = client.ready().await?.call(ChatRequest::new(orphan)).await.unwrap_err();
/// assert!(error.is::<InvalidRequest>());
/// # Ok::<(), BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct ValidateTranscriptLayer {
    pub(super) enabled: bool,
}

impl ValidateTranscriptLayer {
    /// Creates a layer that checks every request.
    #[allow(
        clippy::new_without_default,
        reason = "the caller must choose between the two constructors"
    )]
    pub fn new() -> Self {
        Self { enabled: true }
    }

    /// Creates a layer that checks every request in builds with debug assertions, and no request in
    /// other builds.
    pub fn in_debug_builds() -> Self {
        Self { enabled: cfg!(debug_assertions) }
    }
}

impl<S> Layer<S> for ValidateTranscriptLayer {
    type Service = ValidateTranscript<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ValidateTranscript::new(inner, self.clone())
    }
}
