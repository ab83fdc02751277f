//! Codecs for [`tower_chat_layers::adapt`] with JSON bodies (feature `codec`).
//!
//! - [`JsonClient`] makes a model client, the innermost service of a stack, from a
//!   `Service<http::Request<Value>, Response = http::Response<Value>>`.
//! - [`JsonServer`] makes a service of this type from a stack.
//! - [`JsonTypes`] is for both directions, with an application's own types instead of HTTP requests
//!   and responses. Serde converts these types to and from JSON.
//!
//! Each codec uses one [`BodyWire`](crate::body::BodyWire), the JSON format of an API. Layers
//! communicate through the extensions of a request. [`JsonClient`] and [`JsonServer`] therefore
//! move the extensions of a request to the converted request. [`JsonTypes`] does this only if
//! [`JsonTypes::carrying`] was called.
//!
//! These codecs neither request nor return streams. An application's own server can stream an
//! answer with [`Completion`], which writes the answer in chunks.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use serde_json::{Value, json};
//! use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
//! use tower_chat::{ChatPipeline, adapt::{AdaptLayer, ExposeLayer}, *};
//! use tower_chat_wire::{body::BodyWire, codec::{JsonClient, JsonServer}};
//!
//! let theirs = service_fn(|request: ::http::Request<Value>| async move {
//!     let said = request.body()["messages"].as_array().map_or(0, Vec::len);
//!     let message = json!({"role": "assistant", "content": format!("{said} messages")});
//!     let answer = json!({"choices": [{"index": 0, "message": message}]});
//!     Ok::<_, BoxError>(::http::Response::new(answer))
//! });
//! let model = ServiceBuilder::new()
//!     .layer(AdaptLayer::new(JsonClient::new(BodyWire::OpenAiChat, "/v1/chat/completions")))
//!     .service(theirs);
//! let stack = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
//! let server = JsonServer::new(BodyWire::Anthropic)
//!     .keyed_by(|_| Some(ConversationKey::new("alice", "c")));
//! let mut service = ServiceBuilder::new().layer(ExposeLayer::new(server)).service(stack);
//! for said in ["1 messages", "3 messages"] {
//!     let body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
//!     let answer = service.ready().await?.call(::http::Request::new(body)).await?;
//!     assert_eq!(answer.body()["content"][0]["text"], said);
//! }
//! # Ok::<(), BoxError>(())
//! # }).unwrap();
//! ```

mod client;
mod completion;
mod server;
mod types;

pub use self::{
    client::{JsonClient, RefusedAnswer},
    completion::{Completion, UsageChunk},
    server::JsonServer,
    types::JsonTypes,
};
