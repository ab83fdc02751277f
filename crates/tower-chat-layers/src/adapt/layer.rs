//! The layer that converts an existing client into a model client.

use std::{fmt, sync::Arc};

use tower_layer::Layer;

use super::Adapt;

/// Converts a client with other request and response types into a model client, by a
/// [`ClientCodec`](super::ClientCodec).
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
        Adapt::new(client, self.codec.clone())
    }
}
