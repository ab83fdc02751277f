//! Adds the tools of an MCP server to a `tower-chat` tool loop: the layer that calls the model,
//! runs the tools and calls the model again.
//!
//! [`rmcp`] connects to the server: as a child process, over HTTP, or through any other transport
//! that it supports. [`McpTools`] lists the server's tools and adds them to the tool loop.
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
//! The connection ends when its `RunningService` (`client` in the example) is dropped. Do not drop
//! the `RunningService` while the tools are in use: after the connection has ended, each call fails
//! with [`McpError::Closed`].
//!
//! # The outcome of a call
//!
//! | event | result that the model receives | status in the stored record of the call |
//! |---|---|---|
//! | the server answers | its content | `ok` |
//! | the server answers with `isError` | its content, as an error | `error` |
//! | the arguments are not a JSON object | an error about the arguments; the call is not sent to the server | `rejected_arguments` |
//! | the server refuses the call, the connection ends, or no answer arrives in time | an error, with details if the loop's `include_error_details` is set | `error`, with [`McpError`] |
//! | a run is resumed after a crash, and it is unknown whether the call was made | as for every tool; the call is repeated if [`safe_to_retry`](McpTools::safe_to_retry) allows it | - |
//! | the run is cancelled | - | as for every tool; the server receives `notifications/cancelled` |
//!
//! The blocks of the content are converted:
//!
//! - A text, or the text of an embedded resource, becomes a [`Text`]. The text of an embedded
//!   resource begins with its address.
//! - An image, a sound, or an embedded file of a known media type becomes [`Media`].
//! - Every other block becomes a text that contains the JSON of the block.
//!
//! Content whose audience is only the user is omitted. The structured content is added as JSON,
//! unless one of the texts is equal to that JSON.
//!
//! # When the server changes its tools
//!
//! A list of tools does not change when the server changes its tools. To change the tools while a
//! tool loop uses them, pass the tool loop a [`SharedTools`]. When the server sends
//! `notifications/tools/list_changed`, which `rmcp` passes to your `ClientHandler`, list the tools
//! again and pass them to [`set`](tower_chat_layers::tool::SharedTools::set). Runs in progress use
//! the new tools from their next request to the model on.
//!
//! `rmcp` may return an earlier list again, for the time that the server has allowed (`ttlMs`).
//! Each change of the tools invalidates the prompt caches of the providers.
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
