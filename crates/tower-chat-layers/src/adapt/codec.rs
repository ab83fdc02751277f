//! How their types and ours become each other.

use futures_core::future::BoxFuture;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};

/// What a client of other types is asked, and what its answer means.
///
/// ```
/// use futures_util::{FutureExt, future::BoxFuture};
/// use tower_chat::{BoxError, ChatRequest, ChatResponse, Finish, Message, adapt::ClientCodec};
///
/// /// For a client that takes a text and returns one.
/// struct TextCodec;
///
/// impl ClientCodec for TextCodec {
///     type Request = String;
///     type Response = String;
///
///     fn encode(&self, request: ChatRequest) -> Result<String, BoxError> {
///         let lines = request.messages.iter().map(|message| message.text());
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
    /// What the client takes.
    type Request;
    /// What it returns.
    type Response;

    /// Their request for ours. The messages are complete: history first, every call answered. The
    /// [options](ChatRequest::options) have the instructions and the tools: a model that is not told of
    /// a tool never calls it. The guide's chapter about providers has a codec with all of it.
    ///
    /// # Errors
    ///
    /// If their type cannot say something of the request: what is left out without an error is missing
    /// in every call.
    fn encode(&self, request: ChatRequest) -> Result<Self::Request, BoxError>;

    /// Our response for theirs. Reading a body may wait; a stream of theirs becomes one of ours
    /// with [`ChatResponse::stream`].
    fn decode(
        &self,
        response: Self::Response,
    ) -> BoxFuture<'static, Result<ChatResponse, BoxError>>;
}

/// What a stack is asked through other types, and how its answer is said in them.
pub trait ServerCodec: Send + Sync + 'static {
    /// What callers send.
    type Request;
    /// What they get.
    type Response: Send + 'static;

    /// Our request for theirs; it names the conversation, if the stack keeps a history.
    ///
    /// # Errors
    ///
    /// If it is no request that makes sense here.
    fn decode(&self, request: Self::Request) -> Result<ChatRequest, BoxError>;

    /// Their response for ours. A type for whole answers [collects](ChatResponse::collect) it.
    fn encode(
        &self,
        response: ChatResponse,
    ) -> BoxFuture<'static, Result<Self::Response, BoxError>>;
}
