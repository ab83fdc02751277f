//! Converts an existing client into a model client.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_layer::Layer;
use tower_service::Service;

use super::ClientCodec;
use crate::ResponseFuture;

/// Converts a client with other request and response types into a model client, by a
/// [`ClientCodec`].
///
/// The history owner [`HistoryOwner::Local`](tower_chat_core::HistoryOwner::Local) in a request
/// means that a layer below adds the history. Like every model client, the created service refuses
/// such a request, because no layer is below the service. Layers between the created service and
/// the wrapped client receive requests of the client's own type.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use futures_core::future::BoxFuture;
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_chat::{adapt::{AdaptLayer, ClientCodec}, *};
///
/// /// The codec of a client whose request and response are texts.
/// struct Texts;
///
/// impl ClientCodec for Texts {
///     type Request = String;
///     type Response = String;
///
///     fn encode(&self, request: ChatRequest) -> Result<String, BoxError> {
///         Ok(request.messages().iter().map(|message| message.text()).collect())
///     }
///
///     fn decode(&self, text: String) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
///         let answer = ChatResponse::whole([Message::assistant(text)], Finish::stop());
///         Box::pin(std::future::ready(Ok(answer)))
///     }
/// }
///
/// let theirs = service_fn(|text: String| async move { Ok::<_, BoxError>(text.to_uppercase()) });
/// let mut model = ServiceBuilder::new().layer(AdaptLayer::new(Texts)).service(theirs);
/// let answer = model.ready().await?.call(ChatRequest::user("hello")).await?.collect().await?;
/// assert_eq!(answer.text(), "HELLO");
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
pub struct AdaptLayer<C> {
    codec: Arc<C>,
}

impl<C> AdaptLayer<C> {
    /// Creates a layer with a codec.
    pub fn new(codec: C) -> Self {
        Self { codec: Arc::new(codec) }
    }
}

impl<C> Clone for AdaptLayer<C> {
    fn clone(&self) -> Self {
        Self { codec: self.codec.clone() }
    }
}

impl<C> fmt::Debug for AdaptLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdaptLayer")
    }
}

impl<S, C> Layer<S> for AdaptLayer<C> {
    type Service = Adapt<S, C>;

    fn layer(&self, client: S) -> Self::Service {
        Adapt { inner: client, codec: self.codec.clone() }
    }
}

/// The model client that [`AdaptLayer`] creates.
pub struct Adapt<S, C> {
    inner: S,
    codec: Arc<C>,
}

impl<S, C> Adapt<S, C> {
    tower_chat_core::__inner_service_accessors!(S);
}

impl<S, C> Service<ChatRequest> for Adapt<S, C>
where
    C: ClientCodec,
    S: Service<C::Request, Response = C::Response>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let encoded = match request.service_id() {
            Ok(_) => self.codec.encode(request),
            Err(sentinel) => Err(sentinel.into()),
        };
        let response = match encoded {
            Ok(request) => self.inner.call(request),
            Err(error) => return ResponseFuture::new(std::future::ready(Err(error))),
        };
        let codec = self.codec.clone();
        ResponseFuture::new(async move {
            let response = match response.await {
                Ok(response) => codec.decode(response),
                Err(error) => return Err(error.into()),
            };
            response.await
        })
    }
}

impl<S: Clone, C> Clone for Adapt<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), codec: self.codec.clone() }
    }
}

impl<S: fmt::Debug, C> fmt::Debug for Adapt<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapt").field("inner", &self.inner).finish_non_exhaustive()
    }
}
