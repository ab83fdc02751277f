//! Adapts the tools of an MCP server to a `tower-chat` tool loop. Needed by agents whose tools are on
//! MCP servers.
//!
//! [`rmcp`] connects to the server: as a child process, over HTTP, or through any other transport that
//! it supports. [`McpTools`] lists the server's tools and adds them to the tool loop.
//!
//! ```no_run
//! use rmcp::{ServiceExt, transport::TokioChildProcess};
//! use tower_chat::{Tools, layer::ToolLoopLayer};
//! use tower_chat_mcp::McpTools;
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//!
//! let server = TokioChildProcess::new(tokio::process::Command::new("weather-server"))?;
//! let client = ().serve(server).await?;
//! let weather = McpTools::new(&client)
//!     .with_prefix("weather_")
//!     .needs_approval(|tool| !tool.hints().read_only)
//!     .safe_to_retry(|tool| tool.hints().idempotent);
//! let tools = weather.add_to(Tools::new()).await?;
//! let tool_loop = ToolLoopLayer::new(tools);
//! # Ok::<(), tower_chat::BoxError>(())
//! # }).unwrap();
//! ```
//!
//! The connection ends when its `RunningService`, `client` in the example, is dropped. Keep it for as
//! long as the tools are used: after the connection has ended, each call fails with
//! [`McpError::Closed`].
//!
//! # The outcome of a call
//!
//! | event | result that the model is sent | status in the record |
//! |---|---|---|
//! | the server answers | its content | `ok` |
//! | it answers with `isError` | its content, as an error | `error` |
//! | the arguments are not a JSON object | an error about the arguments; the call is not sent to the server | `rejected_arguments` |
//! | the server refuses the call, the connection ends, or no answer arrives in time | an error, with details if the loop's `include_error_details` is set | `error`, with [`McpError`] |
//! | a journaled run is resumed, and it is unknown whether the call was made | as for every tool; the call is repeated if [`safe_to_retry`](McpTools::safe_to_retry) allows it | - |
//! | the run is cancelled | - | as for every tool; the server is sent `notifications/cancelled` |
//!
//! Texts and the texts of embedded resources become [`Text`]. Images, sounds and embedded files of a
//! known media type become [`Media`]. Every other block becomes its JSON as text. The text of an
//! embedded resource begins with its address. Content for the user alone is omitted. The structured
//! content is added as JSON, unless one of the texts is equal to it.
//!
//! # When the server changes its tools
//!
//! A listing contains the tools that the server had at that time. `rmcp` may return an earlier listing
//! for as long as the server has allowed (`ttlMs`). To change the tools of a running set, keep the set
//! in a [`SharedTools`]. When the server sends `notifications/tools/list_changed`, which `rmcp` passes
//! to your `ClientHandler`, list the tools again and [`set`](tower_chat_layers::tool::SharedTools::set)
//! them. Runs use the new set from their next service call on. Each change of the tools invalidates
//! providers' prompt caches.
//!
//! [`Text`]: tower_chat_layers::Text
//! [`Media`]: tower_chat_layers::Media
//! [`SharedTools`]: tower_chat_layers::tool::SharedTools

mod address;
mod content;
mod error;
mod hints;
mod limits;
mod listing;
mod name;
mod tool;

pub use self::{
    address::without_secrets,
    error::{McpError, OverLimit},
    hints::ToolHints,
    limits::McpLimits,
    listing::McpTools,
    tool::McpTool,
};
