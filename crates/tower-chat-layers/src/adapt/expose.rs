//! Exposes a stack as a service with the types of another client.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::future::BoxFuture;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_layer::Layer;
use tower_service::Service;

use super::ServerCodec;

/// Converts a stack into a service whose request and response types are those of a [`ServerCodec`].
/// The service can replace an existing client with these types.
///
/// ```
/// use futures_util::{FutureExt, future::BoxFuture};
/// use tower::{Service, ServiceBuilder, ServiceExt};
/// use tower_chat::{
///     BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, MemoryStore,
///     adapt::{ExposeLayer, ServerCodec, as_one_message},
/// };
/// # use tower_chat_testkit::{ScriptedModel, Step};
///
/// /// The codec for callers whose request and response are texts.
/// struct TextCodec;
///
/// impl ServerCodec for TextCodec {
///     type Request = String;
///     type Response = String;
///
///     fn decode(&self, text: String) -> Result<ChatRequest, BoxError> {
///         Ok(ChatRequest::user(text).in_conversation(ConversationKey::new("alice", "chat")))
///     }
///
///     fn encode(&self, response: ChatResponse) -> BoxFuture<'static, Result<String, BoxError>> {
///         async { Ok(as_one_message(&response.collect().await?).text()) }.boxed()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([Step::text("Hello, Alice.")]);
/// let stack = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
/// let mut service = ServiceBuilder::new().layer(ExposeLayer::new(TextCodec)).service(stack);
/// let answer = service.ready().await?.call("I am Alice.".to_owned()).await?;
/// assert_eq!(answer, "Hello, Alice.");
/// # Ok(())
/// # }
/// ```
pub struct ExposeLayer<C> {
    codec: Arc<C>,
}

impl<C> ExposeLayer<C> {
    /// Creates a layer with a codec.
    pub fn new(codec: C) -> Self {
        Self { codec: Arc::new(codec) }
    }
}

impl<C> Clone for ExposeLayer<C> {
    fn clone(&self) -> Self {
        Self { codec: self.codec.clone() }
    }
}

impl<C> fmt::Debug for ExposeLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExposeLayer")
    }
}

impl<S, C> Layer<S> for ExposeLayer<C> {
    type Service = Expose<S, C>;

    fn layer(&self, stack: S) -> Self::Service {
        Expose { inner: stack, codec: self.codec.clone() }
    }
}

/// The service that [`ExposeLayer`] creates.
pub struct Expose<S, C> {
    inner: S,
    codec: Arc<C>,
}

impl<S, C> Expose<S, C> {
    tower_chat_core::__inner_service_accessors!(S);
}

impl<S, C> Service<C::Request> for Expose<S, C>
where
    C: ServerCodec,
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: C::Request) -> Self::Future {
        let response = match self.codec.decode(request) {
            Ok(request) => self.inner.call(request),
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let codec = self.codec.clone();
        Box::pin(async move {
            let encoded = match response.await {
                Ok(response) => codec.encode(response),
                Err(error) => return Err(error.into()),
            };
            encoded.await
        })
    }
}

impl<S: Clone, C> Clone for Expose<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), codec: self.codec.clone() }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Expose<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expose").field("inner", &self.inner).finish_non_exhaustive()
    }
}
