//! Codecs that convert between the types of other crates and the types of this crate.

use futures_core::future::BoxFuture;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};

/// The codec of a wrapped client: encodes requests for the client, and decodes its responses.
///
/// ```
/// use futures_util::{FutureExt, future::BoxFuture};
/// use tower_chat::{BoxError, ChatRequest, ChatResponse, Finish, Message, adapt::ClientCodec};
///
/// /// The codec of a client whose request and response are texts.
/// struct TextCodec;
///
/// impl ClientCodec for TextCodec {
///     type Request = String;
///     type Response = String;
///
///     fn encode(&self, request: ChatRequest) -> Result<String, BoxError> {
///         let lines = request.messages().iter().map(|message| message.text());
///         Ok(lines.collect::<Vec<_>>().join("\n"))
///     }
///
///     fn decode(&self, text: String) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
///         async { Ok(ChatResponse::whole([Message::assistant(text)], Finish::stop())) }.boxed()
///     }
/// }
/// # assert_eq!(TextCodec.encode(ChatRequest::user("Hi.")).unwrap(), "Hi.");
/// ```
pub trait ClientCodec: Send + Sync + 'static {
    /// The request type of the client.
    type Request;
    /// The response type of the client.
    type Response;

    /// Encodes a `ChatRequest` as a request of the wrapped client. The messages of the request are
    /// the history and the new messages, and every call has a result. The
    /// [options](ChatRequest::options) contain the instructions and the tools. The codec must
    /// encode the tools, because a model calls only the tools that it receives. The guide's chapter
    /// about providers contains a codec with all of these fields.
    ///
    /// # Errors
    ///
    /// Returns an error if the client's request type cannot represent a part of the request. If the
    /// codec omits such a part without an error, the client never receives this part.
    fn encode(&self, request: ChatRequest) -> Result<Self::Request, BoxError>;

    /// Decodes a response of the wrapped client. The future may wait for the body of the response.
    /// For a streamed response, the codec returns a [`ChatResponse::stream`].
    fn decode(
        &self,
        response: Self::Response,
    ) -> BoxFuture<'static, Result<ChatResponse, BoxError>>;
}

/// The codec of an exposed stack: decodes requests of the outer caller, and encodes the responses of
/// the stack.
pub trait ServerCodec: Send + Sync + 'static {
    /// The request type of the callers.
    type Request;
    /// The response type of the callers.
    type Response: Send + 'static;

    /// Decodes a request of the outer caller into a `ChatRequest`. If the stack stores a history,
    /// the `ChatRequest` must contain the key of the conversation.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid for the stack.
    fn decode(&self, request: Self::Request) -> Result<ChatRequest, BoxError>;

    /// Encodes a response for the outer caller. If the response type of the callers is not a
    /// stream, the codec must first [collect](ChatResponse::collect) the response.
    fn encode(
        &self,
        response: ChatResponse,
    ) -> BoxFuture<'static, Result<Self::Response, BoxError>>;
}
