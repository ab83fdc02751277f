//! A `tower-chat` stack as an HTTP endpoint that is compatible with OpenAI's Chat Completions. Needed by
//! servers for clients of that API.
//!
//! OpenAI's SDKs can use the endpoint. The conversations are stored in the stack's store. The routes
//! are:
//!
//! - `POST /v1/chat/completions`, whole and streamed (server-sent events up to `[DONE]`);
//! - `GET /v1/models` and `GET /v1/models/{model}`;
//! - with [`ChatEndpoint::with_runs`], the events, the state and the stop of a run.
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
//! The id is in the header `x-conversation-id`, or in the field `conversation` of the body, which is a
//! string or an object with an `id`. A request without an id begins a new conversation. The response has
//! the id in the header `x-conversation-id`. The status is 400 if one of the headers that the endpoint
//! reads occurs twice, or if an object of the body has a key twice, at any level.
//!
//! A client never chooses the scope. By default, the scope is the [`Scope`] in the extensions of the
//! request. A layer of the host authenticates the client and inserts it. Without a `Scope` the status is
//! 401. A server with one user sets [`ChatEndpoint::in_one_scope`]. [`ChatEndpoint::keyed_by`] sets any
//! other rule.
//!
//! # Which messages are new
//!
//! A client may send only new messages, or repeat the conversation and add to it, as users of SDKs do.
//! Stored messages are not stored again. The first messages of a request count as repeated if they equal
//! the end of the stored conversation; all later messages are new. Calls that ran in the stack, which the
//! client does not know, are not compared. Results are compared by the id of their call, and other
//! messages by their content. [`tower_chat_layers::transcript::recognise`] implements the comparison, in
//! time linear in the sizes of the conversation and the request.
//!
//! - System messages at the beginning count as repeated if they equal the current ones of the
//!   conversation. Other system messages are new, and are stored at their position.
//! - If the assistant's messages in a request differ from the stored conversation, the request is
//!   refused with 409 and the code `conversation_diverged`, because stored messages are never removed.
//!   The client can send only the new messages, or begin another conversation with the whole history.
//! - If a request repeats everything up to a question without an answer, the endpoint calls the
//!   model again, and no message is stored twice.
//! - If a request has been answered before, the response is the stored answer, with no usage. A request
//!   counts as answered before if the client marks the request as a retry (`x-stainless-retry-count`,
//!   which OpenAI's SDKs send), or if the request repeats all answers except the newest, which therefore
//!   did not arrive. In all other cases, a message with the text of a stored message is a new message.
//!
//! # Tools
//!
//! Tools that the request declares are the client's: the response has their calls as `tool_calls`, and
//! the client sends their results with its next request. Tools of the stack run in its loop; the client
//! sees neither their calls nor their results, only the text before and after them. If one answer calls
//! tools of both kinds, the client gets its own calls, and the model has to repeat the other calls.
//! Calls that wait for approval are listed in the field `approval_requests` of the choice; the host
//! decides about them through the stack.
//!
//! # Streams
//!
//! Text is sent as the model writes it. Tool calls are sent whole, at the end of the answer, because the
//! endpoint knows only then which of them are the client's. If an error occurs after the headers are
//! sent, the stream ends with an event with the field `error`, without `[DONE]`.
//! `stream_options.include_usage` is supported.
//!
//! # Errors
//!
//! Bodies have OpenAI's form `{"error": {…}}`. The statuses are:
//!
//! - the request is wrong: 400; 401 without a scope; 404 for an unknown model; 413 if it exceeds one of
//!   the [`RequestLimits`]; 422 if it reuses the id of a run for another input, or approves calls whose
//!   original arguments are not stored;
//! - the request conflicts with the stored conversation, or with another run or decision: 409;
//! - the server is overloaded, or a run that continues without its client was interrupted or truncated: 503; a
//!   deadline or a timeout has passed: 504;
//! - the store failed: 500, or 503 if a retry may succeed;
//! - the model's service failed: 502, or the status from [`ChatEndpoint::with_upstream`], such as 429
//!   with `retry-after`.
//!
//! Details of internal errors are logged and not sent to the client.
//!
//! # Disconnects and shutdown
//!
//! When a client disconnects, its run is dropped, and the stack's persistence mode determines what is
//! stored. With [`ChatEndpoint::with_runs`], the run continues instead. To shut down, pass a signal to
//! axum's `with_graceful_shutdown`: in-flight runs finish before the server ends. Runs without a client
//! belong to no connection, so with `with_runs` also await `DetachedRunsLayer::drained`. Then close the
//! store. A client that sends half a request, or does not read its response, prevents the server from
//! ending, so the host should limit the time of the shutdown.
//!
//! # Runs that continue without their client
//!
//! With [`ChatEndpoint::with_runs`], a run continues when its client disconnects. The response of a
//! completion has the run id in the header `x-run-id`. A client may create the id itself, as a UUID, and
//! send it in the same header of its request. The same request with the same id then joins or continues
//! the run; without an id, a request after a lost connection may begin a second run. The paths below name the conversation and the
//! run. The scope is that of the request, so a client reaches only runs of its own scope.
//!
//! - `GET /v1/conversations/{conversation}/runs/{run}/events` streams the run from its beginning, as
//!   server-sent events. `text` has the next part of a message's text (`{"text": ...}`). `message` has
//!   the complete text of a message, in place of its deltas (`{"index": ..., "text": ...}`); it replaces
//!   all messages with the same or a later index, and its text may be empty. After `restarted`, the text of the unfinished message
//!   begins anew. `end` is the final event (`{"end": "completed" | "failed" | "interrupted" |
//!   "truncated"}`). The log lacks the last updates of a truncated run, and the history has its messages. Every
//!   other event has an id. A request with the header `Last-Event-ID`, which a browser's `EventSource`
//!   sends when it reconnects, or with the query `after`, receives the events that follow the event with
//!   this id.
//! - `POST /v1/conversations/{conversation}/runs/{run}/stop` stops the run; the answer so far is stored.
//! - `GET /v1/conversations/{conversation}/runs/{run}` returns the `state` of the run: `in_progress`,
//!   `stopping`, or its end.
//!
//! The status is 404 if the run is unknown, or if its events have expired.
//!
//! # Not supported
//!
//! `POST /v1/responses` and several choices (`n`). The deprecated `functions` are passed to the model
//! unchanged, but their calls are not recognised as the client's.

mod chat;
mod conversation;
mod endpoint;
mod error_response;
mod limits;
mod models;
mod new_messages;
mod runs;
mod streamed;

pub use self::{
    conversation::{Asked, CONVERSATION_HEADER, Scope},
    endpoint::ChatEndpoint,
    error_response::ErrorResponse,
    limits::{RequestLimits, RequestOverLimit},
    runs::RUN_HEADER,
};
