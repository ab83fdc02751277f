//! An HTTP endpoint that is compatible with OpenAI's Chat Completions. For each request, the
//! endpoint calls a `tower-chat` stack: a model client inside the layers that store the
//! conversation and run tools. A run is the work of the stack on one request, up to the final
//! answer.
//!
//! OpenAI's SDKs can use the endpoint. The routes are:
//!
//! - `POST /v1/chat/completions`, whose response is a JSON object or a stream of server-sent events
//!   that ends with `[DONE]`;
//! - `GET /v1/models` and `GET /v1/models/{model}`;
//! - with [`ChatEndpoint::with_runs`], routes to read the events and the state of a run, and to
//!   stop it.
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
//! A client sends the conversation id in the header `x-conversation-id`, or in the field
//! `conversation` of the body. The field is a string, or an object with the field `id`. A request
//! without an id begins a new conversation. The response contains the id in the header
//! `x-conversation-id`.
//!
//! Each conversation belongs to a scope, such as a user. A client never chooses the scope. By
//! default, the scope is the [`Scope`] in the extensions of the request. The host, which is the
//! application that serves the endpoint, inserts this extension in a layer that authenticates the
//! client. Without a `Scope`, the status is 401. For a server with one user, call
//! [`ChatEndpoint::in_one_scope`]. [`ChatEndpoint::keyed_by`] sets any other rule for scopes and
//! ids.
//!
//! # Which messages are new
//!
//! A client may send only new messages, or send the whole conversation with new messages at its
//! end, as users of SDKs do. Stored messages are not stored again. If the first messages of a
//! request equal the last messages of the stored conversation, the endpoint treats these messages
//! of the request as repetitions. Only the messages after the repetitions are new.
//!
//! The comparison ignores tool calls that ran in the stack, because the client has not received
//! them. Results of tools are compared by the id of their call, and other messages by their
//! content. [`tower_chat_layers::transcript::recognise`] implements the comparison, in time linear
//! in the sizes of the conversation and the request.
//!
//! - System messages at the beginning of a request are treated as repetitions if they equal the
//!   current system messages of the conversation. Other system messages are treated as new, and are
//!   stored at their position.
//! - If the assistant's messages in a request differ from those of the stored conversation, the
//!   status is 409 and the error code is `conversation_diverged`, because stored messages are never
//!   replaced. The client can then send only the new messages, or begin another conversation with
//!   the whole history. With [`ChatEndpoint::with_branches`], the request is instead answered in a
//!   branch, which is a new conversation with a copy of the common beginning.
//! - If a request contains only stored messages and the last of them is a question without an
//!   answer, the endpoint calls the stack to answer this question. No message is stored twice.
//! - If a request was answered before, the response is the stored answer, without usage. The
//!   endpoint recognises such a request if the client marks it as a retry with the header
//!   `x-stainless-retry-count`, as OpenAI's SDKs do, or if the request repeats all answers except
//!   the newest, which the client did not receive. In all other cases, a question with the text of
//!   a stored question is a new message.
//!
//! # Tools
//!
//! The client runs the tools that its request declares: the response contains calls of these tools
//! in `tool_calls`, and the client sends the results with its next request. The stack runs its own
//! tools. The client does not receive the calls and the results of these tools. The client does
//! receive the text that the model generates before and after these calls. If one answer calls
//! tools of both kinds, the client receives only the calls of its own tools. The other calls are
//! not executed until the model repeats them. Calls that wait for approval are listed in the field
//! `approval_requests` of the choice. The host approves or rejects these calls by calling the
//! stack.
//!
//! # Streams
//!
//! The endpoint sends text while the model generates it. Each tool call is sent completely, at the
//! end of the answer, because the endpoint cannot distinguish the client's calls from those of the
//! stack earlier. If an error occurs after the response headers were sent, the last event has the
//! field `error` and the stream ends without `[DONE]`. `stream_options.include_usage` is supported.
//!
//! # Errors
//!
//! The body of an error response is `{"error": {…}}`, as in OpenAI's API. The statuses are:
//!
//! - 400: the request is invalid, for example because a header, or a key of an object in the body,
//!   occurs twice;
//! - 401: the request has no scope;
//! - 404: the model is unknown;
//! - 409: the request conflicts with the stored conversation, or with another run or decision;
//! - 413: the request exceeds one of the [`RequestLimits`];
//! - 422: the request uses the id of an earlier run with other messages, or approves calls whose
//!   original arguments are not stored;
//! - 500: the store failed, and a retry would fail too;
//! - 502: the model's service failed. [`ChatEndpoint::with_upstream`] may set another status, such
//!   as 429 with `retry-after`;
//! - 503: the server is overloaded, the store failed temporarily, or a run that continued without
//!   its client was interrupted or has lost updates;
//! - 504: a deadline or a timeout has passed.
//!
//! Details of internal errors are logged and not sent to the client.
//!
//! # Disconnects and shutdown
//!
//! When a client disconnects, its run is dropped. The stack's
//! [`PersistenceMode`](tower_chat_layers::PersistenceMode) determines which messages of this run
//! are stored. With [`ChatEndpoint::with_runs`], the run continues instead.
//!
//! To shut down, pass a signal to axum's `with_graceful_shutdown`: the server then waits for
//! in-flight requests. With `with_runs`, also await `DetachedRunsLayer::drained`, because a run may
//! continue after its request has ended. Then close the store. Limit the time of the shutdown,
//! because a client that sends an incomplete request, or does not read its response, would
//! otherwise prevent the server from stopping.
//!
//! # Runs that continue without their client
//!
//! With [`ChatEndpoint::with_runs`], a run continues when its client disconnects. The response to a
//! completion request contains the run id in the header `x-run-id`. A client may generate the run
//! id itself, as a UUID, and send it in the header `x-run-id` of the request. If the client sends
//! the same request with the same id again, the request joins the run that is in progress, or
//! continues a run that was interrupted. If a client without a run id sends its request again after
//! a lost connection, the request may begin a second run.
//!
//! The paths below contain the ids of the conversation and the run. The scope is that of the
//! request, as for a completion. A client can therefore only access runs of its own scope.
//!
//! - `GET /v1/conversations/{conversation}/runs/{run}/events` streams the run from its beginning,
//!   as server-sent events:
//!   - `text` (`{"text": ...}`) has the next piece of the text of the current message.
//!   - `message` (`{"index": ..., "text": ...}`) has the complete text of a message, which may be
//!     empty. The client then deletes the pieces of the current message and all messages with the
//!     same or a greater index, and adds this message.
//!   - `restarted` (`{"attempt": ...}`) reports that the run was interrupted and that another attempt
//!     continues it. The client deletes the pieces of the current message.
//!   - `end` (`{"end": "completed" | "failed" | "interrupted" | "truncated"}`) is the last event. If
//!     a run is `truncated`, its last events are missing, and the client loads the conversation
//!     instead.
//!
//!   Every event except `end` has an id. To receive only the events after a known event, a client
//!   sends the id of that event in the header `Last-Event-ID`, as a browser's `EventSource` does
//!   when it reconnects, or in the query parameter `after`.
//! - `POST /v1/conversations/{conversation}/runs/{run}/stop` stops the run. The part of the answer
//!   that was generated before the stop is stored.
//! - `GET /v1/conversations/{conversation}/runs/{run}` returns the `state` of the run:
//!   `in_progress`, `stopping`, or one of the values of the event `end`.
//!
//! The status is 404 if the run is unknown, or if its events have expired.
//!
//! # Not supported
//!
//! `POST /v1/responses` and several choices (`n`) are not supported. The deprecated field
//! `functions` is passed to the model, but the endpoint does not recognise these functions as tools
//! of the client. The client therefore never receives calls of these functions.

mod branch;
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
