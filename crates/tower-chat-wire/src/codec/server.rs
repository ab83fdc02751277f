//! A codec that makes an HTTP service from a stack.
//!
//! A stack is a model client inside the layers that store the conversation and run tools. A run is
//! the work of the stack on one request.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use futures_core::future::BoxFuture;
use serde_json::{Value, json};
use tower_chat_layers::{
    Answer, BoxError, ChatRequest, ChatResponse, ConversationKey, RunId,
    adapt::{ServerCodec, as_one_message},
};

use crate::body::BodyWire;

/// A codec that makes a service of HTTP requests and responses with JSON bodies from a stack.
///
/// The extensions of the HTTP request are moved to the chat request. The request belongs to the
/// conversation whose key the function of [`keyed_by`](Self::keyed_by) returns. If the function
/// returns `None`, the request belongs to the [`Conversation`](tower_chat_layers::Conversation) in
/// the extensions, if any.
///
/// [`as_one_message`] combines the messages of the answer into one message, which is the body of
/// the HTTP response. The extensions of the response contain the whole [`Answer`].
#[derive(Clone)]
pub struct JsonServer {
    wire: BodyWire,
    key: Arc<KeyRule>,
}

type KeyRule = dyn Fn(&http::Request<Value>) -> Option<ConversationKey> + Send + Sync;

impl JsonServer {
    /// Creates a codec for the bodies of this wire.
    pub fn new(wire: BodyWire) -> Self {
        Self { wire, key: Arc::new(|_| None) }
    }

    /// Sets the function that returns the key of a request's conversation. The request begins a new
    /// run in this conversation.
    ///
    /// The scope of a key separates the conversations of different users. The function must not
    /// read the scope from fields that the HTTP client can set. Otherwise, a client could choose
    /// the scope of another user.
    #[must_use]
    pub fn keyed_by(
        mut self,
        rule: impl Fn(&http::Request<Value>) -> Option<ConversationKey> + Send + Sync + 'static,
    ) -> Self {
        self.key = Arc::new(rule);
        self
    }
}

impl ServerCodec for JsonServer {
    type Request = http::Request<Value>;
    type Response = http::Response<Value>;

    fn decode(&self, request: http::Request<Value>) -> Result<ChatRequest, BoxError> {
        let key = (self.key)(&request);
        let (parts, body) = request.into_parts();
        let mut request = self.wire.parse_request(body)?;
        if request.options.stream {
            Arc::make_mut(&mut request.options).stream = false;
        }
        request.extensions = parts.extensions;
        Ok(match key {
            Some(key) => request.in_conversation(key),
            None => request,
        })
    }

    fn encode(
        &self,
        response: ChatResponse,
    ) -> BoxFuture<'static, Result<http::Response<Value>, BoxError>> {
        let wire = self.wire;
        Box::pin(async move {
            let answer = response.collect().await?;
            let mut body = wire.render_answer(&as_one_message(&answer), &answer.finish);
            add_id_and_time(wire, &mut body);
            let mut encoded = http::Response::new(body);
            encoded.extensions_mut().insert::<Answer>(answer);
            Ok(encoded)
        })
    }
}

/// Adds the id and the creation time that answers of the wire require, if they are missing.
pub(super) fn add_id_and_time(wire: BodyWire, body: &mut Value) {
    let Some(fields) = body.as_object_mut() else { return };
    let (id, created, prefix) = match wire {
        BodyWire::OpenAiChat => ("id", Some("created"), "chatcmpl-"),
        BodyWire::OpenAiResponses => ("id", Some("created_at"), "resp_"),
        BodyWire::Anthropic => ("id", None, "msg_"),
        BodyWire::Gemini => ("responseId", None, ""),
        BodyWire::Cohere => ("id", None, ""),
        // The answers of these wires have no id.
        BodyWire::BedrockConverse | BodyWire::Ollama => return,
    };
    fields.entry(id).or_insert_with(|| json!(format!("{prefix}{}", RunId::new())));
    if let Some(created) = created {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        fields.entry(created).or_insert_with(|| json!(now.as_secs()));
    }
}

impl fmt::Debug for JsonServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonServer").field("wire", &self.wire).finish_non_exhaustive()
    }
}
