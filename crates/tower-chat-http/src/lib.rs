//! For servers whose clients speak OpenAI's Chat Completions: a `tower-chat` stack as an HTTP endpoint.
//!
//! Any OpenAI SDK talks to it, and its conversations are kept in the stack's store:
//!
//! - `POST /v1/chat/completions`, whole and streamed (server-sent events up to `[DONE]`);
//! - `GET /v1/models` and `GET /v1/models/{model}`.
//!
//! ```no_run
//! # async fn run<S>(stack: S, store: tower_chat::MemoryStore) -> std::io::Result<()>
//! # where S: tower::Service<tower_chat::ChatRequest, Response = tower_chat::ChatResponse,
//! #     Error = tower_chat::BoxError, Future: Send> + Clone + Send + Sync + 'static {
//! use tower_chat_http::ChatEndpoint;
//!
//! let endpoint = ChatEndpoint::new(stack, store).in_one_scope("me").with_models(["gpt-4o-mini"]);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
//! axum::serve(listener, endpoint.into_router()).await
//! # }
//! ```
//!
//! # Which conversation
//!
//! The id is the header `x-conversation-id`, or the field `conversation` of the body, a text or an
//! object with an `id`. A request with neither begins a conversation of its own. The answer names
//! the conversation in the header `x-conversation-id`. A header that the endpoint reads, or a key of
//! an object in the body, is refused with 400 if the request has it twice. That holds at every level of
//! the body.
//!
//! The scope is never the client's to choose: by default it is the [`Scope`] that a layer of the
//! host, one that knows who is asking, puts into the extensions of the request; without it the
//! answer is 401. [`ChatEndpoint::in_one_scope`] is for a server with one user, and
//! [`ChatEndpoint::keyed_by`] for any other rule.
//!
//! # What is new
//!
//! A client may send only what is new, or repeat the conversation and add to it, as SDK users do.
//! What is stored already is not stored again. Messages count as repeated if they are the end of
//! the stored conversation, as its client knows it, and stand at the beginning of the request; the
//! rest is new. Calls that ran in the stack are not known to the client, results are compared by
//! the id of their call, and other messages by what they say: it is the logic of
//! [`tower_chat_layers::transcript::recognise`], whose time is linear in the conversation and the request.
//!
//! - System messages at the beginning are repeated if they are those in force; others are new,
//!   and stored where they come.
//! - A request whose messages of the assistant are not how the stored conversation goes is refused
//!   with 409 and `conversation_diverged`: a record that only grows cannot take back what was said.
//!   Send only what is new, or begin another conversation with the whole history.
//! - A request that repeats everything up to a question that was never answered asks it again, and
//!   stores nothing twice.
//! - A request that was answered already is given the stored answer again, with no usage: if the
//!   client says that it tries again (`x-stainless-retry-count`, which OpenAI's SDKs send), or if
//!   it repeats all answers but the last, which then cannot have arrived. Otherwise the same words
//!   again are something new.
//!
//! # Tools
//!
//! Tools that the request declares are the client's: their calls are its `tool_calls`, and their
//! results come with its next request. Tools of the stack run in its loop; the client sees neither
//! their calls nor their results, but the text around them. If the model asks for both in one
//! breath, the client gets its own calls, and the model has to ask for the others again.
//! Calls that wait for approval are listed in `approval_requests` of the choice, and answered
//! through the stack itself, by the host.
//!
//! # Streams
//!
//! Text comes as the model writes it; the tool calls of an answer come whole, at its end, since
//! only then it shows whose they are. An error after the head of a stream is an event with an
//! `error`, and no `[DONE]` follows. `stream_options.include_usage` is honoured.
//!
//! # Errors
//!
//! Bodies are OpenAI's `{"error": {…}}`. The request is at fault: 400, 404 for an unknown model,
//! 413 for more bytes, levels, messages, calls or results than [`RequestLimits`] allow;
//! another run changed the conversation meanwhile: 409; a deadline: 504; the store: 500, or 503
//! where trying again may help; the model's service: 502, or what [`ChatEndpoint::with_upstream`] makes
//! of it, such as 429 with `retry-after`. Details of faults inside are logged and not sent.
//!
//! # Going away
//!
//! A client that hangs up drops its run, and what is stored then is what the stack's persistence
//! mode says of a caller who goes away. To shut down, give axum's `with_graceful_shutdown` a
//! signal, and close the store after it: runs under way come to their end. A client that sends half a
//! request, or reads no answer, keeps that server from ending, so the host gives its end a time limit.
//!
//! # Not here
//!
//! `POST /v1/responses`, several choices (`n`), and the deprecated `functions`, which go to the model
//! as they are, but whose calls are not recognised as the client's.

mod chat;
mod conversation;
mod endpoint;
mod limits;
mod models;
mod new_messages;
mod refusal;
mod streamed;

pub use self::{
    conversation::{Asked, CONVERSATION_HEADER, Scope},
    endpoint::ChatEndpoint,
    limits::{RequestLimits, RequestOverLimit},
    refusal::Refusal,
};
