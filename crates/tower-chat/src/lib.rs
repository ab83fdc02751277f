//! Durable conversations for programs that call language models through tower: stores for histories,
//! layers that write them, a tool loop, and model clients.
//!
//! For one question, an agent may call the model and run tools many times. The layers store every answer,
//! and keep the stored history valid for every provider, at each point at which the process stops.
//!
//! ```
//! # fn main() -> Result<(), tower_chat::BoxError> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run()) }
//! # async fn run() -> Result<(), tower_chat::BoxError> {
//! use serde_json::json;
//! use tower_chat::prelude::*;
//!
//! # let model = tower_chat_testkit::ScriptedModel::new([tower_chat_testkit::Step::text("Take a coat.")]);
//! // `model` is any `Service<ChatRequest>` that can be cloned and shared between threads: a client of
//! // the module `providers`, or your own.
//! let weather = tool_fn(
//!     ToolDefinition::new("weather", "The weather in a city.", json!({"type": "object"})),
//!     |_| async { Ok("Rain.") },
//! );
//! let agent = ChatPipeline::builder(model)
//!     .tools(Tools::new().with(weather))
//!     .history(MemoryStore::new())
//!     .persistence(PersistenceMode::PerServiceCall)
//!     .build()?;
//!
//! let key = ConversationKey::new("alice", "wardrobe");
//! let answer = agent.ask(key, "What should I wear?").await?;
//! assert_eq!(answer.text(), "Take a coat.");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | module | contents |
//! |---|---|---|
//! | `sqlite` (default) | `sqlite` | histories in one file |
//! | `postgres`, `redis` | `postgres`, `redis` | histories for many machines; `redis-tls`, `redis-cluster` |
//! | `cache`, `encrypted` | `cache`, `encrypted` | stores that wrap another store |
//! | `providers`, or `anthropic`, `bedrock`, `cohere`, `gemini`, `mistral`, `ollama`, `openai`, `vertex` | `providers` | model clients |
//! | `gzip`, `async-openai` | `providers` | compressed answers; codecs for async-openai's clients |
//! | `structured` | `providers::structured` | answers that are values of a type |
//! | `sigv4` | `providers::auth` | AWS signatures for Bedrock |
//! | `http` | `http` | a pipeline as an endpoint that OpenAI's packages can call |
//! | `inspector` | `inspector` | web pages that show the content of a store |
//! | `mcp` | `mcp` | the tools of an MCP server |
//! | `import` | `import` | imports of histories from other systems |
//! | `transfer` | `transfer` | copies of whole conversations between stores and files; deletion of all data of a user |
//! | `wire` (enabled by every provider) | `wire` | conversion of provider JSON to messages and back, for your own clients and endpoints |
//! | `macros` | | the attribute `#[tool]` |
//!
//! Each module is a separate crate. To write a layer, a store or a model client, you only need
//! `tower-chat-core`.

pub mod prelude;

pub use tower_chat_layers::*;

/// Re-exports for implementations of this crate's traits, whose signatures contain their types: a
/// [`store`], a [`Tool`], a codec of [`adapt`], a layer or a model client. The re-exports have the
/// versions that this crate uses. `tower` has its feature `util`; other features need your own
/// dependency.
#[doc(no_inline)]
pub use async_trait::async_trait;
#[doc(no_inline)]
pub use futures_core::future::BoxFuture;
#[doc(no_inline)]
pub use tower;

/// Re-exports for the types of arguments and results of tools. Use them with `#[serde(crate =
/// "tower_chat::serde")]`, or depend on the same versions.
#[doc(no_inline)]
pub use tower_chat_layers::__macro::{schemars, serde};

#[cfg(feature = "cache")]
pub use tower_chat_cache as cache;
#[cfg(feature = "delivery")]
pub use tower_chat_delivery as delivery;
#[cfg(feature = "encrypted")]
pub use tower_chat_encrypted as encrypted;
#[cfg(feature = "explain")]
pub use tower_chat_explain as explain;
#[cfg(feature = "http")]
pub use tower_chat_http as http;
#[cfg(feature = "import")]
pub use tower_chat_import as import;
#[cfg(feature = "inspector")]
pub use tower_chat_inspector as inspector;
#[cfg(feature = "macros")]
#[doc = include_str!("tool.md")]
pub use tower_chat_macros::tool;
#[cfg(feature = "mcp")]
pub use tower_chat_mcp as mcp;
#[cfg(feature = "postgres")]
pub use tower_chat_postgres as postgres;
#[cfg(feature = "_providers")]
pub use tower_chat_providers as providers;
#[cfg(feature = "redis")]
pub use tower_chat_redis as redis;
#[cfg(feature = "repair")]
pub use tower_chat_repair as repair;
#[cfg(feature = "sqlite")]
pub use tower_chat_sqlite as sqlite;
#[cfg(feature = "transfer")]
pub use tower_chat_transfer as transfer;
#[cfg(feature = "wire")]
pub use tower_chat_wire as wire;
