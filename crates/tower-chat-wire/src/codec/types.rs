//! A codec for clients and stacks with an application's own request and response types. Serde
//! converts these types to and from the JSON of a wire, which is a provider's format.

use std::{fmt, marker::PhantomData, sync::Arc};

use futures_core::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use tower_chat_layers::{
    BoxError, ChatRequest, ChatResponse, Conversation, ConversationKey, RunId,
    adapt::{ClientCodec, ServerCodec, as_one_message},
};

use crate::body::BodyWire;

/// A codec for an application's own types: a request `Q` and an answer `A` that serde converts to
/// and from the JSON bodies of a wire. The codec works in both directions, so that an application
/// whose stack has these types can put layers of this project between two of its own layers.
///
/// In both directions, fields of the wire that the application's types do not have are lost without
/// an error. A tool loop with these types may lose ids, reasoning and provider items: see
/// [`PerServiceCallPersistence`](tower_chat_layers::PerServiceCallPersistence).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use serde::{Deserialize, Serialize};
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_chat::{adapt::{AdaptLayer, ExposeLayer}, layer::PerServiceCallPersistence, *};
/// use tower_chat_wire::{body::BodyWire, codec::JsonTypes};
///
/// #[derive(Serialize, Deserialize)]
/// struct Ask { #[serde(default)] user: String, messages: Vec<Said> }
/// #[derive(Serialize, Deserialize)]
/// struct Said { role: String, content: String }
/// #[derive(Serialize, Deserialize)]
/// struct Answer { choices: Vec<Choice> }
/// #[derive(Serialize, Deserialize)]
/// struct Choice { message: Said }
///
/// let theirs = service_fn(|ask: Ask| async move {
///     let content = format!("{} messages", ask.messages.len());
///     let message = Said { role: "assistant".into(), content };
///     Ok::<_, BoxError>(Answer { choices: vec![Choice { message }] })
/// });
/// let types = JsonTypes::new(BodyWire::OpenAiChat)
///     .keyed_by(|ask: &Ask| Some(ConversationKey::new(ask.user.as_str(), "chat")));
/// let mut chat = ServiceBuilder::new()
///     .layer(ExposeLayer::new(types.clone()))
///     .layer(PerServiceCallPersistence::new(MemoryStore::new()))
///     .layer(AdaptLayer::new(types))
///     .service(theirs);
/// for said in ["1 messages", "3 messages"] {
///     let messages = vec![Said { role: "user".into(), content: said.into() }];
///     let answer = chat.ready().await?.call(Ask { user: "alice".into(), messages }).await?;
///     assert_eq!(answer.choices[0].message.content, said);
/// }
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
pub struct JsonTypes<Q, A> {
    wire: BodyWire,
    conversation: Arc<ConversationRule<Q>>,
    extensions: Option<fn(&mut Q) -> &mut http::Extensions>,
    types: PhantomData<fn(Q) -> A>,
}

type ConversationRule<Q> = dyn Fn(&Q) -> Option<Conversation> + Send + Sync;

impl<Q, A> JsonTypes<Q, A> {
    /// Creates a codec for the bodies of this wire.
    pub fn new(wire: BodyWire) -> Self {
        Self { wire, conversation: Arc::new(|_| None), extensions: None, types: PhantomData }
    }

    /// Sets the function that returns the key of a request's conversation.
    ///
    /// Each request gets a new run id, although the requests that a tool loop sends for one message
    /// of the user belong to one run. A
    /// [`PerServiceCallPersistence`](tower_chat_layers::PerServiceCallPersistence) below a tool
    /// loop therefore compares messages to find the run of a request.
    #[must_use]
    pub fn keyed_by(
        self,
        rule: impl Fn(&Q) -> Option<ConversationKey> + Send + Sync + 'static,
    ) -> Self {
        self.in_run_by(move |request| {
            rule(request).map(|key| Conversation { key, run: RunId::new() })
        })
    }

    /// Sets the function that returns the conversation and the run of a request, for request types
    /// that contain both. A [`Conversation`] in the [extensions](Self::carrying) of a request takes
    /// precedence.
    #[must_use]
    pub fn in_run_by(
        mut self,
        rule: impl Fn(&Q) -> Option<Conversation> + Send + Sync + 'static,
    ) -> Self {
        self.conversation = Arc::new(rule);
        self
    }

    /// Sets the function that returns the extensions of a request, through which layers
    /// communicate. The request type contains the extensions in a field that serde skips.
    ///
    /// A tool loop must copy the extensions into each request that it sends. Otherwise, the layers
    /// below the loop do not know to which run a request belongs.
    #[must_use]
    pub fn carrying(mut self, extensions: fn(&mut Q) -> &mut http::Extensions) -> Self {
        self.extensions = Some(extensions);
        self
    }
}

impl<Q, A> ClientCodec for JsonTypes<Q, A>
where
    Q: DeserializeOwned + 'static,
    A: Serialize + 'static,
{
    type Request = Q;
    type Response = A;

    fn encode(&self, mut request: ChatRequest) -> Result<Q, BoxError> {
        if request.options.stream {
            // The answer type cannot be a stream.
            Arc::make_mut(&mut request.options).stream = false;
        }
        let body = self.wire.render_request_json(&request)?;
        let mut encoded: Q = serde_json::from_str(body.get())?;
        if let Some(extensions) = self.extensions {
            *extensions(&mut encoded) = request.extensions;
        }
        Ok(encoded)
    }

    fn decode(&self, answer: A) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        let decoded = serde_json::to_string(&answer).map_err(BoxError::from);
        let decoded = decoded.and_then(|body| Ok(self.wire.parse_answer(&body)?));
        Box::pin(std::future::ready(decoded.map(ChatResponse::from)))
    }
}

impl<Q, A> ServerCodec for JsonTypes<Q, A>
where
    Q: Serialize + 'static,
    A: DeserializeOwned + Send + 'static,
{
    type Request = Q;
    type Response = A;

    fn decode(&self, mut request: Q) -> Result<ChatRequest, BoxError> {
        let conversation = (self.conversation)(&request);
        let body = serde_json::to_string(&request)?;
        let mut decoded = self.wire.parse_request_json(&body)?;
        if decoded.options.stream {
            Arc::make_mut(&mut decoded.options).stream = false;
        }
        if let Some(extensions) = self.extensions {
            decoded.extensions = std::mem::take(extensions(&mut request));
        }
        let is_named = decoded.conversation().is_some();
        Ok(match conversation.filter(|_| !is_named) {
            Some(conversation) => decoded.in_run(conversation),
            None => decoded,
        })
    }

    fn encode(&self, response: ChatResponse) -> BoxFuture<'static, Result<A, BoxError>> {
        let wire = self.wire;
        Box::pin(async move {
            let answer = response.collect().await?;
            let mut body = wire.render_answer(&as_one_message(&answer), &answer.finish);
            super::server::add_id_and_time(wire, &mut body);
            Ok(serde_json::from_value(body)?)
        })
    }
}

impl<Q, A> Clone for JsonTypes<Q, A> {
    fn clone(&self) -> Self {
        let Self { wire, conversation, extensions, types } = self;
        Self {
            wire: *wire,
            conversation: conversation.clone(),
            extensions: *extensions,
            types: *types,
        }
    }
}

impl<Q, A> fmt::Debug for JsonTypes<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonTypes").field("wire", &self.wire).finish_non_exhaustive()
    }
}
